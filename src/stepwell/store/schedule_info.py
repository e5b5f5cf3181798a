"""Schedules and their ticks as people and programs see them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from stepwell.base.durations import datetime_of
from stepwell.base.timetable import explained
from stepwell.errors import StepwellError
from stepwell.store.driver import Row
from stepwell.store.plan import CatchUp, Overlap, Plan, plan_of

Outcome = Literal["fired", "skipped", "buffered", "missed"]
TickKind = Literal["tick", "gap", "manual"]


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
