"""Spans and moments as people write them, turned into the numbers the store keeps.

A span is seconds, a timedelta or text like "90s" or "1h30m"; a moment is an aware datetime. Everything stored is
integer microseconds, UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from stepwell.errors import InvalidOption

Duration = float | int | timedelta | str

LONGEST: Final = timedelta(days=36_525)
SHORTEST_SPAN: Final = 0.1  # seconds of a lease and the like
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_MICROSECOND: Final = timedelta(microseconds=1)
_NUMBER: Final = r"([0-9]+(?:\.[0-9]+)?)"
_TEXT: Final = re.compile(
    rf"(?=.)(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m(?!s))?(?:{_NUMBER}s)?(?:{_NUMBER}ms)?", re.ASCII
)
_UNITS: Final = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)


def seconds_of(duration: Duration, option: str = "duration") -> float:
    """The span in seconds, from 0 to 100 years; anything else is refused by the option's name."""
    match duration:
        case bool():
            raise InvalidOption(option, duration, "a duration is seconds, a timedelta or text like '90s'")
        case timedelta():
            seconds = duration.total_seconds()
        case int() | float():
            seconds = duration
        case str():
            seconds = _seconds_in(duration, option)
        case _:
            raise InvalidOption(option, duration, "a duration is seconds, a timedelta or text like '90s'")
    # Compared before the conversion: an int too large for a float would overflow, and nan fails every comparison.
    if not 0 <= seconds <= LONGEST.total_seconds():
        raise InvalidOption(option, duration, "a duration is between 0 and 100 years")
    return float(seconds)


def microseconds_of(duration: Duration, option: str = "duration") -> int:
    """The span in whole microseconds, rounded to the nearest."""
    return round(seconds_of(duration, option) * 1_000_000)


def timeout_of(timeout: Duration | None) -> float | None:
    """The timeout of an attempt in seconds; None is no limit, and 0 is refused."""
    seconds = None if timeout is None else seconds_of(timeout, "timeout")
    if seconds == 0:
        raise InvalidOption("timeout", timeout, "a body needs some time; None is no limit")
    return seconds


def lease_of(lease: Duration | None) -> float | None:
    """A lease in seconds; None for that of the store."""
    seconds = None if lease is None else seconds_of(lease, "lease")
    if seconds is not None and seconds < SHORTEST_SPAN:
        raise InvalidOption("lease", lease, f"it is at least {SHORTEST_SPAN:g} s")
    return seconds


def moment_of(moment: datetime, option: str = "run_at") -> int:
    """The moment in microseconds since 1970, UTC; a naive datetime is refused, since it names no moment."""
    if not isinstance(moment, datetime):
        raise InvalidOption(option, moment, "a moment is an aware datetime")
    if moment.utcoffset() is None:
        raise InvalidOption(option, moment, "a moment needs a time zone: datetime.now(UTC), or moment.astimezone()")
    return (moment - EPOCH) // _MICROSECOND


def datetime_of(microseconds: int) -> datetime:
    """The aware datetime (UTC) of a stored moment."""
    return EPOCH + timedelta(microseconds=microseconds)


def _seconds_in(text: str, option: str) -> float:
    # A bare number is seconds, because an option in a URL's query is always text.
    if re.fullmatch(_NUMBER, text):
        return float(text)
    found = _TEXT.fullmatch(text)
    if found is None:
        raise InvalidOption(option, text, "write it like '250ms', '90s', '15m', '24h', '7d' or '1h30m'")
    return sum(float(number) * unit for number, unit in zip(found.groups(), _UNITS, strict=True) if number)
