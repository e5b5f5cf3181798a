"""Fixtures of the store's tests."""

from collections.abc import AsyncIterator

import pytest

from stepwell import Store
from stepwell.store.postgres.connection import connect as connect_as_the_driver_does
from tests.ground.scale import measured, scale
from tests.store.plans import Prepared

__all__ = ["measured", "prepared", "scale"]


@pytest.fixture
async def prepared(live_store: Store, store_url: str) -> AsyncIterator[Prepared]:
    connection = await connect_as_the_driver_does(store_url, 30)
    try:
        yield Prepared(connection, live_store)
    finally:
        await connection.close()
