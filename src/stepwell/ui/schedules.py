"""Schedules: when they are due, what became of their ticks; what people change of them and make good."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, get_args

from starlette.requests import Request
from starlette.responses import Response

from stepwell.base.timetable import zone_of
from stepwell.errors import InvalidOption
from stepwell.operate.format import many
from stepwell.store.plan import CatchUp, Overlap
from stepwell.store.schedule_info import ScheduleInfo
from stepwell.store.store import Store
from stepwell.ui.dashboard import Dashboard, answered, url_of
from stepwell.ui.guard import Form, Refusal
from stepwell.ui.runs import actor_of

PAGE: Final = 50
NEXT: Final = 5


async def schedules(dashboard: Dashboard, request: Request) -> Response:
    """Every schedule, by name."""
    page = await dashboard.store.schedules(limit=PAGE, after=request.query_params.get("after"))
    rows = [(one, local(one.next_at, one), local(one.last_at, one)) for one in page]
    return await dashboard.page(request, "schedules", rows=rows, following=page.next)


async def schedule(dashboard: Dashboard, request: Request) -> Response:
    """One schedule: its next ticks, and what became of those before."""
    store, name = dashboard.store, request.query_params.get("name", "")
    one = await store.get_schedule(name)
    ticks = await store.ticks(name, limit=PAGE, after=request.query_params.get("after"))
    coming = [] if one.state == "paused" else await store.next_ticks(name, NEXT)
    return await dashboard.page(
        request,
        "schedule",
        one=one,
        coming=[local(each, one) for each in coming],
        ticks=[(each, local(each.due_at, one)) for each in ticks],
        following=ticks.next,
        overlaps=get_args(Overlap),
        catch_ups=get_args(CatchUp),
        span=[request.query_params.get(field, "")[:40] for field in ("start", "end")],
    )


async def change(dashboard: Dashboard, request: Request) -> Response:
    """Change a schedule: pause, resume, run it now, set or reset it, make ticks good, delete it."""
    form, store = request.state.form, dashboard.store
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
        case "set":
            done, said = await _set(store, name, form), "is changed, over what code declares, until it is reset"
        case "reset":
            done, said = await store.reset_schedule(name), "is as its code declares it"
        case "delete":
            await store.delete_schedule(name)
            done, said, back = True, "is deleted; its runs go on", url_of(request, "/schedules")
        case "count" | "backfill" as verb:
            return await _backfill(dashboard, request, name, is_count=verb == "count")
        case _:
            raise Refusal(404, "there is no such action")
    if done:
        return answered(request, back, f"{name} {said}.")
    return answered(request, back, f"Nothing was changed: {name} does not stand so any more.", level="warning")


async def _set(store: Store, name: str, form: Form) -> bool:
    """Change what the form says otherwise than the schedule; False if that is nothing."""
    one = await store.get_schedule(name)
    stands = {"cron": one.cron or "", "every": "", "tz": one.tz, "overlap": one.overlap, "catch_up": one.catch_up}
    given = {field: form.get(field, "").strip() for field in stands}
    changes: Any = {field: value for field, value in given.items() if value and value != stands[field]}
    if changes:
        await store.update_schedule(name, **changes)
    return bool(changes)


async def _backfill(dashboard: Dashboard, request: Request, name: str, *, is_count: bool) -> Response:
    """Trigger a run for each tick of a span that has none; they are counted first."""
    form, store = request.state.form, dashboard.store
    one = await store.get_schedule(name)
    span = {field: form.get(field, "") for field in ("start", "end")}
    start, end = (_moment(field, text, one) for field, text in span.items())
    found = await store.backfill_schedule(name, start, end, dry_run=is_count)
    told = f"{many(found.ticks, 'tick')} in that span; {many(found.had_runs, 'has', 'have')} a run"
    if not is_count:
        back = url_of(request, "/schedules/one", name=name)
        return answered(request, back, f"{name} has {many(found.triggered, 'run')} more: {told} already.")
    asked = span if found.triggered else {}
    level = "good" if found.triggered else "warning"
    said = f"{told}, {many(found.triggered, 'is', 'are')} to be made good."
    return answered(request, url_of(request, "/schedules/one", name=name, **asked), said, level=level)


def _moment(field: str, text: str, one: ScheduleInfo) -> datetime:
    """A moment that a person has typed, by the clock of the schedule's time zone unless it says another."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption(field, text, "it is a day and a time, such as 2026-11-01T00:00") from None
    return found if found.tzinfo else found.replace(tzinfo=zone_of(one.tz))


def local(moment: datetime | None, one: ScheduleInfo) -> str:
    """A moment by the clock of the schedule's time zone."""
    return "—" if moment is None else f"{moment.astimezone(zone_of(one.tz)):%a %Y-%m-%d %H:%M:%S %Z}"
