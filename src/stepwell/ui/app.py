"""The dashboard as an ASGI application: its pages and actions by path, behind the guard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from stepwell import errors
from stepwell.decider import Decider
from stepwell.engine import Engine
from stepwell.operate.lookup import NameRefused
from stepwell.store.store import Store
from stepwell.ui import assets, change, deciders, door, limits, overview, queues, run, runs, schedules, system, trigger
from stepwell.ui.access import Authorize, Doorkeeper, Token
from stepwell.ui.desk import Desk, answered, one_line
from stepwell.ui.guard import Guard, Refusal, Rules
from stepwell.ui.live import Hints
from stepwell.workflow import Workflow

Page = Callable[[Desk, Request], Awaitable[Response]]
GET: Final[dict[str, Page]] = {
    "/": overview.overview,
    "/runs": runs.runs,
    "/runs/bulk": runs.preview,
    "/runs/{run:int}": run.run,
    "/runs/{run:int}/value": run.value,
    "/trigger": trigger.trigger,
    "/queues": queues.queues,
    "/queues/one": queues.queue,
    "/tasks/{task:int}": queues.task,
    "/dead": queues.dead,
    "/deciders": deciders.deciders,
    "/deciders/one": deciders.instance,
    "/projections": system.projections,
    "/schedules": schedules.schedules,
    "/schedules/one": schedules.schedule,
    "/workers": system.workers,
    "/audit": system.audit,
    "/settings": system.settings,
    "/login": door.login,
}
POST: Final[dict[str, Page]] = {
    "/runs/bulk": runs.bulk,
    "/runs/{run:int}/{verb}": change.change,
    "/trigger": trigger.begin,
    "/queues/change": queues.change,
    "/queues/limits": limits.change,
    "/tasks/{task:int}/{verb}": queues.change_task,
    "/dead/change": queues.change_dead,
    "/deciders/send": deciders.send,
    "/projections/change": system.change_projection,
    "/schedules/change": schedules.change,
    "/settings/maintenance": system.maintenance,
    "/login": door.enter,
    "/logout": door.leave,
}
_MISSING: Final = (
    errors.RunNotFound,
    errors.ScheduleNotFound,
    errors.WorkflowNotFound,
    errors.QueueNotFound,
    errors.DeciderNotFound,
    errors.ProjectionNotFound,
    errors.ScheduleNotFound,
    errors.StepNotFound,
)
_AWAY: Final = (errors.StoreUnavailable, errors.StoreBusy, errors.StoreClosed)


def app(
    store: Store | Callable[[], Store],
    serves: Iterable[Any] = (),
    *,
    authorize: Authorize | None = None,
    tokens: Iterable[Token] = (),
    hosts: Iterable[str] = (),
    read_only: bool = False,
    redact: Iterable[str] = (),
    name: str = "",
) -> Starlette:
    """The dashboard of a store, to be mounted or served: `web.mount("/stepwell", stepwell.ui.app(store))`.

    `store` is an open store of the loop that serves the pages, or a function that returns it. `serves` are workflows,
    deciders and engines whose code is here: with them forms know the types, and instances of deciders show states.

    Without `authorize` and `tokens` only this machine is answered. `authorize(request)` returns a `Principal`, whose
    name goes into the audit, or None for a person who may not look; each of `tokens` opens it for a person. It answers
    to the loopback names of the host, and to `hosts`. With `read_only` nothing can be changed. Where the name of a
    workflow, queue or decider fits one of the patterns of `redact`, what is stored is hidden until a person who may
    act asks for it.
    """
    known = list(serves)
    workflows = {one.name: one for one in known if isinstance(one, Workflow) and one.is_defined}
    doorkeeper = Doorkeeper(tokens)
    desk = Desk(
        given=store,
        workflows=workflows,
        engine_for=lambda of: _engine(of, known),
        read_only=read_only,
        redacted=tuple(redact),
        app_name=name,
        has_login=bool(doorkeeper),
    )
    hints = Hints()
    routes = [
        *(Route(path, _bound(desk, page), methods=["GET"]) for path, page in GET.items()),
        *(Route(path, _bound(desk, page), methods=["POST"]) for path, page in POST.items()),
        Route("/live", hints.stream, methods=["GET"]),
        Route("/static/{name}", assets.asset, methods=["GET"]),
    ]
    rules = Rules.of(hosts, doorkeeper, authorize, read_only=read_only)
    made = Starlette(routes=routes, middleware=[Middleware(Guard, rules=rules)])
    made.router.redirect_slashes = False
    made.state.doorkeeper = doorkeeper
    made.state.hints = hints
    return made


def _engine(store: Store, known: Iterable[Any]) -> Engine | None:
    """The deciders that are known here, in this store."""
    for one in known:
        if isinstance(one, Engine) and one.store is store:
            return one
    engine = Engine(store)
    for one in known:
        if isinstance(one, Decider):
            engine.register(one)
        elif isinstance(one, Engine):
            for family in one.registry:
                engine.register(family.decider, observe=family.observe)
    return engine if len(engine.registry) else None


def _bound(desk: Desk, page: Page) -> Callable[[Request], Awaitable[Response]]:
    """The page as an endpoint: an error becomes a page, or, of an action, a sentence on the page before."""

    async def endpoint(request: Request) -> Response:
        try:
            return await page(desk, request)
        except Refusal as refusal:
            return await desk.page(request, "error", status=refusal.status, told=str(refusal))
        except _AWAY as error:
            return PlainTextResponse(f"The store does not answer: {one_line(error)}\n", 503, {"retry-after": "2"})
        except (errors.StepwellError, TypeError, ValueError) as error:
            if not isinstance(error, errors.StepwellError) and request.method != "POST":
                raise
            if request.method == "POST" and (back := request.state.form.get("back")):
                return answered(request, back, one_line(error), level="problem")
            missing = isinstance(error, _MISSING) or (isinstance(error, NameRefused) and error.reason == "missing")
            return await desk.page(request, "error", status=404 if missing else 400, told=one_line(error))

    return endpoint
