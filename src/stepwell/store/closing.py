"""What came of a turn, as it is written: one row of the statement `settle`, whoever writes it."""

from __future__ import annotations

from stepwell.records import Settlement
from stepwell.store.driver import Value


def settle_row(task_id: int, worker: int, turn: int, done: Settlement) -> tuple[Value, ...]:
    """A settlement as the row set of `settle`."""
    return (
        task_id,
        worker,
        turn,
        str(done.status),
        done.delay,
        done.run_at,
        int(done.attempt_back),
        int(done.alone),
        done.wakes,
        done.needed,
        done.output,
        done.error,
        done.last_error,
        int(done.cleans_up),
        done.input,
    )
