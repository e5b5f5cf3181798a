"""When work is due again and again: by a cron expression in a time zone, every so often, or once. Pure.

Moments are microseconds since 1970, UTC. A tick follows from the expression and the tick before it, never from the time
at which someone looks, so nothing drifts and every worker computes the same ticks.
"""

from __future__ import annotations

import importlib
import zoneinfo
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, tzinfo
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec
from cronsim import CronSim, CronSimError

from stepwell.base.clock import chance_of
from stepwell.base.durations import datetime_of, moment_of
from stepwell.errors import InvalidOption

SHORTEST: Final = 1_000_000  # microseconds between two ticks
SHORTHANDS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * SUN",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@lru_cache(maxsize=1)
def zones_version() -> str | None:
    """The version of the time zones by which this process computes, such as 2025b; None if nothing here says it."""
    for folder in map(Path, zoneinfo.TZPATH):
        for name in ("tzdata.zi", "+VERSION"):
            with suppress(OSError), (folder / name).open(encoding="utf-8") as file:
                return file.readline(64).removeprefix("# version").strip() or None
        if (folder / "UTC").exists():
            return None  # the zones of the system, which do not say it
    with suppress(ImportError):
        return str(importlib.import_module("tzdata").IANA_VERSION)
    return None


class Timetable(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The ticks of a schedule: exactly one of `cron`, `every` and `at` says when they are."""

    cron: str | None = None
    tz: str = "UTC"
    every: int | None = None
    anchor: int = 0  # a moment at which a tick of `every` is
    at: int | None = None
    start: int | None = None  # no tick is before this
    end: int | None = None  # and none after this

    def check(self) -> None:
        """Refuse what says no moment, or never comes."""
        if self.every is not None and self.every < SHORTEST:
            raise InvalidOption(
                "every", f"{self.every / 1e6:g}s", "it is at least a second; a loop of yours can do more"
            )
        if self.cron is not None:
            zone_of(self.tz)
            try:
                found = self.following(0)
            except CronSimError as error:
                raise InvalidOption("cron", self.cron, f"{error}".lower()) from None
            if found is None and self.end is None:
                raise InvalidOption("cron", self.cron, "it never comes")

    def following(self, after: int) -> int | None:
        """The first tick later than that; None if no tick will come."""
        if self.start is not None:
            after = max(after, self.start - 1)
        found = self._next(after)
        return found if found is not None and (self.end is None or found <= self.end) else None

    def between(self, after: int, until: int) -> Iterator[int]:
        """Every tick later than `after`, up to `until`."""
        tick = self.following(after)
        while tick is not None and tick <= until:
            yield tick
            tick = self.following(tick)

    def latest(self, after: int, until: int) -> int | None:
        """The last tick later than `after`, up to `until`."""
        step = 600_000_000
        while True:
            begin = max(after, until - step)
            found = max(self.between(begin, until), default=None)
            if found is not None or begin == after:
                return found
            step *= 8

    def _next(self, after: int) -> int | None:
        if self.every is not None:
            return self.anchor + ((after - self.anchor) // self.every + 1) * self.every
        if self.cron is None:
            return self.at if self.at is not None and self.at > after else None
        local = datetime_of(after).astimezone(zone_of(self.tz))
        try:
            return moment_of(next(CronSim(plain_cron(self.cron), local)))
        except StopIteration:
            return None


def plain_cron(expression: str) -> str:
    """The expression with a shorthand such as `@daily` written out."""
    return SHORTHANDS.get(expression.strip().lower(), expression)


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """The time zone of this name."""
    if name == "UTC":
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        why = "no time zone has this name; they are called as places, such as Europe/Berlin"
        raise InvalidOption("tz", name, why) from None


def explained(table: Timetable) -> str:
    """When the ticks are, in a few words."""
    if table.every is not None:
        return f"every {_span(table.every)}"
    if table.cron is None:
        return f"once, at {datetime_of(table.at or 0):%Y-%m-%d %H:%M:%S} UTC"
    return f"{CronSim(plain_cron(table.cron), datetime_of(0)).explain()} {table.tz}"


def jittered(name: str, due: int, jitter: int) -> int:
    """When a tick's work may begin: every worker computes the same."""
    return due + int(chance_of(f"{name}@{due}") * jitter) if jitter else due


def _span(microseconds: int) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if microseconds % (size * 1_000_000) == 0:
            return f"{microseconds // (size * 1_000_000)}{unit}"
    return f"{microseconds / 1_000_000:g}s"
