"""Every test here looks through a real Chromium, and is skipped where there is none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.browser.chromium import chromium, find_chromium

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(autouse=True)
def there_is_a_chromium() -> None:
    """Skipped when it is executed, not marked: docs/requirements.md is the same on machines with and without one."""
    if find_chromium() is None:
        pytest.skip("there is no Chromium: `apt-get install chromium`, or STEPWELL_TEST_CHROMIUM")


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started
