"""Cancelling runs: at once where nobody executes them, cooperatively where somebody does, and never too late."""

import asyncio
import os
import sys
import threading

import pytest

from stepwell import (
    CancelAnswer,
    Context,
    ExecutionFailed,
    PermanentError,
    RunCancelled,
    RunNotFound,
    RunStatus,
    Store,
    StoreUnavailable,
    Worker,
    Workflow,
    connect,
    current,
    sleep,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.operate.status import word_of
from stepwell.records import StepInfo
from stepwell.store.rows import SeenWorker, Settlement, StepRow
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


def charge(cents: int) -> str:
    """A body in a thread, which nobody can stop."""
    ran.append(current().run_id)
    let_go.wait(20)
    return f"charged {cents}"


@workflow
async def buyer(ctx: Context, number: int) -> int:
    await ctx.step("charge", lambda: charge(number))
    ran.append("after")
    return number


@workflow
def sync_buyer(ctx: sync.Context, number: int) -> int:
    ctx.step("charge", lambda: charge(number))
    ran.append("after")
    return number


@workflow
async def hasty(ctx: Context, number: int) -> int:
    """Ends in ERROR while a branch of it is at work."""
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.step("charge", lambda: charge(number)))
        group.create_task(refuse())
    return number


@step(retry=1)
async def refuse() -> None:
    await until(lambda: bool(ran), 20, message="the charge to begin")
    await until(lambda: bool(shown), 20, message="people to see it")
    raise PermanentError("no")


shown: list[bool] = []


async def the_step(store: Store, run_id: int, name: str = "charge") -> StepInfo:
    [one] = [one for one in await store.steps(run_id) if one.name == name]
    return one


async def is_shown(store: Store, run_id: int) -> bool:
    """True once people see the charge at work."""
    return [one.status for one in await store.steps(run_id) if one.name == "charge"] == [RunStatus.RUNNING]


@pytest.mark.proves("L-12", "L-14")
@pytest.mark.parametrize("asked", [buyer, sync_buyer])
async def test_what_a_thread_returns_after_the_request_is_recorded_and_changes_nothing(
    live_store: Store, asked: Workflow[..., int]
) -> None:
    async with Worker(live_store, [asked]):
        run_id = await asked.trigger(7).execute(live_store)
        await until(lambda: is_shown(live_store, run_id), 20, message="the charge to be shown")
        assert await live_store.cancel(run_id) is CancelAnswer.REQUESTED
        with pytest.raises(RunCancelled):
            await live_store.result(run_id, timeout=20)
        stopped = await the_step(live_store, run_id)
        assert (stopped.status, stopped.output) == (RunStatus.CANCELLED, None)
        assert stopped.finished_at is not None
        let_go.set()

        async def recorded() -> bool:
            return (await the_step(live_store, run_id)).status == RunStatus.SUCCESS

        await until(recorded, 20, message="the result to be recorded")
    assert (await the_step(live_store, run_id)).output == "charged 7"
    assert ran == [run_id]
    assert (await live_store.get_run(run_id)).status == RunStatus.CANCELLED


@pytest.mark.proves("L-14")
async def test_a_body_that_returns_in_spite_of_its_cancellation_is_recorded(live_store: Store) -> None:
    @step
    async def insistent() -> str:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            return "charged"  # noqa: B012 - just that

    @workflow
    async def obstinate() -> None:
        await insistent()
        ran.append("after")

    async with Worker(live_store, [obstinate]):
        run_id = await obstinate.trigger().execute(live_store)
        await asyncio.wait_for(entered.wait(), 20)
        assert await live_store.cancel(run_id) is CancelAnswer.REQUESTED
        with pytest.raises(RunCancelled):
            await live_store.result(run_id, timeout=20)

        async def recorded() -> bool:
            return [one.output for one in await live_store.steps(run_id)] == ["charged"]

        await until(recorded, 20, message="the result to be recorded")
    assert ran == []


@pytest.mark.proves("L-14")
async def test_a_step_does_not_outlive_a_run_that_failed_and_is_not_done_again(live_store: Store) -> None:
    shown.clear()
    async with Worker(live_store, [hasty]):
        run_id = await hasty.trigger(7).execute(live_store)
        await until(lambda: is_shown(live_store, run_id), 20, message="the charge to be shown")
        shown.append(True)
        let_go.set()
        with pytest.raises(ExecutionFailed):
            await live_store.result(run_id, timeout=20)
    assert (await the_step(live_store, run_id)).status in (RunStatus.CANCELLED, RunStatus.SUCCESS)


@pytest.mark.proves("L-14")
async def test_a_late_result_is_refused_once_somebody_has_claimed_the_run(store: Store) -> None:
    run_id = await sleeper.trigger(1).options(require_worker="ignore").execute(store)
    session = await begin(store)
    [task] = await claim(store, session, "sleeper")
    row = StepRow(run_id, 0, "charge#1", 1, RunStatus.SUCCESS, 1, None, '"charged"')

    async def kept(turn: int) -> list[str]:
        await store.database.steps._record_late(row, turn)
        return [one.key for one in await store.steps(run_id)]

    assert await kept(task.turn) == [], "nobody has stopped it"
    await store.cancel(run_id)
    assert await kept(task.turn - 1) == [], "of another turn"
    assert await kept(task.turn) == ["charge#1"]


@pytest.mark.proves("L-14", "L-15")
@pytest.mark.parametrize("how", ["lost", "given back"])
async def test_a_step_is_closed_with_a_run_that_nobody_executes(store: Store, how: str) -> None:
    run_id = await sleeper.trigger(1).options(require_worker="ignore").execute(store)
    session = await begin(store)
    [task] = await claim(store, session, "sleeper")
    store.database.steps.begin(StepRow(run_id, 0, "charge#1", 1, RunStatus.RUNNING, 1), session, has_row=False)
    if how == "lost":
        assert await store.cancel(run_id) is CancelAnswer.REQUESTED
        assert word_of(await store.get_run(run_id)) == "⊘ cancelling", "what people see until it is done"
        [seen] = [one for one in await store.database.sessions.living() if one.worker_id == session]
        assert await store.database.sessions.bury(SeenWorker(session, seen.beat_at))
    else:
        await store.database.tasks.settle(task.id, session, task.turn, Settlement(RunStatus.PENDING, attempt_back=True))
        assert await store.cancel(run_id) is CancelAnswer.CANCELLED
    closed = await the_step(store, run_id)
    assert closed.status == RunStatus.CANCELLED
    assert closed.finished_at is not None


@pytest.mark.proves("L-14")
async def test_a_late_success_does_not_revive_it(store: Store) -> None:
    run_id = await sleeper.trigger(1).options(require_worker="ignore").execute(store)
    session = await begin(store)
    [task] = await claim(store, session, "sleeper")
    assert await store.cancel(run_id) is CancelAnswer.REQUESTED
    assert await store.database.tasks.settle(task.id, session, task.turn, DONE) == RunStatus.CANCELLED
    run = await store.get_run(run_id)
    assert (run.status, run.last_error) == (RunStatus.CANCELLED, "cancelled")


@pytest.mark.proves("L-15")
async def test_a_run_whose_worker_died_after_the_request_is_cancelled_and_not_executed_again(store: Store) -> None:
    run_id = await sleeper.trigger(1).options(require_worker="ignore").execute(store)
    session = await begin(store)
    assert await claim(store, session, "sleeper")
    assert await store.cancel(run_id, reason="enough") is CancelAnswer.REQUESTED
    [seen] = [one for one in await store.database.sessions.living() if one.worker_id == session]
    assert await store.database.sessions.bury(SeenWorker(session, seen.beat_at))
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


async def elsewhere(url: str, *words: object) -> str:
    """What `stepwell` says in a process of its own."""
    command = [sys.executable, "-m", "stepwell", *map(str, words)]
    environment = {**os.environ, "STEPWELL_URL": url, "NO_COLOR": "1"}
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, out
    return out.decode()


@pytest.mark.proves("L-12", "L-14")
@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process")
async def test_another_process_cancels_a_run_and_sees_what_was_done(live_store: Store, store_url: str) -> None:
    async with Worker(live_store, [buyer]):
        run_id = await buyer.trigger(7).execute(live_store)
        await until(lambda: is_shown(live_store, run_id), 20, message="the charge to be shown")
        await elsewhere(store_url, "cancel", run_id)
        with pytest.raises(RunCancelled):
            await live_store.result(run_id, timeout=20)
        let_go.set()

        async def recorded() -> bool:
            return (await the_step(live_store, run_id)).status == RunStatus.SUCCESS

        await until(recorded, 20, message="the result to be recorded")
    assert "charged 7" in await elsewhere(store_url, "show", run_id, "--json")
