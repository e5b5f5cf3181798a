"""The overview: is all well, what needs a person, how much was done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from stepwell.base.count import Count
from stepwell.operate.doctor import Finding, findings
from stepwell.operate.facts import facts_of
from stepwell.operate.lookup import run_page
from stepwell.records import RunStatus
from stepwell.ui.chart import WINDOWS, chart_of
from stepwell.ui.desk import Desk, known_names
from stepwell.ui.timeline import strip_of

MOST_FAILED: Final = 6
MOST_QUEUES: Final = 12
MOST_WORKERS: Final = 8
NEWEST: Final = 8
PLACE: Final = "this store"  # in place of its address, which no page tells


async def overview(desk: Desk, request: Request) -> Response:
    """The page at the root."""
    store, now = desk.store, datetime.now(UTC)
    window = known_names(WINDOWS, request.query_params.get("window")) or "1h"
    bars, minutes = WINDOWS[window]
    since = now - timedelta(minutes=bars * minutes)
    facts = await facts_of(store, PLACE)
    failed = await run_page(store, MOST_FAILED, status=RunStatus.ERROR)
    retrying = [run for run in await run_page(store, MOST_FAILED, status=RunStatus.PENDING) if run.last_error]
    queues = sorted(facts.queues, key=lambda one: (-(one.ready + one.running + one.waiting), one.queue))
    return await desk.page(
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
        newest=await _newest(desk, now),
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


async def _newest(desk: Desk, now: datetime) -> list[tuple[Any, Any]]:
    store = desk.store
    runs = await run_page(store, NEWEST)
    spans = await store.database.excerpts.spans(runs)
    return [(run, strip_of(run, spans.get(int(run.id), ()), now)) for run in runs]
