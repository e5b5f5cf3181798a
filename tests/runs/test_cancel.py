"""Cancelling runs: at once where nobody executes them, cooperatively where somebody does, and never too late."""

import asyncio
import threading

import pytest

from stepwell import (
    CancelAnswer,
    Context,
    RunCancelled,
    RunNotFound,
    RunStatus,
    Store,
    StoreUnavailable,
    Worker,
    connect,
    current,
    sleep,
    step,
    sync,
    workflow,
)
from stepwell.clock import TestClock
from stepwell.records import SeenWorker
from tests.ground.waiting import until
from tests.store.seam import DONE, begin, claim, once, watched

ran: list[object] = []
entered = asyncio.Event()
let_go = threading.Event()


@pytest.fixture(autouse=True)
def anew() -> None:
    global entered  # noqa: PLW0603 - an event belongs to the loop of its test
    ran.clear()
    entered = asyncio.Event()
    let_go.clear()


@step
async def note(what: str) -> str:
    ran.append(what)
    return what


@workflow
async def sleeper(number: int) -> int:
    await note("before")
    await sleep("1h")
    await note("after")
    return number


@workflow
async def stuck(number: int) -> int:
    try:
        await note("before")
        entered.set()
        await asyncio.Event().wait()
    finally:
        ran.append("finally")
        await note("in finally")
    return number


@workflow
def stubborn(ctx: sync.Context, number: int) -> int:
    ctx.step("wait", _wait)
    ran.append("after")
    ctx.step("more", lambda: ran.append("recorded"))
    return number


def _wait() -> None:
    ran.append(current().run_id)
    let_go.wait(20)


@pytest.mark.proves("L-11", "RS-03")
async def test_a_run_that_nobody_executes_is_cancelled_at_once_and_never_claimed(store: Store) -> None:
    run_id = await sleeper.trigger(1).options(require_worker="ignore").execute(store)
    waiting = asyncio.ensure_future(store.result(run_id, timeout=20))
    await asyncio.sleep(0)
    answer = await store.cancel(run_id, reason="not needed")
    assert answer
    assert answer is CancelAnswer.CANCELLED
    run = await store.get_run(run_id)
    assert (run.status, run.last_error) == (RunStatus.CANCELLED, "cancelled: not needed")
    with pytest.raises(RunCancelled):
        await waiting
    assert await Worker(store, [sleeper]).drain() == 0
    assert ran == []


@pytest.mark.proves("L-11", "P-11")
async def test_a_sleeping_run_is_cancelled_at_once_and_never_goes_on(store: Store, clock: TestClock) -> None:
    worker = Worker(store, [sleeper])
    run_id = await sleeper.trigger(1).execute(store)
    await worker.drain()
    assert await store.cancel(run_id) is CancelAnswer.CANCELLED
    clock.advance("2h")
    await worker.drain()
    assert ran == ["before"]
    assert (await store.get_run(run_id)).status == RunStatus.CANCELLED


@pytest.mark.proves("L-16")
async def test_a_finished_run_stays_what_it_is(store: Store) -> None:
    run_id = await sleeper.trigger(1).options(require_worker="ignore").execute(store)
    assert await store.cancel(run_id)
    again = await store.cancel(run_id)
    assert not again
    assert again is CancelAnswer.TOO_LATE
    with pytest.raises(RunNotFound):
        await store.cancel(999_999)


@pytest.mark.proves("L-16")
async def test_what_a_finished_run_asked_for_and_did_not_wait_for_goes_on(store: Store) -> None:
    @workflow
    async def asking(ctx: Context) -> int:
        return await sleeper.trigger(1).execute(ctx)

    run_id = await asking.trigger().execute(store)
    await Worker(store, [asking]).drain()
    child = await store.result(run_id, timeout=0)
    assert await store.cancel(run_id) is CancelAnswer.TOO_LATE
    assert (await store.get_run(child)).status == RunStatus.PENDING


@pytest.mark.proves("L-11", "L-16")
async def test_a_cancel_whose_reply_is_lost_answers_what_it_did(store: Store) -> None:
    store, driver = watched(store)
    run_id = await sleeper.trigger(1).options(require_worker="ignore").execute(store)
    driver.forget()
    driver.after = once(StoreUnavailable("reset after the work was done"))
    answer = await store.cancel(run_id)
    assert driver.scripts == 2, "the reply was not lost: void"
    assert answer is CancelAnswer.CANCELLED


@pytest.mark.proves("L-12", "L-13", "L-18")
async def test_a_run_under_way_is_stopped_and_records_nothing_more(live_store: Store) -> None:
    async with Worker(live_store, [stuck]):
        run_id = await stuck.trigger(1).execute(live_store)
        await asyncio.wait_for(entered.wait(), 20)
        assert await live_store.cancel(run_id) is CancelAnswer.REQUESTED
        with pytest.raises(RunCancelled):
            await live_store.result(run_id, timeout=20)
    assert ran == ["before", "finally"]
    assert [one.key for one in await live_store.steps(run_id)] == ["note#1"]


@pytest.mark.proves("L-12", "L-14")
async def test_what_a_thread_does_after_the_request_is_recorded_nowhere(live_store: Store) -> None:
    async with Worker(live_store, [stubborn]):
        run_id = await stubborn.trigger(1).execute(live_store)
        await until(lambda: ran == [run_id], 20, message="the body to begin")
        assert await live_store.cancel(run_id) is CancelAnswer.REQUESTED
        with pytest.raises(RunCancelled):
            await live_store.result(run_id, timeout=20)
        let_go.set()
    assert ran == [run_id]
    assert (await live_store.get_run(run_id)).status == RunStatus.CANCELLED


@pytest.mark.proves("L-14")
async def test_a_late_success_does_not_revive_it(store: Store) -> None:
    run_id = await sleeper.trigger(1).options(require_worker="ignore").execute(store)
    session = await begin(store)
    [task] = await claim(store, session, "sleeper")
    assert await store.cancel(run_id) is CancelAnswer.REQUESTED
    assert await store.tasks.settle(task.id, session, task.turn, DONE) == RunStatus.CANCELLED
    run = await store.get_run(run_id)
    assert (run.status, run.last_error) == (RunStatus.CANCELLED, "cancelled")


@pytest.mark.proves("L-15")
async def test_a_run_whose_worker_died_after_the_request_is_cancelled_and_not_executed_again(store: Store) -> None:
    run_id = await sleeper.trigger(1).options(require_worker="ignore").execute(store)
    session = await begin(store)
    assert await claim(store, session, "sleeper")
    assert await store.cancel(run_id, reason="enough") is CancelAnswer.REQUESTED
    [seen] = [one for one in await store.sessions.living() if one.worker_id == session]
    assert await store.sessions.bury(SeenWorker(session, seen.beat_at))
    run = await store.get_run(run_id)
    assert (run.status, run.last_error) == (RunStatus.CANCELLED, "cancelled: enough")


@pytest.mark.proves("L-12")
@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process, whose workers are told at once")
async def test_a_worker_of_another_store_hears_of_it(live_store: Store, store_url: str) -> None:
    async with connect(store_url, lease=0.6) as other, Worker(other, [stuck]):
        run_id = await stuck.trigger(1).execute(live_store)
        await asyncio.wait_for(entered.wait(), 20)
        assert await live_store.cancel(run_id) is CancelAnswer.REQUESTED
        with pytest.raises(RunCancelled):
            await live_store.result(run_id, timeout=20)
    assert ran == ["before", "finally"]
