"""Spans and moments: what is accepted, what is refused, and that nothing is lost on the way."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.base.durations import Duration, datetime_of, microseconds_of, moment_of, seconds_of
from stepwell.errors import InvalidOption


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [
        (0, 0.0),
        (5, 5.0),
        (0.25, 0.25),
        (timedelta(minutes=2), 120.0),
        ("250ms", 0.25),
        ("90s", 90.0),
        ("15m", 900.0),
        ("24h", 86_400.0),
        ("7d", 604_800.0),
        ("1h30m", 5_400.0),
        ("1d2h3m4s5ms", 93_784.005),
        ("1.5h", 5_400.0),
        ("30m500ms", 1_800.5),
        ("2", 2.0),
        ("36525d", 3_155_760_000.0),
    ],
)
def test_durations_are_read_as_people_write_them(duration: Duration, seconds: float) -> None:
    assert seconds_of(duration) == seconds


@pytest.mark.parametrize(
    "duration",
    [
        -1,
        -0.001,
        timedelta(seconds=-1),
        float("nan"),
        float("inf"),
        10**400,
        "36526d",
        True,
        None,
        b"5s",
        [5],
        "",
        " ",
        "5 s",
        "s",
        "-5s",
        "5S",
        "5x",
        "30m1h",
        "1h1h",
        "1e3",
        "\u0665s",
        "5s\n",
        "nan",
        "9" * 400 + "s",
    ],
)
def test_anything_else_is_refused_by_the_name_of_the_option(duration: Any) -> None:
    with pytest.raises(InvalidOption, match="lease cannot be") as caught:
        seconds_of(duration, "lease")
    assert caught.value.option == "lease"


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=36_525)))
def test_no_microsecond_is_lost(span: timedelta) -> None:
    assert microseconds_of(span) == span // timedelta(microseconds=1)


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))])))
def test_a_moment_comes_back(moment: datetime) -> None:
    assert datetime_of(moment_of(moment)) == moment
    assert datetime_of(moment_of(moment)).tzinfo is UTC


class Nowhere(tzinfo):
    def utcoffset(self, dt: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


@pytest.mark.parametrize(
    "moment",
    [datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=Nowhere()), date(2026, 1, 1), 1_700_000_000, "now"],  # noqa: DTZ001
)
def test_what_names_no_moment_is_refused(moment: Any) -> None:
    with pytest.raises(InvalidOption, match="run_at"):
        moment_of(moment)
