"""What is left of work that is over, and words and arguments that must not get lost."""

from tests.mutants.mutant import Mutant

REMAINS_MUTANTS = (
    Mutant(
        "an argument that needs nothing, given by its name, is taken for empty",
        "T-03",
        "values/arguments.py",
        " and _passes_over(value, name):",
        " and False:",
        "tests/runs/test_triggering.py::"
        "test_an_argument_that_needs_nothing_is_not_taken_for_empty_when_it_is_given_by_its_name",
    ),
    Mutant(
        "threads make each their own last word of progress",
        "protocol-14",
        "runs/reports.py",
        "    run.on_loop(lambda: reporter_of(run).progress.write(text))",
        "    reporter = reporter_of(run)\n    run.on_loop(lambda: reporter.progress.write(text))",
        "tests/runs/test_progress.py::test_threads_that_say_the_first_word_at_once_have_one_last_word",
    ),
    Mutant(
        "a thread makes what its run is to wait for, and loses it when it is stopped",
        "protocol-18",
        "runs/requests.py",
        "result if inspect.iscoroutine(result) else _awaited(result)",
        "_awaited(result)",
        "tests/workflows/test_stopping.py::"
        "test_a_call_that_a_thread_makes_as_its_run_is_stopped_is_not_made_and_leaves_nothing_behind",
    ),
    Mutant(
        "a bulk does not escape what separates its rows",
        "V-06",
        "store/postgres/compose.py",
        "            text = text.replace(special, escaped)\n",
        "            pass\n",
        "tests/queue/test_enqueue.py::test_a_bulk_keeps_every_character_of_payloads_and_tags",
    ),
    Mutant(
        "a bulk is read in the connection's encoding",
        "V-06",
        "store/postgres/driver.py",
        'encoding="utf8", ',
        "",
        "tests/queue/test_enqueue.py::test_a_bulk_is_written_in_any_encoding_of_the_connection",
    ),
    Mutant(
        "the database quotes payloads when it refuses a bulk",
        "V-06",
        "store/postgres/compose.py",
        "max(1, QUOTED - len(''.join(filter(None, same))))",
        "1",
        "tests/queue/test_secrets.py::test_a_bulk_that_the_database_refuses_tells_its_payloads_to_nobody",
    ),
)
