"""Stores of earlier schemas, as files: this release opens them and goes on, and so does one with a migration more."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio

from stepwell import Engine, SerializationError, SignalAnswer, Store, Worker, connect
from stepwell.base.clock import TestClock
from stepwell.connect import admin
from stepwell.store import schema
from stepwell.store.sql import Statements
from tests.store.place import NextRelease
from tests.store.stored import WRITTEN, Account, Add, Approval, basket, load, order, send, texts

NUMBERS = [number for number, _, _ in Statements("sqlite", "s").migrations()]


@pytest.fixture
def later() -> TestClock:
    return TestClock(WRITTEN + timedelta(hours=2))


@pytest_asyncio.fixture(params=NUMBERS)
async def stored(request: pytest.FixtureRequest, store_url: str, backend: str) -> AsyncIterator[str]:
    [text] = [one for one in texts(backend) if int(one.name[:4]) == request.param]
    await load(text.read_text(), store_url)
    yield store_url


def test_every_schema_is_stored_for_every_database() -> None:
    for backend in ("sqlite", "turso", "postgres"):
        assert [int(text.name[:4]) for text in texts(backend)] == NUMBERS, "python -m tests.store.stored"


async def goes_on(store: Store, clock: TestClock) -> None:
    """Everything that the stored store has begun comes to its end, and what is done stays done."""
    await admin(store).verify()
    [waiting] = await store.runs("order", key="order-5")
    charged = (await store.steps(waiting.id))[0]
    assert (charged.key, charged.status, charged.output) == ("charge#1", "SUCCESS", 5)
    with pytest.raises(SerializationError, match="waits for Approval"):
        await store.signal(waiting.id, "approved", 3)
    [child] = await store.runs("order", status="PAUSED", parent=(await store.runs("basket"))[0].id)
    for run in (waiting, child):
        assert await store.signal(run.id, "approved", Approval("eve")) is SignalAnswer.WOKE
    assert (await store.enqueue(send, "bob", key="bob")).created is False
    dead = {letter.queue: letter.kind for letter in await store.dead_letters()}
    assert dead == {"mail": "MESSAGE", "order": "RUN"}
    engine = Engine(store).register(Account())
    assert await engine.state(Account, "a") == 3
    await engine.execute(Add("a", 4))
    new = await order.trigger(9).options(require_worker="ignore").execute(store)
    assert new > max(run.id for run in await store.runs(status="PAUSED"))
    await Worker(store, [send, order, basket, engine]).drain()
    clock.advance("2d")
    await Worker(store, [send, order, basket, engine]).drain()
    assert await engine.state(Account, "a") >= 8
    assert (await store.get_run(waiting.id)).output(str) == "5 approved by eve"
    [parent] = await store.runs("basket")
    assert parent.output(str) == "7 approved by eve"
    counts = {one.queue: (one.ready, one.waiting, one.dead) for one in await store.queue_stats()}
    assert counts["mail"] == (0, 0, 1)
    assert await store.requeue(queue="mail") == 1


@pytest.mark.proves("DP-02")
async def test_a_stored_store_is_opened_and_its_work_goes_on(stored: str, later: TestClock) -> None:
    async with connect(stored, clock=later) as store:
        assert await schema.version(store.database.driver) == schema.latest(store.database.statements)
        await goes_on(store, later)


@pytest.mark.proves("DP-02")
async def test_a_stored_store_takes_the_next_migration_and_its_work_goes_on(
    stored: str, later: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Statements, "migrations", NextRelease.migrations)
    async with connect(stored, clock=later) as store:
        assert (
            await schema.version(store.database.driver) == schema.latest(store.database.statements) == NUMBERS[-1] + 1
        )
        await goes_on(store, later)
