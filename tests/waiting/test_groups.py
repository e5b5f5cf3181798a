"""What a parent waits for at once: several groups of children, others beside them, and runs that are not its own."""

import asyncio
from typing import Any

import pytest

from stepwell import (
    Context,
    IdempotencyConflict,
    RunId,
    Store,
    workflow,
)
from stepwell.base.clock import TestClock
from tests.store.seam import row_of
from tests.waiting.family import IGNORE, child, children_of, is_ready, parent
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

    return list(await asyncio.gather(slow.trigger(7).options(**IGNORE).wait().execute(ctx), sequence()))


@workflow
async def two_groups(ctx: Context) -> list[list[int]]:
    async def group(of: Any, count: int) -> list[int]:
        ids = await ctx.trigger_many([of.trigger(number).options(**IGNORE) for number in range(count)])
        found = await ctx.results(ids)
        log.append(len(found))
        return found

    return list(await asyncio.gather(group(slow, 4), group(child, 2)))


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
        return list(await asyncio.gather(asked.execute(ctx), asked.execute(ctx)))

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
