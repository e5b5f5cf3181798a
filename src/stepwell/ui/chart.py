"""Charts as SVG: numbers placed in percent, so that a page of any width shows them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from stepwell.store.excerpts import SettledSpan

WINDOWS: Final = {"1h": (60, 1), "6h": (72, 5), "24h": (96, 15), "7d": (84, 120)}  # bars, and minutes of each


@dataclass(frozen=True, slots=True)
class ChartBar:
    """A bar of the chart: what succeeded below, what failed above; heights in percent of the chart."""

    x: float
    width: float
    good: float
    bad: float
    title: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars over a window of time, the most that any of them has, and lines of how long things waited and took."""

    columns: Sequence[ChartBar]
    most: int
    begin: datetime
    minutes: int
    succeeded: int
    failed: int
    retried: int
    waits: Sequence[tuple[float, float]]
    takes: Sequence[tuple[float, float]]
    longest: float
    lines: Sequence[tuple[float, float]]
    longest_line: float


def chart_of(settled: Sequence[SettledSpan], window: str, now: datetime) -> Chart:
    """The chart of what was settled in a window that ends now."""
    bars, minutes = WINDOWS[window]
    width = timedelta(minutes=minutes)
    last = int(now.timestamp()) // (60 * minutes)
    first = last - bars + 1
    most = max([one.succeeded + one.failed for one in settled], default=0)
    columns, waits, takes, lines = [], [], [], []
    longest = max([max(one.waited, one.took) for one in settled], default=0.0)
    longest_line = max([one.in_line for one in settled], default=0.0)
    for one in settled:
        place = int(one.since.timestamp()) // (60 * minutes) - first
        if not 0 <= place < bars:
            continue
        x = round(100 * place / bars, 3)
        share = 100 / max(most, 1)
        said = f"{one.since:%H:%M} UTC: {one.succeeded} succeeded, {one.failed} failed, {one.retried} tried again"
        good, bad = round(one.succeeded * share, 2), round(one.failed * share, 2)
        columns.append(ChartBar(x, round(80 / bars, 3), good, bad, said, one.since))
        scale = 100 / max(longest, 1e-6)
        waits.append((round(x + 40 / bars, 3), round(100 - one.waited * scale, 2)))
        takes.append((round(x + 40 / bars, 3), round(100 - one.took * scale, 2)))
        lines.append((round(x + 40 / bars, 3), round(100 - one.in_line * 100 / max(longest_line, 1e-6), 2)))
    kept = [one for one in settled if int(one.since.timestamp()) // (60 * minutes) >= first]
    return Chart(
        columns=columns,
        most=most,
        begin=now - width * bars,
        minutes=minutes,
        succeeded=sum(one.succeeded for one in kept),
        failed=sum(one.failed for one in kept),
        retried=sum(one.retried for one in kept),
        waits=waits,
        takes=takes,
        longest=longest,
        lines=lines,
        longest_line=longest_line,
    )
