"""The verbs of queues, and of the people who look after tasks that ended in ERROR."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from stepwell.clock import Clock
from stepwell.durations import datetime_of
from stepwell.errors import InvalidOption, QueueInUse, QueueNotFound, Refused, WorkflowNotFound
from stepwell.names import is_served
from stepwell.records import DeadLetter, Page, QueueInfo, RunStatus, Task, TaskKind
from stepwell.store.audit import Audit, What
from stepwell.store.driver import Call, Driver, Row, Script, Value
from stepwell.store.living import living
from stepwell.store.parents import lock_families, wake_parents
from stepwell.store.pieces import tell_done
from stepwell.store.remembered import Remembered
from stepwell.store.retention import remove_belongings

CHUNK: Final = 1000


class Queues:
    """The queues of one tenant in one store."""

    def __init__(self, driver: Driver, clock: Clock, tenant: str, audit: Audit) -> None:
        self._driver = driver
        self._clock = clock
        self._tenant = tenant
        self._audit = audit
        self._remembered = Remembered()

    def known(self, name: str) -> int | None:
        """The number of a queue that was asked for lately; None if the database has to be asked."""
        return self._remembered.get(name)

    async def create(self, name: str, patience: float | None = None) -> int:
        """Make the queue if it is not there; its number either way."""
        number = await self._driver.transact(lambda: self._create(name), patience=patience)
        return self._remembered.learn(name, number)

    async def find(self, name: str) -> int:
        """The number of a queue that is there."""
        rows = await self._driver.read(Call("find_queue", self._params(name=name)))
        if not rows:
            raise QueueNotFound(name)
        return self._remembered.learn(name, rows[0]["id"])

    def forget(self, name: str) -> None:
        """Look the queue up again next time: the database says it is not the one we knew."""
        self._remembered.forget(name)

    async def all(self) -> list[QueueInfo]:
        """Every queue, by name."""
        rows = await self._driver.read(Call("queues", self._params()))
        return [_queue_info(row) for row in rows]

    async def pause(self, name: str, *, paused: bool) -> None:
        """Stop or resume claiming from a queue."""
        rows = await self._driver.transact(lambda: self._pause(name, paused=paused))
        if not rows:
            raise QueueNotFound(name)

    async def purge(self, name: str) -> int:
        """Remove the queue's tasks but those a worker is executing and those added meanwhile, in bounded pieces."""
        removed, after, started = 0, 0, None
        while found := await self._driver.read(
            Call("purgeable", self._params(name=name, limit=CHUNK, after=after, started=started))
        ):
            ids = [row["id"] for row in found]
            after, started = ids[-1], found[0]["now"] if started is None else started
            removed += len(await self._driver.transact(lambda ids=ids: self._purge(ids)))  # type: ignore[misc]
            tell_done(len(ids))
        return removed

    async def delete(self, name: str, *, of_workflow: bool = False) -> None:
        """Remove a queue that nothing uses; with `of_workflow`, together with the workflow it belongs to."""
        await self._driver.transact(lambda: self._delete(name, of_workflow=of_workflow))
        self.forget(name)

    async def counts(self, name: str) -> dict[RunStatus, int]:
        """How many tasks of a queue have each status."""
        rows = await self._driver.read(Call("counts", self._params(queue=name)))
        return {RunStatus(row["status"]): row["count"] for row in rows}

    async def task(self, task_id: int, *, deleted: bool = False) -> Task | None:
        """One task as it stands."""
        rows = await self._driver.read(Call("task", self._params(id=task_id, deleted=deleted)))
        return _task(rows[0]) if rows else None

    async def dead_letters(
        self,
        *,
        queue: str | None,
        kind: str | None,
        error: str | None,
        instance: tuple[str, str] | None,
        limit: int,
        after: str | None,
    ) -> Page[DeadLetter]:
        """Tasks in ERROR, oldest first."""
        after_time, after_id = place_of(after)
        type_, name = instance or ("", None)
        filters = self._params(queue=queue, kind=kind, error=error, instance=name)
        filters |= {"effects": f"{type_}:effects", "inputs": f"{type_}:inputs"}
        place: dict[str, Value] = {"after_time": after_time, "after_id": after_id, "limit": limit + 1}
        rows = await self._driver.read(Call("dead_letters", {**filters, **place}))
        page = [_dead_letter(row) for row in rows[:limit]]
        last = rows[limit - 1] if len(rows) > limit else None
        return Page(page, next=None if last is None else f"{last['finished_at']}-{last['id']}")

    async def requeue(
        self, ids: Sequence[int], *, queue: str | None, error: str | None, succeeded: bool = False
    ) -> list[Row]:
        """Put tasks in ERROR, or messages that `succeeded`, back to the beginning: those named, or all that fit."""
        return await self._each_chunk(ids, queue, error, partial(self._requeue, succeeded=succeeded))

    async def retry(self, run_id: int) -> list[Row]:
        """Put a run in ERROR back to the beginning; nothing if it is none."""
        return await self._driver.transact(lambda: self._retry(run_id))

    async def drop(self, ids: Sequence[int], *, queue: str | None, error: str | None) -> list[Row]:
        """Remove tasks in ERROR: those named, or all that fit the filter."""
        return await self._each_chunk(ids, queue, error, self._drop)

    async def _each_chunk(
        self,
        ids: Sequence[int],
        queue: str | None,
        error: str | None,
        change: Callable[[Sequence[int]], Script[list[Row]]],
    ) -> list[Row]:
        """Change the tasks named, or found by the filter, a bounded number in each transaction."""
        changed: list[Row] = []
        if ids:
            for start in range(0, len(ids), CHUNK):
                chunk = sorted(ids[start : start + CHUNK])
                changed += await self._driver.transact(lambda chunk=chunk: change(chunk))  # type: ignore[misc]
                tell_done(len(chunk))
            return changed
        filters = self._params(queue=queue, error=error, limit=CHUNK)
        while found := [row["id"] for row in await self._driver.read(Call("dead_ids", filters))]:
            rows = await self._driver.transact(lambda found=found: change(found))  # type: ignore[misc]
            changed += rows
            tell_done(len(rows))
            if not rows:
                break  # somebody else changes the same ones: let them
        return changed

    def _create(self, name: str) -> Script[int]:
        # Looked for in a statement of its own: one that ran into another process's insert does not see the row.
        yield Call("add_queue", self._params(name=name))
        [row] = yield Call("find_queue", self._params(name=name))
        found: int = row["id"]
        return found

    def _pause(self, name: str, *, paused: bool) -> Script[list[Row]]:
        return (yield Call("pause_queue", self._params(name=name, paused=paused)))

    def _purge(self, ids: Sequence[int]) -> Script[list[Row]]:
        rows = [(task_id,) for task_id in ids]
        yield from lock_families(ids)
        removed = yield Call("purge", self._params(), rows)
        yield from remove_belongings(removed)
        yield from wake_parents(self._params(), [row for row in removed if row["finished_at"] is None], gone=True)
        return removed

    def _delete(self, name: str, *, of_workflow: bool) -> Script[None]:
        # Locked first and counted in a statement of its own: what the lock waited for is in the second snapshot only.
        yield Call("lock_queues", self._params(name=name, other=name))
        found = yield Call("uses_of_queue", self._params(name=name))
        if not found or (of_workflow and not found[0]["workflows"]):
            raise WorkflowNotFound(name) if of_workflow else QueueNotFound(name)
        serving = yield Call("living_handlers", self._params(beat_now=self._clock.beat_now()))
        workers = sum(is_served(name, json.loads(row["handlers"])) for row in living(serving, self._driver.guards))
        uses = found[0]
        if uses["tasks"] or (uses["workflows"] and not of_workflow) or workers:
            raise QueueInUse(name, uses["tasks"], workers, uses["workflows"])
        if of_workflow:
            yield Call("delete_workflow", self._params(id=uses["id"]))
        yield Call("delete_queue", self._params(id=uses["id"]))

    def _requeue(self, ids: Sequence[int], what: What = What.REQUEUED, *, succeeded: bool = False) -> Script[list[Row]]:
        """Requeue all, or where a key is in use again, all that can be; a run's failed steps are to be done again."""
        yield from lock_families(ids)
        failed = yield Call("failed_runs", {}, [(task_id,) for task_id in ids])
        untried = [list(ids)]
        requeued: list[Row] = []
        while untried:
            part = untried.pop()
            yield Call("savepoint")
            try:
                requeued += yield Call("requeue", self._params(succeeded=succeeded), [(task_id,) for task_id in part])
            except Refused:
                yield Call("rollback_to_savepoint")
                if len(part) > 1:
                    untried += [part[: len(part) // 2], part[len(part) // 2 :]]
            yield Call("release_savepoint")
        yield from _reopen(failed, requeued)
        yield from self._audit.of_all(self._params(), requeued, what)
        return requeued

    def _retry(self, run_id: int) -> Script[list[Row]]:
        if not (yield Call("failed_runs", {}, [(run_id,)])):
            return []
        return (yield from self._requeue([run_id], What.RETRIED))

    def _drop(self, ids: Sequence[int]) -> Script[list[Row]]:
        yield from lock_families(ids)
        removed = yield Call("drop", self._params(), [(task_id,) for task_id in ids])
        yield from remove_belongings(removed)
        return removed

    def _params(self, **params: Value) -> dict[str, Value]:
        return {"now": self._clock.now(), "tenant": self._tenant, **params}


def _reopen(failed: Sequence[Row], requeued: Sequence[Row]) -> Script[None]:
    """Let the steps whose failure ended these runs be executed again; what other steps recorded stays."""
    again = {row["id"] for row in requeued}
    ended = [(row["id"], row["generation"], _value(row["error"]) or {}) for row in failed if row["id"] in again]
    if steps := [(run_id, generation, key) for run_id, generation, error in ended for key in error.get("steps", ())]:
        yield Call("reopen_steps", {}, steps)


def place_of(after: str | None, beginning: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """Where a page goes on, from the text a page gave."""
    if after is None:
        return beginning
    moment, _, task_id = after.partition("-")
    if not (moment.isdigit() and task_id.isdigit()):
        raise InvalidOption("after", after, "pass the `next` of the page before, as it is")
    return int(moment), int(task_id)


def _dead_letter(row: Any) -> DeadLetter:
    return DeadLetter(
        id=row["id"],
        kind=TaskKind(row["kind"]),
        queue=row["queue"],
        key=row["key"],
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        payload=_value(row["input"]),
        error=_value(row["error"]),
        last_error=row["last_error"],
        created_at=datetime_of(row["created_at"]),
        finished_at=datetime_of(row["finished_at"]),
        last_worker=row["worker_id"],
        last_worker_name=row["worker_name"],
    )


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
        input=_value(row["input"]),
        output=_value(row["output"]),
        error=_value(row["error"]),
        last_error=row["last_error"],
        delete_reason=row["delete_reason"],
        created_at=datetime_of(row["created_at"]),
        last_worker=row["worker_id"],
        last_worker_name=row["worker_name"],
        **{name: None if moment is None else datetime_of(moment) for name, moment in moments.items()},
    )


def _value(text: str | None) -> Any:
    return None if text is None else json.loads(text)
