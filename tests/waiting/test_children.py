"""Children: asked for once, waited for without holding anything; the last one that is needed makes its parent ready."""

import asyncio

import pytest

from stepwell import Context, ExecutionFailed, PermanentError, RunCancelled, Store, Timeout, connect, sync, workflow
from stepwell.base.clock import TestClock
from tests.workflows.kit import begun, drained, statuses, task_of


@workflow
async def double(number: int) -> int:
    if number == -13:
        raise PermanentError("unlucky")
    return 2 * number


@workflow
async def one(ctx: Context, number: int) -> int:
    return await double.trigger(number).wait().execute(ctx)


@workflow
async def many(ctx: Context, count: int) -> int:
    ids = await ctx.trigger_many([double.trigger(number) for number in range(count)])
    return sum(await ctx.results(ids))


@workflow
async def gathered(count: int) -> list[int]:
    return await asyncio.gather(*(double.trigger(number).wait().execute() for number in range(count)))


@workflow
def in_a_thread(ctx: sync.Context, number: int) -> list[int]:
    ids = ctx.trigger_many([double.trigger(number)])
    return [double.trigger(number).wait().execute(ctx), *ctx.results(ids)]


@workflow
async def catching(ctx: Context, number: int) -> str:
    try:
        return str(await double.trigger(number).wait(timeout="1h").execute(ctx))
    except RunCancelled as error:
        return f"cancelled {int(error.run_id) > 0}"
    except ExecutionFailed as error:
        return f"failed {error.error['message']}"  # type: ignore[index]
    except Timeout:
        return "late"


@pytest.mark.proves("R-21", "S-14", "S-15")
async def test_the_transaction_that_ends_the_child_makes_its_parent_ready(store: Store) -> None:
    run_id = await begun(store, one, 4)
    await drained(store, one)
    parent = await task_of(store, run_id)
    assert (parent.status, parent.owner, parent.ready, parent.run_at) == ("PAUSED", None, False, None)
    [child] = await store.runs("double")
    assert child.parent_id == run_id
    await drained(store, double)
    assert (await task_of(store, run_id)).ready
    await drained(store, one)
    assert (await store.get_run(run_id)).output() == 8
    assert await statuses(store, run_id) == {"double()#1": "SUCCESS"}


@pytest.mark.proves("R-21", "protocol-21")
async def test_a_child_is_found_again_whatever_the_order_of_a_set(store: Store) -> None:
    turns: list[list[int]] = [[0, 8], [8, 0]]
    orders: list[list[int]] = []

    @workflow
    async def add(numbers: set[int]) -> int:
        return sum(numbers)

    @workflow
    async def asking(ctx: Context) -> int:
        numbers = set(turns[len(orders)])
        orders.append(list(numbers))
        ids = await ctx.trigger_many([add.trigger(numbers), add.trigger(numbers)])
        return await add.trigger(numbers).wait().execute(ctx) + sum(await ctx.results(ids))

    run_id = await begun(store, asking)
    for served in (asking, add, asking):  # one after the other: the parent is replayed, and once
        await drained(store, served)
    assert orders == turns, "another order on replay, as in another process"
    run = await store.get_run(run_id)
    assert (run.last_error, run.output()) == (None, 24)


@pytest.mark.proves("R-19", "R-21")
async def test_the_runs_that_a_run_asked_for_are_listed(store: Store, store_url: str) -> None:
    first, other = await begun(store, many, 5), await begun(store, one, 9)
    await drained(store, many, one)
    newest = await store.runs(parent=first)
    assert [run.input() for run in newest] == [4, 3, 2, 1, 0]
    assert {run.parent_id for run in newest} == {first}
    assert [run.input() for run in await store.runs("double", parent=other, status="PENDING")] == [9]
    assert await store.runs("many", parent=first) == await store.runs(parent=first, status="ERROR") == []
    assert await store.runs(parent=first, tag="x") == await store.runs(parent=first, key="x") == []
    page = await store.runs(parent=first, limit=2)
    assert [run.input() for run in await store.runs(parent=first, limit=2, after=page.next)] == [2, 1]
    await store.delete(newest[0].id)
    assert len(await store.runs(parent=first)) == 4
    assert len(await store.runs(parent=first, deleted=True)) == 5
    async with connect(store_url, tenant="other") as tenant:
        assert await tenant.runs(parent=first) == []


@pytest.mark.proves("R-21")
async def test_a_parent_of_many_is_ready_when_the_last_has_ended(store: Store) -> None:
    run_id = await begun(store, many, 30)
    await drained(store, many)
    assert await drained(store, double) == 30
    parent = await task_of(store, run_id)
    assert (parent.ready, parent.turn) == (True, 1)
    await drained(store, many)
    assert (await store.get_run(run_id)).output() == 2 * sum(range(30))
    assert (await task_of(store, run_id)).turn == 2


@pytest.mark.proves("R-21")
async def test_children_of_a_gather_and_of_a_sync_workflow(store: Store) -> None:
    first, second = await begun(store, gathered, 5), await begun(store, in_a_thread, 3)
    await drained(store, gathered, in_a_thread, double)
    assert (await store.get_run(first)).output() == [0, 2, 4, 6, 8]
    assert (await store.get_run(second)).output() == [6, 6]


@pytest.mark.proves("R-21", "S-16")
async def test_failure_cancellation_and_lateness_are_carried(store: Store, clock: TestClock) -> None:
    failing, cancelled, late = [await begun(store, catching, number) for number in (-13, 1, 2)]
    await drained(store, catching)
    children = {run.parent_id: run.id for run in await store.runs("double")}
    await store.cancel(children[cancelled])
    await store.delete(children[late])  # nobody will execute it
    await store.restore(children[late])
    async_failed = await drained(store, catching)
    assert async_failed == 2  # the cancelled one, and the deleted one that was looked for again
    clock.advance(3601)
    await drained(store, catching)
    assert (await store.get_run(late)).output() == "late"
    await drained(store, catching, double)
    assert (await store.get_run(failing)).output() == "late"
    assert (await store.get_run(cancelled)).output() == "cancelled True"


@pytest.mark.proves("S-16")
async def test_a_failed_child_fails_its_parent_and_a_cancelled_parent_cancels_its_children(store: Store) -> None:
    failing, cancelled = await begun(store, one, -13), await begun(store, one, 1)
    await drained(store, one)
    assert await store.cancel(cancelled)
    statuses_of = {run.parent_id: run.status for run in await store.runs("double")}
    assert statuses_of == {failing: "PENDING", cancelled: "CANCELLED"}
    await drained(store, one, double)
    run = await store.get_run(failing)
    assert (run.status, run.error["type"]) == ("ERROR", "ExecutionFailed")  # type: ignore[index]


@workflow
async def again(ctx: Context, number: int) -> int:
    if number == 0:
        ctx.restart(1)
    return number


@workflow
async def of_generations(ctx: Context) -> list[int]:
    ids = await ctx.trigger_many([again.trigger(0), again.trigger(5)])
    return [await again.trigger(0).wait().execute(ctx), *await ctx.results(ids)]


@pytest.mark.proves("R-21")
async def test_a_child_that_restarts_returns_what_its_last_generation_does(store: Store) -> None:
    run_id = await begun(store, of_generations)
    await drained(store, of_generations, again)
    assert (await store.get_run(run_id)).output() == [1, 1, 5]
