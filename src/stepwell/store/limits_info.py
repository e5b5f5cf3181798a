"""What there is to see of limits: of a queue, of one of its keys, and where a task stands. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from stepwell.base.durations import datetime_of
from stepwell.base.limits import Limits
from stepwell.base.rates import meter_of
from stepwell.store.driver import Row


@dataclass(frozen=True, slots=True)
class LimitsInfo:
    """The limits of a queue: those in force, what code declares, what people have changed, and how many run."""

    queue: str
    limits: Limits
    declared: Mapping[str, Any] | None
    edited: Mapping[str, Any]
    running: int
    paused_keys: int = 0
    wait: float = 0.0  # seconds until the rate in all allows a task that costs 1; 0 if it does


@dataclass(frozen=True, slots=True)
class LimitedKey:
    """A key of a limited queue: its ready tasks (counted to 1,000), how many run, and what is said of it."""

    key: str
    ready: int
    running: int
    oldest: datetime | None = None  # since when the first of its ready tasks is due
    weight: int = 1
    most: int | None = None  # how many of it may run at once, if that is not the queue's `per_key`
    paused: bool = False
    pause_reason: str | None = None


@dataclass(frozen=True, slots=True)
class LimitedPlace:
    """Where a task of a limited queue stands: behind how many of its key, and how many of the places are taken."""

    key: str
    before: int
    waiting: int
    running: int
    most: int | None
    of_key: int
    most_of_key: int | None
    is_paused: bool
    reason: str | None
    rate: str | None = None  # the rate that allows none of its cost now ...
    of_key_rate: bool = False  # ... which is that of its key ...
    wait: int = 0  # ... for this many microseconds


def waits_of(row: Row | Mapping[str, Any]) -> dict[str, Any]:
    """Which rate allows no task that costs what this does, and for how long; nothing if both do."""
    now, cost, waits = row["now"], row["cost"], dict[str, Any]()
    for prefix, paid in (("", "paid"), ("key_", "key_paid")):
        meter = meter_of(row[f"{prefix}rate"], row[f"{prefix}period"], row[f"{prefix}burst"])
        if meter is None:
            continue
        since_set_back = max(0, row["paid_at"] - now)
        if (wait := meter.wait((row[paid] or 0) - since_set_back, now, cost)) > waits.get("wait", 0):
            waits = {"rate": str(meter), "of_key_rate": bool(prefix), "wait": wait}
    return waits


def key_of(row: Any, running: int) -> LimitedKey:
    """A key, as `keys` has read it."""
    return LimitedKey(
        key=row["limit_key"],
        ready=row["ready"],
        running=running,
        oldest=None if row["since"] is None else datetime_of(row["since"]),
        weight=row["weight"] or 1,
        most=row["running"],
        paused=row["paused_at"] is not None,
        pause_reason=row["pause_reason"],
    )
