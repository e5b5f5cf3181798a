"""The result of a turn as it is written: one row of the statement `settle`, from any caller, and what follows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from stepwell.records import RunStatus
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.pending import GroupKey, Operation
from stepwell.store.rows import ROW_BYTES, Settlement, SettleRow, StepRow

CUT_SHORT: Final = (RunStatus.ERROR, RunStatus.CANCELLED)  # ends of a run whose steps may still be executed


@dataclass(frozen=True, slots=True)
class Following:
    """What follows from the end of a turn, in the transaction that settles it."""

    tells: bool = False  # others want to be told of its outcome
    ends: bool = False  # runs that it asked for end with it ...
    timed_out: bool = False  # ... all that are not left alone
    group: GroupKey | None = None  # its ordered group, of which the next is let go


def settle_row(task_id: int, worker: int, turn: int, done: Settlement) -> SettleRow:
    """A settlement of one turn as a row."""
    # Without the constructor of the named tuple, which is a call of Python code for every turn.
    values = (
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
    return tuple.__new__(SettleRow, values)


def settled_step(row: StepRow) -> tuple[Value, ...]:
    """A step as the row set of `settle_steps`: written for any status that the settle gives its run."""
    # fmt: off
    return (row.run_id, None, row.generation, row.key, row.place, row.status._value_, row.attempt, row.took,
            row.input, row.output, row.error, row.accepts)
    # fmt: on


def size_of_step(row: StepRow) -> int:
    """Bytes that a step takes while it waits to be written."""
    return ROW_BYTES + len(row.input or "") + len(row.output or "") + len(row.error or "") + len(row.accepts or "")


def ending_rows(settling: Operation) -> list[tuple[Value, ...]]:
    """The row set of `end_steps` for a settle: for each status that cuts steps short, one row for each step."""
    kept = [step[3] for step in settling.steps] or [None]
    return [(settling.row[0], status._value_, key) for status in CUT_SHORT for key in kept]


GONE: Final = "GONE"


def lock_families(ids: Iterable[int]) -> Script[None]:
    """Lock tasks that are to be changed, with their parents, in the order in which all transactions lock them."""
    if rows := [(task_id,) for task_id in ids]:
        yield Call("lock_families", {}, rows)


def wake_parents(
    params: dict[str, Value], ended: Iterable[Row], *, status: str = "status", gone: bool = False
) -> Script[set[int]]:
    """Count these tasks, if they have ended or are `gone`, off their parents; the queues of parents now ready."""
    rows = [
        (row["id"], GONE if gone else row[status], row["parent_id"]) for row in ended if row["parent_id"] is not None
    ]
    woken = (yield Call("wake_parents", params, rows)) if rows else []
    return {row["id"] for row in woken if row["answer"]}
