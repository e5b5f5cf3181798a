"""Adding tasks inside the user's own transaction: they are there if it commits, and never were if it does not.

Everything a joined call reads, reserves or writes goes through the user's connection and no other, since ours would
wait for the user's locks. What it learns there is forgotten: a queue made or a block of ids reserved in a transaction
that rolls back does not exist. JSON columns come back as text (`{text_of ...}`): what the user's driver makes of JSON
is the user's. A call that fails is undone by its savepoint (`together.py`), so nothing here cleans up after itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stepwell.errors import QueueNotFound, Refused, WorkflowNotFound
from stepwell.records import TaskId, TaskKind
from stepwell.store.adding import add_chunks, asking_after, found_among, in_lock_order
from stepwell.store.draft import Drafted
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.ids import BLOCK, ids_in, reserve_blocks
from stepwell.store.living import Living
from stepwell.store.workflows import create_workflow, find_workflow


def add_joined(params: dict[str, Value], drafted: Drafted, living: Living) -> Script[list[TaskId]]:
    """Reserve ids, find the queues of these tasks (or make them), and write them."""
    blocks = yield from reserve_blocks(-(-len(drafted.tasks) // BLOCK))
    ids = [task_id for block in sorted(blocks) for task_id in ids_in(block)]
    return (yield from add_together(params, drafted, ids[: len(drafted.tasks)], living))


def add_together(
    params: dict[str, Value], drafted: Drafted, ids: Sequence[int], living: Living
) -> Script[list[TaskId]]:
    """Write tasks of one queue or several, all or none, with these ids; may be repeated with the same."""
    queues = yield from _queues(params, drafted, living)
    tasks = [msgspec.structs.replace(task, queue_id=queues[task.queue]) for task in drafted.tasks]
    numbered = in_lock_order(list(zip(tasks, ids, strict=True)))
    written = yield from add_chunks("add_tasks_once", params, numbered)
    missing = [(task, task_id) for task, task_id in numbered if task_id not in written]
    found = found_among(missing, (yield asking_after(missing))) if missing else {}
    if len(found) < len(missing):
        raise Refused("a key was taken by a transaction that this one cannot see; roll back and try again")
    return [found.get(task_id) or TaskId(task_id) for task_id in ids]


def _queues(params: dict[str, Value], drafted: Drafted, living: Living) -> Script[dict[str, int]]:
    """The number of each queue by its name; makes nothing before everything that may refuse has been asked."""
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
