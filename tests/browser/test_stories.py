"""What people do in the dashboard, done by a browser: recovery, retry, fork, signal, many at once, time travel."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from stepwell import Engine, Store, Worker, connect
from stepwell.records import RunStatus
from tests.browser.chromium import person, served
from tests.ui import scene, shop
from tests.ui.kit import opened

pytestmark = pytest.mark.backends("sqlite", reason="pages are asked on every backend in tests/ui; here it is a browser")
QUIET: dict[str, Any] = {"require_worker": "ignore"}


async def shows_status(page: Page, word: str) -> None:
    """Wait until the page of a run says that it stands so; the page reads itself again."""
    await expect(page.locator("#head .pill").first).to_contain_text(word)


@pytest.mark.proves("dashboard-01")
async def test_an_order_outlives_its_worker_and_is_helped_by_a_signal(browser: Browser, store_url: str) -> None:
    async with connect(store_url, lease=3) as store, served(store_url) as address, person(browser, address) as page:
        async with scene.worker(store_url, pace=0.15) as process:
            await page.goto("/trigger?workflow=fulfil_order")
            await page.get_by_label("order", exact=False).first.fill("order-7")
            await page.get_by_label("items", exact=False).fill('["lamp", "desk mat"]')
            await page.get_by_role("button", name="Trigger the run").click()
            await expect(page.locator("#head h1")).to_have_text("fulfil_order")
            run = int(page.url.rpartition("/")[2].partition("?")[0])
            await scene.kill_worker_in(store, run, process, "pack")
        async with scene.worker(store_url, pace=0.02):
            await expect(page.locator(".mark-list")).to_contain_text("lost")
            await expect(page.locator(".mark-list")).to_contain_text("went on")
            await shows_status(page, "waiting")
            await page.keyboard.press("s")
            await page.locator("#signal").get_by_label("courier").fill("DHL")
            await page.locator("#signal").get_by_label("parcels").fill("2")
            await page.locator("#signal").get_by_role("button", name="Send courier_accepted").click()
            await expect(page.get_by_role("status").first).to_contain_text("goes on")
            await shows_status(page, "succeeded")
        packed = [one for one in await store.steps(run) if one.name == "pack"]
        assert [one.status for one in packed] == [RunStatus.SUCCESS] * 2


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the shop finds out whether its mail server is back."""
    monkeypatch.setattr(shop, "MARKS", tmp_path)
    return tmp_path


@pytest.mark.proves("dashboard-01")
async def test_a_failed_order_is_mended_by_a_retry_and_forked_with_an_edited_output(
    browser: Browser, live_store: Store, marks: Path
) -> None:
    store = live_store
    for mark in ("order-1.charged", "order-2.charged"):
        (marks / mark).touch()
    run = int(await store.trigger(scene.order(1, "ada@down.example")))
    await store.signal(run, "courier_accepted", {"courier": "DHL", "parcels": 1})
    async with Worker(store, shop.ALL), opened(store) as address, person(browser, address) as page:
        await scene.until(store, run, RunStatus.ERROR)
        await page.goto(f"/runs/{run}")
        await expect(page.locator(".banner.failed")).to_contain_text("send_receipt failed after 3 attempts")
        await expect(page.locator(".lane.on a")).to_have_text("send_receipt")
        await expect(page.locator("#step .frame .line")).to_contain_text("raise SMTPServerDisconnected")
        (marks / "mail is back").touch()
        await page.keyboard.press("y")
        await shows_status(page, "succeeded")
        charged = [one for one in await store.steps(run) if one.name == "charge_card"]
        assert [one.attempt for one in charged] == [1]

        await page.locator(".lane a", has_text="reserve_stock").click()
        await page.get_by_role("button", name="Fork with an edited output…").click()
        area = page.locator("#edited-output")
        await area.fill((await area.input_value()).replace("B-12", "C-7"))
        await page.get_by_role("button", name="Fork with this output").click()
        await expect(page.get_by_role("status").first).to_contain_text(f"fork of run {run}")
        fork = int(page.url.rpartition("/")[2].partition("?")[0])
        assert fork != run
        [stock] = [one for one in await store.steps(fork) if one.name == "reserve_stock"]
        assert stock.output["shelf"] == "C-7"
        await shows_status(page, "waiting")


@pytest.mark.proves("dashboard-01")
async def test_failed_runs_are_found_and_retried_together(browser: Browser, store: Store) -> None:
    bad = [int(await store.trigger(shop.nightly_report.trigger("2026-10-31").options(**QUIET))) for _ in range(3)]
    await store.trigger(shop.nightly_report.trigger("2026-11-01").options(**QUIET))
    await Worker(store, shop.ALL).drain()
    async with opened(store) as address, person(browser, address) as page:
        await page.goto("/")
        await page.get_by_role("link", name="Failed runs").click()
        await expect(page.locator("tbody tr")).to_have_count(3)
        await page.get_by_label("Select every run on this page").check()
        await expect(page.locator("#selected")).to_have_text("3 selected")
        await page.get_by_role("button", name="Retry…").click()
        await expect(page.locator("h1")).to_have_text("Retry 3 runs?")
        await page.get_by_role("button", name="Retry 3 runs").click()
        await expect(page.get_by_role("status").first).to_contain_text("3 runs retried")
    assert {(await store.get_run(one)).status for one in bad} == {RunStatus.PENDING}


@pytest.mark.proves("dashboard-01")
async def test_an_instance_is_looked_at_as_it_was(browser: Browser, store: Store) -> None:
    engine = Engine(store).register(shop.Subscriptions(), observe=True)
    name = "sub-1"
    for one in (shop.Start(name), shop.AddCard(name, "4242"), shop.RecordCharge(name, False, "card_declined")):
        await engine.execute(one)
    async with opened(store) as address, person(browser, address) as page:
        await page.goto(f"/deciders/one?type=subscription&id={name}")
        await expect(page.locator(".machine text.current")).to_have_text("PastDue")
        await page.keyboard.press("ArrowLeft")
        await expect(page.locator(".machine text.current")).to_have_text("Active")
        await expect(page.locator(".diff ins").first).to_contain_text("status: Active")
        assert "at=2" in page.url
        await page.locator("#at").focus()
        await page.keyboard.press("Home")
        await expect(page.locator(".machine text.current")).to_have_text("New")
        await page.reload()
        await expect(page.locator(".machine text.current")).to_have_text("New")


@pytest.mark.proves("dashboard-02")
async def test_a_page_shows_what_has_changed_without_being_asked(browser: Browser, store: Store) -> None:
    async with opened(store) as address, person(browser, address) as page:
        await page.goto("/runs")
        await expect(page.locator("#list")).to_contain_text("There are no runs yet")
        await store.trigger(scene.order(3))
        await expect(page.locator("#list tbody tr")).to_have_count(1)
        await page.get_by_role("button", name="live").click()
        await store.trigger(scene.order(4))
        await asyncio.sleep(0)
        await page.get_by_role("button", name="live").click()
        await expect(page.locator("#list tbody tr")).to_have_count(2)
