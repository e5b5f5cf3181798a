"""A step with a queue of its own has limits of its own, whichever run calls it."""

import asyncio
from typing import Any

import pytest

from stepwell import Context, InvalidOption, Limits, Rate, Store, TransientError, Worker, current, step, workflow
from stepwell.testing import world
from tests.ground.waiting import until
from tests.limits.test_rates import SECOND, worst

running: dict[str, int] = {}
most: dict[str, int] = {}


@step(queue="model", limits=Limits(running=3, key="tenant", per_key=2))
async def ask(tenant: str, prompt: str) -> str:
    running[tenant] = running.get(tenant, 0) + 1
    most[tenant] = max(most.get(tenant, 0), running[tenant])
    most["all"] = max(most.get("all", 0), sum(running.values()))
    await asyncio.sleep(0.002)
    running[tenant] -= 1
    return prompt.upper()


@workflow
async def talk(tenant: str, count: int) -> list[str]:
    return list(await asyncio.gather(*(ask(tenant, f"p{nth}") for nth in range(count))))


@pytest.mark.proves("LI-15")
async def test_the_steps_of_a_queue_keep_its_limits_over_runs_and_workers(store: Store) -> None:
    running.clear()
    most.clear()
    async with Worker(store, [ask, talk]), Worker(store, [ask, talk]):
        runs = [await store.trigger(talk.trigger(tenant, 6)) for tenant in ("a", "b")]
        for run in runs:
            assert await store.result(run) == [f"P{nth}" for nth in range(6)]
        info = await store.limits.of("model")
    assert info is not None
    assert info.declared == {"running": 3, "key": "arguments.tenant", "per_key": 2}
    assert 1 <= max(most["a"], most["b"]) <= 2
    assert most["all"] <= 3


@pytest.mark.proves("LI-13", "LI-15")
async def test_every_try_of_such_a_step_is_charged(store_url: str) -> None:
    begun: list[tuple[int, int]] = []

    @step(queue="api", retry=5, limits=Limits(rate=Rate(4, "1m", burst=2)))
    async def call(nth: int) -> int:
        begun.append((w.store.database.clock.now() or 0, 1))
        if current().attempt < 3:
            raise TransientError("try later")
        return nth

    @workflow
    async def calls(ctx: Context) -> list[Any]:
        return [await call(nth) for nth in range(3)]

    async with world(call, calls, url=store_url) as w:
        run = await w.store.trigger(calls.trigger())
        await w.advance("5m")
        assert await w.store.result(run) == [0, 1, 2]
    assert len(begun) == 9
    assert worst(begun, 60 * SECOND) == 4


@pytest.mark.proves("LI-15")
async def test_what_cannot_be_limited_is_refused(store: Store) -> None:
    with pytest.raises(InvalidOption, match="only a step with `queue`"):
        step(limits=Limits(running=1))
    with pytest.raises(InvalidOption, match="has no parameter 'user'"):
        step(queue="model", limits=Limits(key="user"))(lambda tenant: tenant)

    @step(queue="model", limits=Limits(running=9))
    async def other(one: dict[str, str]) -> None:
        """Nothing."""

    with pytest.raises(InvalidOption, match="declares others"):
        Worker(store, [ask, other])

    @step(queue="single", limits=Limits(key="one.tenant"))
    async def single(one: dict[str, str]) -> None:
        """Nothing."""

    async with Worker(store, [single]):
        info = await until(lambda: store.limits.of("single"))
    assert info is not None
    assert info.limits.key == "arguments.tenant"
