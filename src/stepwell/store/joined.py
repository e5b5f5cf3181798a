"""Adding tasks inside the user's own transaction: they are there if it commits, and never were if it does not.

Everything a joined call reads, reserves or writes goes through the user's connection and no other, since ours would
wait for the user's locks. What it learns there is forgotten: a queue made or a block of ids reserved in a transaction
that rolls back does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stepwell.errors import IdempotencyConflict, QueueNotFound, Refused
from stepwell.records import NewTask, TaskId
from stepwell.store.adding import add_chunks, asking_after, found_among, in_lock_order
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.ids import BLOCK, ids_in, reserve_blocks


def add_joined(params: dict[str, Value], drafted: Sequence[NewTask], *, create: bool) -> Script[list[TaskId]]:
    """Find the queue of these tasks (or make it), reserve ids, and write them."""
    # The ids first: that writes, so on SQLite the queue is read inside the transaction and not before it begins.
    blocks = yield from reserve_blocks(-(-len(drafted) // BLOCK))
    queue = drafted[0].queue
    queue_id = yield from _queue_id({**params, "name": queue}, queue, create=create)
    tasks = [msgspec.structs.replace(task, queue_id=queue_id) for task in drafted]
    ids = [task_id for block in sorted(blocks) for task_id in ids_in(block)][: len(tasks)]
    numbered = in_lock_order(list(zip(tasks, ids, strict=True)))
    try:
        written = yield from add_chunks("add_tasks_once", params, numbered)
    except IdempotencyConflict:
        # The user may catch it and commit: what was written beside the conflict must not stay.
        yield Call("purge", params, [(task_id,) for _, task_id in numbered])
        raise
    missing = [(task, task_id) for task, task_id in numbered if task_id not in written]
    found = found_among(missing, (yield asking_after(missing))) if missing else {}
    if len(found) < len(missing):
        raise Refused("a key was taken by a transaction that this one cannot see; roll back and try again")
    return [found.get(task_id) or TaskId(task_id) for task_id in ids]


def _queue_id(params: dict[str, Value], name: str, *, create: bool) -> Script[int]:
    found: list[Row] = yield Call("find_queue", params)
    if not found and create:
        yield Call("add_queue", params)
        found = yield Call("find_queue", params)
    if not found:
        raise QueueNotFound(name)
    queue_id: int = found[0]["id"]
    return queue_id
