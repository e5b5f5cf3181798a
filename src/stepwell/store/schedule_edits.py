"""What operators change of schedules; ticks that are made good; schedules that no code declares any more."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

import msgspec

from stepwell.base.durations import Duration, microseconds_of, moment_of
from stepwell.base.names import check_name, check_priority, check_tags
from stepwell.base.timetable import plain_cron
from stepwell.errors import InvalidOption, ScheduleNotFound
from stepwell.store.audit import By
from stepwell.store.driver import Call, Script, Value
from stepwell.store.plan import MOST_FIRED, CatchUp, Overlap, checked_plan, plan_of
from stepwell.store.ticks import Seen, TickRow
from stepwell.store.workflows import living

if TYPE_CHECKING:
    from stepwell.store.database import Database

MOST_BACKFILLED: Final = 100_000
LOW: Final = -10  # the priority of what is made good
RETIRED: Final = "no worker declares it any more"


class ScheduleChanges(TypedDict, total=False):
    """What can be changed of a schedule; one of `cron`, `every` and `at` takes the place of the others."""

    cron: str
    tz: str
    every: Duration
    at: datetime
    overlap: Overlap
    catch_up: CatchUp
    within: Duration | None
    jitter: Duration
    start: datetime | None
    end: datetime | None
    pause_on_error: bool
    priority: int
    tags: Sequence[str]


@dataclass(frozen=True, slots=True)
class Backfill:
    """Ticks of a span that had no run: how many there are, and how many have one now; the others have one already."""

    ticks: int
    triggered: int
    had_runs: int


@dataclass(eq=False)
class ScheduleEdits:
    """Changes of the schedules of one tenant."""

    _db: Database
    _alone: frozenset[str] = field(default_factory=frozenset)  # declared by no living worker at the last look

    async def update(self, name: str, by: By, **changes: Unpack[ScheduleChanges]) -> None:
        """Change a schedule; what code declares of it is kept, and counts again after `reset`."""
        fields = _stored(changes)
        await self._db.transact(partial(self._updating, check_name("schedule", name), fields, by))
        self._db.tasks.alarm.set(0)

    def _updating(self, name: str, changes: Mapping[str, Any], by: By) -> Script[None]:
        row = yield from self._db.schedules.locked(name)
        edited = None
        if row["declared"] is None:
            plan = plan_of(row["plan"], json.dumps(changes))
        else:
            edited = json.dumps({**json.loads(row["edited"] or "{}"), **changes})
            plan = plan_of(row["declared"], edited)
        checked_plan(plan)
        yield from self._db.schedules.change(row, {"edited": edited}, plan)
        yield from self._db.schedules.noted("change", name, by)

    async def reset(self, name: str, by: By) -> bool:
        """Let what code declares count again, also of a schedule that was removed; False if nothing was changed."""
        changed = await self._db.transact(partial(self._resetting, check_name("schedule", name), by))
        self._db.tasks.alarm.set(0)
        return changed

    def _resetting(self, name: str, by: By) -> Script[bool]:
        row = yield from self._db.schedules.locked(name, removed=True)
        if row["declared"] is None:
            if row["removed_at"] is not None:
                raise ScheduleNotFound(name)
            return False
        if row["edited"] is None and row["removed_at"] is None:
            return False
        yield from self._db.schedules.change(row, {"edited": None, "removed_at": None}, plan_of(row["declared"]))
        yield from self._db.schedules.noted("reset", name, by)
        return True

    async def remove(self, name: str, by: By) -> None:
        """Remove a schedule; code that declares it does not bring it back."""
        await self._db.transact(partial(self._removing, check_name("schedule", name), by))

    def _removing(self, name: str, by: By) -> Script[None]:
        row = yield from self._db.schedules.locked(name)
        yield from self._db.schedules.change(row, {"removed_at": row["now"]}, plan_of(row["plan"]))
        yield from self._db.schedules.noted("delete", name, by)

    async def backfill(
        self, name: str, start: datetime, end: datetime, priority: int, by: By, *, dry_run: bool
    ) -> Backfill:
        """Trigger runs for the ticks of a span that have none; `overlap` does not count for them."""
        name, priority = check_name("schedule", name), check_priority(priority)
        after, until = moment_of(start, "start") - 1, moment_of(end, "end")
        plan = plan_of((await self._db.schedules.row(name))["plan"])
        ticks = []
        for tick in plan.between(after, until):
            ticks.append(tick)
            if len(ticks) > MOST_BACKFILLED:
                raise InvalidOption("end", end, f"these are more than {MOST_BACKFILLED:,} ticks; take a shorter span")
        triggered = there = 0
        for first in range(0, len(ticks), MOST_FIRED):
            part = ticks[first : first + MOST_FIRED]
            ids = await self._db.ids.take(len(part))
            done = partial(self._backfilling, name, part, ids, priority, by, dry_run=dry_run)
            missing, queue_id = await self._db.transact(done)
            triggered, there = triggered + len(missing), there + len(part) - len(missing)
            if not dry_run:
                self._db.wakeups.hint({queue_id})
        return Backfill(len(ticks), triggered, there)

    def _backfilling(
        self, name: str, ticks: Sequence[int], ids: Sequence[int], priority: int, by: By, *, dry_run: bool
    ) -> Script[tuple[list[int], int]]:
        row = yield from self._db.schedules.locked(name)
        found = yield Call("ticks_with_runs", {"id": row["id"], "since": ticks[0], "until": ticks[-1]})
        there = {one["due_at"] for one in found}
        missing = [tick for tick in ticks if tick not in there]
        if missing and not dry_run:
            plan = msgspec.structs.replace(plan_of(row["plan"]), priority=priority, jitter=0)
            seen = Seen(row["id"], name, plan, row["version"], ticks[0], row["now"])
            written = yield from self._db.ticks.trigger(seen, row["queue_id"], missing, ids)
            noted: list[TickRow] = [(tick, "tick", "fired" if run else "skipped", 1, run) for tick, run in written]
            yield Call("add_ticks", self._db.params(schedule_id=row["id"]), noted)
            yield from self._db.schedules.noted(f"backfill {len(missing)} of", name, by)
        return missing, row["queue_id"]

    async def retire(self) -> bool:
        """Pause schedules that no living worker declares, though one serves their workflow, twice in a row."""
        rows = living(await self._db.driver.read(self._db.schedules.asking_who_lives()), self._db.driver.guards)
        marks = {mark for row in rows for mark in json.loads(row["handlers"])}
        alone = set()
        for row in await self._db.driver.read(Call("declared_schedules", self._db.params())):
            beginning = f"schedule/{row['name']}/"
            if row["workflow"] in marks and not any(mark.startswith(beginning) for mark in marks):
                alone.add(row["name"])
        for name in sorted(alone & self._alone):
            await self._db.transact(partial(self._retiring, name))
        self._alone = frozenset(alone)
        return False

    def _retiring(self, name: str) -> Script[None]:
        row = yield from self._db.schedules.locked(name)
        if row["paused_at"] is None and row["declared"] is not None:
            fields: dict[str, Value] = {"paused_at": row["now"], "retired_at": row["now"], "reason": RETIRED}
            yield from self._db.schedules.change(row, fields, plan_of(row["plan"]))


def _stored(changes: ScheduleChanges) -> dict[str, Any]:
    """Changes as a plan stores them."""
    known = ScheduleChanges.__annotations__
    if unknown := changes.keys() - known.keys():
        raise InvalidOption("changes", min(unknown), f"of a schedule these can be changed: {', '.join(known)}")
    if not changes:
        raise InvalidOption("changes", {}, "say what is to be changed, such as cron='0 3 * * *'")
    kinds = [one for one in ("cron", "every", "at") if one in changes]
    if len(kinds) > 1:
        raise InvalidOption(kinds[1], kinds[0], "a schedule has one of `cron`, `every` and `at`")
    stored: dict[str, Any] = dict.fromkeys(("cron", "every", "at")) if kinds else {}
    for name, value in changes.items():
        stored[name] = _stored_value(name, value)
    return stored


def _stored_value(name: str, value: Any) -> Any:
    match name:
        case "cron":
            return plain_cron(str(value))
        case "every" | "within" | "jitter":
            return None if value is None else microseconds_of(value, name)
        case "at" | "start" | "end":
            return None if value is None else moment_of(value, name)
        case "tags":
            return check_tags(value)
        case "priority":
            return check_priority(value)
        case _:
            return value
