"""Pausing one run: held back wherever it is, nothing that it recorded is lost, and it goes on where it was."""

import asyncio
import time

import pytest

from stepwell import (
    Context,
    RunNotFound,
    RunStatus,
    Store,
    StoreUnavailable,
    Worker,
    connect,
    sleep,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.store.rows import SeenWorker, Settlement, Wish
from tests.ground.waiting import until
from tests.queue.raw import ask, change
from tests.runs.kit import quietly, requests
from tests.store.seam import AGAIN, DONE, FAILED, RELEASED, begin, claim, once, row_of, watched
from tests.workflows.kit import begun, drained, task_of

ran: list[str] = []
entered = asyncio.Event()
go_on = asyncio.Event()


@pytest.fixture(autouse=True)
def anew() -> None:
    global entered, go_on  # an event belongs to the loop of its test
    ran.clear()
    entered, go_on = asyncio.Event(), asyncio.Event()


@step
async def note(what: str) -> str:
    ran.append(what)
    return what


@workflow(retry=3)
async def sleeper() -> int:
    await note("before")
    await sleep("1h")
    await note("after")
    return 7


@workflow(retry=3)
async def stuck() -> int:
    await note("before")
    entered.set()
    await go_on.wait()
    await note("after")
    return 7


@workflow
async def waiter(ctx: Context) -> int:
    return await ctx.wait("go", int)


@workflow
async def child(number: int) -> int:
    return number


@workflow
async def parent(ctx: Context) -> list[int]:
    return await ctx.results(await ctx.trigger_many([child.trigger(number) for number in (1, 2)]))


@workflow
def polite(ctx: sync.Context) -> None:
    ctx.step("poll", _poll)


def _poll() -> None:
    ran.append(str(sync.current().heartbeat()))
    while not sync.current().is_cancelled():
        time.sleep(0.005)  # it works
    ran.append(str(sync.current().heartbeat()))


@pytest.mark.proves("P-02")
async def test_a_run_that_nobody_executes_is_paused_at_once_and_goes_on_when_it_is_let_go(store: Store) -> None:
    run_id = await begun(store, stuck)
    assert await store.pause(run_id, reason="not now") is True
    run = await store.get_run(run_id)
    assert (run.status, run.held_at, run.paused_at) == (RunStatus.PAUSED, run.held_at, run.held_at)
    assert run.held_at is not None
    assert await drained(store, stuck) == 0
    go_on.set()
    assert await store.unpause(run_id) is True
    run = await store.get_run(run_id)
    assert (run.status, run.held_at) == (RunStatus.PENDING, None)
    await drained(store, stuck)
    assert await store.result(run_id, timeout=0) == 7
    assert ran == ["before", "after"]


async def test_what_is_finished_or_being_cancelled_is_not_paused(store: Store) -> None:
    run_id = await begun(store, sleeper)
    assert await store.unpause(run_id) is False, "nobody holds it back"
    session = await begin(store)
    [task] = await claim(store, session, "sleeper")
    await store.cancel(run_id)
    assert await store.pause(run_id) is False
    await store.database.tasks.settle(task.id, session, task.turn, DONE)
    assert await store.pause(run_id) is False
    assert (await store.get_run(run_id)).status == RunStatus.CANCELLED
    for verb in (store.pause, store.unpause):
        with pytest.raises(RunNotFound):
            await verb(999_999)


async def test_pausing_twice_is_pausing_once(store: Store) -> None:
    run_id = await begun(store, sleeper)
    assert await store.pause(run_id, reason="first")
    before = await row_of(store, run_id)
    assert await store.pause(run_id)
    after = await row_of(store, run_id)
    assert (after["held_at"], after["held_reason"]) == (before["held_at"], "first")
    assert await store.unpause(run_id)
    assert not await store.unpause(run_id)


async def test_an_unpause_whose_reply_is_lost_answers_what_it_did(store: Store) -> None:
    store, driver = watched(store)
    run_id = await begun(store, sleeper)
    await store.pause(run_id)
    driver.forget()
    driver.after = once(StoreUnavailable("reset after the work was done"))
    assert await store.unpause(run_id) is True
    assert driver.scripts == 2, "the reply was not lost: void"


async def test_a_run_that_is_scheduled_is_not_begun_early_because_it_was_paused(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, stuck, delay="1d")
    await store.pause(run_id)
    assert await store.unpause(run_id)
    assert await drained(store, stuck) == 0
    go_on.set()
    clock.advance("1d")
    assert await drained(store, stuck) == 1


@pytest.mark.proves("P-02", "E-08")
async def test_a_sleeping_run_stays_paused_when_its_moment_comes_and_goes_on_after_it(
    store: Store, clock: TestClock
) -> None:
    run_id = await begun(store, sleeper)
    await drained(store, sleeper)
    await store.pause(run_id)
    clock.advance("2h")
    assert await drained(store, sleeper) == 0
    assert (await store.get_run(run_id)).status == RunStatus.PAUSED
    assert await store.unpause(run_id)
    await drained(store, sleeper)
    assert await store.result(run_id, timeout=0) == 7
    assert ran == ["before", "after"]


async def test_a_sleeping_run_that_is_let_go_early_sleeps_on(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, sleeper)
    await drained(store, sleeper)
    await store.pause(run_id)
    await store.unpause(run_id)
    await drained(store, sleeper)
    assert ran == ["before"]
    assert (await store.get_run(run_id)).status == RunStatus.PENDING
    clock.advance("1h")
    await drained(store, sleeper)
    assert (await store.get_run(run_id)).status == RunStatus.SUCCESS


@pytest.mark.proves("P-05")
async def test_a_signal_that_comes_while_it_is_held_back_is_kept_for_it(store: Store) -> None:
    run_id = await begun(store, waiter)
    await drained(store, waiter)
    await store.pause(run_id)
    await store.signal(run_id, "go", 7)
    assert await drained(store, waiter) == 0
    assert (await store.get_run(run_id)).status == RunStatus.PAUSED
    await store.unpause(run_id)
    await drained(store, waiter)
    assert await store.result(run_id, timeout=0) == 7


async def test_children_that_end_while_it_is_held_back_are_counted(store: Store) -> None:
    run_id = await begun(store, parent)
    await drained(store, parent)
    await store.pause(run_id)
    assert await drained(store, parent, child) == 2
    assert (await store.get_run(run_id)).status == RunStatus.PAUSED
    await store.unpause(run_id)
    await drained(store, parent)
    assert await store.result(run_id, timeout=0) == [1, 2]


async def test_a_run_that_is_let_go_before_its_children_have_ended_waits_on(store: Store) -> None:
    run_id = await begun(store, parent)
    await drained(store, parent)
    await store.pause(run_id)
    await store.unpause(run_id)
    await drained(store, parent)
    assert (await store.get_run(run_id)).status == RunStatus.PAUSED
    await drained(store, parent, child)
    assert await store.result(run_id, timeout=0) == [1, 2]


async def test_the_sweep_does_not_walk_over_what_is_held_back(store: Store, clock: TestClock) -> None:
    held = await begun(store, sleeper)
    await drained(store, sleeper)
    await store.pause(held)
    later = await begun(store, stuck, delay="3h")
    clock.advance("2h")
    woken, next_due = await store.database.tasks.wake_due()
    assert (woken, next_due) == (set(), 3600)
    clock.advance("1h")
    assert (await store.database.tasks.wake_due())[0] == {await store.database.workflow_id("stuck")}
    assert (await task_of(store, later)).ready
    assert not (await task_of(store, held)).ready


@pytest.mark.proves("P-02", "P-10")
@pytest.mark.parametrize("settlement", [RELEASED, AGAIN, DONE, FAILED], ids=["given back", "again", "done", "failed"])
async def test_a_held_run_is_paused_whatever_came_of_its_turn(store: Store, settlement: Settlement) -> None:
    run_id = await begun(store, sleeper)
    session = await begin(store)
    [task] = await claim(store, session, "sleeper")
    assert await store.pause(run_id)
    assert (await store.get_run(run_id)).status == RunStatus.RUNNING
    assert await store.database.tasks.settle(task.id, session, task.turn, settlement) == RunStatus.PAUSED
    held = await task_of(store, run_id)
    assert (held.ready, held.attempt, held.owner, held.finished_at) == (False, 0, None, None)
    assert (held.output, held.error, held.last_error) == (None, None, None)
    await store.unpause(run_id)
    assert [task.id for task in await claim(store, session, "sleeper")] == [run_id]


@pytest.mark.proves("P-02", "R-01")
async def test_a_run_that_ended_while_it_was_being_paused_comes_to_the_same_end_when_it_is_let_go(
    live_store: Store,
) -> None:
    @workflow
    async def paused_at_its_end(ctx: Context) -> int:
        await note("once")
        if ran == ["once"]:
            ran.append("paused")
            await quietly(live_store, Wish.PAUSE, ctx.run_id)
        return 7

    async with Worker(live_store, [paused_at_its_end]):
        run_id = await begun(live_store, paused_at_its_end)
        await _is_paused(live_store, run_id)
        run = await live_store.get_run(run_id)
        assert (run.output_text, run.attempt) == (None, 0)
        assert await live_store.unpause(run_id)
        assert await live_store.result(run_id, timeout=20) == 7
    assert ran == ["once", "paused"]


@pytest.mark.proves("P-02")
async def test_a_retry_of_a_failed_run_that_is_held_stays_paused(store: Store) -> None:
    run_id = await begun(store, sleeper)
    session = await begin(store)
    [task] = await claim(store, session, "sleeper")
    assert await store.database.tasks.settle(task.id, session, task.turn, FAILED) == RunStatus.ERROR
    assert await store.pause(run_id) is False, "it is finished"
    await change(store, f"update {{task}} set held_at = 1 where id = {int(run_id)}")  # as releases before this left it
    assert await store.retry(run_id)
    assert (await store.get_run(run_id)).status == RunStatus.PAUSED
    assert await claim(store, session, "sleeper") == []
    assert await store.unpause(run_id)
    assert [task.id for task in await claim(store, session, "sleeper")] == [run_id]


@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_held_run_whose_worker_died_stays_paused(store: Store, attempts: int) -> None:
    @workflow(name="sleeper", retry=attempts)
    async def tried() -> None: ...

    run_id = await begun(store, tried)
    session = await begin(store)
    assert await claim(store, session, "sleeper")
    await store.pause(run_id)
    [seen] = [one for one in await store.database.sessions.living() if one.worker_id == session]
    assert await store.database.sessions.bury(SeenWorker(session, seen.beat_at))
    run = await store.get_run(run_id)
    assert (run.status, run.worker, run.attempt) == (RunStatus.PAUSED, None, 0)
    assert await claim(store, await begin(store), "sleeper") == []


@pytest.mark.proves("SD-01")
async def test_a_held_run_that_was_deleted_and_restored_stays_paused(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, sleeper)
    await store.pause(run_id)
    await store.delete(run_id)
    with pytest.raises(RunNotFound):
        await store.unpause(run_id)
    clock.advance("1h")
    assert await store.restore(run_id)
    assert (await store.get_run(run_id)).status == RunStatus.PAUSED
    assert await claim(store, await begin(store), "sleeper") == []
    assert await store.unpause(run_id)


@pytest.mark.proves("P-10", "E-08", "rule-06")
async def test_a_run_under_way_is_stopped_keeps_its_attempt_and_what_it_recorded(live_store: Store) -> None:
    store = live_store
    async with Worker(store, [stuck]):
        run_id = await begun(store, stuck)
        await asyncio.wait_for(entered.wait(), 20)
        assert await store.pause(run_id)
        await _is_paused(store, run_id)
        run = await store.get_run(run_id)
        assert (run.attempt, run.worker) == (0, None)
        assert [one.key for one in await store.steps(run_id)] == ["note#1"]
        go_on.set()
        assert await store.unpause(run_id)
        assert await store.result(run_id, timeout=20) == 7
    assert ran == ["before", "after"]


@pytest.mark.proves("L-18")
async def test_a_thread_can_see_that_it_may_as_well_stop(live_store: Store) -> None:
    async with Worker(live_store, [polite]):
        run_id = await begun(live_store, polite)
        await until(lambda: ran == ["True"], 20, message="the body to begin")
        assert await live_store.pause(run_id)
        await until(lambda: ran == ["True", "False"], 20, message="the body to see it")
    assert (await live_store.get_run(run_id)).status == RunStatus.PAUSED


@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process, whose workers are told at once")
async def test_a_worker_of_another_store_hears_of_it(live_store: Store, store_url: str) -> None:
    async with connect(store_url, lease=0.6) as other, Worker(other, [stuck]):
        run_id = await begun(live_store, stuck)
        await asyncio.wait_for(entered.wait(), 20)
        assert await live_store.pause(run_id)
        await _is_paused(live_store, run_id)
        go_on.set()
        assert await live_store.unpause(run_id)
        assert await live_store.result(run_id, timeout=20) == 7


async def test_a_pause_that_is_taken_back_before_the_worker_hears_of_it_changes_nothing(store: Store) -> None:
    run_id = await begun(store, sleeper)
    session = await begin(store)
    [task] = await claim(store, session, "sleeper")
    await store.pause(run_id)
    assert await store.unpause(run_id)
    assert (await store.get_run(run_id)).status == RunStatus.RUNNING
    assert await requests(store) == []
    assert await store.database.tasks.settle(task.id, session, task.turn, DONE) == RunStatus.SUCCESS


@pytest.mark.proves("L-11", "P-11")
async def test_a_held_run_can_be_cancelled(store: Store) -> None:
    run_id = await begun(store, sleeper)
    await store.pause(run_id)
    assert await store.cancel(run_id) == "CANCELLED"
    assert await store.unpause(run_id) is False


async def test_a_run_that_was_taken_by_hand_is_taken_away(store: Store) -> None:
    run_id = await begun(store, sleeper)
    [message] = await store.dequeue("sleeper", visibility=60)
    assert await store.pause(run_id)
    assert (await store.get_run(run_id)).status == RunStatus.PAUSED
    assert not await message.archive()
    assert await store.unpause(run_id)
    assert [task.id for task in await claim(store, await begin(store), "sleeper")] == [run_id]


@pytest.mark.proves("I-10")
async def test_plain_sql_says_so(store: Store) -> None:
    async def state() -> list[tuple[object, ...]]:
        return await ask(store, f"select state, until, held_reason from {{runs}} where id = {int(run_id)}")

    run_id = await begun(store, sleeper, delay="1d")
    await store.pause(run_id, reason="look")
    assert await state() == [("paused by an operator, until it is unpaused", None, "look")]
    await store.unpause(run_id)
    run_id = await begun(store, sleeper)
    await claim(store, await begin(store), "sleeper")
    await store.pause(run_id)
    assert await state() == [("running, asked to pause", None, None)]


def test_a_sync_store_pauses_too(store_url: str) -> None:
    with sync.connect(store_url) as store:
        run_id = sleeper.trigger().execute(store)
        assert (store.pause(run_id, reason="r"), store.get_run(run_id).status) == (True, "PAUSED")
        assert (store.unpause(run_id), store.unpause(run_id)) == (True, False)


async def _is_paused(store: Store, run_id: int) -> None:
    async def paused() -> bool:
        return (await store.get_run(run_id)).status == RunStatus.PAUSED

    await until(paused, 20, message="the worker to give the run back")
