"""Every page on every backend: what it shows, that it stays small, and that nothing stored becomes markup."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from stepwell import CloudEvent, Context, Cron, Engine, Outbox, PermanentError, Store, Worker, ui, workflow
from stepwell.base.clock import TestClock
from stepwell.records import RunStatus
from stepwell.store import excerpts
from stepwell.ui import Principal
from tests.ui import flows, shop
from tests.ui.attacks import ATTACKS
from tests.ui.kit import MOST_BYTES, PAGES, Markup, dashboard

TEMPLATES = Path(ui.__file__).parent / "templates"
QUIET: dict[str, Any] = {"require_worker": "ignore"}


async def test_every_page_is_small_and_safe_on_every_backend(store: Store) -> None:
    ids = await flows.filled(store)
    for serves in ((), [*flows.ALL, shop.Subscriptions()]):
        async with dashboard(store, serves) as desk:
            for path in [*PAGES, *flows.own_pages(ids)]:
                page = await desk.page(path)
                assert page.values("html", "lang") == ["en"], path


async def test_a_failed_run_says_where_and_what_is_kept(store: Store) -> None:
    ids = await flows.filled(store)
    async with dashboard(store, flows.ALL) as desk:
        page = await desk.page(f"/runs/{ids['failed']}")
        assert "PermanentError: too dear" in page.text
        assert "flows.py" in page.text
        assert "1 step before it is recorded and will not run again" in page.text
        assert "Retry from pay" in page.text
        assert f"/runs/{ids['failed']}/retry" in page.values("form", "action")


@pytest.mark.proves("dashboard-04")
async def test_a_search_that_reads_every_run_ends_somewhere_and_says_where(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(excerpts, "READ", 3)
    for number in range(6):
        tags = ["old"] if number == 0 else ["new"]
        await store.trigger(flows.buy.trigger(f"item {number}").options(key=f"k{number}", tags=tags, **QUIET))
        clock.advance("1m")
    async with dashboard(store, flows.ALL) as desk:
        page = await desk.page("/runs?q=tag:old")
        assert "No run fits" in page.text
        assert "Searched in the runs since" in page.text
        page = await desk.page("/runs?q=tag:new")
        assert len([one for one in page.values("input", "name") if one == "id"]) == 4
        assert "Searched in" not in (await desk.page("/runs?q=workflow:buy")).text
        answer = await desk.client.get("/runs", params={"q": "k0"})
        assert answer.status_code == 303  # who has the key is found without a search


async def test_the_outboxes_are_shown_with_what_waits_and_what_failed(store: Store) -> None:
    async def publish(event: CloudEvent) -> None:
        raise PermanentError("no such topic")

    outbox = Outbox("orders-out", publish, types="order.*")
    await Worker(store, [outbox]).drain()
    await store.emit("order.shipped", {"order": 7})
    await Worker(store, [outbox]).drain()
    await store.emit("order.paid", {"order": 7})
    async with dashboard(store) as desk:
        page = await desk.page("/projections")
        assert "order.*" in page.text
        assert {"/queues/one?name=outbox.orders-out", "/dead?queue=outbox.orders-out"} <= set(page.values("a", "href"))


@pytest.mark.proves("TK-13")
async def test_a_run_shows_its_values_and_streams(store: Store) -> None:
    run = int(await store.trigger(flows.tells.trigger("half").options(**QUIET)))
    await Worker(store, flows.ALL).drain()
    async with dashboard(store, flows.ALL) as desk:
        page = await desk.page(f"/runs/{run}?view=run")
        for said in ("status", '{"at": "half"}', "progress", "tokens", "3 chunks", f"stepwell stream {run} tokens -f"):
            assert said in page.text
    async with dashboard(store, flows.ALL, redact=["tells"]) as desk:
        page = await desk.page(f"/runs/{run}")
        assert "status" in page.text
        assert "half" not in page.text


@pytest.mark.proves("logs-04")
async def test_a_run_shows_what_the_chosen_step_has_logged_and_hides_it_where_it_is_said(store: Store) -> None:
    ids = await flows.filled(store)
    async with dashboard(store, flows.ALL) as desk:
        page = await desk.page(f"/runs/{ids['failed']}")
        assert "pay, attempt 1" in page.text
        assert "paying 190000" in page.text
        assert f"stepwell logs {ids['failed']} --step pay#1" in page.text
        assert "paying 190000" in (await desk.page(f"/runs/{ids['failed']}?step=price%231")).text
        assert f"stepwell logs {ids['failed']}Copy" in (await desk.page(f"/runs/{ids['failed']}?logs=run")).text
    async with dashboard(store, flows.ALL, redact=["bu*"]) as desk:
        assert "paying 190000" not in (await desk.page(f"/runs/{ids['failed']}")).text


async def test_a_run_that_waits_says_for_what_and_has_the_form_for_it(store: Store) -> None:
    ids = await flows.filled(store)
    async with dashboard(store, flows.ALL) as desk:
        page = await desk.page(f"/runs/{ids['waits']}")
        assert "accepted" in page.text
        fields = [one for one in page.values("input", "name") if one.startswith("field.")]
        assert fields == ["field.courier", "field.parcels", "field.fragile"]


async def test_the_overview_shows_what_is_wrong_and_what_was_done(store: Store) -> None:
    await flows.filled(store)
    async with dashboard(store, flows.ALL) as desk:
        page = await desk.page("/")
        assert "Needs attention" in page.text
        assert "StepFailed: step pay#1 gave up with PermanentError: too dear" in page.text
        assert "failed for good" in page.text


async def test_runs_are_searched_counted_and_paged(store: Store) -> None:
    ids = await flows.filled(store)
    for number in range(45):
        await store.trigger(flows.buy.trigger(f"item {number}").options(**QUIET))
    async with dashboard(store, flows.ALL) as desk:
        first = await desk.page("/runs")
        assert len([one for one in first.values("input", "name") if one == "id"]) == 40
        [older] = [one for one in first.values("a", "href") if one.startswith("?after=")]
        second = await desk.page(f"/runs{older}")
        assert len([one for one in second.values("input", "name") if one == "id"]) == 9
        for query, found in (("tag:red", 1), ("key:gold", 1), ("status:failed", 1), ("workflow:deliver", 1)):
            page = await desk.page(f"/runs?q={query}")
            assert len([one for one in page.values("input", "name") if one == "id"]) == found, query
        page = await desk.page("/runs?q=error:%22TOO DEAR%22")
        assert "newest 100,000" in page.text
        assert f"/runs/{ids['failed']}" in page.values("a", "href")
        assert "No run fits" in (await desk.page("/runs?q=error:100%25")).text
        answer = await desk.client.get("/runs", params={"q": "gold"})
        assert answer.headers["location"] == f"/runs/{ids['failed']}"
        assert "No run has the number or key" in (await desk.page("/runs?q=silver")).text
        assert "it is one of" in (await desk.page("/runs?q=status:lost")).text


@workflow
async def oddly(ctx: Context, what: str) -> None:
    async def odd(again: str) -> dict[str, str]:
        logging.getLogger(again).warning(again)
        raise PermanentError(again)

    ctx.progress({what: what})
    ctx.set_value("said", {what: what})
    ctx.stream("said").write(what)
    await ctx.step("".join(one for one in what if one.isprintable() and one not in "/#"), odd, what)


@pytest.mark.proves("security-06")
@pytest.mark.backends("sqlite", reason="markup is made of what any backend returns")
async def test_nothing_that_is_stored_becomes_markup(store: Store) -> None:
    serves = [oddly, *flows.ALL, shop.Subscriptions()]
    await store.schedule("odd", oddly.trigger(ATTACKS[0]), Cron("0 7 * * *"))
    shown = [(attack, await stored_everywhere(store, attack)) for attack in ATTACKS]
    await Worker(store, [oddly, *flows.ALL, Engine(store).register(shop.Subscriptions(), observe=True)]).drain()
    async with dashboard(store, serves, name=ATTACKS[0]) as desk:
        for path in [*PAGES, "/queues/one?name=emails"]:
            await desk.page(path)
        for attack, paths in shown:
            for path in paths:
                await desk.page(path)
            for path, query in asked_with(attack):
                answer = await desk.client.get(path, params=query, follow_redirects=True)
                assert Markup(answer.text).odd == [], path
                assert "evil" not in answer.headers.get("set-cookie", "")
            said = await desk.done("/trigger", workflow="buy", field__what=attack, key=f"{attack} again")
            assert not Markup(said).odd
        for attack in ATTACKS[::6]:
            typed = {"typed": "1", "show": "1", "field__what": attack, "key": attack, "tags": attack, "delay": attack}
            assert Markup((await desk.post("/trigger", workflow="buy", **typed)).text).odd == []
            said = await desk.done("/schedules/change", name="odd", verb="count", start=attack, end=attack, back="/")
            assert not Markup(said).odd
    for attack in ATTACKS[::8]:
        async with dashboard(store, name=attack) as desk:
            await desk.page("/")


async def stored_everywhere(store: Store, attack: str) -> list[str]:
    """Store it in every field that a user can set, and return the pages that show it."""
    run = await store.trigger(oddly.trigger(attack).options(key=attack, tags=[attack], **QUIET))
    waits = await store.trigger(flows.deliver.trigger(attack).options(**QUIET))
    held = await store.trigger(flows.deliver.trigger(attack).options(**QUIET))
    await store.pause(held, reason=attack)
    await store.create_queue("emails")
    message = await store.enqueue("emails", {"to": attack, attack: attack}, key=attack)
    engine = Engine(store).register(shop.Subscriptions(), observe=True)
    await engine.execute(shop.Start(attack, attack))
    await store.begin_maintenance(attack)
    await store.end_maintenance()
    await store.delete(await store.enqueue("emails", attack), attack)
    instance = urlencode({"type": "subscription", "id": attack})
    runs = [f"/runs/{int(one)}" for one in (run, waits, held)]
    tabs = [f"{runs[0]}?tab=graph", f"{runs[0]}?tab=source"]
    return [*runs, *(tabs if attack in ATTACKS[::6] else ()), f"/tasks/{int(message)}", f"/deciders/one?{instance}"]


def asked_with(attack: str) -> list[tuple[str, dict[str, str]]]:
    """Paths, and the attack as what a person types there."""
    one = {"type": "subscription", "id": attack}
    return [
        ("/runs", {"q": attack}),
        ("/runs", {"q": f'error:"{attack}"'}),
        ("/trigger", {"workflow": "oddly"}),
        ("/trigger", {"workflow": attack}),
        ("/deciders/one", {**one, "input": "Start", "field.plan": attack}),
        ("/dead", {"error": attack}),
        ("/dead", {"queue": attack}),
        ("/queues/one", {"name": attack}),
        ("/schedules/one", {"name": "odd", "start": attack, "end": attack}),
        ("/deciders", {"type": "subscription", "state": attack}),
        ("/", {"window": attack}),
    ]


@pytest.mark.backends("sqlite", reason="what is shown of a value does not depend on where it was stored")
async def test_a_large_value_is_cut_and_can_be_had_whole(store: Store) -> None:
    large = "x" * 1_000_000
    run = await store.trigger(flows.buy.trigger(large).options(**QUIET))
    await Worker(store, flows.ALL).drain()
    async with dashboard(store, flows.ALL) as desk:
        for path in (f"/runs/{int(run)}", f"/runs/{int(run)}?step=price%231", "/runs", "/trigger?workflow=buy"):
            if path != "/trigger?workflow=buy":
                assert "more characters" in (await desk.page(path)).text or path == "/runs"
        whole = await desk.client.get(f"/runs/{int(run)}/value?what=input")
        assert json.loads(whole.text) == large
        assert "attachment" in whole.headers["content-disposition"]


@pytest.mark.backends("sqlite", reason="numbers go by Python, not by JavaScript")
async def test_large_numbers_keep_every_digit(store: Store) -> None:
    await store.create_queue("emails")
    message = await store.enqueue("emails", {"to": "ann@example.org", "number": 2**63 - 25})
    async with dashboard(store) as desk:
        assert str(2**63 - 25) in (await desk.page(f"/tasks/{int(message)}")).text


async def test_a_run_of_many_steps_is_shown_in_parts(store: Store) -> None:
    run = await store.trigger(flows.many.trigger(450).options(**QUIET))
    await Worker(store, flows.ALL).drain()
    assert (await store.get_run(run)).status is RunStatus.SUCCESS
    async with dashboard(store, flows.ALL) as desk:
        first = await desk.page(f"/runs/{int(run)}")
        assert "450 steps" in first.text
        assert "201\N{EN DASH}400" in first.text
        last = await desk.page(f"/runs/{int(run)}?step=price%23450")
        assert "price#450" in last.text
        assert "price#12" not in last.text


@pytest.mark.backends("sqlite", reason="what is hidden does not depend on where it was stored")
async def test_payloads_are_hidden_where_it_is_said_and_shown_to_who_may_act(store: Store) -> None:
    ids = await flows.filled(store)
    rights: list[frozenset[Any]] = [frozenset(("look",))]
    options: dict[str, Any] = {
        "authorize": lambda _: Principal("ann", rights[0]),
        "redact": ["bu*", "emails", "subscription"],
    }
    async with dashboard(store, flows.ALL, **options) as desk:
        for path in (
            f"/runs/{ids['failed']}",
            f"/runs/{ids['failed']}?reveal=1",
            f"/runs/{ids['bought']}?step=price%231",
        ):
            text = (await desk.page(path)).text
            assert '"gold"' not in text
            assert "1900" not in text
        assert "nowhere" not in (await desk.page(f"/tasks/{ids['bad']}")).text.replace("nowhere is no address", "")
        await desk.get(f"/runs/{ids['failed']}/value?what=input", status=403)
        assert "4242" not in (await desk.page("/deciders/one?type=subscription&id=s-1")).text
        rights[0] = frozenset(("look", "act"))
        assert '"gold"' in (await desk.page(f"/runs/{ids['bought']}?step=price%231&reveal=1")).text.replace(
            "lamp", "gold"
        )


@pytest.mark.backends("sqlite", reason="a tag is made of the page")
async def test_a_page_that_has_not_changed_is_not_sent_again(store: Store, clock: TestClock) -> None:
    ids = await flows.filled(store)
    async with dashboard(store, flows.ALL) as desk:
        await desk.get("/")  # the cookie stands in every later page
        for path in (f"/runs/{ids['bought']}", "/runs", "/dead"):
            tag = (await desk.client.get(path)).headers["etag"]
            answer = await desk.client.get(path, headers={"if-none-match": tag})
            assert (answer.status_code, answer.content) == (304, b""), path
        tag = (await desk.client.get("/runs")).headers["etag"]
        await store.trigger(flows.buy.trigger("more").options(**QUIET))
        answer = await desk.client.get("/runs", headers={"if-none-match": tag})
        assert answer.status_code == 200
        assert len(answer.content) <= MOST_BYTES


@pytest.mark.proves("dashboard-02")
def test_no_part_that_is_exchanged_is_missing_until_it_has_something_to_show() -> None:
    """What is not on a page when it is opened could not be exchanged later."""
    for path in TEMPLATES.glob("*.html"):
        assert not re.findall(r"{% if [^%]*%}\s*<[^>]*data-live", path.read_text("utf-8")), path.name


async def test_what_is_not_there_is_said_with_the_right_number(store: Store) -> None:
    async with dashboard(store) as desk:
        for path in ("/runs/7", "/tasks/7", "/queues/one?name=none", "/trigger?workflow=none", "/nothing"):
            await desk.get(path, status=404)
        for path in ("/deciders/one?type=none&id=1", "/dead?queue=none"):
            await desk.get(path, status=404)
        for path in ("/runs?after=x", "/audit?after=1-x", "/runs/bulk?do=shred", "/dead?kind=SHOE"):
            answer = await desk.client.get(path)
            assert answer.status_code in (200, 400), path
