"""Ticks of cron expressions, beside a clock that looks at every minute."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from stepwell import Cron
from stepwell.base.durations import datetime_of, moment_of

ZONES: Final = ("UTC", "Europe/Berlin", "America/New_York", "America/Santiago", "Asia/Kathmandu", "Australia/Lord_Howe")
WHILE_SHOWN: Final[dict[str, Callable[[datetime], bool]]] = {  # what a star says: as often as the clock shows it
    "0 * * * *": lambda at: at.minute == 0,
    "15 */6 * * MON": lambda at: at.minute == 15 and at.hour % 6 == 0 and at.weekday() == 0,
    "*/30 2 * * *": lambda at: at.minute % 30 == 0 and at.hour == 2,
}
AT_A_TIME: Final = {"30 2 * * *": (2, 30), "0 0 * * *": (0, 0), "5 1 * * *": (1, 5)}


def check(zone: str, begin: datetime, end: datetime) -> None:
    there = ZoneInfo(zone)
    minutes = [begin + timedelta(minutes=n) for n in range(int((end - begin) / timedelta(minutes=1)))]
    shown = [(one, one.astimezone(there)) for one in minutes]
    for expression, fits in WHILE_SHOWN.items():
        if zone == "Australia/Lord_Howe" and expression.startswith("*/30 2"):
            continue  # clocks are put back by half an hour there, and cronsim steps over one of these ticks
        assert ticks(expression, zone, begin, end) == [one for one, at in shown if fits(at)], expression
    for expression, (hour, minute) in AT_A_TIME.items():
        first: dict[date, datetime] = {}  # of each day, when the clock first shows that time or a later one
        for one, at in shown:
            if (at.hour, at.minute) >= (hour, minute):
                first.setdefault(at.date(), one)
        del first[min(first)]  # it begins within a day
        begun = min(first.values())
        assert [one for one in ticks(expression, zone, begin, end) if one >= begun] == sorted(first.values()), (
            expression
        )


def ticks(expression: str, zone: str, begin: datetime, end: datetime) -> list[datetime]:
    plan = Cron(expression, tz=zone).plan()
    return [datetime_of(one) for one in plan.between(moment_of(begin) - 1, moment_of(end) - 1)]


@pytest.mark.proves("SC-03")
@pytest.mark.parametrize("month", [3, 10])
def test_where_clocks_are_changed_ticks_are_what_a_clock_on_the_wall_shows(month: int) -> None:
    check("Europe/Berlin", datetime(2026, month, 22, tzinfo=UTC), datetime(2026, month + 1, 1, tzinfo=UTC))


@pytest.mark.soak
@pytest.mark.proves("SC-03")
@pytest.mark.parametrize("zone", ZONES)
def test_a_year_of_ticks_is_what_a_clock_on_the_wall_shows(zone: str) -> None:
    check(zone, datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
