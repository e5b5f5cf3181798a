"""Inputs that were submitted and wait for a worker: how many and for how long, and a test that has them decided."""

import pytest

from stepwell import Engine, QueueStats, RunStatus, Store
from stepwell.base.clock import TestClock
from stepwell.testing import world
from tests.deciders.workbench import Bench, Do, drained, labels


async def inbox(store: Store) -> QueueStats:
    [found] = [one for one in await store.queue_stats() if one.queue == "bench:inputs"]
    return found


@pytest.mark.proves("IN-06")
async def test_how_many_inputs_wait_and_for_how_long_the_oldest_is_told(store: Store, clock: TestClock) -> None:
    engine = Engine(store).register(Bench())
    await engine.submit(Do("a", "one"))
    clock.advance(90)
    await engine.submit(Do("a", "two"))
    await engine.submit(Do("b", "three"))
    await engine.submit(Do("b", "later"), delay="1h")
    clock.advance(30)
    full = await inbox(store)
    assert (full.ready, full.waiting, full.oldest) == (2, 2, 120.0)
    text = await store.prometheus()
    assert 'stepwell_queue_tasks{queue="bench:inputs",state="ready"} 2\n' in text
    assert 'stepwell_queue_oldest_ready_seconds{queue="bench:inputs"} 120\n' in text
    await drained(store, engine)
    empty = await inbox(store)
    assert (empty.ready, empty.waiting, empty.oldest) == (0, 1, None)


@pytest.mark.proves("IN-08")
async def test_a_test_has_what_was_submitted_decided_when_it_says_so(store_url: str) -> None:
    bench = Bench()
    async with world(bench, url=store_url) as w:
        engine = Engine(w.store).register(bench)
        for number in range(5):
            await engine.submit(Do("a", str(number)))
        await engine.submit(Do("b", "later", ask="mail"), delay="1h")
        await w.drain()
        assert (sorted(await labels(engine)), await labels(engine, "b")) == (list("01234"), [])
        assert (await inbox(w.store)).ready == 0
        await w.advance("1h")
        assert await labels(engine, "b") == ["later", "mail answered"]


@pytest.mark.proves("IN-08")
async def test_a_test_waits_for_one_input_and_not_for_those_of_others(store_url: str) -> None:
    async with world(Bench(), url=store_url) as w:
        engine = Engine(w.store).register(Bench())
        await engine.submit(Do("b", "later"), delay="1h")
        task = await engine.submit(Do("a", "one"), key="k")

        async def decided() -> bool:
            return await labels(engine) == ["one"]

        assert await w.wait_until(decided)
        done = await w.store.get(task)
        assert done is not None
        assert (done.status, await labels(engine, "b")) == (RunStatus.SUCCESS, [])
