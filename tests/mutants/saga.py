"""What keeps a saga from staying half done."""

from tests.mutants.mutant import Mutant

SAGA = "tests/workflows/test_saga.py::"
CANCEL = SAGA + "test_a_cancel_at_any_point_leaves_nothing_half_done"
RETRY = SAGA + "test_an_undo_has_its_own_retry_and_one_that_gives_up_holds_up_no_other"

SAGA_MUTANTS = (
    Mutant(
        "a saga undoes what it did first first",
        "S-30",
        "compensation.py",
        "reversed(self._undos):\n                try:\n                    await",
        "self._undos:\n                try:\n                    await",
        CANCEL,
    ),
    Mutant(
        "a saga undoes nothing when its run is cancelled",
        "S-30",
        "compensation.py",
        "return branch if error is not None and",
        "return branch if isinstance(error, Exception) and",
        CANCEL,
    ),
    Mutant(
        "an undo that gives up holds up the others",
        "S-30",
        "compensation.py",
        "                    failed.append(gave_up)\n        self._tell(failed, error)\n\n    def __enter__",
        "                    raise\n        self._tell(failed, error)\n\n    def __enter__",
        RETRY,
    ),
    Mutant(
        "an undo that gave up is not told",
        "S-30",
        "compensation.py",
        "        if failed:\n",
        "        if False:\n",
        RETRY,
    ),
    Mutant(
        "a saga begins where no time is left to undo it",
        "S-30",
        "compensation.py",
        "        if branch.run.cleanup is None or branch.run.cleanup.limit is None:\n",
        "        if False:\n",
        SAGA + "test_a_saga_is_refused_where_it_could_not_keep_its_promise",
    ),
)
