"""What is stored and would be a script elsewhere, looked at by a browser: nothing of it is executed."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser

from stepwell import Engine, Store, Worker
from tests.browser.chromium import person
from tests.ui import flows, shop
from tests.ui.attacks import ATTACKS
from tests.ui.kit import PAGES, opened
from tests.ui.test_pages import oddly, stored_everywhere

pytestmark = pytest.mark.backends("sqlite", reason="pages are asked on every backend in tests/ui; here it is a browser")


@pytest.mark.soak
@pytest.mark.proves("security-06")
async def test_a_browser_executes_nothing_that_is_stored(browser: Browser, store: Store) -> None:
    shown = [path for attack in ATTACKS for path in await stored_everywhere(store, attack)]
    serves = [oddly, *flows.ALL, shop.Subscriptions()]
    await Worker(store, [oddly, *flows.ALL, Engine(store).register(shop.Subscriptions(), observe=True)]).drain()
    async with opened(store, serves) as address, person(browser, address) as page:  # which fails at any dialog
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        for path in [*PAGES, *shown]:
            await page.goto(path, wait_until="load")
        assert [url for url in asked if not url.startswith((address, "data:"))] == []
