"""Every test here looks through a real Chromium, and is skipped where there is none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.browser.chromium import chromium, find_chromium

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    absent = pytest.mark.skip(reason="there is no Chromium: `apt-get install chromium`, or STEPWELL_TEST_CHROMIUM")
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.browser)
            if find_chromium() is None:
                item.add_marker(absent)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started
