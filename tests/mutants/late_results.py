"""The rules of results that a run is told before they are in the database: nothing acts on them until then."""

from tests.mutants.mutant import Mutant

LATE = "tests/workflows/test_late_results.py::"
ACTS = LATE + "test_whatever_acts_on_a_result_sees_the_recorded_one_wherever_its_worker_is_lost"
REFUSED = LATE + "test_a_result_that_the_database_refuses_fails_its_run_and_is_not_missing_in_one_that_succeeds"

LATE_RESULTS_MUTANTS = (
    Mutant(
        "a body begins before the result before it is written",
        "S-04",
        "runs/async_step.py",
        "    if run.slot.late is not None:\n        await _acknowledged(call)\n",
        "",
        ACTS,
    ),
    Mutant(
        "a wait or a child begins before the result before it is written",
        "S-04",
        "runs/requests.py",
        "        if run.slot.late is not None:\n            await acknowledged(run)\n",
        "",
        LATE + "test_no_child_is_added_before_the_result_before_it_is_in_the_database",
    ),
    Mutant(
        "a transaction of the workflow begins before the result before it is written",
        "S-04",
        "store/transaction.py",
        "        turns = turns_here()\n        await _acknowledged(turns)\n",
        "        turns = turns_here()\n",
        LATE + "test_a_transaction_of_the_workflow_waits_for_the_result_that_it_may_act_on",
    ),
    Mutant(
        "a run ends although its last result was refused",
        "R-05",
        "runs/result_write.py",
        "        await late.written()\n    else:",
        "        run.slot.late = None\n    else:",
        REFUSED,
    ),
    Mutant(
        "the last result is not written with the end of its run",
        "S-04",
        "runs/result_write.py",
        "        run.slot.withheld += (row,)\n",
        "",
        LATE + "test_the_last_result_and_the_end_of_its_run_are_one_transaction",
    ),
)
