"""What stands before every page: checks of host, person, origin and token, bounds of requests, headers of answers."""

from __future__ import annotations

import asyncio
import hmac
import inspect
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stepwell.ui.access import LOOPBACK, Authorize, Doorkeeper, Principal, host_name, is_loopback

MOST_BODY: Final = 4 * 2**20  # bytes: a payload of 1 MiB, each byte spelled as three
MOST_FIELDS: Final = 12_000
SLOWEST_BODY: Final = 30.0  # seconds
COOKIE: Final = "stepwell_session"
FORGERY: Final = "stepwell_form"  # the cookie whose value every form must repeat
FORM: Final = "application/x-www-form-urlencoded"
FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Refusal(Exception):  # noqa: N818 - an answer to the request, not a fault of the program
    """The request is answered with this and goes no further."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


@dataclass(frozen=True)
class Rules:
    """Who may come in: by which names of this host, with which token or hook, and whether anything may be changed."""

    hosts: frozenset[str]
    doorkeeper: Doorkeeper
    authorize: Authorize | None
    read_only: bool = False
    open_paths: frozenset[str] = field(default=frozenset({"/login"}))

    @classmethod
    def of(cls, hosts: Iterable[str], doorkeeper: Doorkeeper, authorize: Authorize | None, *, read_only: bool) -> Rules:
        """The rules, with the loopback names among the hosts."""
        named = {host_name(host) for host in hosts}
        return cls(frozenset(named | LOOPBACK), doorkeeper, authorize, read_only)


class Guard:
    """The middleware; what it lets through has `principal` and `form_token` in its state, a POST also its `form`."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope, receive)
        fresh = request.cookies.get(FORGERY) is None
        token = request.cookies.get(FORGERY) or secrets.token_urlsafe(24)
        guarded = _with_headers(send, scope, token if fresh else None)
        scope.setdefault("state", {})
        scope["state"]["form_token"] = token
        try:
            await self._check(request, scope, token)
        except Refusal as refusal:
            answer = self._answer(request, refusal)
            await answer(scope, receive, guarded)
        else:
            await self._app(scope, receive, guarded)

    async def _check(self, request: Request, scope: Scope, token: str) -> None:
        self._check_host(request)
        path = path_of(scope)
        if request.method not in ("GET", "HEAD", "POST"):
            raise Refusal(405, f"{request.method} is not answered here")
        if path.startswith("/static/"):
            if request.method == "POST":
                raise Refusal(405, "a static file is only read")
            return
        by_token = False
        if path not in self._rules.open_paths:
            principal, by_token = await self._principal(request)
            scope["state"]["principal"] = principal
        if request.method == "POST":
            await self._check_post(request, scope, token, path=path, by_token=by_token)

    def _check_host(self, request: Request) -> None:
        given = request.headers.getlist("host")
        if len(given) != 1 or host_name(given[0]) not in self._rules.hosts:
            known = ", ".join(sorted(self._rules.hosts))
            raise Refusal(421, f"the dashboard does not answer to this name of the host; it answers to {known}")

    async def _principal(self, request: Request) -> tuple[Principal, bool]:
        """Who asks, and whether the request itself has said a token."""
        rules = self._rules
        if rules.authorize is not None:
            found = rules.authorize(request)
            found = await found if inspect.isawaitable(found) else found
            if found is None or not found.rights:
                raise Refusal(403, "you may not look at this")
            return found, False
        if rules.doorkeeper:
            scheme, _, secret = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() == "bearer" and (token := rules.doorkeeper.of_secret(secret.strip())) is not None:
                return token.principal, True
            if (token := rules.doorkeeper.of_session(request.cookies.get(COOKIE, ""))) is not None:
                return token.principal, False
            raise Refusal(401, "log in with a token")
        client = request.client
        if not is_loopback(None if client is None else client.host) or any(one in request.headers for one in FORWARDED):
            said = "without tokens and without `authorize` the dashboard answers this machine alone, and no proxy"
            raise Refusal(403, said)
        return Principal("local"), False

    async def _check_post(self, request: Request, scope: Scope, token: str, *, path: str, by_token: bool) -> None:
        check_origin(request.headers)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
            raise Refusal(415, f"a form is sent as {FORM}")
        form = await read_form(request)
        given, cookie = form.get("form_token", ""), request.cookies.get(FORGERY, "")
        matches = bool(cookie) and hmac.compare_digest(given.encode(), cookie.encode()) and token == cookie
        if not by_token and not matches:
            raise Refusal(403, "the form is too old, or another site has sent it; load the page again")
        if path not in self._rules.open_paths and path != "/logout":
            if self._rules.read_only:
                raise Refusal(403, "this dashboard is read-only")
            if not scope["state"]["principal"].may_act:
                raise Refusal(403, f"{scope['state']['principal'].name} may look, and not act")
        scope["state"]["form"] = form

    def _answer(self, request: Request, refusal: Refusal) -> Response:
        wants_page = "text/html" in request.headers.get("accept", "")
        if refusal.status == 401 and request.method == "GET" and wants_page:
            return RedirectResponse(f"{request.scope.get('root_path', '')}/login", 303)
        headers = {"www-authenticate": "Bearer"} if refusal.status == 401 else None
        return PlainTextResponse(f"{refusal}\n", refusal.status, headers)


class Form(dict[str, str]):
    """The fields of a form by name: the last value of each, and `all_of` a name that may stand there several times."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs

    def all_of(self, name: str) -> list[str]:
        """Every value of this name."""
        return [value for each, value in self.pairs if each == name]


async def read_form(request: Request) -> Form:
    """The fields of the body, which may neither be too long nor take too long."""
    body = bytearray()
    try:
        async with asyncio.timeout(SLOWEST_BODY):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MOST_BODY:
                    raise Refusal(413, f"a form has at most {MOST_BODY} bytes")
    except TimeoutError:
        raise Refusal(408, "the form took too long to come") from None
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, encoding="utf-8", errors="strict", max_num_fields=MOST_FIELDS
        )
    except ValueError:
        raise Refusal(400, "the form cannot be read") from None
    return Form(pairs)


def check_origin(headers: Headers) -> None:
    """Refuse what another site sends: a browser says where a form comes from."""
    site = headers.get("sec-fetch-site")
    origin = headers.get("origin")
    if site not in (None, "same-origin") or (origin is not None and urlsplit(origin).netloc != headers.get("host")):
        raise Refusal(403, "another site has sent this form: nothing was done")


def path_of(scope: Scope) -> str:
    """The path below the place where the dashboard is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root) else path


def _with_headers(send: Send, scope: Scope, token: str | None) -> Send:
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    place = scope.get("root_path", "") or "/"

    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
            if token is not None and headers.get("content-type", "").startswith("text/html"):
                cookie = f"{FORGERY}={token}; Path={place}; HttpOnly; SameSite=Strict{secure}"
                headers.append("set-cookie", cookie)
        await send(message)

    return guarded


def cookie_options(request: Request) -> Mapping[str, Any]:
    """How a cookie of the dashboard is set: for its own pages alone, out of reach of scripts."""
    return {
        "path": request.scope.get("root_path", "") or "/",
        "httponly": True,
        "samesite": "strict",
        "secure": request.url.scheme == "https",
    }
