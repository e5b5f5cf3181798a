"""Schedules: when they are due, what became of their ticks; pause, resume, run now."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from stepwell.base.timetable import zone_of
from stepwell.store.schedule_info import ScheduleInfo
from stepwell.ui.desk import Desk, answered, url_of
from stepwell.ui.guard import Refusal
from stepwell.ui.runs import actor_of

PAGE: Final = 50
NEXT: Final = 5


async def schedules(desk: Desk, request: Request) -> Response:
    """Every schedule, by name."""
    page = await desk.store.schedules(limit=PAGE, after=request.query_params.get("after"))
    rows = [(one, local(one.next_at, one), local(one.last_at, one)) for one in page]
    return await desk.page(request, "schedules", rows=rows, following=page.next)


async def schedule(desk: Desk, request: Request) -> Response:
    """One schedule: its next ticks, and what became of those before."""
    store, name = desk.store, request.query_params.get("name", "")
    one = await store.get_schedule(name)
    ticks = await store.ticks(name, limit=PAGE, after=request.query_params.get("after"))
    coming = [] if one.state == "paused" else await store.next_ticks(name, NEXT)
    return await desk.page(
        request,
        "schedule",
        one=one,
        coming=[local(each, one) for each in coming],
        ticks=[(each, local(each.due_at, one)) for each in ticks],
        following=ticks.next,
    )


async def change(desk: Desk, request: Request) -> Response:
    """Pause or resume a schedule, or trigger a run of it now."""
    form, store = request.state.form, desk.store
    name, back = form.get("name", ""), form.get("back") or url_of(request, "/schedules")
    actor = actor_of(request)
    match form.get("verb", ""):
        case "pause":
            reason = form.get("reason") or f"paused by {actor}"
            done = await store.pause_schedule(name, reason=reason, actor=actor)
            said = "is paused: runs under way go on, and no tick is fired"
        case "resume":
            done, said = await store.resume_schedule(name, actor=actor), "goes on from now"
        case "run":
            run = await store.run_schedule(name, actor=actor)
            if run is None:
                told = f"Nothing was triggered: {name} has a run that is not finished."
                return answered(request, back, told, level="warning")
            done, said = True, f"runs now, as run {int(run)}"
        case _:
            raise Refusal(404, "there is no such action")
    if done:
        return answered(request, back, f"{name} {said}.")
    return answered(request, back, f"Nothing was changed: {name} does not stand so any more.", level="warning")


def local(moment: datetime | None, one: ScheduleInfo) -> str:
    """A moment by the clock of the schedule's time zone."""
    return "—" if moment is None else f"{moment.astimezone(zone_of(one.tz)):%a %Y-%m-%d %H:%M:%S %Z}"
