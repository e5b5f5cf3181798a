"""The dashboard as an ASGI application: its pages and actions by path, behind the guard."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import lru_cache
from importlib import resources
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from stepwell import errors
from stepwell.decider import Decider
from stepwell.engine import Engine
from stepwell.operate.lookup import NameRefused
from stepwell.store.store import Store
from stepwell.ui import deciders, login, overview, queues, run, run_actions, runs, schedules, system, trigger
from stepwell.ui.access import Authorize, Doorkeeper, Token
from stepwell.ui.dashboard import Dashboard, answered, one_line
from stepwell.ui.guard import Guard, Refusal, Rules
from stepwell.workflow import Workflow

Page = Callable[[Dashboard, Request], Awaitable[Response]]
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
    "/login": login.form,
}
POST: Final[dict[str, Page]] = {
    "/runs/bulk": runs.bulk,
    "/runs/{run:int}/{verb}": run_actions.change,
    "/trigger": trigger.begin,
    "/queues/change": queues.change,
    "/queues/limits": queues.change_limits,
    "/tasks/{task:int}/{verb}": queues.change_task,
    "/dead/change": queues.change_dead,
    "/deciders/send": deciders.send,
    "/projections/change": system.change_projection,
    "/schedules/change": schedules.change,
    "/settings/maintenance": system.maintenance,
    "/login": login.enter,
    "/logout": login.leave,
}
_MISSING: Final = (
    errors.RunNotFound,
    errors.ScheduleNotFound,
    errors.WorkflowNotFound,
    errors.QueueNotFound,
    errors.DeciderNotFound,
    errors.ProjectionNotFound,
    errors.StepNotFound,
)
_AWAY: Final = (errors.StoreUnavailable, errors.StoreBusy, errors.StoreClosed)

FILES: Final = {
    "stepwell.css": "text/css; charset=utf-8",
    "pages.css": "text/css; charset=utf-8",
    "stepwell.js": "text/javascript; charset=utf-8",
    "keys.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


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
    dashboard = Dashboard(
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
        *(Route(path, _bound(dashboard, page), methods=["GET"]) for path, page in GET.items()),
        *(Route(path, _bound(dashboard, page), methods=["POST"]) for path, page in POST.items()),
        Route("/live", hints.stream, methods=["GET"]),
        Route("/static/{name}", asset, methods=["GET"]),
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


def _bound(dashboard: Dashboard, page: Page) -> Callable[[Request], Awaitable[Response]]:
    """The page as an endpoint: an error becomes a page, or, of an action, a sentence on the page before."""

    async def endpoint(request: Request) -> Response:
        try:
            return await page(dashboard, request)
        except Refusal as refusal:
            return await dashboard.page(request, "error", status=refusal.status, told=str(refusal))
        except _AWAY as error:
            return PlainTextResponse(f"The store does not answer: {one_line(error)}\n", 503, {"retry-after": "2"})
        except (errors.StepwellError, TypeError, ValueError) as error:
            if not isinstance(error, errors.StepwellError) and request.method != "POST":
                raise
            if request.method == "POST" and (back := request.state.form.get("back")):
                return answered(request, back, one_line(error), level="problem")
            missing = isinstance(error, _MISSING) or (isinstance(error, NameRefused) and error.reason == "missing")
            return await dashboard.page(request, "error", status=404 if missing else 400, told=one_line(error))

    return endpoint


async def asset(request: Request) -> Response:
    """One of the files; 404 for any other name."""
    name = request.path_params["name"]
    if name not in FILES:
        return PlainTextResponse("there is no such file\n", 404)
    # The address of a file has the version in it, so that a new release is fetched anew.
    return Response(_content(name), media_type=FILES[name], headers={"cache-control": "public, max-age=3600"})


@lru_cache(maxsize=len(FILES))
def _content(name: str) -> bytes:
    return resources.files("stepwell.ui").joinpath("static", name).read_bytes()


class Hints:
    """Server-sent events that say that something may have changed: each open page then reads itself again.

    A hint says nothing else, so that a lost one costs nothing. Each stream ends by itself after some minutes, and the
    browser comes again.
    """

    EVERY = 1.0  # seconds between two hints
    LONGEST = 600.0  # seconds of a stream
    MOST = 200  # streams at the same time

    def __init__(self) -> None:
        self.streams = 0
        self._over = asyncio.Event()

    def end(self) -> None:
        """End all streams: the server is about to stop."""
        self._over.set()

    async def stream(self, request: Request) -> Response:
        """A stream of hints; refused with 503 if there are too many."""
        if self.streams >= self.MOST:
            return PlainTextResponse("too many pages are open; this one does not update by itself\n", 503)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._hints(), media_type="text/event-stream", headers=headers)

    async def _hints(self) -> AsyncIterator[str]:
        self.streams += 1
        try:
            yield "retry: 3000\n\n"
            end = time.monotonic() + self.LONGEST
            while time.monotonic() < end and not await self._is_over_within(self.EVERY):
                yield "event: look\ndata: 1\n\n"
        finally:
            self.streams -= 1

    async def _is_over_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()
        return self._over.is_set()
