"""Steering: a cancelled run goes on, waiting work is done at another moment or priority, a run changes its tags."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from stepwell.base.durations import Duration, microseconds_of, moment_of
from stepwell.base.names import check_id, check_priority, check_tags
from stepwell.errors import InvalidOption, LeaseLost, Refused, StillStopping
from stepwell.records import RunStatus, TaskKind
from stepwell.store.audit import By, What
from stepwell.store.control import cancelled_together
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.rows import Claimed
from stepwell.store.settle import lock_families
from stepwell.values.codec import encode

if TYPE_CHECKING:
    from stepwell.store.database import Database


class RescheduleAnswer(StrEnum):
    """The answer to a request to reschedule waiting work; only RESCHEDULED counts as true, else nothing was changed."""

    RESCHEDULED = "RESCHEDULED"
    RUNNING = "RUNNING"  # a worker executes it, or a consumer has taken it
    WAITING = "WAITING"  # its own code says what it waits for: a sleep, a signal, children
    TOO_LATE = "TOO_LATE"  # it is finished, or is being cancelled

    def __bool__(self) -> bool:
        return self is RescheduleAnswer.RESCHEDULED


@dataclass(eq=False)
class TaskEdits:
    """Lets cancelled runs go on, reschedules what waits, and changes the tags of a run."""

    _db: Database

    async def retry(self, run_id: int, by: By) -> bool:
        """Let a run that failed or was cancelled go on; False if it did not, or if its key was taken meanwhile."""
        self._db.check()
        again = await self._db.driver.transact(partial(self._retrying, check_id(run_id), by))
        self._db.wakeups.hint({row["queue_id"] for row in again})
        return bool(again)

    async def reschedule(
        self, task_id: int, by: By, *, run_at: datetime | None, delay: Duration | None, priority: int | None
    ) -> RescheduleAnswer:
        """Do waiting work at another moment, or with another priority."""
        if run_at is not None and delay is not None:
            raise InvalidOption("delay", delay, "give `delay` or `run_at`, not both")
        if run_at is None and delay is None and priority is None:
            raise InvalidOption("run_at", None, "say what to change: `run_at` or `delay`, `priority`, or both")
        params = self._db.params(
            id=check_id(task_id),
            moves=run_at is not None or delay is not None,
            run_at=None if run_at is None else moment_of(run_at, "run_at"),
            delay=0 if delay is None else microseconds_of(delay, "delay"),
            priority=None if priority is None else check_priority(priority),
            or_message=True,
        )
        self._db.check()
        detail = ", ".join(_said(run_at, delay, priority))
        by = By(by.actor, detail if by.reason is None else f"{detail}: {by.reason}")
        answer, moved = await self._db.transact(partial(self._rescheduling, params, by))
        if answer is None:
            raise await self._db.no_run(task_id)
        for row in moved:
            if row["ready"]:
                self._db.wakeups.hint({row["queue_id"]})
            elif params["moves"]:
                self._db.tasks.alarm.set(max(0, row["wait"]) / 1_000_000)
        return answer

    async def retag(self, task: Claimed, tag: str, *, on: bool) -> None:
        """Set or remove a tag of a run, in a turn that still stands."""
        if not await self._db.transact(partial(self._retagging, task, tag, on=on)):
            raise LeaseLost(task.owner, task.id)

    def _retagging(self, task: Claimed, tag: str, *, on: bool) -> Script[bool]:
        params = self._db.params(slot=self._db.claim_slot, id=task.id)
        if not (yield Call("lock_turns", params, [(task.id, task.owner, task.turn)])):
            return False
        [row] = yield Call("tags_of", params)
        tags: list[str] = [] if row["tags"] is None else json.loads(row["tags"])
        if on != (tag in tags):
            left = check_tags([*tags, tag] if on else [one for one in tags if one != tag])
            yield Call("put_tags", {**params, "tags": encode(left) if left else None})
        return True

    def _rescheduling(self, params: dict[str, Value], by: By) -> Script[tuple[RescheduleAnswer | None, list[Row]]]:
        found = yield Call("lock_run", params)
        if not found:
            return None, []
        if (refused := _refusal(found[0], moves=bool(params["moves"]))) is not None:
            return refused, []
        moved = yield Call("reschedule", params)
        yield from self._db.audit.of_all(params, moved, What.RESCHEDULED, by=by)
        return RescheduleAnswer.RESCHEDULED, moved

    def _retrying(self, run_id: int, by: By) -> Script[list[Row]]:
        tree = yield from self._cancelled(run_id)
        if not tree:
            return (yield from self._db.dead_letters.retrying(by, run_id))
        yield from lock_families([row["id"] for row in tree])
        tree = yield from self._cancelled(run_id)  # as it stands under the lock
        if stopping := [row["id"] for row in tree if row["stopping"]]:
            raise StillStopping(run_id, stopping)
        again: list[Row] = []
        yield Call("savepoint")
        try:
            again = yield Call("retry_cancelled", self._db.params(), [(row["id"],) for row in tree])
        except Refused:  # a key is in use again: all go on, or none
            yield Call("rollback_to_savepoint")
        yield Call("release_savepoint")
        yield from self._db.audit.of_all(self._db.params(), again, What.RETRIED, by=by)
        return again

    def _cancelled(self, run_id: int) -> Script[list[Row]]:
        """A run, if it was cancelled, and the runs that were cancelled with it."""
        params = self._db.params()
        return (yield from cancelled_together(params, (yield Call("cancelled_runs", params, [(run_id,)]))))


def _said(run_at: datetime | None, delay: Duration | None, priority: int | None) -> Iterator[str]:
    """What is asked for, for the audit."""
    if run_at is not None:
        yield f"at {run_at.isoformat()}"
    if delay is not None:
        yield f"in {microseconds_of(delay, 'delay') / 1e6:g} s"
    if priority is not None:
        yield f"priority {priority}"


def _refusal(task: Row, *, moves: bool) -> RescheduleAnswer | None:
    """Why a task stays where it is; None if it may be rescheduled."""
    if task["finished_at"] is not None or task["cancel_requested_at"] is not None:
        return RescheduleAnswer.TOO_LATE
    if task["status"] == RunStatus.RUNNING:
        return RescheduleAnswer.RUNNING
    if not moves or task["kind"] != TaskKind.RUN or task["turn"] == 0:
        return None
    # A run that has begun: only what is ready, or waits to be tried again, is moved. The rest its own code has said.
    is_due = task["ready"] or task["last_error"] is not None or task["losses"] > 0
    return None if task["status"] == RunStatus.PENDING and is_due else RescheduleAnswer.WAITING
