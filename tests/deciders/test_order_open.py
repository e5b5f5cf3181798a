"""The order of submitted inputs beside transactions of the user that stay open, and an instance that is stuck."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

import asyncpg
import pytest

from stepwell import Engine, Store, Worker, connect
from stepwell.errors import StepwellError
from tests.deciders.workbench import Bench, Do, drained, labels
from tests.ground.waiting import until

POSTGRES = "an embedded database has one writer: while a transaction is open, nothing else is written"


async def decided(engine: Engine, *ids: str) -> None:
    """Wait until each of these instances has decided something."""
    for one in ids:
        await until(partial(_has, engine, one, 1))


@pytest.mark.proves("IN-03", "IN-04")
@pytest.mark.backends("postgres", reason=POSTGRES)
async def test_an_open_transaction_that_submits_holds_up_its_own_instance_and_no_other(live_store: Store) -> None:
    store, engine = live_store, Engine(live_store).register(Bench())
    await engine.submit(Do("a", "one"))
    async with AsyncExitStack() as stack:
        async with store.transaction() as tx:
            await engine.submit(Do("a", "two"), tx=tx)
            later = asyncio.ensure_future(engine.submit(Do("a", "three")))
            await stack.enter_async_context(Worker(store, [engine]))
            for number in range(20):
                await engine.submit(Do(f"other {number}"))
            await decided(engine, *(f"other {number}" for number in range(20)))
            assert (await labels(engine), later.done()) == ([], False), "its group is locked"
        await later
        await until(partial(_has, engine, "a", 3))
    assert await labels(engine) == ["one", "two", "three"]


@pytest.mark.proves("IN-03")
@pytest.mark.backends("postgres", reason="only there do transactions see an old snapshot and write nevertheless")
async def test_a_transaction_with_an_old_snapshot_never_puts_an_input_to_sleep(
    live_store: Store, store_url: str
) -> None:
    store, engine = live_store, Engine(live_store).register(Bench())
    await engine.submit(Do("a", "one"))
    connection = await asyncpg.connect(store_url)
    begun = connection.transaction(isolation="repeatable_read")
    await begun.start()
    await connection.fetch("select 1 from stepwell.task")  # from now on it sees the first input as it is
    await drained(store, engine)
    with pytest.raises(StepwellError):
        await engine.submit(Do("a", "two"), tx=connection)
    await begun.rollback()
    await connection.close()
    await engine.submit(Do("a", "two"))
    await drained(store, engine)
    assert await labels(engine) == ["one", "two"]


@pytest.mark.proves("IN-04")
@pytest.mark.backends("postgres", reason=POSTGRES)
@pytest.mark.parametrize("stuck", ["locked", "raises"])
async def test_a_stuck_instance_does_not_hold_the_others_up(
    store_url: str, stuck: str, measured: Callable[..., None]
) -> None:
    async with connect(store_url, helper=False) as store:
        engine = Engine(store).register(Bench())
        calm = await _waits(store, engine, "calm")
        async with store.transaction() as tx:
            if stuck == "locked":
                await engine.execute(Do("stuck", "open"), tx=tx)
            for _ in range(60):  # more than a worker has places
                await engine.submit(Do("stuck", fail="no" if stuck == "raises" else None))
            beside = await _waits(store, engine, "beside")
        if stuck == "locked":
            assert await labels(engine, "stuck") in ([], ["open"])
    # While it is stuck all others are decided; how fast is for a benchmark, as this machine may be busy.
    assert beside < calm + 5, f"p99 was {calm:.3f} s without it and {beside:.3f} s beside it"
    measured("stuck instance", stuck=stuck, p99_without=calm, p99_beside=beside)


async def _waits(store: Store, engine: Engine, name: str) -> float:
    """The p99 of the seconds from the submit of an input to its decision, over ten instances."""
    took: list[float] = []

    async def one(number: int) -> None:
        for nth in range(10):
            began = time.monotonic()
            await engine.submit(Do(f"{name} {number}", str(nth)))
            await until(partial(_has, engine, f"{name} {number}", nth + 1), every=0.005)
            took.append(time.monotonic() - began)

    async with Worker(store, [engine], concurrency=20):
        await asyncio.gather(*(one(number) for number in range(10)))
    return sorted(took)[int(0.99 * len(took)) - 1]


async def _has(engine: Engine, id: str, count: int) -> bool:
    return len(await labels(engine, id)) >= count
