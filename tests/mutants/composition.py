"""The rules of composition: the order of results, several names, cancelled steps, options, own exceptions."""

from tests.mutants.mutant import Mutant

COMPLETED = "tests/waiting/test_completed.py::"
RECEIVE = "tests/waiting/test_receive.py::"
CANCELLED = "tests/workflows/test_cancelled_steps.py::"
OPTIONS = "tests/workflows/test_step_options.py::"
OWN = "tests/results/test_own_exceptions.py::"
STALLS = "tests/workflows/test_stalls.py::"

COMPOSITION_MUTANTS = (
    Mutant(
        "the order in which calls have ended is not recorded",
        "compose-01",
        "runs/composition.py",
        "        await awaited(run, recorded(run, row, has_row=False))  # before the workflow sees which one it is\n",
        "",
        COMPLETED + "test_results_come_in_the_order_of_their_ends_and_a_replay_repeats_it",
    ),
    Mutant(
        "signals of several names come in no order",
        "compose-02",
        "store/run_waits.py",
        "for row in sorted(first, key=in_order_of_arrival, reverse=True)}",
        "for row in first}",
        RECEIVE + "test_signals_come_in_the_order_of_their_arrival_whatever_their_names",
    ),
    Mutant(
        "a signal has no number among those of its run",
        "compose-02",
        "store/signals.py",
        '"arrival": found[0]["wakes"] + 1}',
        '"arrival": None}',
        RECEIVE + "test_signals_come_in_the_order_of_their_arrival_whatever_their_names",
    ),
    Mutant(
        "senders do not see that a run waits for each of several names",
        "compose-02",
        "store/signals.py",
        'if params["name"] in names_of(row) and',
        'if params["name"] == name_of(row["key"]) and',
        RECEIVE + "test_each_name_has_its_type_for_senders_and_for_the_run",
    ),
    Mutant(
        "a step that its workflow cancels is not recorded",
        "compose-03",
        "runs/steps.py",
        "            note_stopped(call, attempt.number, attempt.took)\n",
        "",
        CANCELLED + "test_a_cancelled_step_is_recorded_and_not_executed_by_a_replay",
    ),
    Mutant(
        "a replay executes a step before a limit of asyncio can cancel it again",
        "compose-03",
        "runs/steps.py",
        "    if told.attempt == run.task.attempt:\n",
        "    if False:\n",
        CANCELLED + "test_a_limit_of_asyncio_ends_a_step_for_every_replay",
    ),
    Mutant(
        "a cancel is told although the result of the step is being written",
        "compose-03",
        "runs/result_write.py",
        "        if run.unwinding:\n            raise\n        return answer",
        "        raise",
        CANCELLED + "test_a_cancel_that_comes_while_the_result_is_written_is_too_late",
    ),
    Mutant(
        "new tasks do not begin during a call that a replay answers at once",
        "compose-03",
        "runs/requests.py",
        "        if not waited:\n            await _others_begin()\n",
        "",
        CANCELLED + "test_it_survives_a_crash_at_every_call",
    ),
    Mutant(
        "a fork executes a step that its run had cancelled",
        "compose-03",
        "store/sql/control.sql",
        " or (step.status = 'CANCELLED' and step.error is not null))",
        ")",
        CANCELLED + "test_neither_a_lost_worker_nor_a_fork_executes_it_again",
    ),
    Mutant(
        "a policy does not look at the exception",
        "compose-04",
        "work/outcome.py",
        "return bool(steps_behind(error)) or policy.refuses(error)",
        "return bool(steps_behind(error))",
        OPTIONS + "test_a_policy_may_look_at_the_exception_where_its_class_says_nothing",
    ),
    Mutant(
        "a run that fails records nothing to build its exception of",
        "compose-05",
        "runs/body.py",
        "        if kept := kept_of(error, workflow.raises):",
        "        if kept := kept_of(error, ()):",
        OWN + "test_who_waits_for_the_result_gets_it_with_the_run_as_its_cause",
    ),
    Mutant(
        "what a run waits for in its process is told when it is over",
        "compose-06",
        "runs/stalls.py",
        "        del self._seen[run]\n        if run in self._noted:\n",
        "        del self._seen[run]\n        if False:\n",
        STALLS + "test_why_names_the_event_in_an_attribute_until_it_comes",
    ),
)
