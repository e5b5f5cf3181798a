"""Schedules in the database: what code declares, what operators change, and how they stand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stepwell.base.events import ScheduleKept
from stepwell.base.names import check_name, check_whole
from stepwell.base.timetable import zones_version
from stepwell.errors import InvalidOption, ScheduleNotFound
from stepwell.records import Page, RunId
from stepwell.store.audit import By, What
from stepwell.store.draft import Asked
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.plan import LONGEST_SCHEDULE_NAME, Plan, When, next_ticks, plan_of
from stepwell.store.schedule_info import ScheduleInfo, TickInfo, schedule_info, tick_info
from stepwell.store.ticks import Seen, TickRow
from stepwell.store.workflows import living

if TYPE_CHECKING:
    from stepwell.store.database import Database

KEPT_HASHES: Final = 20
ZONES: Final = "zones/"  # what a worker says of its time zones begins so


@dataclass(frozen=True)
class NewSchedule:
    """A schedule to be written: its name, what it triggers, and when; `fills` puts the tick's moment into the input."""

    name: str
    trigger: Asked[Any]
    when: When
    fills: bool = False
    replaces: bool = field(default=True, compare=False)

    def __post_init__(self) -> None:
        if len(check_name("schedule", self.name)) > LONGEST_SCHEDULE_NAME:
            raise InvalidOption("name", self.name, f"a schedule's name has at most {LONGEST_SCHEDULE_NAME} characters")

    @cached_property
    def hash(self) -> str:
        """A short text that two have in common if they say the same."""
        text = f"{self.trigger.workflow} {self.trigger.max_attempts} {self.trigger.input} {self.fills}"
        plan = msgspec.structs.replace(self.when.plan(), priority=self.trigger.priority or self.when.priority)
        return blake2b(f"{text} {plan.text}".encode(), digest_size=8).hexdigest()

    @property
    def mark(self) -> str:
        """How a worker says that it declares this, among what it serves."""
        return mark_of(self.name, self.hash)


@dataclass(eq=False)
class Schedules:
    """The schedules of one tenant."""

    _db: Database
    declared: tuple[NewSchedule, ...] = ()  # by the workers of this process

    async def declare(self, declared: Sequence[NewSchedule]) -> None:
        """Write what the code of a worker declares, unless it is older than what a living worker declares."""
        self.declared = tuple({one.name: one for one in (*self.declared, *declared)}.values())
        rows = living(await self._db.driver.read(self.asking_who_lives()), self._db.driver.guards)
        marks = {mark for row in rows for mark in json.loads(row["handlers"])}
        for one in declared:
            queue_id = await self._db.workflow_id(one.trigger.workflow, create=True)
            if not await self._db.transact(partial(self._declaring, one, self._plan(one), queue_id, marks)):
                self._db.telemetry.emit(ScheduleKept(one.name))
        self._db.tasks.alarm.set(0)

    def asking_who_lives(self) -> Call:
        """Ask what the living workers serve, and which schedules they declare."""
        return Call("living_handlers", self._db.params(beat_now=self._db.clock.beat_now()))

    def _declaring(self, new: NewSchedule, plan: Plan, queue_id: int, marks: set[str]) -> Script[bool]:
        """False if a living worker has newer code."""
        if (yield from self._added(new.name, plan, queue_id, declared=plan.text, hashes=json.dumps([new.hash]))):
            return True
        [row] = yield Call("lock_schedule", self._db.params(name=new.name))
        hashes = json.loads(row["hashes"] or "[]")
        if hashes[-1:] == [new.hash] and row["retired_at"] is None:
            return True
        if new.hash in hashes[:-1] and mark_of(new.name, hashes[-1]) in marks:
            return False
        hashes = [*[each for each in hashes if each != new.hash][1 - KEPT_HASHES :], new.hash]
        fields: dict[str, Value] = {"queue_id": queue_id, "declared": plan.text, "hashes": json.dumps(hashes)}
        if row["retired_at"] is not None:
            fields |= {"retired_at": None, "paused_at": None, "reason": None}
        yield from self.change(row, fields, plan_of(plan.text, row["edited"]))
        return True

    def _added(self, name: str, plan: Plan, queue_id: int, **texts: Value) -> Script[bool]:
        """Make a schedule; False if there is one of this name."""
        [now] = yield Call("moment", {"now": self._db.clock.now()})
        fields: dict[str, Value] = {"declared": None, "hashes": None, **texts, "next_at": plan.following(now["now"])}
        params = self._db.params(name=name, queue_id=queue_id, plan=plan.text, **fields)
        return bool((yield Call("add_schedule", params)))

    def _plan(self, new: NewSchedule) -> Plan:
        """What is stored of it; the input as the store's codec writes it."""
        [task] = self._db.new_tasks.drafted_runs([new.trigger]).tasks
        return msgspec.structs.replace(
            new.when.plan(),
            input=task.input,
            fills=new.fills,
            max_attempts=task.max_attempts,
            priority=task.priority or new.when.priority,
            tags=tuple(new.trigger.tags) or tuple(new.when.tags),
        )

    def change(self, row: Row, changed: Mapping[str, Value], plan: Plan) -> Script[None]:
        """Write a schedule anew; the next tick follows from now if another plan says when it is due."""
        fields = {**_fields(row), **changed}
        if fields["removed_at"] is not None:
            fields |= {"next_at": None, "buffered_at": None}
        elif plan_of(row["plan"]).times != plan.times or _is_back(row, fields):
            fields |= {"next_at": plan.following(row["now"]), "buffered_at": None}
        yield Call("change_schedule", self._db.params(id=row["id"], **{**fields, "plan": plan.text}))

    def noted(self, did: str, name: str, by: By) -> Script[None]:
        """Note who changed a schedule, in the transaction that does."""
        yield from self._db.audit.of_store(self._db.params(), What.SCHEDULE_CHANGED, f"{did} schedule {name}", by)

    async def put(self, new: NewSchedule, by: By) -> ScheduleInfo:
        """Make a schedule, or change the one of this name."""
        queue_id = await self._db.workflow_id(new.trigger.workflow, create=new.trigger.defines)
        await self._db.transact(partial(self._putting, new, self._plan(new), queue_id, by))
        self._db.tasks.alarm.set(0)
        return await self.info(new.name)

    def _putting(self, new: NewSchedule, plan: Plan, queue_id: int, by: By) -> Script[None]:
        yield from self.noted("put", new.name, by)
        if (yield from self._added(new.name, plan, queue_id)):
            return
        [row] = yield Call("lock_schedule", self._db.params(name=new.name))
        if row["declared"] is not None and row["removed_at"] is None:
            why = "code declares a schedule of this name; change it with `update_schedule`, or take another name"
            raise InvalidOption("name", new.name, why)
        if not new.replaces and row["removed_at"] is None:
            raise InvalidOption("name", new.name, "there is a schedule of this name; replace=True changes it")
        nothing = dict.fromkeys(("declared", "edited", "hashes", "removed_at", "retired_at"))
        yield from self.change(row, nothing | {"queue_id": queue_id}, plan)

    async def pause(self, name: str, by: By) -> bool:
        """Fire nothing more until it is resumed; False if it is paused already."""
        return await self._db.transact(partial(self._pausing, check_name("schedule", name), by))

    def _pausing(self, name: str, by: By) -> Script[bool]:
        row = yield from self.locked(name)
        if row["paused_at"] is not None:
            return False
        fields: dict[str, Value] = {"paused_at": row["now"], "reason": by.reason}
        yield from self.change(row, fields, plan_of(row["plan"]))
        yield from self.noted("pause", name, by)
        return True

    async def resume(self, name: str, by: By) -> bool:
        """Fire again from now on; what was missed meanwhile only with catch_up="all". False if it is not paused."""
        resumed = await self._db.transact(partial(self._resuming, check_name("schedule", name), by))
        self._db.tasks.alarm.set(0)
        return resumed

    def _resuming(self, name: str, by: By) -> Script[bool]:
        row = yield from self.locked(name)
        if row["paused_at"] is None:
            return False
        plan = plan_of(row["plan"])
        fields: dict[str, Value] = {"paused_at": None, "reason": None, "retired_at": None}
        if plan.catch_up != "all":
            fields["next_at"] = plan.following(row["now"])
        yield from self.change(row, fields, plan)
        yield from self.noted("resume", name, by)
        return True

    async def run_now(self, name: str, by: By, *, force: bool) -> RunId[Any] | None:
        """Trigger a run now; None, and no run, if one is under way, unless `force` or the schedule allows it."""
        [task_id] = await self._db.ids.take(1)
        run, queue_id = await self._db.driver.transact(
            partial(self._running, check_name("schedule", name), task_id, by, force=force)
        )
        self._db.wakeups.hint({queue_id})
        return None if run is None else RunId(run)

    def _running(self, name: str, task_id: int, by: By, *, force: bool) -> Script[tuple[int | None, int]]:
        row = yield from self.locked(name)
        plan, now = plan_of(row["plan"]), row["now"]
        seen = Seen(row["id"], name, plan, row["version"], now, now)
        busy = not force and plan.overlap != "allow" and bool((yield from self._db.ticks.unfinished(row["id"])))
        ticks = () if busy else (now,)
        written = yield from self._db.ticks.trigger(seen, row["queue_id"], ticks, [task_id], manual=True)
        run = next((each for _, each in written), None)
        noted: list[TickRow] = [(now, "manual", "fired" if run else "skipped", 1, run)]
        yield from self._db.ticks.note(row["id"], noted, row["next_at"], row["buffered_at"])
        if run is not None:
            yield from self.noted("run", name, by)
        return run, row["queue_id"]

    def locked(self, name: str, *, removed: bool = False) -> Script[Row]:
        """All that is known of a schedule, locked; one that was removed only if asked for."""
        rows = yield Call("lock_schedule", self._db.params(name=name))
        if not rows or (rows[0]["removed_at"] is not None and not removed):
            raise ScheduleNotFound(name)
        return rows[0]

    async def infos(self, limit: int, after: str | None) -> Page[ScheduleInfo]:
        """The schedules by name."""
        check_whole("limit", limit, 1, 1000)
        rows = await self._read(name=None, after=after or "", limit=limit)
        return Page(map(schedule_info, rows), rows[-1]["name"] if len(rows) == limit else None)

    async def info(self, name: str) -> ScheduleInfo:
        """One schedule."""
        return schedule_info(await self.row(name))

    async def next_ticks(self, name: str, count: int) -> list[datetime]:
        """When its next ticks are."""
        row = await self.row(name)
        if row["next_at"] is None:
            return []
        return next_ticks(plan_of(row["plan"]), row["next_at"] - 1, check_whole("count", count, 1, 1000))

    async def ticks(self, name: str, limit: int, after: str | None) -> Page[TickInfo]:
        """What became of its ticks, the newest first."""
        row, (before, kind) = await self.row(name), _place(after)
        params: dict[str, Value] = {"id": row["id"], "before": before, "kind": kind}
        found = await self._db.driver.read(Call("ticks", {**params, "limit": check_whole("limit", limit, 1, 1000)}))
        last = f"{found[-1]['due_at']}/{found[-1]['kind']}" if len(found) == limit else None
        return Page(map(tick_info, found), last)

    async def row(self, name: str) -> Row:
        """One schedule as `schedules` reads it."""
        rows = await self._read(name=check_name("schedule", name), after="", limit=1)
        if not rows:
            raise ScheduleNotFound(name)
        return rows[0]

    async def _read(self, **params: Value) -> list[Row]:
        self._db.check()
        return await self._db.repeat(lambda: self._db.driver.read(Call("schedules", self._db.params(**params))))


def zones_mark() -> list[str]:
    """How a worker says by which version of the time zones it computes ticks; nothing if it does not know."""
    return [] if (version := zones_version()) is None else [f"{ZONES}{version}/"]


def mark_of(name: str, hash_: str) -> str:
    """How a worker says which declaration of a schedule it has, among what it serves."""
    return f"schedule/{name}/{hash_}"


def _is_back(row: Row, fields: Mapping[str, Value]) -> bool:
    """Whether a schedule that was removed, or that no code declared, is there again."""
    return any(row[name] is not None and fields[name] is None for name in ("removed_at", "retired_at"))


def _fields(row: Row) -> dict[str, Value]:
    names = (
        "queue_id",
        "declared",
        "edited",
        "hashes",
        "next_at",
        "buffered_at",
        "paused_at",
        "retired_at",
        "removed_at",
    )
    return {**{name: row[name] for name in names}, "reason": row["pause_reason"]}


def _place(after: str | None) -> tuple[int, str]:
    if after is None:
        return 2**62, ""
    moment, _, kind = after.partition("/")
    if not moment.lstrip("-").isdigit():
        raise InvalidOption("after", after, "it is the `next` of the page before")
    return int(moment), kind
