"""How a run asks for children, and how it hears of their end: failed, cancelled, too late, or asked for anew."""

import asyncio
from datetime import UTC, datetime

import pytest

from stepwell import (
    Context,
    ExecutionFailed,
    NoWorkerAvailable,
    RunCancelled,
    Store,
    Timeout,
    WorkflowNotFound,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from tests.waiting.family import IGNORE, child, children_of, is_ready, parent, waiting
from tests.workflows.kit import begun, drained, task_of

log: list[object] = []


@pytest.fixture(autouse=True)
def anew() -> None:
    log.clear()


@workflow
async def slow(number: int) -> int:
    return number


@pytest.mark.proves("protocol-18", "R-11")
async def test_a_parent_that_lets_few_children_run_at_once_gives_its_place_to_them(store: Store) -> None:
    @workflow
    async def bounded(ctx: Context) -> list[int]:
        few = asyncio.Semaphore(2)

        async def one(number: int) -> int:
            async with few:
                return await slow.trigger(number).wait().execute(ctx)

        return list(await asyncio.gather(*(one(number) for number in range(5))))

    run_id = await begun(store, bounded)
    await drained(store, bounded, slow, concurrency=1)
    assert (await store.get_run(run_id)).output() == [0, 1, 2, 3, 4]


# How children end for the code that waits


@pytest.mark.proves("R-21")
async def test_the_failure_of_the_first_that_failed_is_recorded(store: Store) -> None:
    @workflow
    async def fails(ctx: Context) -> str:
        ids = await ctx.trigger_many([child.trigger(number).options(**IGNORE) for number in (1, -1, -2)])
        try:
            await ctx.results(ids)
        except ExecutionFailed as error:
            log.append(str(error))
            await slow.trigger(1).options(**IGNORE).wait().execute(ctx)  # so that it is replayed
            return str(error.run_id == ids[1])
        return "none failed"

    run_id = await begun(store, fails)
    await drained(store, fails, child, slow)
    assert (await store.get_run(run_id)).output() == "True"
    assert len(log) >= 2
    assert len(set(log)) == 1


@pytest.mark.proves("R-21")
async def test_lateness_is_recorded_and_the_late_child_changes_nothing(store: Store, clock: TestClock) -> None:
    @workflow
    async def hurried(ctx: Context) -> str:
        try:
            await child.trigger(1).options(**IGNORE).wait(timeout="1m").execute(ctx)
        except Timeout as error:
            log.append(str(error))
            await ctx.sleep("1h")
            return "late"
        return "in time"

    run_id = await begun(store, hurried)
    await drained(store, hurried)
    clock.advance("61s")
    await drained(store, hurried)
    assert len(log) == 1
    await drained(store, child)
    assert not await is_ready(store, run_id)
    clock.advance("1h")
    await drained(store, hurried)
    assert (await store.get_run(run_id)).output() == "late"
    assert len(set(log)) == 1


@pytest.mark.proves("R-21")
async def test_a_child_that_has_ended_when_its_time_is_up_was_in_time(store: Store, clock: TestClock) -> None:
    @workflow
    async def waits(ctx: Context) -> int:
        return await child.trigger(1).options(**IGNORE).wait(timeout="1m").execute(ctx)

    run_id = await begun(store, waits)
    await drained(store, waits)
    await drained(store, child)
    clock.advance("2m")
    await drained(store, waits)
    assert (await store.get_run(run_id)).output() == 2


@pytest.mark.proves("R-20", "R-21")
async def test_a_retried_parent_asks_for_a_new_child_in_place_of_the_one_that_failed(store: Store) -> None:
    run_id, [first] = await waiting(store, parent, -1)
    await drained(store, child)
    await drained(store, parent)
    assert (await task_of(store, run_id)).status == "ERROR"
    assert await store.retry(run_id)
    await drained(store, parent)
    [_, second] = await children_of(store, run_id)
    assert (await task_of(store, first)).status == "ERROR"
    assert (await task_of(store, second)).status == "PENDING"
    await drained(store, child, parent)
    assert (await task_of(store, run_id)).status == "ERROR"


@pytest.mark.proves("R-20", "R-21")
async def test_a_retried_parent_waits_again_for_results_of_the_children_it_has(store: Store) -> None:
    @workflow
    async def waits(ctx: Context) -> list[int]:
        ids = await ctx.trigger_many([child.trigger(number).options(**IGNORE) for number in (1, 2)])
        return await ctx.results(ids)

    run_id = await begun(store, waits)
    await drained(store, waits)
    first, second = await children_of(store, run_id)
    await store.cancel(first)
    await drained(store, child)
    await drained(store, waits)
    assert (await task_of(store, run_id)).status == "ERROR"
    assert await store.retry(run_id)
    await drained(store, waits)
    assert await children_of(store, run_id) == [first, second]
    assert (await store.get_run(run_id)).error["type"] == "RunCancelled"  # type: ignore[index]


# How children are asked for


@pytest.mark.proves("R-21", "T-05")
async def test_a_child_is_queued_as_its_trigger_says(store: Store, clock: TestClock) -> None:
    @workflow
    async def asks(ctx: Context) -> int:
        moment = datetime(2030, 1, 1, tzinfo=UTC)
        await slow.trigger(1).options(run_at=moment, **IGNORE).execute(ctx)
        asked = child.trigger(1).options(tags=["a", "b"], priority=7, delay="1m", max_attempts=9, **IGNORE)
        return await asked.wait().execute(ctx)

    run_id = await begun(store, asks)
    await drained(store, asks)
    assert await drained(store, child) == 0
    later, asked = [await store.get_run(one) for one in await children_of(store, run_id)]
    assert later.run_at == datetime(2030, 1, 1, tzinfo=UTC)
    assert (set(asked.tags), asked.priority, asked.max_attempts) == ({"a", "b"}, 7, 9)
    clock.advance("61s")
    await drained(store, child)
    await drained(store, asks)
    assert (await store.get_run(run_id)).output() == 2


@pytest.mark.proves("R-21")
async def test_what_cannot_be_asked_for_is_refused_where_it_is_asked(store: Store) -> None:
    @workflow
    async def asks(ctx: Context) -> list[str]:
        refused = []
        for one in (workflow("nowhere").trigger(1), child.trigger(1).options(require_worker="error")):
            try:
                await one.execute(ctx)
            except (WorkflowNotFound, NoWorkerAvailable) as error:
                refused.append(type(error).__name__)
        return refused

    run_id = await begun(store, asks)
    await drained(store, asks)
    assert (await store.get_run(run_id)).output() == ["WorkflowNotFound", "NoWorkerAvailable"]
    assert await children_of(store, run_id) == []


@pytest.mark.proves("R-21")
async def test_a_sync_workflow_catches_what_became_of_its_children(store: Store, clock: TestClock) -> None:
    @workflow
    def catches(ctx: sync.Context) -> list[str]:
        caught = []
        for number, timeout in ((-1, None), (1, None), (2, "1m")):
            try:
                child.trigger(number).options(**IGNORE).wait(timeout=timeout).execute(ctx)
            except RunCancelled:
                caught.append("cancelled")
            except ExecutionFailed:
                caught.append("failed")
            except Timeout:
                caught.append("late")
        return caught

    run_id = await begun(store, catches)
    await drained(store, catches)
    await drained(store, child)
    await drained(store, catches)
    await store.cancel((await children_of(store, run_id))[1])
    await drained(store, catches)
    clock.advance("61s")
    await drained(store, catches)
    assert (await store.get_run(run_id)).output() == ["failed", "cancelled", "late"]
