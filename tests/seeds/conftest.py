"""Fixtures of the programs of the source documents."""

from collections.abc import AsyncIterator

import pytest

from stepwell import Store, connect
from tests.seeds.loading import Site


@pytest.fixture
async def site(store_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    """The address of the programs leads to this test's database."""
    site = Site(store_url)
    site.stand_in(monkeypatch)
    yield site
    await site.close()


@pytest.fixture
async def beside(store_url: str) -> AsyncIterator[Store]:
    """A store beside those of the program, through which the test looks at what it does."""
    async with connect(store_url) as store:
        yield store
