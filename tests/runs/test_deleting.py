"""Runs that are deleted softly: whatever their status, kept as they were, and out of everybody's way."""

import asyncio

import pytest

from stepwell import CancelAnswer, RunNotFound, RunStatus, Store, Worker, sleep, step, workflow
from stepwell.base.clock import TestClock
from tests.runs.kit import CANCELLED, FAILED, Order, fulfil, settle, tick
from tests.store.seam import DONE, begin, claim
from tests.workflows.kit import begun, die, drained, steps_of, task_of

ran: list[str] = []
entered = asyncio.Event()
go_on = asyncio.Event()


@pytest.fixture(autouse=True)
def anew() -> None:
    global entered, go_on  # an event belongs to the loop of its test
    ran.clear()
    entered, go_on = asyncio.Event(), asyncio.Event()


@step
async def note(what: str) -> None:
    ran.append(what)


@workflow
async def sleeper() -> None:
    await note("before")
    await sleep("1h")
    await note("after")


@workflow
async def guarded() -> str:
    entered.set()
    await go_on.wait()
    await note("after")
    return "done"


@pytest.mark.proves("SD-01", "SD-04")
async def test_a_run_of_any_status_keeps_it_and_is_left_out_of_what_is_listed(store: Store) -> None:
    runs = {
        await begun(store, tick, delay="1d"): RunStatus.PENDING,
        await begun(store, guarded): RunStatus.PAUSED,
    }
    for settlement, status in ((DONE, RunStatus.SUCCESS), (FAILED, RunStatus.ERROR), (CANCELLED, RunStatus.CANCELLED)):
        runs[await begun(store, fulfil, Order(str(status)))] = status
        await settle(store, "fulfil", settlement)
    await store.pause(next(run_id for run_id, status in runs.items() if status == RunStatus.PAUSED))
    runs[await begun(store, sleeper)] = RunStatus.RUNNING
    await claim(store, await begin(store), "sleeper")
    for run_id, status in runs.items():
        assert await store.delete(run_id, reason="audit")
        with pytest.raises(RunNotFound):
            await store.get_run(run_id)
        task = await store.get(run_id, deleted=True)
        assert task is not None
        assert (task.status, task.delete_reason, task.deleted_at is None) == (status, "audit", False)
    assert await store.runs() == []
    assert {run.id for run in await store.runs(deleted=True)} == set(runs)


@pytest.mark.proves("SD-02")
async def test_a_deleted_run_is_never_executed_whatever_becomes_due(store: Store, clock: TestClock) -> None:
    asleep, waiting, lost = await begun(store, sleeper), await begun(store, tick), await begun(store, guarded)
    await drained(store, sleeper)
    await claim(store, await begin(store), "guarded")
    for run_id in (asleep, waiting, lost):
        assert await store.delete(run_id)
    await die(store.database)
    clock.advance("2h")
    assert await drained(store, sleeper, tick, guarded) == 0
    assert ran == ["before"]
    assert await store.restore(asleep)
    await drained(store, sleeper)
    assert (await store.get_run(asleep)).status == RunStatus.SUCCESS
    assert list(await steps_of(store, asleep)) == ["note#1", "sleep#1", "note#2"]


@pytest.mark.proves("SD-03")
async def test_a_run_that_is_deleted_under_its_worker_finishes_and_its_outcome_is_recorded(live_store: Store) -> None:
    async with Worker(live_store, [guarded]):
        run_id = await begun(live_store, guarded)
        await asyncio.wait_for(entered.wait(), 20)
        assert await live_store.delete(run_id)
        go_on.set()
    run = await live_store.get_run(run_id, deleted=True)
    assert (run.status, run.output(), run.deleted_at is None) == (RunStatus.SUCCESS, "done", False)
    assert ran == ["after"]


@pytest.mark.proves("SD-03", "L-12")
async def test_unless_it_was_cancelled_before(live_store: Store) -> None:
    async with Worker(live_store, [guarded]):
        run_id = await begun(live_store, guarded)
        await asyncio.wait_for(entered.wait(), 20)
        assert await live_store.cancel(run_id) is CancelAnswer.REQUESTED
        assert await live_store.delete(run_id)
    assert (await live_store.get_run(run_id, deleted=True)).status == RunStatus.CANCELLED
    assert ran == []


@pytest.mark.proves("SD-05")
async def test_its_key_is_free_and_a_restored_run_gets_it_back_unless_it_is_taken(store: Store) -> None:
    first = await begun(store, tick, key="k")
    await store.delete(first)
    assert await store.find_run("tick", "k") is None
    second = await begun(store, tick, key="k")
    assert second.created
    with pytest.raises(Exception, match="stays deleted"):
        await store.restore(first)
    await store.delete(second)
    assert await store.restore(first)
    assert (await task_of(store, first)).ready
