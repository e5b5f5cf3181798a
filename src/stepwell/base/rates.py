"""Rates: how many units may begin in a period, and the arithmetic that holds for every window of that length."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from stepwell.base.durations import Duration, microseconds_of
from stepwell.base.names import check_whole
from stepwell.errors import InvalidOption

MOST_UNITS: Final = 1_000_000_000
SHORTEST_PERIOD: Final = 1_000  # microseconds
LONGEST_PERIOD: Final = 31 * 86_400_000_000
LONGEST_DEBT: Final = 315_360_000_000_000  # microseconds: ten years
SHARE: Final = 10  # a rate's burst is this part of it, unless it is said

_UNITS: Final = (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000))
_TEXT: Final = re.compile(
    r"\s*([0-9][0-9_]{0,15})\s*/\s*([0-9a-z.]{1,20})(?:\s+burst\s+([0-9][0-9_]{0,15}))?\s*", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` units begin in any `per`, over all workers; as text it is `"50/s"` or `"1000/1m burst 200"`.

    `burst` is how many begin at once after a rest: a tenth of `count`, unless it is said. The larger it is, the slower
    is the pace after it, so that no window holds more than `count`.
    """

    count: int
    per: Duration = "1s"
    burst: int | None = None

    def __post_init__(self) -> None:
        check_whole("rate", self.count, 1, MOST_UNITS)
        period = microseconds_of(self.per, "per")
        if not SHORTEST_PERIOD <= period <= LONGEST_PERIOD:
            raise InvalidOption("per", self.per, "the period of a rate is between 1 ms and 31 days")
        if self.burst is not None:
            check_whole("burst", self.burst, 1, MOST_UNITS)
            if self.burst > self.count:
                raise InvalidOption("burst", self.burst, f"it is more than the {self.count} of a period")
        object.__setattr__(self, "per", _period_text(period))  # one spelling: equal rates are equal

    @classmethod
    def of(cls, option: str, said: object) -> Rate:
        """The rate that was said, as one or as text."""
        if isinstance(said, Rate):
            return said
        found = _TEXT.fullmatch(said) if isinstance(said, str) else None
        if found is None:
            raise InvalidOption(option, said, "write it like '50/s', '1000/5m' or '1000/1m burst 200', or pass a Rate")
        count, per, burst = found.groups()
        per = per if per[0].isdigit() else f"1{per}"
        return cls(int(count), per, None if burst is None else int(burst))

    @property
    def meter(self) -> Meter:
        """The rate as numbers."""
        burst = max(1, self.count // SHARE) if self.burst is None else self.burst
        return Meter(self.count, microseconds_of(self.per), burst)

    def __str__(self) -> str:
        return f"{self.count}/{self.per}" + ("" if self.burst is None else f" burst {self.burst}")


def _period_text(period: int) -> str:
    return next(
        (f"{period // size}{unit}" for unit, size in _UNITS if period % size == 0), f"{period / 1_000_000:.6f}s"
    )


@dataclass(frozen=True, slots=True)
class Meter:
    """A rate as numbers, and what it says of a moment until which it is paid; all times in microseconds.

    `claim_limited` says the same in SQL. Between two units lies `period / flow`. From a rest `burst` units begin at
    once, and `flow` in the period after that: never more than `count` in a window, which is why `flow` is smaller.
    """

    count: int
    period: int
    burst: int

    @property
    def flow(self) -> int:
        """Units in a period, without a burst."""
        return self.count - self.burst + 1

    def __str__(self) -> str:
        return str(Rate(self.count, self.period / 1_000_000))

    def price(self, units: int) -> int:
        """By how much these units move the moment until which the rate is paid."""
        return min(-(-units * self.period // self.flow), LONGEST_DEBT)

    def corrected(self, paid: int, now: int, units: int) -> int:
        """The moment until which the rate is paid, after a task that cost `units` more than was paid (less: negative).

        What it has not needed lets others go on sooner; it is not saved up.
        """
        if units >= 0:
            return max(paid, now) + self.price(units)
        return max(paid - self.price(-units), min(paid, now))

    def wait(self, paid: int, now: int, cost: int, *, before: int = 0) -> int:
        """Microseconds until a task of this cost may begin after `before` units; 0 or less if it may now.

        One that costs more than a burst begins alone, after a rest in which the part beyond that could have begun;
        and it is paid for afterwards as any other. One that costs more than the rate begins like one that costs that.
        """
        if cost <= self.burst:
            return max(paid, now) + self.price(before + cost) - self.price(self.burst) - now
        rested = max(paid, now) + self.price(before) if before else paid
        return rested + self.price(min(cost, self.count) - self.burst) - now


def meter_of(count: int | None, period: int | None, burst: int | None) -> Meter | None:
    """The meter of stored numbers; None if there is no rate."""
    return None if count is None or period is None or burst is None else Meter(count, period, burst)
