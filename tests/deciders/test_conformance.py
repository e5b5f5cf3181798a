"""One tour over all three models, on every store there is; the other tests of the conformance suite go into each."""

import pytest

from stepwell import Engine, RunStatus, Store, sleep, step, wait, workflow
from stepwell.base.clock import TestClock
from tests.deciders.workbench import Bench, Do, drained, labels, post, posted


@step
async def halved(number: int) -> int:
    return number // 2


@workflow
async def tour(town: str) -> list[object]:
    half = await halved(84)
    await sleep("1h")
    return [half, await wait("word", str), town]


@pytest.mark.proves("TU-01", "TU-07")
async def test_one_store_serves_an_input_its_effect_its_timer_a_run_a_signal_and_a_message(
    store: Store, clock: TestClock
) -> None:
    engine, served = Engine(store).register(Bench()), (post, tour)
    run_id = await tour.trigger("a").options(key="once", require_worker="ignore").execute(store)
    assert not (await tour.trigger("a").options(key="once", require_worker="ignore").execute(store)).created
    await engine.execute(Do("a", "first", ask="mail", after=60, timer="later", message="hello"))
    posted.clear()
    await drained(store, engine, *served)
    assert posted == ["hello"]
    assert await labels(engine) == ["first", "mail answered"]
    clock.advance(3600)
    await drained(store, engine, *served)
    assert await labels(engine) == ["first", "mail answered", "tick"]
    assert (await store.get_run(run_id)).status is RunStatus.PAUSED
    await store.signal(run_id, "word", "go")
    await drained(store, engine, *served)
    assert await store.result(run_id, timeout=5) == [42, "go", "a"]
    assert [one.key for one in await store.steps(run_id)] == ["halved#1", "sleep#1", "word#1"]
