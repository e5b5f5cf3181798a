"""What all pages share: the store, the code that is known here, the options, and how a page is made and sent."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from stepwell._version import __version__
from stepwell.base.count import NONE, Count
from stepwell.engine import Engine
from stepwell.operate.lookup import NameRefused
from stepwell.operate.time_travel import Waypoints
from stepwell.records import Run, TaskKind
from stepwell.store.store import Store
from stepwell.ui.access import Principal
from stepwell.ui.guard import Refusal, cookie_options
from stepwell.ui.template import template
from stepwell.workflow import Workflow

SAID: Final = "stepwell_said"  # the cookie that brings what became of an action to the next page
THEME: Final = "stepwell_theme"
LASTING: Final = 2.0  # seconds for which the numbers of the navigation are kept
LONGEST_SAID: Final = 900


@dataclass(frozen=True, slots=True)
class NavigationCounts:
    """The numbers of the navigation."""

    running: Count = NONE
    ready: Count = NONE
    failed: Count = NONE
    dead: Count = NONE
    workers: int = 0
    maintenance: bool = False


@dataclass
class Dashboard:
    """One dashboard: its store, what it knows of the program, and how it shows it."""

    given: Store | Callable[[], Store]
    workflows: Mapping[str, Workflow[..., Any]]
    engine_for: Callable[[Store], Engine | None]
    read_only: bool
    redacted: tuple[str, ...]
    app_name: str
    has_login: bool = False
    waypoints: Waypoints = field(default_factory=Waypoints)
    _engine: tuple[Store, Engine | None] | None = None
    _tally: tuple[float, NavigationCounts] = (-1e9, NavigationCounts())
    _tallying: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def store(self) -> Store:
        """The store, which is open while pages are asked for."""
        return self.given if isinstance(self.given, Store) else self.given()

    def code_of(self, run: Run[Any]) -> Callable[..., Any] | None:
        """The function of the run's workflow, if it is here."""
        known = self.workflows.get(run.workflow)
        return None if known is None else known.fn

    @property
    def engine(self) -> Engine | None:
        """The deciders that are known here, in the store; None if there are none."""
        store = self.store
        if self._engine is None or self._engine[0] is not store:
            self._engine = store, self.engine_for(store)
        return self._engine[1]

    def hides(self, *names: str | None) -> bool:
        """True if what is stored under one of these names is shown only to who asks for it and may act."""
        return any(name and fnmatchcase(name, pattern) for name in names for pattern in self.redacted)

    def is_hidden(self, request: Request, *names: str | None) -> bool:
        """True if this request does not get to see what is stored under these names."""
        asked = request.query_params.get("reveal") == "1" and principal_of(request).may_act
        return self.hides(*names) and not asked

    async def page(self, request: Request, name_: str, /, *, status: int = 200, **values: Any) -> Response:
        """The page of this template; nothing but its tag if the browser has it as it is."""
        principal = principal_of(request)
        text = template(f"{name_}.html").render(
            request=request,
            url=lambda path, **query: url_of(request, path, **query),
            here=lambda **changes: here(request, **changes),
            principal=principal,
            may_act=principal.may_act and not self.read_only,
            form_token=request.state.form_token,
            tally=await self.tally(),
            said=said_in(request),
            theme=theme_of(request),
            dashboard=self,
            version=__version__,
            backend=self.store.database.driver.name,
            **values,
        )
        tag = f'"{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"'
        if status == 200 and request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"etag": tag})
        answer = HTMLResponse(text, status, {"etag": tag})
        if request.cookies.get(SAID) is not None and "x-stepwell-again" not in request.headers:
            answer.delete_cookie(SAID, path=cookie_options(request)["path"])
        return answer

    async def tally(self) -> NavigationCounts:
        """The numbers of the navigation, read every two seconds at the most."""
        async with self._tallying:
            if time.monotonic() - self._tally[0] > LASTING:
                self._tally = time.monotonic(), await _tally(self.store)
            return self._tally[1]

    def forget_tally(self) -> None:
        """Read the numbers of the navigation anew: something was changed from here."""
        self._tally = (-1e9, self._tally[1])


async def _tally(store: Store) -> NavigationCounts:
    queues = await store.queue_stats()
    workflows = {one.name for one in await store.workflows()}
    dead = await store.dead_letter_counts()
    return NavigationCounts(
        running=sum((one.running for one in queues if one.queue in workflows), Count()),
        ready=sum((one.ready for one in queues), Count()),
        failed=sum((one.count for one in dead if one.kind == TaskKind.RUN), Count()),
        dead=sum((one.count for one in dead), Count()),
        workers=sum(1 for one in await store.workers() if one.alive and one.stopped_at is None),
        maintenance=await store.maintenance() is not None,
    )


def principal_of(request: Request) -> Principal:
    """Who asks."""
    found: Principal = getattr(request.state, "principal", Principal("", frozenset()))
    return found


def theme_of(request: Request) -> str:
    """The theme that was chosen; empty for that of the system."""
    theme = request.cookies.get(THEME, "")
    return theme if theme in ("light", "dark") else ""


def url_of(request: Request, path: str, **query: Any) -> str:
    """The address of a page of this dashboard, wherever it is mounted."""
    asked = [(name.rstrip("_"), value) for name, value in query.items() if value not in (None, "", ())]
    return quote(f"{request.scope.get('root_path', '')}{path}") + (f"?{urlencode(asked, doseq=True)}" if asked else "")


def here(request: Request, **changes: Any) -> str:
    """The address of this page with other parameters; None leaves one out."""
    kept = {name: request.query_params.getlist(name) for name in request.query_params}
    asked = {**kept, **{name.rstrip("_"): value for name, value in changes.items()}}
    pairs = {name: value for name, value in asked.items() if value not in (None, "", [])}
    return "?" + urlencode(pairs, doseq=True)


def said_in(request: Request) -> Mapping[str, str] | None:
    """What became of the action before this page."""
    try:
        found = json.loads(unquote(request.cookies.get(SAID, "null")))
        return {"level": str(found["level"]), "text": str(found["text"])} if isinstance(found, dict) else None
    except (ValueError, KeyError):
        return None


def answered(request: Request, path: str, said: str, *, level: str = "good") -> Response:
    """After an action: the page at this path, which says what became of it."""
    answer = RedirectResponse(path if path.startswith("?") else _local(request, path), 303)
    told = quote(json.dumps({"level": level, "text": said[:LONGEST_SAID]}))
    answer.set_cookie(SAID, told, max_age=30, **cookie_options(request))
    return answer


def _local(request: Request, path: str) -> str:
    """A path of this dashboard, never another site's."""
    root = request.scope.get("root_path", "")
    if not path.startswith("/") or path.startswith("//") or "\\" in path:
        raise Refusal(400, "that is no page of this dashboard")
    return path if root and path.startswith(f"{root}/") else f"{root}{path}"


def known_names(names: Iterable[str], given: str | None) -> str | None:
    """The name that was given if it is one of these, else None."""
    return given if given in set(names) else None


def one_line(error: BaseException) -> str:
    """An error for a person, with what to do where that is known."""
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{text}; try {error.instead}" if isinstance(error, NameRefused) else text
