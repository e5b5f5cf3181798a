"""Adding tasks: as rows of a flush, in pieces of one transaction, or in bulk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from stepwell.errors import QueueNotFound, Refused, WorkflowNotFound
from stepwell.records import TaskId, TaskKind
from stepwell.store.audit import Audit
from stepwell.store.draft import Alike, Drafted, examples, inputs
from stepwell.store.driver import Call, Columns, Row, Same, Script, Value
from stepwell.store.held_keys import (
    Ended,
    Numbered,
    add_with_conditions,
    asking_after,
    asking_whether_closed,
    found_among,
    keyed_by_period,
    latest_of_keys,
    refuse_closed,
)
from stepwell.store.ids import BLOCK, ids_in, reserve_blocks
from stepwell.store.ordered_groups import add_in_order, in_order, ordered_row_of
from stepwell.store.rows import ROW_BYTES, NewTask, row_of, size_of
from stepwell.store.workflows import Living, create_workflow, find_workflow

CHUNK: Final = 1000
CHUNK_BYTES: Final = 4 * 1024 * 1024
LOAD_BYTES: Final = 16 * 1024 * 1024
SLOWEST_ROW: Final = 0.005  # seconds that a row of a bulk may take; after that the database counts as away


def load(params: dict[str, Value], tasks: Sequence[NewTask], ids: Sequence[int], audit: Audit) -> Script[bool]:
    """Write tasks of one queue, none with a key, in bulk. Return False, and write nothing, if the queue takes none.

    The queue is locked, so that no other transaction closes or deletes it before this one ends. The time is the
    database's.
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
    yield from audit.created(params, ids)
    return True


def _loaded(tasks: Sequence[NewTask], ids: Sequence[int], queue_id: int, now: int) -> Columns:
    """Tasks as the rows of `load_task`. The input is the last column, so that no error message quotes it."""
    shown = [_cells(task, queue_id, now) for task in examples(tasks)]
    columns = map(Same, shown[0]) if isinstance(tasks, Alike) else zip(*shown, strict=True)
    return Columns([ids, *columns, inputs(tasks)])


def _cells(task: NewTask, queue_id: int, now: int) -> tuple[Value, ...]:
    """The row of a task without its id and its input."""
    run_at = now + task.delay if task.run_at is None else task.run_at
    # fmt: off
    return (str(task.kind), queue_id, run_at <= now, task.priority, run_at, task.max_attempts, task.key_scope,
            task.tags, task.headers, now, now)
    # fmt: on


def add_chunks(
    statement: str, params: dict[str, Value], numbered: Sequence[Numbered], ended: Ended
) -> Script[dict[int, TaskId]]:
    """Add tasks with several statements of one transaction, each of a size that a statement can carry.

    Returns, by the number that was reserved for each, the task that was written or that stands in its place. A number
    that is missing has lost a race for its key.
    """
    done: dict[int, TaskId] = {}
    numbered, same = latest_of_keys((yield from keyed_by_period(params, numbered)))
    for chunk in _chunks(numbered):
        added = [row["id"] for row in (yield from _added(statement, params, chunk))]
        yield from ended.audit.created(params, added)
        done |= {task_id: TaskId(task_id) for task_id in added}
        if conditional := [(task, task_id) for task, task_id in chunk if task.conditions is not None]:
            done |= yield from add_with_conditions(params, conditional, ended)
    # Asked before the commit: if a key has another payload, the whole transaction is rolled back.
    if missing := [(task, task_id) for task, task_id in numbered if task_id not in done]:
        done |= found_among(missing, (yield asking_after(missing)))
        unfound = [pair for pair in missing if pair[1] not in done]
        if unfound:
            closed = yield asking_whether_closed([task for task, _ in unfound])
            if in_turn := (yield from in_order([pair for pair in unfound if pair[0].conditions is None], closed)):
                by_id = sorted(in_turn, key=lambda pair: pair[1])  # those of a group in the order of the call
                done |= yield from add_chunks(statement, params, by_id, ended)
            else:
                refuse_closed([task for task, _ in unfound], closed)
    return done | {task_id: TaskId.found(done[last]) for task_id, last in same.items() if last in done}


def _chunks(numbered: Sequence[Numbered]) -> Iterator[list[Numbered]]:
    """The tasks in pieces that a statement can carry."""
    chunk: list[Numbered] = []
    size = 0
    for task, task_id in numbered:
        if chunk and (len(chunk) == CHUNK or size + size_of(task) > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append((task, task_id))
        size += size_of(task)
    if chunk:
        yield chunk


def _added(statement: str, params: dict[str, Value], chunk: Sequence[Numbered]) -> Script[list[Row]]:
    unsaid = [pair for pair in chunk if pair[0].conditions is None]
    ordered = [ordered_row_of(*pair) for pair in unsaid if pair[0].group_key is not None]
    plain = [pair for pair in unsaid if pair[0].group_key is None]
    added = (yield Call(statement, params, [row_of(*pair) for pair in plain])) if plain else []
    return [*added, *((yield from add_in_order(params, ordered)) if ordered else ())]


def in_lock_order(numbered: Sequence[tuple[NewTask, int]]) -> list[tuple[NewTask, int]]:
    """Sort by queue and key: then two transactions that add the same keys cannot deadlock."""
    return sorted(numbered, key=lambda pair: (pair[0].queue_id, pair[0].key or "", pair[1]))


def add_joined(params: dict[str, Value], drafted: Drafted, living: Living, ended: Ended) -> Script[list[TaskId]]:
    """Write tasks inside the user's own transaction: reserve ids, find or create their queues, and add the rows."""
    blocks = yield from reserve_blocks(-(-len(drafted.tasks) // BLOCK))
    ids = [task_id for block in sorted(blocks) for task_id in ids_in(block)]
    return (yield from add_together(params, drafted, ids[: len(drafted.tasks)], living, ended))


def add_together(
    params: dict[str, Value], drafted: Drafted, ids: Sequence[int], living: Living, ended: Ended
) -> Script[list[TaskId]]:
    """Write tasks of one or several queues, all or none, with these ids. It may be repeated with the same ids."""
    queues = yield from _queues(params, drafted, living)
    tasks = [msgspec.structs.replace(task, queue_id=queues[task.queue]) for task in drafted.tasks]
    numbered = in_lock_order(list(zip(tasks, ids, strict=True)))
    done = yield from add_chunks("add_tasks_once", params, numbered, ended)
    if len(done) < len(numbered):
        raise Refused("a key was taken by a transaction that this one cannot see; roll back and try again")
    return [done[task_id] for task_id in ids]


def _queues(params: dict[str, Value], drafted: Drafted, living: Living) -> Script[dict[str, int]]:
    """The number of each queue by its name. A missing queue is created after all checks, which may refuse the call."""
    of_runs = drafted.kind is TaskKind.RUN
    numbers: dict[str, int | None] = {}
    for name in sorted(drafted.queues):
        call = find_workflow(params, name) if of_runs else Call("find_queue", {**params, "name": name})
        found: list[Row] = yield call
        if not found and not drafted.queues[name]:
            raise WorkflowNotFound(name) if of_runs else QueueNotFound(name)
        numbers[name] = found[0]["id"] if found else None
    yield from living.checking(drafted.required)
    made: dict[str, int] = {}
    for name, number in numbers.items():
        made[name] = number if number is not None else (yield from _make(params, name, of_runs=of_runs))
    return made


def _make(params: dict[str, Value], name: str, *, of_runs: bool) -> Script[int]:
    if of_runs:
        return (yield from create_workflow(params, name))
    yield Call("add_queue", {**params, "name": name})
    found: list[Row] = yield Call("find_queue", {**params, "name": name})
    if not found:
        raise QueueNotFound(name)
    queue_id: int = found[0]["id"]
    return queue_id
