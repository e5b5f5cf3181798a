"""Who executes runs: consumers put together step by step, workers that serve modules, and what they write."""

import asyncio
from types import ModuleType
from typing import Any

import pytest

from stepwell import (
    ExecutionFailed,
    InvalidOption,
    Store,
    Timeout,
    Worker,
    consumer,
    discover_workflows,
    handler,
    poll_all,
    step,
    workflow,
)
from tests.ground.waiting import until
from tests.queue.raw import ask
from tests.workflows.kit import begun, statuses

TABLES = ("queue", "workflow", "worker", "task", "step")


async def rows(store: Store) -> dict[str, int]:
    """How many rows each table has."""
    counts = ", ".join(f"(select count(*) from {{{table}}})" for table in TABLES)
    [found] = await ask(store, f"select {counts}")
    return dict(zip(TABLES, found, strict=True))


@pytest.mark.proves("W-01", "W-02", "W-03", "D-05", "D-06", "DD-10")
async def test_a_consumer_is_one_row_and_its_function_none(live_store: Store) -> None:
    store, called = live_store, []

    async def zip_files(ctx: Any, bucket: str) -> str:
        called.append("first")
        if bucket == "bad":
            raise ValueError(bucket)
        return str(await ctx.step("list", lambda: f"{bucket}.zip"))

    async def zip_better(ctx: Any, bucket: str) -> str:
        return f"{bucket}.better"

    worker = await consumer("worker-1", 8080, "zip_files").handler(zip_files).create(store)
    assert await rows(store) == {"queue": 1, "workflow": 1, "worker": 1, "task": 0, "step": 0}
    [seen] = await store.workers()
    assert (seen.name, seen.port, seen.handlers, seen.alive) == ("worker-1", 8080, ("zip_files",), True)
    second = await consumer("worker-2", 8081, "zip_files").handler(zip_files).create(store)
    assert await rows(store) == {"queue": 1, "workflow": 1, "worker": 2, "task": 0, "step": 0}
    await second.close()
    polling = asyncio.create_task(worker.poll_forever())
    bad = await workflow("zip_files").trigger("bad").options(max_attempts=1).execute(store)
    good = await workflow("zip_files").trigger("good").execute(store)
    assert await store.result(good, timeout=10) == "good.zip"
    with pytest.raises(ExecutionFailed, match="ValueError: bad"):
        await store.result(bad, timeout=10)
    assert not polling.done()  # whatever its handlers raise
    before = await rows(store)
    worker.set_handler(zip_better)
    assert await rows(store) == before
    assert await workflow("zip_files").trigger("a").wait(timeout=10).execute(store) == "a.better"
    worker.stop()
    await asyncio.wait_for(polling, 10)
    assert called == ["first", "first"]
    for refused in (consumer("w", 1, "x"), consumer("w", 1, "other").handler(handler("mail")(print))):
        with pytest.raises(InvalidOption):
            await refused.create(store)


def module_of(**members: Any) -> ModuleType:
    """A module in which these are defined, and into which one more is imported."""
    module = ModuleType("shop")
    for name, member in members.items():
        member.fn.__module__ = "shop"
        setattr(module, name, member)
    return module


@pytest.mark.proves("DD-07", "DD-08", "W-04", "W-05", "W-06", "W-17", "T-07", "S-24")
async def test_a_module_is_served_with_one_word_or_workflow_by_workflow(live_store: Store) -> None:
    store, messages = live_store, []

    @step
    async def add(a: int, b: int) -> int:
        return a + b

    @workflow
    async def one(n: int) -> int:
        return await add(n, 1)

    @workflow
    def two(ctx: Any, n: int) -> int:
        return int(ctx.step(add, n, 2))

    @workflow(retry=1)
    async def broken(n: int) -> int:
        raise ValueError(n)

    @handler("mail")
    async def mail(text: str) -> None:
        messages.append(text)

    module = module_of(one=one, two=two, broken=broken, mail=mail)
    module.imported = workflow(name="elsewhere")(lambda: None)  # type: ignore[attr-defined]
    found = discover_workflows(module)
    assert found == {"one": one, "two": two, "broken": broken}
    async with Worker(store, [module]) as worker:
        assert (await store.workers())[0].handlers == ("one", "two", "broken", "mail")
        await store.enqueue("mail", "hello")
        assert await one.trigger(1).wait().timeout(10).execute(store) == 2
        with pytest.raises(ExecutionFailed) as failed:
            await broken.trigger(5).wait(timeout=10).execute(store)
        assert failed.value.error is not None
        assert failed.value.error["message"] == "5"
        assert await two.trigger(1).wait(timeout=10).execute(store) == 3
        await worker.drain()
    assert messages == ["hello"]
    with pytest.raises(Timeout):
        await one.trigger(1).options(require_worker="ignore").wait(timeout=0.01).execute(store)
    workers = []
    for port, (name, function) in enumerate(found.items()):
        await store.create_workflow(name)
        workers.append(await consumer(f"worker-{name}", 9000 + port, name).handler(function).create(store))
    polling = asyncio.create_task(poll_all(workers))
    runs = [await begun(store, each, 10) for each in (one, two)]
    assert [await store.result(run_id, timeout=10) for run_id in runs] == [11, 12]
    workers[2].stop()
    await until(lambda: _alive(store, 2))
    assert await two.trigger(20).wait(timeout=10).execute(store) == 22  # the others go on
    for each in workers[:2]:
        each.stop()
    await asyncio.wait_for(polling, 10)
    assert await statuses(store, runs[1]) == {"add#1": "SUCCESS"}


async def _alive(store: Store, count: int) -> bool:
    return sum(worker.alive for worker in await store.workers()) == count
