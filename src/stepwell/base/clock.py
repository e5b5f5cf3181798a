"""Where time and chance come from.

In production the database's clock decides, so `now` is None and no host's clock is trusted; a test passes its own
clock and moves it by hand, on every backend. Nothing else in stepwell asks the host for the time.
"""

from __future__ import annotations

import random
import threading
import time
from datetime import UTC, datetime
from hashlib import blake2b
from typing import ClassVar, Protocol

from stepwell.base.durations import Duration, microseconds_of, moment_of


class Clock(Protocol):
    """What the engine and the store ask for time and chance."""

    def now(self) -> int | None:
        """Microseconds UTC for due times; None lets the database's clock decide."""

    def beat_now(self) -> int | None:
        """Microseconds for heartbeats; None lets the store's own clock decide."""

    def monotonic(self) -> float:
        """Seconds that only grow, for deadlines and for judging silence."""

    def random(self) -> float:
        """A number in [0, 1), for jitter."""


class DatabaseClock:
    """The production clock: the database tells the time, the host only measures spans."""

    def now(self) -> int | None:
        return None

    def beat_now(self) -> int | None:
        return None

    def monotonic(self) -> float:
        return time.monotonic()

    def random(self) -> float:
        return random.random()  # noqa: S311 - spreads retries, guards nothing


class TestClock:
    """A clock that stands still until it is moved; may be shared by threads.

    Moving it leaves heartbeats alone, so that living sessions stay alive across a leap of hours; `leases=True`
    moves them too, and then silence counts.
    """

    __test__: ClassVar[bool] = False  # pytest would collect a class of this name

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC), *, seed: int = 0) -> None:
        self._now = self._beat = moment_of(start, "start")
        self._monotonic = 0
        self._random = random.Random(seed)  # noqa: S311 - a test repeats itself
        self._lock = threading.Lock()

    def now(self) -> int:
        with self._lock:
            return self._now

    def beat_now(self) -> int:
        with self._lock:
            return self._beat

    def monotonic(self) -> float:
        with self._lock:
            return self._monotonic / 1_000_000

    def random(self) -> float:
        with self._lock:
            return self._random.random()

    def advance(self, by: Duration, *, leases: bool = False) -> None:
        """Move the time by `by`; with `leases`, the clocks that judge heartbeats as well."""
        span = microseconds_of(by, "by")
        with self._lock:
            self._now += span
            if leases:
                self._beat += span
                self._monotonic += span


def chance_of(text: str) -> float:
    """A number in [0, 1) that is the same for the same text, and like chance for another."""
    return int.from_bytes(blake2b(text.encode(), digest_size=7).digest()) / 2**56


def wall_microseconds() -> int:
    """The host's wall clock, UTC: the store's due times on SQLite and Turso."""
    return time.time_ns() // 1_000


def boot_microseconds() -> int:
    """Microseconds since the host booted: the store's heartbeats on SQLite and Turso, which no clock change moves."""
    # This clock goes on while the machine sleeps; where a system has none, the monotonic one is next best.
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return (time.monotonic_ns() if boot is None else time.clock_gettime_ns(boot)) // 1_000
