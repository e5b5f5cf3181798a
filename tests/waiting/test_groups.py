"""What a parent waits for at once: several groups of children, others beside them, and runs that are not its own."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from stepwell import (
    Context,
    ExecutionFailed,
    IdempotencyConflict,
    NoWorkerAvailable,
    RunCancelled,
    RunId,
    Store,
    Timeout,
    WorkflowNotFound,
    sync,
    workflow,
)
from stepwell.clock import TestClock
from tests.store.seam import row_of
from tests.waiting.family import IGNORE, child, children_of, is_ready, parent, waiting
from tests.workflows.kit import begun, drained, statuses, task_of

log: list[object] = []


@pytest.fixture(autouse=True)
def anew() -> None:
    log.clear()


@workflow
async def slow(number: int) -> int:
    return number


@workflow
async def mixed(ctx: Context) -> list[int]:
    async def sequence() -> int:
        first = await child.trigger(1).options(**IGNORE).wait().execute(ctx)
        return await child.trigger(first).options(**IGNORE).wait().execute(ctx)

    return await asyncio.gather(slow.trigger(7).options(**IGNORE).wait().execute(ctx), sequence())


@workflow
async def two_groups(ctx: Context) -> list[list[int]]:
    async def group(of: Any, count: int) -> list[int]:
        ids = await ctx.trigger_many([of.trigger(number).options(**IGNORE) for number in range(count)])
        found = await ctx.results(ids)
        log.append(len(found))
        return found

    return await asyncio.gather(group(slow, 4), group(child, 2))


@workflow
async def forgetful(ctx: Context) -> str:
    for number in range(3):
        await child.trigger(number).options(**IGNORE).execute(ctx)
    return await ctx.wait("word", str)


@workflow
async def grandparent(ctx: Context, number: int) -> int:
    return 1 + await parent.trigger(number).options(**IGNORE).wait().execute(ctx)


@workflow
async def keyed(ctx: Context, key: str) -> int:
    return await child.trigger(5).options(key=key, **IGNORE).wait().execute(ctx)


# Groups


@pytest.mark.proves("R-21", "S-15")
async def test_a_fast_sequence_goes_on_beside_a_slow_child(store: Store) -> None:
    run_id = await begun(store, mixed)
    await drained(store, mixed)
    for _ in range(2):
        assert await drained(store, child) == 1
        assert await is_ready(store, run_id)
        await drained(store, mixed)
    assert set((await statuses(store, run_id)).values()) == {"SUCCESS", "PAUSED"}
    await drained(store, slow)
    assert await is_ready(store, run_id)
    await drained(store, mixed)
    assert (await store.get_run(run_id)).output() == [7, 4]


@pytest.mark.proves("R-21")
async def test_each_group_goes_on_when_its_own_children_have_ended(store: Store) -> None:
    run_id = await begun(store, two_groups)
    await drained(store, two_groups)
    await drained(store, child)
    await drained(store, two_groups)
    assert log == [2]
    assert (await row_of(store, run_id))["waiting"] == 4
    await drained(store, slow)
    await drained(store, two_groups)
    assert (await store.get_run(run_id)).output() == [[0, 1, 2, 3], [0, 2]]
    assert (await task_of(store, run_id)).turn == 3


@pytest.mark.proves("R-21")
async def test_children_that_nobody_waits_for_wake_nobody(store: Store) -> None:
    run_id = await begun(store, forgetful)
    await drained(store, forgetful)
    assert await drained(store, child) == 3
    row = await row_of(store, run_id)
    assert (row["status"], bool(row["ready"])) == ("PAUSED", False)
    assert await store.signal(run_id, "word", "done")
    assert await drained(store, forgetful) == 1
    assert (await store.get_run(run_id)).output() == "done"


@pytest.mark.proves("R-21")
async def test_one_child_asked_for_twice_is_waited_for_once(store: Store) -> None:
    @workflow
    async def twice(ctx: Context) -> list[int]:
        [first] = await ctx.trigger_many([child.trigger(1).options(**IGNORE)])
        second = await child.trigger(2).options(**IGNORE).execute(ctx)
        return await ctx.results([second, first, first])

    run_id = await begun(store, twice)
    await drained(store, twice)
    assert (await row_of(store, run_id))["waiting"] == 2
    await drained(store, child)
    assert await is_ready(store, run_id)
    await drained(store, twice)
    assert (await store.get_run(run_id)).output() == [4, 2, 2]


@pytest.mark.proves("R-21")
async def test_nothing_asked_for_is_nothing_waited_for(store: Store) -> None:
    @workflow
    async def nobody(ctx: Context) -> list[Any]:
        return [await ctx.trigger_many([]), await ctx.results([])]

    run_id = await begun(store, nobody)
    assert await drained(store, nobody) == 1
    assert (await store.get_run(run_id)).output() == [[], []]


@pytest.mark.proves("R-21")
async def test_all_are_asked_for_or_none(store: Store) -> None:
    await child.trigger(1).options(key="taken", **IGNORE).execute(store)

    @workflow
    async def asks(ctx: Context) -> str:
        try:
            await ctx.trigger_many(
                [child.trigger(2).options(**IGNORE), child.trigger(3).options(key="taken", **IGNORE)]
            )
        except IdempotencyConflict:
            return "refused"
        return "asked"

    run_id = await begun(store, asks)
    await drained(store, asks)
    assert (await store.get_run(run_id)).output() == "refused"
    assert await children_of(store, run_id) == []


# Generations


@pytest.mark.proves("R-21", "S-16")
async def test_grandchildren_are_waited_for_and_cancelled_like_children(store: Store) -> None:
    first, second = await begun(store, grandparent, 4), await begun(store, grandparent, 5)
    await drained(store, grandparent)
    await drained(store, parent)
    assert await store.cancel(second)
    cancelled = [run.id for run in await store.runs(status="CANCELLED")]
    assert len(cancelled) == 3
    for workflow_ in (child, parent, grandparent):
        await drained(store, workflow_)
    assert (await store.get_run(first)).output() == 9
    assert [run.id for run in await store.runs(status="CANCELLED")] == cancelled


# Runs that are nobody's children


@pytest.mark.proves("R-21")
async def test_a_run_that_its_key_had_already_named_is_waited_for_by_looking_again(
    store: Store, clock: TestClock
) -> None:
    before = await child.trigger(5).options(key="k", **IGNORE).execute(store)
    run_id = await begun(store, keyed, "k")
    await drained(store, keyed)
    assert await children_of(store, run_id) == []
    task = await task_of(store, run_id)
    assert (task.status, task.owner) == ("PENDING", None)
    await drained(store, child)
    assert not await is_ready(store, run_id)
    clock.advance("6s")
    assert await drained(store, keyed) == 1
    assert (await store.get_run(run_id)).output() == 10
    assert (await store.get_run(before)).parent_id is None


@pytest.mark.proves("R-21")
async def test_two_branches_that_ask_for_one_key_wait_for_one_child(store: Store) -> None:
    @workflow
    async def both(ctx: Context) -> list[int]:
        asked = child.trigger(5).options(key="k", **IGNORE).wait()
        return await asyncio.gather(asked.execute(ctx), asked.execute(ctx))

    run_id = await begun(store, both)
    await drained(store, both)
    assert len(await children_of(store, run_id)) == 1
    await drained(store, child)
    assert await is_ready(store, run_id)
    await drained(store, both)
    assert (await store.get_run(run_id)).output() == [10, 10]


@pytest.mark.proves("R-21")
async def test_results_of_its_own_and_of_others(store: Store, clock: TestClock) -> None:
    other: RunId[int] = await child.trigger(3).options(**IGNORE).execute(store)

    @workflow
    async def waits(ctx: Context, other: int) -> list[int]:
        own = await slow.trigger(4).options(**IGNORE).execute(ctx)
        return await ctx.results([own, RunId(other)])

    run_id = await begun(store, waits, int(other))
    await drained(store, waits)
    await drained(store, child, slow)
    clock.advance("6s")
    await drained(store, waits)
    assert (await store.get_run(run_id)).output() == [4, 6]


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
    later, asked = [await store.get_run(RunId(one)) for one in await children_of(store, run_id)]
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
