"""The verbs about schedules: make, change, pause and resume them, run one now, read what became of their ticks."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any, Protocol, Unpack

from stepwell.errors import InvalidOption
from stepwell.records import Page, RunId
from stepwell.store.database import Database
from stepwell.store.draft import Asked
from stepwell.store.plan import Cron, Every, Once, When
from stepwell.store.schedule_edits import LOW, Backfill, ScheduleChanges
from stepwell.store.schedule_info import ScheduleInfo, TickInfo
from stepwell.store.schedules import NewSchedule


class Schedulable(Protocol):
    """A workflow, as far as it can be triggered by a schedule."""

    def scheduled(self, when: When) -> NewSchedule:
        """The schedule that triggers it."""


class ScheduleVerbs:
    """What a store does about schedules."""

    database: Database

    async def schedule(
        self,
        name: str,
        trigger: Asked[Any] | Schedulable,
        when: When,
        *,
        replace: bool = True,
        actor: str | None = None,
    ) -> ScheduleInfo:
        """Trigger a run again and again: `store.schedule("nightly", report.trigger("eu"), Cron("0 2 * * *"))`.

        With `replace` it changes the schedule of this name, if there is one; else that is refused, as is the name of a
        schedule that code declares. A trigger says the input of every run. If the workflow itself is given in its
        place, the input is that of `when`, and a parameter `scheduled_for` gets the moment of the tick.
        """
        self.database.check()
        if not isinstance(when, Cron | Every | Once):
            raise InvalidOption("when", when, "it is a `Cron`, an `Every` or a `Once`")
        if isinstance(trigger, Asked):
            new = NewSchedule(name, trigger, when, replaces=replace)
        else:
            new = dataclasses.replace(trigger.scheduled(when), name=name, replaces=replace)
        return await self.database.schedules.put(new, self.database.by(actor))

    async def schedules(self, *, limit: int = 100, after: str | None = None) -> Page[ScheduleInfo]:
        """Every schedule, by name; `after` is the `next` of the page before."""
        return await self.database.schedules.infos(limit, after)

    async def get_schedule(self, name: str) -> ScheduleInfo:
        """One schedule; `ScheduleNotFound` if there is none of this name."""
        return await self.database.schedules.info(name)

    async def update_schedule(
        self, name: str, *, actor: str | None = None, **changes: Unpack[ScheduleChanges]
    ) -> ScheduleInfo:
        """Change a schedule as data: `store.update_schedule("nightly", cron="0 3 * * *", overlap="buffer")`.

        A change of what code declares stays over any deploy, until `reset_schedule`. With another time table, ticks
        come from now on.
        """
        self.database.check()
        await self.database.schedule_edits.update(name, self.database.by(actor), **changes)
        return await self.database.schedules.info(name)

    async def reset_schedule(self, name: str, *, actor: str | None = None) -> bool:
        """Let what code declares of a schedule count again, also if it was deleted; False if nothing was changed."""
        self.database.check()
        return await self.database.schedule_edits.reset(name, self.database.by(actor))

    async def delete_schedule(self, name: str, *, actor: str | None = None) -> None:
        """Remove a schedule; runs go on. Code that declares it does not bring it back, `reset_schedule` does."""
        self.database.check()
        await self.database.schedule_edits.remove(name, self.database.by(actor))

    async def backfill_schedule(
        self,
        name: str,
        start: datetime,
        end: datetime,
        *,
        priority: int = LOW,
        dry_run: bool = False,
        actor: str | None = None,
    ) -> Backfill:
        """Trigger a run for each tick of a span that has none, whether it was skipped, missed, or before the schedule.

        They are all triggered at once, with a low priority and whatever `overlap` says: bound them by a limit of the
        workflow. A tick that has a run is left out, so this may be called again. With `dry_run` they are only counted.
        """
        self.database.check()
        return await self.database.schedule_edits.backfill(
            name, start, end, priority, self.database.by(actor), dry_run=dry_run
        )

    async def pause_schedule(self, name: str, *, reason: str | None = None, actor: str | None = None) -> bool:
        """Fire no tick of a schedule until it is resumed; runs under way go on. False if it is paused already."""
        self.database.check()
        return await self.database.schedules.pause(name, self.database.by(actor, reason))

    async def resume_schedule(self, name: str, *, actor: str | None = None) -> bool:
        """Let a schedule fire again, from now on; False if it is not paused.

        The ticks that came meanwhile are fired only if it says `catch_up="all"`.
        """
        self.database.check()
        return await self.database.schedules.resume(name, self.database.by(actor))

    async def run_schedule(self, name: str, *, force: bool = False, actor: str | None = None) -> RunId[Any] | None:
        """Trigger a run of a schedule now, also if it is paused; its ticks stay as they are.

        None, and no run, if a run of the schedule is not finished, unless it allows overlaps or with `force`.
        """
        self.database.check()
        return await self.database.schedules.run_now(name, self.database.by(actor), force=force)

    async def next_ticks(self, name: str, count: int = 5) -> list[datetime]:
        """When the next ticks of a schedule are, in UTC."""
        return await self.database.schedules.next_ticks(name, count)

    async def ticks(self, name: str, *, limit: int = 100, after: str | None = None) -> Page[TickInfo]:
        """What became of the ticks of a schedule, the newest first; `after` is the `next` of the page before."""
        return await self.database.schedules.ticks(name, limit, after)
