"""Fixtures of the tests of waiting for runs."""

from collections.abc import AsyncIterator

import pytest

from stepwell import Store, connect
from stepwell.store import results
from tests.results.runs import NEVER


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits reads the run once, and then only when told of it."""
    monkeypatch.setattr(results, "SHORTEST_POLL", NEVER)
    monkeypatch.setattr(results, "LONGEST_POLL", NEVER)


@pytest.fixture
async def other(store_url: str) -> AsyncIterator[Store]:
    """A second store in this process: to the first it is another process."""
    async with connect(store_url) as opened:
        yield opened
