"""A store that version 1 of a program has left is carried through versions 2 and 3; and old code beside new."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from types import ModuleType

import pytest
import pytest_asyncio

from stepwell import Engine, RunStatus, Store, Worker, connect
from stepwell.base.clock import TestClock
from tests.deciders.workbench import asked
from tests.ground.scale import Scale, measured, scale
from tests.store.stored import WRITTEN, load
from tests.versions import shop_1, shop_2, shop_3
from tests.versions.stored import text_of

__all__ = ["measured", "scale"]


@pytest.fixture
def later() -> TestClock:
    return TestClock(WRITTEN + timedelta(hours=1))


@pytest_asyncio.fixture
async def left(backend: str, store_url: str) -> AsyncIterator[str]:
    await load(text_of(backend), store_url)
    yield store_url


def engine_of(store: Store, shop: ModuleType) -> Engine:
    return Engine(store).register(shop.Account(), snapshot_every=2)


async def worked(store: Store, shop: ModuleType, engine: Engine) -> int:
    worker = Worker(store, [shop.letters, shop.sale, shop.basket, engine], name="w")
    return await asyncio.wait_for(worker.drain(), 30)


async def goes_on_in_version_2(store: Store) -> None:
    """Read all that version 1 has left, do what is due, and leave as much of its own."""
    engine = engine_of(store, shop_2)
    assert await engine.state(shop_2.Account, "a") == shop_2.State(7850, ("bike", "boat", "foot"))
    assert await engine.state(shop_2.Account, "a", at=1) == shop_2.State(10_000)
    history = await engine.events("account", "a")
    assert history[0].event == shop_2.AccountOpened(10_000)
    assert (history[0].type, history[1].event) == ("Opened", shop_2.PaidAndShipped(1025, "bike"))
    assert (await store.enqueue(shop_2.letters, shop_2.Letter(to="eve", cents=999), key="eve")).created is False
    await worked(store, shop_2, engine)
    assert shop_2.sent == ["eve 125"]
    assert sorted(shop_2.told) == ["a 100", "a 200"]
    await engine.execute(shop_2.Open("b", 5000))
    await engine.execute(shop_2.Buy("b", 700))
    await store.enqueue(shop_2.letters, shop_2.Letter(to="v2", cents=700), delay="3d")
    two = shop_2.sale.trigger(shop_2.Order("two", 900), note="?")
    await two.options(key="two", require_worker="ignore").execute(store)
    await worked(store, shop_2, engine)
    [new] = await store.runs("sale", key="new")
    await store.signal(new.id, "approved", shop_2.Approval("zoe"))


async def ends_in_version_3(store: Store, clock: TestClock) -> None:
    engine = engine_of(store, shop_3)
    assert await engine.state(shop_3.Account, "b") == shop_3.State(4300, ("bike",))
    [paid, shipped] = [one for one in await engine.events("account", "b") if one.type == "PaidAndShipped"]
    assert (paid.event, shipped.event) == (shop_3.Paid(700), shop_3.Shipped("bike"))
    assert [(one.version, one.part) for one in (paid, shipped)] == [(2, 0), (2, 1)]
    assert paid.position == shipped.position
    await worked(store, shop_3, engine)
    for run in await store.runs("sale", status=RunStatus.PAUSED):
        await store.signal(run.id, "approved", shop_3.Approval("max"))
    for _ in range(4):
        clock.advance("1d")
        await worked(store, shop_3, engine)
    assert {run.status for run in await store.runs()} == {RunStatus.SUCCESS}
    outputs = {run.key: run.output(shop_3.Charge) for run in await store.runs("sale") if run.key is not None}
    assert outputs == {
        "waits": shop_3.Charge("waits by eve!", 250, "EUR"),
        "sleeps": shop_3.Charge("sleeps by bob!", 250, "EUR"),
        "new": shop_3.Charge("new by zoe", 300, "EUR"),
        "two": shop_3.Charge("two by max?", 900, "EUR"),
    }
    [basket] = await store.runs("basket")
    assert basket.output(shop_3.Charge) == shop_3.Charge("child by max", 400, "EUR")
    assert sorted(shop_3.sent) == ["later 200 EUR", "v2 700 EUR"]
    ways = ("bike", "boat", "foot", "car", "reminder")
    assert await engine.state(shop_3.Account, "a") == shop_3.State(7850 - 200 - 150, ways)
    assert await engine.state(shop_3.Account, "b") == shop_3.State(4300 - 150, ("bike", "reminder"))
    assert sorted(shop_3.told) == ["a 150 EUR", "b 150 EUR"]


@pytest.mark.proves("U-02", "U-03", "U-05", "U-07", "DP-06")
async def test_a_store_of_version_1_is_carried_through_versions_2_and_3(left: str, later: TestClock) -> None:
    for shop in (shop_1, shop_2, shop_3):
        shop.sent.clear()
        shop.told.clear()
    async with connect(left, clock=later) as store:
        before = await asked(store, "select position, type, type_version, cast(data as text) as data from {event}")
        await goes_on_in_version_2(store)
    async with connect(left, clock=later) as store:
        await ends_in_version_3(store, later)
        after = await asked(store, "select position, type, type_version, cast(data as text) as data from {event}")
        kept = {row["position"]: tuple(row) for row in after}
        assert all(kept[row["position"]] == tuple(row) for row in before), "stored events are never rewritten"
        assert await store.dead_letters() == []
        [spent] = await asked(store, "select count(*) as number from {task} where attempt > 1")
        assert spent["number"] == 0


async def everything_new(store: Store, id: str) -> None:
    """One of each that version 3 leaves in flight."""
    engine = engine_of(store, shop_3)
    await store.enqueue(shop_3.letters, shop_3.Letter(to="new", cents=1, currency="EUR"))
    await shop_3.sale.trigger(shop_3.Order("new", 1, "EUR")).options(require_worker="ignore").execute(store)
    await engine.execute(shop_3.Open(id, 100, "EUR"))
    await engine.execute(shop_3.Buy(id, 1, "EUR"))
    await engine.submit(shop_3.Buy(id, 2, "EUR"))


@pytest.mark.proves("U-04", "U-07", "DP-07")
async def test_an_old_worker_beside_a_new_one_spends_no_attempt(
    left: str, later: TestClock, scale: Scale, measured: Callable[..., None]
) -> None:
    claims, needed, ids = 0, scale.of(60, 1000), [f"n {number}" for number in range(scale.of(1, 10))]
    async with connect(left, clock=later) as store:
        await worked(store, shop_1, engine_of(store, shop_1))
        for id_ in ids:
            await everything_new(store, id_)
        later.advance("1d")  # the timers of version 1 sleep on
        while claims < needed:
            claims += await worked(store, shop_1, engine_of(store, shop_1))
            await all_wait(store, len(ids))
            later.advance("1m")
        shop_1.sent.clear()
        shop_3.sent.clear()
        await worked(store, shop_3, engine_of(store, shop_3))
        assert (shop_1.sent, shop_3.sent) == ([], ["new 1 EUR"] * len(ids))
        for id_ in ids:
            assert (await engine_of(store, shop_3).state(shop_3.Account, id_)).cents == 97
        assert await store.dead_letters() == []
    measured("versions", claims=claims)


async def all_wait(store: Store, count: int) -> None:
    rows = await asked(
        store, "select kind, status, attempt, last_error from {task} where last_error like 'NotThisCode%'"
    )
    assert sorted(row["kind"] for row in rows) == sorted(["EFFECT", "INPUT", "MESSAGE", "RUN"] * count)
    for row in rows:
        assert (row["status"], row["attempt"]) == ("PENDING", 0)
        assert "version 3, and this code has version 1" in row["last_error"], row["last_error"]
