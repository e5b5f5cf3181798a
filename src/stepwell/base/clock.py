"""Where time and chance come from.

In production the database's clock decides: `now` is None, and the clocks of hosts are not trusted. A test passes its
own clock and moves it by hand, on every backend. Nothing else in stepwell asks the host for the time.
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
    """The source of time and randomness for workers and stores."""

    def now(self) -> int | None:
        """Microseconds UTC for due times; None lets the database's clock decide."""

    def beat_now(self) -> int | None:
        """Microseconds for heartbeats; None lets the store's own clock decide."""

    def monotonic(self) -> float:
        """Monotonic seconds, for deadlines and leases."""

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
    """A clock that stands still until it is moved; threads may share it.

    Moving it does not change the clock of heartbeats, so that sessions survive a leap of hours; `leases=True` moves
    that clock too, and then leases expire.
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
        """Move the time by `by`; with `leases`, also the clock of heartbeats."""
        span = microseconds_of(by, "by")
        with self._lock:
            self._now += span
            if leases:
                self._beat += span
                self._monotonic += span


def chance_of(text: str) -> float:
    """A pseudo-random number in [0, 1) that is the same for the same text."""
    return int.from_bytes(blake2b(text.encode(), digest_size=7).digest()) / 2**56


def wall_microseconds() -> int:
    """The host's wall clock, UTC: the store's due times on SQLite and Turso."""
    return time.time_ns() // 1_000


def boot_microseconds() -> int:
    """Microseconds since the host booted: for heartbeats on SQLite and Turso, unaffected by clock changes."""
    # This clock counts while the machine sleeps; systems without it use the monotonic clock.
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return (time.monotonic_ns() if boot is None else time.clock_gettime_ns(boot)) // 1_000
