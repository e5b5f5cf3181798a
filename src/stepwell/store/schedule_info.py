"""Schedules and their ticks as people and programs see them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from stepwell.base.durations import datetime_of
from stepwell.base.timetable import explained
from stepwell.errors import StepwellError
from stepwell.records import WorkerInfo
from stepwell.store.driver import Row
from stepwell.store.plan import CatchUp, Overlap, Plan, plan_of

Outcome = Literal["fired", "skipped", "buffered", "missed"]
TickKind = Literal["tick", "gap", "manual"]
LATE: Final = 5.0  # seconds after which a tick that no worker has fired is late


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule as it stands: when it is due, in words, and what became of its last tick.

    `declared` says that code declares it, and `edited` what of it an operator has changed since. `next_at` is None if
    no tick will come. `buffered_at` is the tick that waits for the run before it.
    """

    name: str
    workflow: str
    state: Literal["active", "paused", "ended"]
    when: str
    cron: str | None
    tz: str
    overlap: Overlap
    catch_up: CatchUp
    input: Any
    next_at: datetime | None
    late: float  # seconds since a tick has come that no worker has fired yet
    buffered_at: datetime | None
    last_at: datetime | None
    last_outcome: Outcome | None
    last_run: int | None
    paused_at: datetime | None
    pause_reason: str | None
    declared: bool
    edited: tuple[str, ...]
    created_at: datetime

    @property
    def why(self) -> str:
        """Why its last tick has a run or none, or why no tick is fired, in words, with what helps."""
        if self.state == "paused":
            said = f": {self.pause_reason}" if self.pause_reason else ""
            return f"it is paused{said}; `store.resume_schedule({self.name!r})` lets it go on"
        if self.late > LATE and self.next_at is not None:
            return (
                f"its tick of {_shown(self.next_at)} is {self.late:.0f} s late: every living worker of this store "
                "fires ticks, so start one"
            )
        if self.buffered_at is not None:
            return f"its tick of {_shown(self.buffered_at)} waits until run {self.last_run} has ended"
        if self.last_at is None:
            return "no tick will come" if self.next_at is None else f"its first tick comes at {_shown(self.next_at)}"
        then = "no other will come" if self.next_at is None else f"the next comes at {_shown(self.next_at)}"
        return f"{self._last}; {then}"

    @property
    def _last(self) -> str:
        last = f"its last tick, of {_shown(self.last_at)},"
        match self.last_outcome:
            case "fired":
                return f"{last} has triggered run {self.last_run}"
            case "missed":
                return f"{last} had no run: no worker was there in time, and catch-up is {self.catch_up!r}"
            case _:
                under_way = "a run" if self.last_run is None else f"run {self.last_run}"
                return f"{last} was skipped: {under_way} was not finished, and overlap is {self.overlap!r}"


@dataclass(frozen=True, slots=True)
class TickInfo:
    """What became of a tick: `fired` with its run, `skipped` or `buffered` because of the run before it, or `missed`.

    A gap stands for `count` ticks, from `due_at` on, that no worker fired in time. A manual one was asked for.
    """

    due_at: datetime
    kind: TickKind
    outcome: Outcome
    count: int
    run_id: int | None
    decided_at: datetime

    @property
    def why(self) -> str:
        """Why it has a run or none, in words."""
        match self.outcome:
            case "fired":
                return f"it has triggered run {self.run_id}"
            case "missed":
                return f"no worker was there in time: {self.count} ticks were left out"
            case "buffered":
                return "it had to wait for the run before it"
            case "skipped":
                return "a run of the schedule was not finished, or its queue took no work"


def schedule_info(row: Row) -> ScheduleInfo:
    """A row of `schedules`."""
    plan = plan_of(row["plan"])
    paused = row["paused_at"] is not None
    return ScheduleInfo(
        name=row["name"],
        workflow=row["workflow"],
        state="paused" if paused else "ended" if row["next_at"] is None else "active",
        when=_when(plan),
        cron=plan.cron,
        tz=plan.tz,
        overlap=plan.overlap,
        catch_up=plan.catch_up,
        input=json.loads(plan.input),
        next_at=None if paused else _moment(row["next_at"]),
        late=0.0 if paused or row["next_at"] is None else max(0, row["now"] - row["next_at"]) / 1_000_000,
        buffered_at=_moment(row["buffered_at"]),
        last_at=_moment(row["last_due_at"]),
        last_outcome=row["last_outcome"],
        last_run=row["last_task_id"],
        paused_at=_moment(row["paused_at"]),
        pause_reason=row["pause_reason"],
        declared=row["declared"] is not None,
        edited=tuple(json.loads(row["edited"] or "{}")),
        created_at=datetime_of(row["created_at"]),
    )


def _moment(value: int | None) -> datetime | None:
    return None if value is None else datetime_of(value)


def other_zones(workers: Iterable[WorkerInfo]) -> str:
    """That workers compute ticks by other versions of the time zones, in words; nothing if they agree."""
    by_version: dict[str, list[str]] = {}
    for one in workers:
        if one.zones is not None:
            by_version.setdefault(one.zones, []).append(one.name)
    if len(by_version) < 2:
        return ""
    told = "; ".join(f"{version} ({', '.join(sorted(names)[:3])})" for version, names in sorted(by_version.items()))
    return f"workers have different versions of the time zones, so a tick may be at two moments: {told}"


def _shown(moment: datetime | None) -> str:
    return "?" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _when(plan: Plan) -> str:
    try:
        return explained(plan)
    except StepwellError as error:
        return str(error)


def tick_info(row: Row) -> TickInfo:
    """A row of `ticks`."""
    return TickInfo(
        datetime_of(row["due_at"]),
        row["kind"],
        row["outcome"],
        row["count"],
        row["task_id"],
        datetime_of(row["decided_at"]),
    )
