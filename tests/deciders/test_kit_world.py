"""A decider in a world: a store, a worker, and a clock that the test moves."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from stepwell import Engine, Receipt, TimerCancelled
from stepwell.testing import World, world
from tests.deciders.shop import Create, Created, Expired, Orders, Paid, Pay, SendEmail, State


class Posted(Orders):
    """It keeps what it has sent."""

    def __init__(self) -> None:
        self.sent: list[SendEmail] = []

    async def handle(self, effect: SendEmail, ctx: object) -> None:
        self.sent.append(effect)


async def history(world: World, engine: Engine, id: str) -> list[object]:
    await world.drain()
    return [recorded.event for recorded in await engine.events("order", id)]


@pytest.mark.proves("TU-03", "TU-04", "TM-02", "TM-03")
async def test_an_order_lives_as_long_as_the_test_says(store_url: str) -> None:
    orders = Posted()
    async with world(orders, url=store_url) as w:
        engine = Engine(w.store).register(orders)
        assert await engine.execute(Create("7", 1900)) == Receipt("applied", 1, 1)
        assert await history(w, engine, "7") == [Created(1900)]
        assert orders.sent == [SendEmail("7")]
        await w.advance("59m")
        assert await engine.state(Orders, "7") == State("created"), "not early"
        await w.advance("1m")
        assert await history(w, engine, "7") == [Created(1900), Expired(datetime(2026, 1, 1, 1, tzinfo=UTC))]
        assert await engine.execute(Pay("7")) == Receipt("completed")


@pytest.mark.proves("TU-03", "TM-08", "TM-09")
async def test_a_timer_that_was_cancelled_never_comes(store_url: str) -> None:
    orders = Posted()
    async with world(orders, url=store_url) as w:
        engine = Engine(w.store).register(orders)
        await engine.execute(Create("7", 1900))
        assert await engine.execute(Pay("7")) == Receipt("applied", 2, 3)
        await w.advance("48h")
        assert await history(w, engine, "7") == [Created(1900), Paid(), TimerCancelled("payment")]
