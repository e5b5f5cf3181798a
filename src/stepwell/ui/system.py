"""Workers, projections and outboxes, the audit, and how the store is set."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from stepwell.operate.doctor import findings
from stepwell.operate.facts import facts_of
from stepwell.operate.format import span
from stepwell.operate.projection import build_of, progress, standing
from stepwell.records import QueueStats
from stepwell.store.emission import Route
from stepwell.store.store import Store
from stepwell.ui.dashboard import Dashboard, answered, url_of
from stepwell.ui.guard import Refusal
from stepwell.ui.runs import actor_of, by

PAGE: Final = 100
PLACE: Final = "this store"


async def workers(dashboard: Dashboard, request: Request) -> Response:
    """The sessions of workers, those that live first."""
    found = sorted(await dashboard.store.workers(), key=lambda one: (one.stopped_at is not None, -one.id))
    living = [one for one in found if one.stopped_at is None]
    ended = [one for one in found if one.stopped_at is not None]
    unserved = await dashboard.store.unserved()
    return await dashboard.page(request, "workers", living=living, ended=ended, unserved=unserved)


async def projections(dashboard: Dashboard, request: Request) -> Response:
    """How every projection stands, and what it has set aside; and the outboxes."""
    store = dashboard.store
    rows = []
    for one in await store.projections():
        parked = await store.parked(one.name) if one.parked and one.live else []
        rows.append((one, standing(one), progress(one), build_of(one), parked))
    return await dashboard.page(request, "projections", rows=rows, outboxes=await _outboxes(store))


async def _outboxes(store: Store) -> list[tuple[Route, QueueStats]]:
    """The outboxes, each with how full its queue is."""
    stats = {one.queue: one for one in await store.queue_stats()}
    return [(one, stats[one.queue]) for one in await store.database.outboxes.routes("") if one.queue in stats]


async def change_projection(dashboard: Dashboard, request: Request) -> Response:
    """Pause, resume, retry, rebuild or swap a projection, or try a parked instance again."""
    form, store = request.state.form, dashboard.store
    name, verb, actor = form.get("name", ""), form.get("verb", ""), actor_of(request)
    instance = (form["type"], form["id"]) if "type" in form and "id" in form else None
    match verb:
        case "pause":
            done, said = await store.pause_projection(name, actor=actor), "is paused"
        case "resume":
            done, said = await store.resume_projection(name, actor=actor), "goes on"
        case "retry":
            done, said = await store.retry_projection(name, instance, actor=actor), "tries again what failed"
        case "skip":
            done, said = await store.skip_in_projection(name, instance, actor=actor), "goes on without what failed"
        case "rebuild":
            build = await store.rebuild_projection(name, actor=actor)
            done, said = True, f"is made anew beside the live one, as build {build}"
        case "swap":
            done, said = (
                await store.swap_projection(name, actor=actor),
                "is swapped as soon as the build has come as far",
            )
        case _:
            raise Refusal(404, "there is no such action")
    back = form.get("back") or url_of(request, "/projections")
    if done:
        return answered(request, back, f"{name} {said}.")
    return answered(request, back, f"Nothing was changed: {name} does not stand so any more.", level="warning")


async def audit(dashboard: Dashboard, request: Request) -> Response:
    """What was noted of all tasks, the newest first."""
    page = await dashboard.store.database.excerpts.notes(limit=PAGE, after=request.query_params.get("after"))
    sealed = dashboard.store.database.options.seal_audit
    return await dashboard.page(request, "audit", notes=page, following=page.next, sealed=sealed)


async def settings(dashboard: Dashboard, request: Request) -> Response:
    """How the store is set, and everything that `stepwell doctor` finds."""
    store = dashboard.store
    facts = await facts_of(store, PLACE)
    options = store.database.options
    return await dashboard.page(
        request,
        "settings",
        facts=facts,
        found=findings(facts),
        options=[(one.name, _said(one.name, getattr(options, one.name))) for one in dataclasses.fields(options)],
        workflows=await store.workflows(),
        maintenance=facts.maintenance,
        hosts=None,
    )


async def maintenance(dashboard: Dashboard, request: Request) -> Response:
    """Begin or end maintenance."""
    form, store = request.state.form, dashboard.store
    dashboard.forget_tally()
    back = form.get("back") or url_of(request, "/settings")
    if form.get("verb") == "begin":
        await store.begin_maintenance(**by(request))
        return answered(request, back, "Nothing is claimed until maintenance ends; what is being executed goes on.")
    await store.end_maintenance(actor=actor_of(request))
    return answered(request, back, "Workers claim again.")


def _said(name: str, value: Any) -> str:
    """An option in words."""
    if value is None:
        return "for ever" if name.startswith("keep") else "—"
    if dataclasses.is_dataclass(value):
        parts = [(one.name, getattr(value, one.name)) for one in dataclasses.fields(value)]
        return ", ".join(f"{part.replace('_', ' ')} {one}" for part, one in parts if one not in ((), None))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return span(value)
    return f"{value:,}" if isinstance(value, int) else str(value) or "—"
