"""Ticks: the moments at which schedules trigger runs, and what becomes of each.

Any worker fires what is due. The schedule's row is locked and compared with what was seen, so each tick is decided by
one of them, in the transaction that writes its run: there is no leader, and no clock but the database's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from stepwell.base.durations import datetime_of
from stepwell.base.events import InternalTaskFailed
from stepwell.base.timetable import jittered
from stepwell.errors import InvalidOption
from stepwell.records import TaskKind
from stepwell.store.audit import By
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.ordered_groups import add_each
from stepwell.store.plan import MOST_FIRED, DueTicks, Plan, due_now, plan_of
from stepwell.store.rows import NewTask

if TYPE_CHECKING:
    from stepwell.store.database import Database

MOST_AT_ONCE: Final = 100  # schedules that one look fires
KEY: Final = "schedule:"  # how the key of a run that a schedule has triggered begins
TickRow = tuple[int, str, str, int, int | None]  # due, kind, outcome, count, run


class Seen(msgspec.Struct, frozen=True):
    """A schedule as it was read, with a tick to be decided."""

    id: int
    name: str
    plan: Plan
    version: int
    tick: int
    now: int


@dataclass(eq=False)
class Ticks:
    """The ticks of the schedules of one tenant."""

    _db: Database

    async def fire(self) -> set[int]:
        """Fire the ticks that have come, a bounded number of them; return the queues of the runs."""
        queues: set[int] = set()
        for statement in ("buffered_schedules", "due_schedules"):
            buffered = statement == "buffered_schedules"
            rows = await self._db.driver.read(Call(statement, self._db.params(limit=MOST_AT_ONCE)))
            for row in rows:
                try:
                    queues |= await self._fire(row, buffered=buffered)
                except (InvalidOption, msgspec.ValidationError) as error:
                    await self._give_up(row, error)
        return queues

    async def _fire(self, row: Row, *, buffered: bool) -> set[int]:
        plan = plan_of(row["plan"])
        tick = row["buffered_at"] if buffered else row["next_at"]
        seen = Seen(row["id"], row["name"], plan, row["version"], tick, row["now"])
        due = DueTicks((tick,), None) if buffered else due_now(plan, tick, row["now"])
        ids = await self._db.ids.take(len(due.ticks))
        script = self._releasing if buffered else self._firing
        queue_id, cancelled = await self._db.driver.transact(partial(script, seen, due, ids))
        for run_id in cancelled:
            await self._db.control.cancel(run_id, By(f"schedule {seen.name}", "the next run is due"))
        return set() if queue_id is None else {queue_id}

    def _firing(self, seen: Seen, due: DueTicks, ids: Sequence[int]) -> Script[tuple[int | None, list[int]]]:
        """Decide the ticks of a schedule, unless another worker has: its queue if it has runs, and whom to cancel."""
        params = self._db.params(id=seen.id, seen=seen.tick, version=seen.version)
        if not (taken := (yield Call("take_tick", params))):
            return None, []
        [row] = taken
        if seen.plan.pause_on_error and (yield from self._has_failed(row["last_task_id"])):
            why = f"run {row['last_task_id']} failed"
            yield Call("stop_schedule", self._db.params(id=seen.id, reason=why))
            return None, []
        overlap, ticks, buffered = seen.plan.overlap, list(due.ticks), row["buffered_at"]
        unfinished = [] if overlap == "allow" or not ticks else (yield from self.unfinished(seen.id))
        noted: list[TickRow] = []
        if due.missed:
            noted.append((due.first_missed, "gap", "missed", due.missed, None))
        if unfinished or (buffered is not None and ticks):
            waits = overlap in ("buffer", "cancel") and (buffered is None or overlap == "cancel")
            if waits and buffered is not None:
                noted.append((buffered, "tick", "skipped", 1, None))
            noted += [(tick, "tick", "buffered" if waits else "skipped", 1, None) for tick in ticks]
            buffered = ticks[-1] if waits else buffered
            ticks = []
        written = yield from self.trigger(seen, row["queue_id"], ticks, ids)
        noted += [(tick, "tick", "fired" if run else "skipped", 1, run) for tick, run in written]
        yield from self.note(seen.id, noted, due.next_at, buffered)
        return _queue_of(row, written), unfinished if overlap == "cancel" else []

    def _releasing(self, seen: Seen, due: DueTicks, ids: Sequence[int]) -> Script[tuple[int | None, list[int]]]:
        """Fire the tick that has waited, if no run of the schedule is under way any more."""
        params = self._db.params(id=seen.id, seen=seen.tick, version=seen.version)
        if not (taken := (yield Call("take_buffered", params))):
            return None, []
        if unfinished := (yield from self.unfinished(seen.id)):
            return None, unfinished if seen.plan.overlap == "cancel" else []
        [row] = taken
        written = yield from self.trigger(seen, row["queue_id"], due.ticks, ids)
        noted: list[TickRow] = [(tick, "tick", "fired" if run else "skipped", 1, run) for tick, run in written]
        yield from self.note(seen.id, noted, row["next_at"], None)
        return _queue_of(row, written), []

    def _has_failed(self, run_id: int | None) -> Script[bool]:
        rows = [] if run_id is None else (yield Call("last_status", {"id": run_id}))
        return any(row["status"] == "ERROR" for row in rows)

    def unfinished(self, schedule_id: int) -> Script[list[int]]:
        """The runs of a schedule that are not finished; exact for who has locked the schedule."""
        rows = yield Call("unfinished_of", {"id": schedule_id, "most": MOST_FIRED})
        return [row["id"] for row in rows]

    def trigger(
        self, seen: Seen, queue_id: int, ticks: Sequence[int], ids: Sequence[int], *, manual: bool = False
    ) -> Script[list[tuple[int, int | None]]]:
        """Write a run for each tick; without one if the queue takes none, or there is one already."""
        plan, tags = seen.plan, json.dumps(seen.plan.tags) if seen.plan.tags else None
        runs = [
            NewTask(
                TaskKind.RUN,
                queue_id,
                "",
                plan.input_at(tick),
                priority=plan.priority,
                run_at=tick if manual else jittered(seen.name, tick, plan.jitter),
                max_attempts=plan.max_attempts,
                key=key_of(seen.name, tick, manual=manual),
                tags=tags,
            )
            for tick in ticks
        ]
        if not runs:
            return []
        added = yield from add_each("add_tasks_once", self._db.params(), runs, ids[: len(runs)])
        if added:
            yield Call("mark_scheduled", {"schedule_id": seen.id}, [(each,) for each in added])
            yield from self._db.audit.created(self._db.params(), added)
        return [(tick, each if each in added else None) for tick, each in zip(ticks, ids, strict=False)]

    def note(
        self, schedule_id: int, noted: Sequence[TickRow], next_at: int | None, buffered: int | None
    ) -> Script[None]:
        """Note what became of ticks, and which comes next."""
        yield Call("add_ticks", self._db.params(schedule_id=schedule_id), sorted(noted))
        due, _, outcome, _, _ = noted[-1]
        runs = [run for *_, run in noted if run is not None]
        moved: dict[str, Value] = {"next_at": next_at, "buffered_at": buffered, "last_due_at": due}
        last = runs[-1] if runs else None
        params = self._db.params(id=schedule_id, last_outcome=outcome, last_task_id=last, **moved)
        yield Call("move_schedule", params)

    async def _give_up(self, row: Row, error: Exception) -> None:
        """Pause a schedule that this process cannot read, and say why: it would be due for ever."""
        self._db.telemetry.emit(InternalTaskFailed(f"schedule {row['name']}", str(error)))
        why = f"it cannot be read: {error}"
        await self._db.driver.transact(
            partial(self._say, Call("stop_schedule", self._db.params(id=row["id"], reason=why)))
        )

    def _say(self, call: Call) -> Script[list[Row]]:
        return (yield call)


def key_of(name: str, tick: int, *, manual: bool = False) -> str:
    """The key of the run for a tick."""
    moment = datetime_of(tick)
    shown = f"{moment:%Y-%m-%dT%H:%M:%S.%f}" if manual or moment.microsecond else f"{moment:%Y-%m-%dT%H:%M:%S}"
    return f"{KEY}{name}@{shown}Z{'!' if manual else ''}"


def tick_of(key: str | None) -> tuple[str, datetime] | None:
    """The schedule and the tick by the key of a run; None if no schedule has triggered it."""
    if key is None or not key.startswith(KEY):
        return None
    name, _, moment = key.removeprefix(KEY).rpartition("@")
    try:
        return name, datetime.fromisoformat(moment.removesuffix("!"))
    except ValueError:
        return None


def _queue_of(row: Row, written: Sequence[tuple[int, int | None]]) -> int | None:
    queue_id: int = row["queue_id"]
    return queue_id if any(run is not None for _, run in written) else None
