"""The overview: is all well, what needs a person, how much was done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from stepwell.base.count import Count
from stepwell.operate.doctor import Finding, findings
from stepwell.operate.facts import facts_of
from stepwell.operate.lookup import run_page
from stepwell.records import RunStatus
from stepwell.store.excerpts import SettledSpan
from stepwell.ui.dashboard import Dashboard, known_names
from stepwell.ui.runs import with_strips

MOST_FAILED: Final = 6
MOST_QUEUES: Final = 12
MOST_WORKERS: Final = 8
NEWEST: Final = 8
PLACE: Final = "this store"  # in place of its address, which no page tells
WINDOWS: Final = {"1h": (60, 1), "6h": (72, 5), "24h": (96, 15), "7d": (84, 120)}  # bars, and minutes of each


async def overview(dashboard: Dashboard, request: Request) -> Response:
    """The page at the root."""
    store, now = dashboard.store, datetime.now(UTC)
    window = known_names(WINDOWS, request.query_params.get("window")) or "1h"
    bars, minutes = WINDOWS[window]
    since = now - timedelta(minutes=bars * minutes)
    facts = await facts_of(store, PLACE)
    failed = await run_page(store, MOST_FAILED, status=RunStatus.ERROR)
    retrying = [run for run in await run_page(store, MOST_FAILED, status=RunStatus.PENDING) if run.last_error]
    queues = sorted(facts.queues, key=lambda one: (-(one.ready + one.running + one.waiting), one.queue))
    return await dashboard.page(
        request,
        "overview",
        window=window,
        windows=list(WINDOWS),
        chart=chart_of(await store.database.excerpts.settled(since, width=minutes), window, now),
        metrics=await store.queue_metrics(window=f"{bars * minutes}m"),
        queues=queues[:MOST_QUEUES],
        more_queues=max(0, len(queues) - MOST_QUEUES),
        workers=_shown(facts.workers),
        figures=_figures(facts.queues),
        wrong=[_with_action(one) for one in findings(facts) if one.level != "good"],
        failed=failed,
        retrying=retrying[:3],
        newest=await with_strips(store, await run_page(store, NEWEST), now),
    )


def _figures(queues: Sequence[Any]) -> dict[str, Any]:
    waited = [one.oldest for one in queues if one.oldest is not None]
    return {
        "running": sum((one.running for one in queues), Count()),
        "ready": sum((one.ready for one in queues), Count()),
        "oldest": max(waited, default=None),
        "waiting": sum((one.scheduled + one.set_aside for one in queues), Count()),
        "dead": sum((one.dead for one in queues), Count()),
    }


def _shown(workers: Sequence[Any]) -> list[Any]:
    """The sessions that have not ended, and those that were lost."""
    return [one for one in workers if one.stopped_at is None or one.stop_reason == "lost"][:MOST_WORKERS]


def _with_action(finding: Finding) -> dict[str, Any]:
    """A finding with the form that remedies it from here, or the page that shows more."""
    words = (finding.next or "").split()
    action: dict[str, Any] = {"finding": finding, "path": None, "label": None, "fields": {}, "look": None}
    match words:
        case ["stepwell", "queue", ("resume" | "reopen") as verb, name]:
            action |= {"path": "/queues/change", "label": verb.capitalize(), "fields": {"queue": name, "verb": verb}}
        case ["stepwell", "maintenance", "end"]:
            action |= {"path": "/settings/maintenance", "label": "End maintenance", "fields": {"verb": "end"}}
        case ["stepwell", "projection", ("resume" | "retry") as verb, name, *_]:
            action |= {
                "path": "/projections/change",
                "label": verb.capitalize(),
                "fields": {"name": name.rstrip(","), "verb": verb},
            }
        case ["stepwell", "schedule", "resume", name]:
            action |= {"path": "/schedules/change", "label": "Resume", "fields": {"name": name, "verb": "resume"}}
        case _:
            pass
    pages = {
        "schedules": "/schedules",
        "decider": "/deciders",
        "order": "/dead",
        "dead letters": "/dead",
        "projection": "/projections",
        "workers": "/workers",
        "queue": "/queues",
    }
    action["look"] = "/runs" if finding.about == "runs" else pages.get(finding.about)
    return action


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
