"""What makes a move safe: taken there before it stands here, once, with what was recorded."""

from tests.mutants.mutant import Mutant

MOVE = "tests/move/test_move.py::"
INTERRUPTED = MOVE + "test_a_move_that_was_interrupted_is_called_again_and_nothing_is_lost_or_moved_twice"
FINISHED = MOVE + "test_what_pgqrs_has_left_stands_here_with_its_times_and_is_finished_here"

MOVE_MUTANTS = (
    Mutant(
        "a move does not look for what has come before",
        "DP-04",
        "store/arrivals.py",
        "for task_id, one in placed.items() if one.key not in before]",
        "for task_id, one in placed.items()]",
        INTERRUPTED,
    ),
    Mutant(
        "a move leaves what it takes to the consumers of pgqrs",
        "DP-04",
        "store/sql/rows/pgqrs.sql",
        "set archived_at = now() where archived_at is null returning id",
        "set read_ct = read_ct where archived_at is null returning id",
        FINISHED,
    ),
    Mutant(
        "a move forgets what it has taken when it was interrupted",
        "DP-04",
        "store/sql/rows/pgqrs.sql",
        "moved.message_id is not null or message.archived_at is null as is_open",
        "message.archived_at is null as is_open",
        FINISHED,
    ),
    Mutant(
        "a step that was moved was called without arguments",
        "DP-04",
        "store/arrivals.py",
        "step.finished_at, UNKNOWN,",
        "step.finished_at, None,",
        FINISHED,
    ),
    Mutant(
        "the arguments of a step that was moved are compared",
        "DP-04",
        "values/versions.py",
        "    if recorded == UNKNOWN:\n        return True\n",
        "",
        FINISHED,
    ),
    Mutant(
        "a run that was moved is executed without its steps",
        "DP-04",
        "move.py",
        "turn=max(attempt, 1 if steps else 0)",
        "turn=0",
        FINISHED,
    ),
    Mutant(
        "a move does not ask who is at work",
        "DP-04",
        "store/postgres/pgqrs.py",
        "if not anyway and (busy := _busy(row)) is not None:",
        "if False and (busy := _busy(row)) is not None:",
        MOVE + "test_what_workers_of_pgqrs_may_be_at_work_on_is_not_moved",
    ),
)
