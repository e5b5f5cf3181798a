"""Adding tasks: as the rows of a flush, in pieces of one transaction, or loaded in bulk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stepwell.errors import IdempotencyConflict, QueueDraining, Refused
from stepwell.names import LONGEST_NAME
from stepwell.records import NewTask, TaskId
from stepwell.store.alike import Alike, examples, inputs
from stepwell.store.columns import Columns, Same
from stepwell.store.driver import Call, Row, Script, Value

CHUNK: Final = 1000
CHUNK_BYTES: Final = 4 * 1024 * 1024
LOAD_BYTES: Final = 16 * 1024 * 1024
ROW_BYTES: Final = 200 + LONGEST_NAME  # what a row weighs besides its JSON
SLOWEST_ROW: Final = 0.005  # seconds that a row of a bulk may take before the database counts as away


def load(params: dict[str, Value], tasks: Sequence[NewTask], ids: Sequence[int]) -> Script[bool]:
    """Write tasks of one queue, none with a key, in bulk; False, and nothing is written, if it takes none.

    The queue is locked, so that nobody closes or deletes it before they are there; the time is the database's.
    """
    found = yield Call("open_queue", params)
    if not found:
        return False
    queue_id: int = found[0]["id"]
    now: int = found[0]["now"]
    begin = size = 0
    for place, text in enumerate(inputs(tasks)):
        if size > LOAD_BYTES:
            yield Call("load_task", {}, _loaded(tasks[begin:place], ids[begin:place], queue_id, now), bulk=True)
            begin, size = place, 0
        size += ROW_BYTES + len(text)
    yield Call("load_task", {}, _loaded(tasks[begin:], ids[begin:], queue_id, now), bulk=True)
    return True


def _loaded(tasks: Sequence[NewTask], ids: Sequence[int], queue_id: int, now: int) -> Columns:
    """Tasks as the rows of `load_task`; the input is the last cell, which is hidden."""
    shown = [_cells(task, queue_id, now) for task in examples(tasks)]
    columns = map(Same, shown[0]) if isinstance(tasks, Alike) else zip(*shown, strict=True)
    return Columns([ids, *columns, inputs(tasks)])


def _cells(task: NewTask, queue_id: int, now: int) -> tuple[Value, ...]:
    """A task's row but for its id and its input."""
    run_at = now + task.delay if task.run_at is None else task.run_at
    # fmt: off
    return (str(task.kind), queue_id, run_at <= now, task.priority, run_at, task.max_attempts, task.key_scope,
            task.tags, now, now)
    # fmt: on


def add_chunks(statement: str, params: dict[str, Value], numbered: Sequence[tuple[NewTask, int]]) -> Script[set[int]]:
    """Add in pieces that a statement can carry; the transaction makes them one."""
    written: set[int] = set()
    chunk: list[tuple[Value, ...]] = []
    size = 0
    for task, task_id in numbered:
        if chunk and (len(chunk) == CHUNK or size + size_of(task) > CHUNK_BYTES):
            written.update(row["id"] for row in (yield Call(statement, params, chunk)))
            chunk, size = [], 0
        chunk.append(row_of(task, task_id))
        size += size_of(task)
    if chunk:
        written.update(row["id"] for row in (yield Call(statement, params, chunk)))
    # Asked before the commit: another payload under one of the keys undoes all of it.
    if missing := [(task, task_id) for task, task_id in numbered if task_id not in written]:
        found = found_among(missing, (yield asking_after(missing)))
        unfound = [task for task, task_id in missing if task_id not in found]
        if unfound:
            refuse_closed(unfound, (yield asking_whether_closed(unfound)))
    return written


def row_of(task: NewTask, task_id: int) -> tuple[Value, ...]:
    """A new task as the row set `new_task` of tasks.sql."""
    return (
        task_id,
        str(task.kind),
        task.queue_id,
        task.priority,
        task.delay,
        task.run_at,
        task.max_attempts,
        task.key,
        task.key_scope,
        task.payload_hash,
        task.input,
        task.tags,
        task.parent_id,
        int(task.inside),
    )


def in_lock_order(numbered: Sequence[tuple[NewTask, int]]) -> list[tuple[NewTask, int]]:
    """By queue and key: two transactions that add the same keys wait for each other once, and never both."""
    return sorted(numbered, key=lambda pair: (pair[0].queue_id, pair[0].key or "", pair[1]))


def size_of(task: NewTask) -> int:
    return ROW_BYTES + len(task.input)


def asking_after(missing: Sequence[tuple[NewTask, int]]) -> Call:
    """Ask which task stands where each of these was to be written."""
    return Call("find_added", rows=[(task_id, task.queue_id, task.key) for task, task_id in missing])


def found_among(missing: Sequence[tuple[NewTask, int]], rows: Sequence[Row]) -> dict[int, TaskId]:
    """The answer, by the id that was to be written: our own write if it is there, else who has the key."""
    asked = {task_id: task for task, task_id in missing}
    found: dict[int, TaskId] = {}
    for row in rows:
        task, own = asked[row["asked"]], row["asked"] == row["id"]
        if not own and row["payload_hash"] != task.payload_hash:
            raise IdempotencyConflict(task.queue, task.key or "", row["id"])
        if own or row["asked"] not in found:
            found[row["asked"]] = TaskId(row["id"]) if own else TaskId.found(row["id"])
    return found


def asking_whether_closed(tasks: Sequence[NewTask]) -> Call:
    """Ask which queues of these tasks take none: one may be neither written nor found because of that."""
    return Call("closed_queues", rows=[(queue_id,) for queue_id in sorted({task.queue_id for task in tasks})])


def refuse_closed(tasks: Sequence[NewTask], rows: Sequence[Row]) -> None:
    """Say that a queue is being drained or was deleted; nothing if all are open, and a race for a key was lost."""
    for row in rows:
        queue = next(task.queue for task in tasks if task.queue_id == row["id"])
        if row["draining"] is None:
            raise Refused(f"the queue {queue} is not there any more")
        raise QueueDraining(queue)
