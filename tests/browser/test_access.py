"""Pages for everybody: what axe-core finds, what the keyboard reaches, small screens, and no script at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from stepwell import Store, Worker
from tests.browser.chromium import person
from tests.ui import flows, shop
from tests.ui.kit import PAGES, opened
from tests.ui.test_answers import in_doubt, paying

pytestmark = pytest.mark.backends("sqlite", reason="pages are asked on every backend in tests/ui; here it is a browser")
AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text("utf-8")
CODE = [*flows.ALL, shop.Subscriptions()]
SHEETS = ("keys", "signal", "cancel", "pause", "more", "fork", "edit", "send", "purge", "copy", "begin")

RUN_AXE = """async (only) => {
  const found = await axe.run(document, only ? { runOnly: only } : {});
  return found.violations.filter((one) => ["serious", "critical"].includes(one.impact)).map(
    (one) => `${one.id}: ${one.help} — ${one.nodes.map((node) => node.html.slice(0, 160)).slice(0, 3).join(" | ")}`);
}"""
OUT_OF_REACH = """() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary")]
  .filter((one) => one.type !== "hidden" && one.checkVisibility() && !one.disabled && one.tabIndex < 0)
  .map((one) => one.outerHTML.slice(0, 160))"""
TOO_WIDE = """() => document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("body *")]
  .filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".scroll, pre, svg, .side-links"))
  .map((one) => one.outerHTML.slice(0, 120))"""


async def problems(page: Page, *rules: str) -> list[str]:
    """What axe-core finds that is serious or critical."""
    if not await page.evaluate("() => Boolean(window.axe)"):
        await page.evaluate(AXE)
    found: list[str] = await page.evaluate(RUN_AXE, list(rules) or None)
    return found


@pytest.mark.proves("dashboard-03")
async def test_no_page_that_is_seen_often_shuts_anyone_out(browser: Browser, store: Store) -> None:
    ids = await flows.filled(store)
    often = ["/", "/runs", f"/runs/{ids['failed']}", "/deciders/one?type=subscription&id=s-1&at=1"]
    often += [f"/runs/{ids['failed']}?tab={tab}" for tab in ("graph", "source")] + ["/schedules/one?name=mornings"]
    await nobody_is_shut_out(browser, store, often)


@pytest.mark.soak
@pytest.mark.proves("dashboard-03")
async def test_no_page_shuts_anyone_out(browser: Browser, store: Store) -> None:
    ids = await flows.filled(store)
    await nobody_is_shut_out(browser, store, [*PAGES, *flows.own_pages(ids)])


async def nobody_is_shut_out(browser: Browser, store: Store, paths: Sequence[str]) -> None:
    """Fail if one of these pages has a problem, light or dark, wide or narrow, or a sheet of it."""
    found: dict[str, Any] = {}
    async with opened(store, CODE) as address, person(browser, address) as page:
        for path in paths:
            await page.goto(path)
            wrong = await problems(page)
            await page.emulate_media(color_scheme="dark")
            wrong += [f"dark: {one}" for one in await problems(page, "color-contrast")]
            await page.emulate_media(color_scheme="light")
            wrong += await page.evaluate(OUT_OF_REACH)
            wrong += await sheets_of(page)
            await page.set_viewport_size({"width": 360, "height": 740})
            wrong += [f"too wide: {one}" for one in await page.evaluate(TOO_WIDE)]
            await page.set_viewport_size({"width": 1440, "height": 900})
            found |= {path: wrong} if wrong else {}
    assert not found, "\n".join(f"{path}: {one}" for path, ones in found.items() for one in ones)


async def sheets_of(page: Page) -> Sequence[str]:
    """What is wrong with the sheets of a page, each of them open; a button of the page opens it."""
    wrong: list[str] = []
    for name in await page.evaluate("() => [...document.querySelectorAll('[popover]')].map((one) => one.id)"):
        if name == "keys" and not page.url.endswith("/settings"):
            continue  # it is the same on every page
        if not await page.locator(f'[popovertarget="{name}"]').count():
            wrong.append(f"nothing opens {name}")
        await page.evaluate("(name) => document.getElementById(name).showPopover()", name)
        wrong += [f"{name}: {one}" for one in await problems(page)]
        wrong += await page.evaluate(OUT_OF_REACH)
        await page.evaluate("(name) => document.getElementById(name).hidePopover()", name)
    return wrong


@pytest.mark.proves("dashboard-03")
async def test_a_run_is_found_and_cancelled_by_keys_alone(browser: Browser, store: Store) -> None:
    ids = await flows.filled(store)
    async with opened(store, CODE) as address, person(browser, address) as page:
        await page.goto("/")
        await page.keyboard.press("g")
        await page.keyboard.press("r")
        await expect(page.locator("h1")).to_have_text("Runs")
        await page.keyboard.press("/")
        await page.keyboard.type("desk")
        await page.keyboard.press("Enter")
        await expect(page.locator("#head h1")).to_have_text("deliver")
        seen: set[str] = set()
        for _ in range(60):
            await page.keyboard.press("Tab")
            seen.add(await page.evaluate("() => document.activeElement.textContent.trim()"))
            if await page.evaluate("() => document.activeElement.matches('[popovertarget=cancel]')"):
                break
        assert {"Skip to the page", "Overview", "Audit", "live"} <= seen
        await page.keyboard.press("Enter")
        await expect(page.locator("#cancel")).to_be_visible()
        for _ in range(10):
            if await page.evaluate("() => document.activeElement.id === 'cancel-reason'"):
                break
            await page.keyboard.press("Tab")
        await page.keyboard.type("by keys")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("status").first).to_contain_text("is cancelled")
    assert (await store.get_run(ids["waits"])).status == "CANCELLED"


@pytest.mark.proves("dashboard-03", "dashboard-07", "dashboard-08")
async def test_a_graph_is_walked_and_a_step_in_doubt_resolved_by_keys_alone(browser: Browser, store: Store) -> None:
    pay, _ = paying(store)
    run = await in_doubt(store, pay)
    async with opened(store, [pay, *CODE]) as address, person(browser, address) as page:
        await page.goto(f"/runs/{run}?tab=graph")
        await page.keyboard.press("j")
        assert await page.evaluate("() => document.activeElement.matches('.graph a')")
        await page.keyboard.press("Enter")
        await expect(page.locator(".graph a.on")).to_have_count(1)
        assert "step=wire%231" in page.url
        await page.keyboard.press("s")
        await expect(page.locator("#signal")).to_be_visible()
        assert not await problems(page)
        for name in ("reference", "cents"):  # a sheet that opens has its first field under the keys
            assert await page.evaluate("() => document.activeElement.name") == f"field.{name}"
            await page.keyboard.type({"reference": "bank-4711", "cents": "5"}[name])
            await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("status").first).to_contain_text("wire#1 is done")
        async with Worker(store, [pay]):
            await expect(page.locator("#head .pill").first).to_contain_text("succeeded")
    assert (await store.get_run(run)).output() == "bank-4711"


@pytest.mark.proves("dashboard-09")
async def test_what_is_no_json_is_said_in_the_form_and_stays_there(browser: Browser, store: Store) -> None:
    async with opened(store, CODE) as address, person(browser, address) as page:
        await store.create_queue("emails")
        await page.goto("/queues/one?name=emails")
        await page.keyboard.press("s")
        await page.locator("#payload").fill('{"to": ')
        await page.get_by_role("button", name="Send", exact=True).click()
        assert "This is no JSON" in await page.locator("#payload").evaluate("(field) => field.validationMessage")
        await page.locator("#payload").fill('{"to": "ann@example.org"}')
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(page.get_by_role("status").first).to_contain_text("has message")


@pytest.mark.proves("dashboard-02")
async def test_without_a_script_pages_show_and_do_the_same(browser: Browser, store: Store) -> None:
    ids = await flows.filled(store)
    async with (
        opened(store, CODE) as address,
        person(browser, address, java_script_enabled=False) as page,
    ):
        await page.goto(f"/runs/{ids['waits']}")
        await page.get_by_role("button", name="Signal…").click()
        await page.locator("#signal").get_by_label("courier").fill("DHL")
        await page.locator("#signal").get_by_label("parcels").fill("2")
        await page.locator("#signal").get_by_role("button", name="Send accepted").click()
        await expect(page.get_by_role("status").first).to_contain_text("took accepted")
