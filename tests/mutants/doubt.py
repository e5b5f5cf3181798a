"""What keeps a body from beginning twice: a note before it begins, and a decision for each doubt."""

from tests.mutants.mutant import Mutant

ONCE = "tests/workflows/test_at_most_once.py::"
PERSON = ONCE + "test_an_unknown_end_waits_for_a_person_and_the_body_begins_again_only_if_it_is_not_done"
HOOK = ONCE + "test_a_hook_says_what_became_of_an_interrupted_body"

DOUBT_MUTANTS = (
    Mutant(
        "a body at most once begins before that is recorded",
        "promise-07",
        "runs/doubt.py",
        "    yield from recorded(run, call.row(RunStatus.RUNNING, attempt, 0), has_row=has_row)\n",
        "",
        PERSON,
    ),
    Mutant(
        "an interrupted body at most once begins again by itself",
        "promise-07",
        "runs/doubt.py",
        "if not has_row else _doubted(call, verdict)",
        "if not has_row else _begun(call, attempt, has_row=True)",
        PERSON,
    ),
    Mutant(
        "an old decision answers a new doubt",
        "promise-07",
        "runs/doubt.py",
        "    return last if is_open else last + 1\n",
        "    return last or 1\n",
        ONCE + "test_what_the_body_raises_is_final_and_a_retry_of_the_run_asks_a_person",
    ),
    Mutant(
        "doubts of one name in two branches are one",
        "promise-07",
        "runs/doubt.py",
        "{call.definition.name}?{call.place}.",
        "{call.definition.name}?.",
        ONCE + "test_doubts_in_two_branches_are_decided_apart",
    ),
    Mutant(
        "a hook that does not know lets the body begin again",
        "promise-07",
        "runs/doubt.py",
        "        decision = yield from _person(call, number)\n",
        "        decision = Resolution(False)\n",
        HOOK,
    ),
    Mutant(
        "a hook is asked under a key of its own",
        "promise-07",
        "runs/doubt.py",
        "        known_as=call.lasting_key,\n",
        "",
        HOOK,
    ),
    Mutant(
        "a step that begins at most once is tried again after an exception",
        "promise-07",
        "step.py",
        "Retry.of(1) if at_most_once else None",
        "None if at_most_once else None",
        ONCE + "test_what_the_body_raises_is_final_and_a_retry_of_the_run_asks_a_person",
    ),
    Mutant(
        "a value that the step could not return is taken",
        "S-29",
        "runs/doubt.py",
        "if decision.done else None\n",
        "if False else None\n",
        ONCE + "test_a_value_that_the_step_could_not_return_decides_nothing",
    ),
)
