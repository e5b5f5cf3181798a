"""Who is let in, and what is refused: names of hosts, tokens, forms of other sites, long and odd requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from stepwell import Store, connect, ui
from stepwell.errors import InvalidOption
from stepwell.ui.access import Doorkeeper, Token, host_name, is_loopback, new_secret, read_tokens
from stepwell.ui.app import GET, POST, Hints
from stepwell.ui.guard import MOST_BODY
from stepwell.ui.server import check_bind
from tests.ui import flows
from tests.ui.kit import Desk, dashboard

PATHS = [path.replace("{run:int}", "1").replace("{task:int}", "2").replace("{verb}", "cancel") for path in GET]
FORMS = [path.replace("{run:int}", "1").replace("{task:int}", "2").replace("{verb}", "cancel") for path in POST]


@pytest.fixture(name="store")
async def any_store() -> AsyncIterator[Store]:
    """A store in memory: the guard stands before it."""
    async with connect("memory:") as opened:
        yield opened


EVERYWHERE = [*PATHS, "/live", "/static/stepwell.css", "/static/nothing", "/nothing"]


@pytest.mark.proves("security-05")
@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:7070", "localhost:x", "", "evil@localhost",
     "[::1", "[::2]:7070", "0x7f000001", "localhost, evil.example"],
)  # fmt: skip
async def test_another_name_of_the_host_is_refused_on_every_path(store: Store, host: str) -> None:
    async with dashboard(store) as desk:
        for path in EVERYWHERE:
            assert (await desk.client.get(path, headers={"host": host})).status_code == 421, path
        for path in FORMS:
            assert (await desk.client.post(path, headers={"host": host})).status_code == 421, path


@pytest.mark.proves("security-05")
async def test_the_names_of_this_machine_and_those_that_were_given_are_answered(store: Store) -> None:
    async with dashboard(store, hosts=["ops.example.org"]) as desk:
        for host in (
            "localhost",
            "localhost:1",
            "127.0.0.1:7070",
            "[::1]:7070",
            "OPS.example.org",
            "ops.example.org:443",
        ):
            await desk.get("/workers", headers={"host": host})


@pytest.mark.proves("security-04")
async def test_what_another_site_sends_changes_nothing(store: Store) -> None:
    run = await store.trigger(flows.buy.trigger("lamp").options(require_worker="ignore"))
    async with dashboard(store) as desk:
        await desk.get("/")
        token = desk.client.cookies["stepwell_form"]
        form = {"form_token": token, "reason": "x", "id": str(int(run)), "do": "cancel", "verb": "drop"}
        odd: list[dict[str, Any]] = [
            {"headers": {"origin": "http://evil.example"}, "data": form},
            {"headers": {"origin": "null"}, "data": form},
            {"headers": {"origin": "http://localhost:9999"}, "data": form},
            {"headers": {"sec-fetch-site": "cross-site"}, "data": form},
            {"headers": {"sec-fetch-site": "same-site"}, "data": form},
            {"data": {**form, "form_token": "guessed"}},
            {"data": {name: value for name, value in form.items() if name != "form_token"}},
            {"json": form},
            {"content": "form_token=" + token, "headers": {"content-type": "text/plain"}},
            {"files": {"form_token": token}},
        ]
        for path in FORMS:
            for request in odd:
                answer = await desk.client.post(path, **request)
                assert answer.status_code in (403, 415), (path, request, answer.status_code)
        desk.client.cookies.clear()
        assert (await desk.client.post(f"/runs/{int(run)}/cancel", data=form)).status_code == 403
    assert (await store.get_run(run)).cancel_requested_at is None
    assert [one.status for one in await store.runs()] == ["PENDING"]


@pytest.mark.proves("security-04")
@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_other_methods_are_refused_and_a_form_is_no_get(store: Store, method: str) -> None:
    async with dashboard(store) as desk:
        for path in EVERYWHERE:
            assert (await desk.client.request(method, path)).status_code == 405, path
        only = set(POST) - set(GET)
        for path in FORMS:
            if not any(path.startswith(one.partition("{")[0]) and "{" in one for one in GET) and path in only:
                assert (await desk.client.get(path)).status_code in (404, 405), path


@pytest.mark.proves("security-03")
async def test_without_a_token_only_this_machine_is_answered(store: Store) -> None:
    async with dashboard(store, client="192.0.2.7") as desk:
        for path in PATHS:
            if path != "/login":
                assert (await desk.client.get(path)).status_code == 403, path
    async with dashboard(store) as desk:
        assert (await desk.client.get("/", headers={"x-forwarded-for": "192.0.2.7"})).status_code == 403


@pytest.mark.proves("security-03")
def test_to_listen_elsewhere_takes_a_token() -> None:
    with pytest.raises(InvalidOption, match="give tokens"):
        check_bind("0.0.0.0", [])
    check_bind("0.0.0.0", [Token("ann", new_secret())])
    check_bind("127.0.0.1", [])
    check_bind("::1", [])


@pytest.mark.proves("security-03", "security-08")
async def test_a_token_opens_the_dashboard_and_a_wrong_one_does_not(store: Store) -> None:
    ann, bob = Token("ann", new_secret()), Token("bob", new_secret(), frozenset(("look",)))
    wrong = [
        "",
        "x",
        ann.secret[:-1],
        ann.secret + "x",
        ann.secret.swapcase(),
        "\N{LATIN SMALL LETTER E WITH ACUTE}" * 30,
    ]
    async with dashboard(store, tokens=[ann, bob], client="192.0.2.7") as desk:
        for path in [*PATHS, "/live"]:
            if path != "/login":
                assert (await desk.client.get(path)).status_code == 401, path
                for secret in wrong[:4]:
                    headers = {"authorization": f"Bearer {secret}"}
                    assert (await desk.client.get(path, headers=headers)).status_code == 401, path
                assert (await desk.client.get(f"{path}?token={ann.secret}")).status_code == 401
        page = await desk.client.get("/", headers={"accept": "text/html"})
        assert (page.status_code, page.headers["location"]) == (303, "/login")
        await desk.get("/login")
        token = desk.client.cookies["stepwell_form"]
        for secret in wrong:
            answer = await desk.client.post("/login", data={"form_token": token, "token": secret})
            assert answer.status_code == 401
        answer = await desk.client.post("/login", data={"form_token": token, "token": ann.secret})
        assert answer.status_code == 303
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert ann.secret not in cookie
        assert "acts as ann" in await desk.get("/")
        await desk.client.post("/logout", data={"form_token": token})
        assert (await desk.client.get("/")).status_code == 401
        headers = {"authorization": f"Bearer {bob.secret}"}
        assert "looks on as bob" in await desk.get("/", headers=headers)
        answer = await desk.client.post("/settings/maintenance", data={"verb": "begin"}, headers=headers)
        assert (answer.status_code, "bob may look" in answer.text) == (403, True)
    assert await store.maintenance() is None


def test_a_session_is_signed_ends_and_belongs_to_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    ann = Token("ann", new_secret())
    door, now = Doorkeeper([ann]), 1_000_000.0
    monkeypatch.setattr("stepwell.ui.access.time.time", lambda: now)
    cookie = door.session_of(ann)
    assert door.of_session(cookie) == ann
    name, begun, signature = cookie.split(".")
    for forged in (f"bob.{begun}.{signature}", f"{name}.{int(begun) + 1}.{signature}", cookie[:-1], "", "a.b.c", ".."):
        assert door.of_session(forged) is None
    assert Doorkeeper([Token("ann", new_secret())]).of_session(cookie) is None
    now += 13 * 3600
    assert door.of_session(cookie) is None


@pytest.mark.proves("security-08")
def test_tokens_are_long_and_never_shown() -> None:
    with pytest.raises(InvalidOption, match="fewer than 22") as short:
        Token("ann", "secret-of-ann")
    assert "secret-of-ann" not in str(short.value)
    secret = new_secret()
    assert secret not in repr(Token("ann", secret))
    [ann, bob] = read_tokens(f"# people\nann act {secret}\n\nbob look {secret[::-1]}\n")
    assert (ann.principal.may_act, bob.principal.may_act) == (True, False)
    with pytest.raises(InvalidOption, match="line 1") as odd:
        read_tokens(f"ann {secret}")
    assert secret not in str(odd.value)


@pytest.mark.proves("security-04", "security-10")
async def test_a_read_only_dashboard_refuses_every_action(store: Store) -> None:
    await store.trigger(flows.buy.trigger("lamp").options(require_worker="ignore"))
    async with dashboard(store, read_only=True) as desk:
        for path in FORMS:
            if path not in ("/login", "/logout"):
                answer = await desk.post(path, id="1", do="cancel", verb="drop")
                assert (answer.status_code, answer.text) == (403, "this dashboard is read-only\n"), path
        page = await desk.page("/runs")
        assert "post" not in page.values("form", "method")
    assert [one.status for one in await store.runs()] == ["PENDING"]


async def test_the_application_around_it_says_who_asks(store: Store) -> None:
    def authorize(request: Any) -> ui.Principal | None:
        name = request.headers.get("x-user")
        return None if name is None else ui.Principal(name, frozenset(("look", "act") if name == "ann" else ("look",)))

    run = await store.trigger(flows.deliver.trigger("lamp").options(require_worker="ignore"))
    async with dashboard(store, authorize=authorize, client="192.0.2.7") as desk:
        assert (await desk.client.get("/")).status_code == 403
        desk.client.headers["x-user"] = "bob"
        assert (await desk.post(f"/runs/{int(run)}/cancel")).status_code == 403
        desk.client.headers["x-user"] = "ann"
        assert "is cancelled" in await desk.done(f"/runs/{int(run)}/cancel", reason="twice")
    assert "twice" in str((await store.get_run(run)).last_error)
    assert [one.actor for one in await store.history(run)] == ["ann"]


@pytest.mark.proves("security-07")
@pytest.mark.parametrize(
    "path",
    ["..%2f..%2faccess.py", "..%252f..%252faccess.py", "%2e%2e/access.py", "..\\access.py", "/etc/passwd", "%00",
     "stepwell.css%00.png", "stepwell.css/", "templates/base.html", "....//access.py", "STEPWELL.CSS"],
)  # fmt: skip
async def test_no_request_reaches_a_file_that_is_not_listed(store: Store, path: str) -> None:
    async with dashboard(store) as desk:
        assert (await desk.client.get(f"/static/{path}")).status_code == 404


@pytest.mark.proves("security-06")
async def test_every_answer_has_the_headers_that_keep_scripts_and_frames_out(store: Store) -> None:
    async with dashboard(store) as desk:
        for path in ["/", "/static/stepwell.js", "/nothing", "/runs/999"]:
            headers = (await desk.client.get(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert "access-control-allow-origin" not in headers
        assert (await desk.client.get("/")).headers["cache-control"] == "no-store"


async def test_a_form_that_is_too_long_or_odd_is_refused(store: Store) -> None:
    async with dashboard(store) as desk:
        await desk.get("/")
        token = desk.client.cookies["stepwell_form"]
        kind = {"content-type": "application/x-www-form-urlencoded"}
        for content, status in (("x" * (MOST_BODY + 1), 413), ("a=%ff", 400), ("a&" * 13_000, 400)):
            answer = await desk.client.post("/trigger", content=f"form_token={token}&{content}", headers=kind)
            assert answer.status_code == status


async def test_an_action_never_leads_to_another_site(store: Store) -> None:
    async with dashboard(store) as desk:
        for back in ("//evil.example", "http://evil.example", "/\\evil.example"):
            answer = await desk.post("/settings/maintenance", verb="end", back=back)
            assert answer.status_code == 400, back


async def test_it_works_below_a_path_of_another_application(store: Store) -> None:
    run = await store.trigger(flows.buy.trigger("lamp").options(require_worker="ignore"))
    around = Starlette(routes=[Mount("/ops/stepwell", ui.app(lambda: store))])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(around), base_url="http://localhost") as client:
        desk = Desk(client)
        page = await desk.page("/ops/stepwell/runs")
        assert {one for one in page.values("a", "href") if one.startswith("/") and not one.startswith("/ops/")} == set()
        token = client.cookies["stepwell_form"]
        answer = await client.post(f"/ops/stepwell/runs/{int(run)}/pause", data={"form_token": token})
        assert answer.headers["location"] == f"/ops/stepwell/runs/{int(run)}"
        assert (await client.get("/ops/stepwell/static/stepwell.css")).status_code == 200


async def test_a_stream_gives_hints_and_ends_with_its_client(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hints, "EVERY", 0.01)
    sent: list[Any] = []
    gone = asyncio.Event()

    async def send(message: Any) -> None:
        sent.append(message)
        if sum(b"event: look" in one.get("body", b"") for one in sent) == 3:
            gone.set()

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    scope = {
        "type": "http", "method": "GET", "path": "/live", "raw_path": b"/live", "query_string": b"", "root_path": "",
        "scheme": "http", "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1), "server": ("localhost", 1),
    }  # fmt: skip
    async with asyncio.timeout(10):
        await ui.app(store)(scope, receive, send)
    assert sent[0]["status"] == 200


def test_names_of_hosts_are_read_with_care() -> None:
    assert [host_name(one) for one in ("LocalHost:1", "[::1]:7", "a:b", "[::1", "x:1:2")] == [
        "localhost",
        "[::1]",
        "",
        "",
        "",
    ]
    assert [is_loopback(one) for one in ("127.8.8.8", "::1", None, "0.0.0.0", "example.org")] == [True] * 3 + [
        False
    ] * 2
