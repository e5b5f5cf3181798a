"""A connection that is being opened while its store is closed does not stay open."""

import asyncio
from typing import Any

import pytest

from stepwell.errors import StoreClosed
from stepwell.store.postgres.connection import Link


class Slow:
    """A dialer that connects when it is told to, and the connection itself."""

    def __init__(self) -> None:
        self.dialled = asyncio.Event()
        self.answered = asyncio.Event()
        self.terminated = False

    async def connect(self, _timeout: float, _locks: float) -> Any:
        self.dialled.set()
        await self.answered.wait()
        return self

    def terminate(self) -> None:
        self.terminated = True


@pytest.mark.proves("rule-19")
async def test_a_connection_that_comes_after_the_closing_is_dropped() -> None:
    slow: Any = Slow()
    link = Link(slow, 10)

    async def use() -> None:
        async with link.using():
            pytest.fail("it was lent although it is closed")

    using = asyncio.create_task(use())
    await slow.dialled.wait()
    await link.close()
    slow.answered.set()
    with pytest.raises(StoreClosed):
        await using
    assert slow.terminated
