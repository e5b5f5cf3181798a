"""The verbs of queues, and of operators who look after tasks that ended in ERROR."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from stepwell.base.count import Count, limit_of
from stepwell.base.durations import datetime_of
from stepwell.base.names import HIGHEST_PRIORITY, check_whole, is_served
from stepwell.errors import InvalidOption, QueueInUse, QueueNotFound, WorkflowNotFound
from stepwell.records import Page, QueueInfo, RunStatus, Task, TaskKind
from stepwell.store.audit import By, What
from stepwell.store.control import end_children
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.ids import Remembered
from stepwell.store.ordered_groups import groups_of, let_next_go
from stepwell.store.progress import tell_done
from stepwell.store.retention import remove_belongings
from stepwell.store.run_filter import LAST
from stepwell.store.settle import lock_families, wake_parents
from stepwell.store.workflows import living
from stepwell.values.headers import headers_in
from stepwell.values.named_codecs import shown_value

if TYPE_CHECKING:
    from stepwell.store.database import Database

CHUNK: Final = 1000
MessageState = Literal["ready", "waiting", "running", "finished"]
# Where the list of each begins: behind this priority, moment and id.
FIRST: Final[Mapping[str, tuple[int, int, int]]] = {
    "ready": (HIGHEST_PRIORITY + 1, 0, 0),
    "waiting": (0, 0, 0),
    "running": (0, 0, 0),
    "finished": (0, LAST, LAST),
}


@dataclass(eq=False)
class Queues:
    """The queues of one tenant in one store."""

    _db: Database
    names: Remembered = field(default_factory=Remembered)  # the numbers of queues that were asked for lately

    async def create(self, name: str, patience: float | None = None) -> int:
        """Create the queue if it does not exist; return its number either way."""
        number = await self._db.driver.transact(lambda: self._create(name), patience=patience)
        return self.names.learn(name, number)

    async def find(self, name: str) -> int:
        """The number of an existing queue."""
        rows = await self._db.driver.read(Call("find_queue", self._db.params(name=name)))
        if not rows:
            raise QueueNotFound(name)
        if rows[0]["ordered"]:
            self._db.new_tasks.in_order.add(rows[0]["id"])
        return self.names.learn(name, rows[0]["id"])

    async def all(self) -> list[QueueInfo]:
        """Every queue, by name."""
        rows = await self._db.driver.read(Call("queues", self._db.params()))
        return [_queue_info(row) for row in rows]

    async def pause(self, name: str, by: By, *, paused: bool) -> None:
        """Stop or resume claiming from a queue."""
        rows = await self._db.driver.transact(lambda: self._pause(name, by, paused=paused))
        if not rows:
            raise QueueNotFound(name)

    async def purge(self, name: str, by: By) -> int:
        """Remove the queue's tasks, except those a worker is executing and those added meanwhile, in bounded pieces."""
        removed, after, started = 0, 0, None
        while found := await self._db.driver.read(
            Call("purgeable", self._db.params(name=name, limit=CHUNK, after=after, started=started))
        ):
            ids = [row["id"] for row in found]
            after, started = ids[-1], found[0]["now"] if started is None else started
            removed += len(await self._db.driver.transact(partial(self._purge, name, ids, by)))
            tell_done(len(ids))
        return removed

    async def delete(self, name: str, by: By, *, of_workflow: bool = False) -> None:
        """Remove a queue that nothing uses; with `of_workflow`, together with the workflow it belongs to."""
        await self._db.driver.transact(lambda: self._delete(name, by, of_workflow=of_workflow))
        self.names.forget(name)

    async def counts(self, name: str, *, exact: bool = False) -> dict[RunStatus, Count]:
        """How many tasks of a queue have each status; a status that none has is left out."""
        limit = limit_of(exact=exact)
        rows = await self._db.driver.read(Call("counts", self._db.params(queue=name, most=limit)))
        return _counted(rows, limit - 1)

    async def task(self, task_id: int, *, deleted: bool = False) -> Task | None:
        """One task as it stands."""
        tasks = await self._tasks([task_id], deleted=deleted)
        return tasks[0] if tasks else None

    async def messages(self, name: str, state: MessageState, limit: int, after: str | None) -> Page[Task]:
        """Messages of a queue that are in this state."""
        check_whole("limit", limit, 1, 10_000)
        if state not in FIRST:
            raise InvalidOption("state", state, f"it is one of {', '.join(FIRST)}; `dead_letters` lists what failed")
        priority, moment, task_id = FIRST[state] if after is None else _place(after)
        place: dict[str, Value] = {"after_priority": priority, "after_moment": moment, "after_id": task_id}
        place |= {"queue_id": await self._db.queue_id(name), "limit": limit + 1}
        rows = await self._db.driver.read(Call(f"messages_{state}", place))
        last = rows[limit - 1] if len(rows) > limit else None
        tasks = await self._tasks([row["id"] for row in rows[:limit]])
        return Page(tasks, next=None if last is None else f"{last['priority']}.{last['moment']}.{last['id']}")

    async def _tasks(self, ids: Sequence[int], *, deleted: bool = False) -> list[Task]:
        """Those of these tasks that are there, in this order."""
        asked = [(task_id,) for task_id in ids]
        rows = await self._db.driver.read(Call("task", self._db.params(deleted=deleted), asked)) if ids else []
        found = {row["id"]: _task(row) for row in rows}
        return [found[task_id] for task_id in ids if task_id in found]

    def _create(self, name: str) -> Script[int]:
        # Read in a statement of its own: one that ran into another process's insert does not see the row.
        yield Call("add_queue", self._db.params(name=name))
        [row] = yield Call("find_queue", self._db.params(name=name))
        found: int = row["id"]
        return found

    def _pause(self, name: str, by: By, *, paused: bool) -> Script[list[Row]]:
        if rows := (yield Call("pause_queue", self._db.params(name=name, paused=paused))):
            what = What.QUEUE_PAUSED if paused else What.QUEUE_RESUMED
            yield from self._db.audit.of_store(self._db.params(), what, name, by)
        return rows

    def _purge(self, name: str, ids: Sequence[int], by: By) -> Script[list[Row]]:
        rows = [(task_id,) for task_id in ids]
        yield from lock_families(ids)
        removed = yield Call("purge", self._db.params(), rows)
        yield from remove_belongings(removed, broadcasts=self._db.has_broadcasts)
        yield from self._db.audit.of_removed(self._db.params(), removed, What.PURGED, by)
        if removed:
            yield from self._db.audit.of_store(self._db.params(), What.QUEUE_PURGED, f"{len(removed)} of {name}", by)
        unfinished = [row for row in removed if row["finished_at"] is None]
        yield from wake_parents(self._db.params(), unfinished, gone=True)
        yield from end_children(self._db.params(), unfinished, set(), self._db.audit)
        yield from let_next_go(self._db.params(), groups_of(removed))
        return removed

    def _delete(self, name: str, by: By, *, of_workflow: bool) -> Script[None]:
        # Locked first and counted in a statement of its own: what the lock waited for is in the second snapshot only.
        yield Call("lock_queues", self._db.params(name=name, other=name))
        limit = limit_of(exact=False)
        found = yield Call("uses_of_queue", self._db.params(name=name, most=limit))
        if not found or (of_workflow and not found[0]["workflows"]):
            raise WorkflowNotFound(name) if of_workflow else QueueNotFound(name)
        serving = yield Call("living_handlers", self._db.params(beat_now=self._db.clock.beat_now()))
        workers = sum(is_served(name, json.loads(row["handlers"])) for row in living(serving, self._db.driver.guards))
        uses = found[0]
        if uses["tasks"] or (uses["workflows"] and not of_workflow) or workers:
            tasks = Count.of(uses["tasks"], uses["tasks"], limit - 1)
            raise QueueInUse(name, tasks, workers, uses["workflows"])
        if of_workflow:
            yield Call("delete_workflow", self._db.params(id=uses["id"]))
        yield Call("delete_queue", self._db.params(id=uses["id"]))
        what = What.WORKFLOW_DELETED if of_workflow else What.QUEUE_DELETED
        yield from self._db.audit.of_store(self._db.params(), what, name, by)


# Each part of a queue that is counted by itself, with its statuses: if it has more than are counted, any of them may.
PARTS: Final = {
    "ready": (RunStatus.PENDING,),
    "idle": (RunStatus.PENDING, RunStatus.PAUSED, RunStatus.RUNNING),
    "owned": (RunStatus.RUNNING,),
    "finished": (RunStatus.SUCCESS, RunStatus.CANCELLED),
    "dead": (RunStatus.ERROR,),
}


def _counted(rows: Sequence[Row], most: int) -> dict[RunStatus, Count]:
    counts: dict[RunStatus, Count] = {}
    for part, statuses in PARTS.items():
        found = {row["status"]: row["tasks"] for row in rows if row["part"] == part}
        looked_at = sum(found.values())
        for status in statuses:
            counts[status] = counts.get(status, Count()) + Count.of(found.get(status, 0), looked_at, most)
    return {status: counts[status] for status in sorted(counts) if counts[status] or counts[status].is_floor}


def _place(after: str) -> tuple[int, int, int]:
    parts = after.split(".")
    if len(parts) != len(FIRST["ready"]) or not all(part.lstrip("-").isdigit() and len(part) < 20 for part in parts):
        raise InvalidOption("after", after, "pass the `next` of the page before, as it is")
    priority, moment, task_id = map(int, parts)
    return priority, moment, task_id


def _queue_info(row: Any) -> QueueInfo:
    return QueueInfo(
        id=row["id"],
        name=row["name"],
        paused=bool(row["paused"]),
        draining=bool(row["draining"]),
        created_at=datetime_of(row["created_at"]),
    )


def _task(row: Any) -> Task:
    moments = {name: row[name] for name in ("run_at", "started_at", "finished_at", "deleted_at")}
    return Task(
        id=row["id"],
        kind=TaskKind(row["kind"]),
        queue=row["queue"],
        status=RunStatus(row["status"]),
        ready=bool(row["ready"]),
        priority=row["priority"],
        owner=row["owner"],
        turn=row["turn"],
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        key=row["key"],
        input=shown_value(row["input"]),
        output=shown_value(row["output"]),
        error=shown_value(row["error"]),
        last_error=row["last_error"],
        delete_reason=row["delete_reason"],
        created_at=datetime_of(row["created_at"]),
        last_worker=row["worker_id"],
        last_worker_name=row["worker_name"],
        tags=tuple(json.loads(row["tags"] or "[]")),
        progress=shown_value(row["progress"]),
        headers=headers_in(row["headers"]),
        **{name: None if moment is None else datetime_of(moment) for name, moment in moments.items()},
    )
