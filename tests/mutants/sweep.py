"""The rules that the sweep over every database call holds up."""

from tests.mutants.mutant import Mutant

SWEEP = "tests/sweep/test_sweep.py::test_a_run_survives_a_crash_at_every_database_call"

SWEEP_MUTANTS = (
    Mutant(
        "sleeping runs make an idle worker look more often",
        "promise-18",
        "work/upkeep.py",
        "min(look_every, next_due + 0.001)",
        "min(look_every / 10, next_due + 0.001)",
        "tests/bench/test_asleep.py::test_five_hundred_sleeping_runs_cost_an_idle_worker_nothing",
    ),
    Mutant(
        "recorded steps are not read",
        "R-06",
        "runs/body.py",
        "if task.turn > 1 else ()",
        "if task.turn > 10**9 else ()",
        SWEEP,
    ),
    Mutant(
        "a recorded failure is tried again",
        "S-06",
        "runs/journal.py",
        'return GaveUp(row.error or "{}")',
        "return Due(row.attempt, has_row=True)",
        SWEEP,
    ),
    Mutant(
        "the time of a workflow is not recorded",
        "S-02",
        "runs/wait.py",
        "        note(run, row)\n",
        "        pass\n",
        SWEEP,
    ),
    Mutant(
        "a run is given back while a branch is between two calls",
        "S-13",
        "runs/turn.py",
        "        if not self.is_at_work and all(",
        "        if True or all(",
        "tests/sweep/test_sweep.py::test_a_sequence_beside_a_sleep_ends_before_the_run_is_given_back_and_that_is_once",
    ),
)
