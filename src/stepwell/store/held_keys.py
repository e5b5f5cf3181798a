"""Keys that are taken: what an add finds there, and what it does to a task that waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from stepwell.base.durations import datetime_of
from stepwell.errors import IdempotencyConflict, KeyInUse, QueueDraining, Refused
from stepwell.records import TaskId
from stepwell.store.audit import Audit, By
from stepwell.store.control import cancelling
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.ordered_groups import add_in_order, conditional_row_of, in_order, ordered_row_of
from stepwell.store.rows import Conditions, NewTask
from stepwell.values.versions import are_same_payload

MOST_RACES: Final = 10
REPLACING: Final = ("replace", "newest")
Numbered = tuple[NewTask, int]  # a new task, and the number that was reserved for it


@dataclass(eq=False)
class Ended:
    """The tasks that adds have cancelled, since newer ones supersede them; to be told when that is committed."""

    audit: Audit
    again: bool = False  # an earlier try, whose reply was lost, may have been committed
    rows: list[Row] = field(default_factory=list)
    woken: set[int] = field(default_factory=set)  # queues of parents that are ready now


def keyed_by_period(params: dict[str, Value], numbered: Sequence[Numbered]) -> Script[Sequence[Numbered]]:
    """The same tasks; the key of one that is added once in a period names the period, by the database's clock."""
    if not any(task.conditions is not None and task.conditions.period is not None for task, _ in numbered):
        return numbered
    [row] = yield Call("moment", params)
    return [(_in_period(task, row["now"]), task_id) for task, task_id in numbered]


def _in_period(task: NewTask, now: int) -> NewTask:
    period = None if task.conditions is None else task.conditions.period
    if period is None:
        return task
    begin = datetime_of(now - now % period)
    return msgspec.structs.replace(task, key=f"{task.key}@{begin:%Y-%m-%dT%H:%M:%SZ}")


def latest_of_keys(numbered: Sequence[Numbered]) -> tuple[Sequence[Numbered], Mapping[int, int]]:
    """The tasks without those that a later one of the same call replaces, and by which: a row is changed once."""
    last: dict[tuple[int, str | None], int] = {}
    for task, task_id in numbered:
        if task.conditions is not None and task.conditions.on_conflict in REPLACING:
            place = task.queue_id, task.key
            last[place] = max(task_id, last.get(place, 0))
    if not last:
        return numbered, {}
    same = {
        task_id: last[task.queue_id, task.key]
        for task, task_id in numbered
        if last.get((task.queue_id, task.key), task_id) != task_id
    }
    return [pair for pair in numbered if pair[1] not in same], same


def add_with_conditions(
    params: dict[str, Value], numbered: Sequence[Numbered], ended: Ended
) -> Script[dict[int, TaskId]]:
    """Write these tasks, or what they say into those that have their keys and wait; by the numbers reserved for them.

    A task that waits is locked and then changed, so it is changed before it is claimed, or not at all. An add whose key
    is taken by a task that has begun is missing in the answer, and so is one that lost a race.
    """
    done: dict[int, TaskId] = {}
    left = {task_id: task for task, task_id in numbered}
    if ended.again:
        for row in (yield Call("added_before", params, [(task_id,) for task_id in left])):
            own = row["asked"] == row["id"]
            done[row["asked"]] = TaskId(row["id"]) if own else TaskId.found(row["id"])
    for _ in range(MOST_RACES):
        left = _without(left, done)
        if left:
            added = [row["id"] for row in (yield from _written(params, left))]
            yield from ended.audit.created(params, added)
            done |= {task_id: TaskId(task_id) for task_id in added}
            left = _without(left, done)
        if not left:
            break
        if (yield from _changed(params, left, ended, done)):
            continue
        found = yield asking_after([(task, task_id) for task_id, task in left.items()])
        stands = {row["asked"] for row in found if not row["waits"] or not _is_rival(left[row["asked"]])}
        if not (freed := [task for task_id, task in left.items() if task_id not in stands]):
            break
        closed = yield asking_whether_closed(freed)
        in_turn = yield from in_order([(task, task_id) for task_id, task in left.items()], closed)
        left |= {task_id: task for task, task_id in in_turn}
        if not in_turn:
            refuse_closed(freed, closed)
    return done


def _written(params: dict[str, Value], left: Mapping[int, NewTask]) -> Script[list[Row]]:
    ordered = [ordered_row_of(task, task_id) for task_id, task in left.items() if task.group_key is not None]
    plain = [conditional_row_of(task, task_id) for task_id, task in left.items() if task.group_key is None]
    added = (yield Call("add_with_conditions", params, plain)) if plain else []
    return [*added, *((yield from add_in_order(params, ordered)) if ordered else ())]


def _without(left: Mapping[int, NewTask], done: Mapping[int, TaskId]) -> dict[int, NewTask]:
    return {task_id: task for task_id, task in left.items() if task_id not in done}


def _is_rival(task: NewTask) -> bool:
    """Whether it takes the place of a task that has its key and waits."""
    return task.conditions is not None and task.conditions.on_conflict in REPLACING


def _changed(
    params: dict[str, Value], left: Mapping[int, NewTask], ended: Ended, done: dict[int, TaskId]
) -> Script[bool]:
    """Replace or cancel what waits under the keys of these, if they say so; False if nothing was changed."""
    if not (rivals := {task_id: task for task_id, task in left.items() if _is_rival(task)}):
        return False
    newest = [(task, task_id) for task_id, task in rivals.items() if _said(task) == "newest"]
    if newest:  # first the parents, as all lock them
        yield Call("lock_trees", {}, [(row["id"],) for row in (yield asking_after(newest))])
    keys = [(task_id, task.queue_id, task.key) for task_id, task in rivals.items()]
    waiting: dict[int, int] = {row["asked"]: row["id"] for row in (yield Call("lock_waiting", params, keys))}
    if waiting:
        outside = [rivals[task_id] for task_id in waiting if not rivals[task_id].inside]
        if outside:
            refuse_closed(outside, (yield asking_whether_closed(outside)))
    replaced = {task_id: found for task_id, found in waiting.items() if _said(rivals[task_id]) == "replace"}
    if replaced:
        rows = [_waiting_row(rivals[task_id], found, task_id) for task_id, found in replaced.items()]
        yield Call("replace_waiting", params, sorted(rows))
        done |= {task_id: TaskId.found(found) for task_id, found in replaced.items()}
    for task_id, found in waiting.items():
        if task_id not in replaced:
            by = By(reason=f"superseded by {task_id}")
            ended.rows += yield from cancelling(params, [found], by, ended.woken, ended.audit, before=set())
    return bool(waiting)


def _said(task: NewTask) -> str:
    return "existing" if task.conditions is None else task.conditions.on_conflict


def _waiting_row(task: NewTask, found: int, asked: int) -> tuple[Value, ...]:
    """What a new task says, as the row set `waiting_task`, for the one that waits."""
    said = task.conditions or Conditions()
    # fmt: off
    return (found, asked, task.queue_id, task.priority, task.delay, task.run_at, task.max_attempts, task.payload_hash,
            task.input, task.tags, task.limit_key, task.cost, task.headers, said.latest, said.expires_after,
            said.expires_at, int(said.keeps_result), said.timeout)
    # fmt: on


def asking_after(missing: Sequence[tuple[NewTask, int]]) -> Call:
    """Ask which task stands where each of these was to be written."""
    return Call("find_added", rows=[(task_id, task.queue_id, task.key) for task, task_id in missing])


def found_among(missing: Sequence[tuple[NewTask, int]], rows: Sequence[Row]) -> dict[int, TaskId]:
    """The task by the id that was to be written: our own if it was written, else the one that has the key."""
    asked = {task_id: task for task, task_id in missing}
    found = {row["id"]: TaskId(row["id"]) for row in rows if row["asked"] == row["id"]}
    for row in rows:
        if row["asked"] in found:
            continue
        task = asked[row["asked"]]
        if _said(task) == "error":
            raise KeyInUse(task.queue, task.key or "", row["id"])
        if not are_same_payload(row["payload_hash"], task.payload_hash):
            raise IdempotencyConflict(task.queue, task.key or "", row["id"])
        found[row["asked"]] = TaskId.found(row["id"])
    return found


def asking_whether_closed(tasks: Sequence[NewTask]) -> Call:
    """Ask which queues of these tasks are closed: a task that is neither written nor found may be refused for that."""
    return Call("closed_queues", rows=[(queue_id,) for queue_id in sorted({task.queue_id for task in tasks})])


def refuse_closed(tasks: Sequence[NewTask], rows: Sequence[Row]) -> None:
    """Raise if a queue is being drained or was deleted; return if all are open, and a race for a key was lost."""
    for row in rows:
        queue = next(task.queue for task in tasks if task.queue_id == row["id"])
        if row["draining"] is None:
            raise Refused(f"the queue {queue} is not there any more")
        if row["draining"]:
            raise QueueDraining(queue)
