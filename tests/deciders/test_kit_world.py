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


@pytest.mark.proves("TU-03")
async def test_what_an_input_has_led_to_is_asserted_in_the_store(store_url: str) -> None:
    orders = Posted()
    async with world(orders, url=store_url) as w:
        done = await w.when(Create("7", 1900))
        done.then(Created(1900)).then_effects(SendEmail("7")).then_timers(payment="1h")
        assert (orders.sent, done.receipt) == ([], Receipt("applied", 1, 1)), "nothing was executed meanwhile"
        await w.advance("10m")
        assert orders.sent == [SendEmail("7")]
        again = await w.when(Create("8", 5), key="k")
        (await w.when(Create("8", 5), key="k")).then().then_effects().then_timers(payment="1h")
        with pytest.raises(AssertionError, match=r"expected Created\(cents=6\)\n    stored   Created\(cents=5\)"):
            again.then(Created(6))
        with pytest.raises(AssertionError, match="effects in the store are not those expected"):
            again.then_effects()
        with pytest.raises(AssertionError, match="pending timers"):
            again.then_timers(payment="2h")
        (await w.when(Pay("7"))).then(Paid(), TimerCancelled("payment")).then_effects().then_timers()


@pytest.mark.proves("TU-03", "TM-08", "TM-09")
async def test_a_timer_that_was_cancelled_never_comes(store_url: str) -> None:
    orders = Posted()
    async with world(orders, url=store_url) as w:
        engine = Engine(w.store).register(orders)
        await engine.execute(Create("7", 1900))
        assert await engine.execute(Pay("7")) == Receipt("applied", 2, 3)
        await w.advance("48h")
        assert await history(w, engine, "7") == [Created(1900), Paid(), TimerCancelled("payment")]
