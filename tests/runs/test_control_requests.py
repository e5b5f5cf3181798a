"""Control requests: a cancel or a pause is heard with the next record, by the turn it was asked of alone."""

import asyncio
import threading
import time

import pytest

from stepwell import Context, RunCancelled, RunStatus, Store, Worker, connect, handler, step, sync, workflow
from stepwell.store.audit import UNSAID_BY
from stepwell.store.control import cancelling
from stepwell.store.driver import Value
from stepwell.store.rows import SeenWorker, Wish
from tests.ground.waiting import until
from tests.runs.kit import quietly, requests
from tests.store.seam import DONE, begin, claim, owned, watched
from tests.worker.silence import stillness
from tests.workflows.kit import begun, drained, task_of

ran: list[object] = []
store_of: list[Store] = []
BOTH = pytest.mark.parametrize("wish", list(Wish))


@pytest.fixture(autouse=True)
def anew() -> None:
    ran.clear()
    store_of.clear()


@step
async def act(branch: int, number: int) -> int:
    ran.append((branch, number))
    return number


@step
async def steer(run_id: int, wish: Wish) -> None:
    await quietly(store_of[0], wish, run_id)
    ran.append("asked")


async def line(ctx: Context, branch: int, wish: Wish | None) -> None:
    for number in range(20):
        await act(branch, number)
        if number == 3 and wish is not None:
            await steer(ctx.run_id, wish)


@workflow
async def single(ctx: Context, wish: Wish) -> int:
    await line(ctx, 1, wish)
    return 7


@workflow
async def gathers(ctx: Context, wish: Wish) -> int:
    await asyncio.gather(line(ctx, 1, wish), line(ctx, 2, None), line(ctx, 3, None))
    return 7


@workflow
def threaded(ctx: sync.Context, wish: Wish) -> int:
    for number in range(20):
        ctx.step("act", _act, number)
        if number == 3:
            ctx.step("steer", _steer, ctx.run_id, wish)
    return 7


def _act(number: int) -> None:
    ran.append((1, number))


def _steer(run_id: int, wish: Wish) -> None:
    store = store_of[0]
    asyncio.run_coroutine_threadsafe(quietly(store, wish, run_id), store.database.loop).result(20)
    ran.append("asked")


async def ended(store: Store, run_id: int, wish: Wish) -> None:
    """Wait until the run is what was asked for."""
    wanted = RunStatus.CANCELLED if wish is Wish.CANCEL else RunStatus.PAUSED

    async def is_so() -> bool:
        return (await store.get_run(run_id)).status == wanted

    await until(is_so, 20, message=f"the run to be {wanted}")


@BOTH
@pytest.mark.proves("L-12", "P-10")
async def test_no_step_begins_after_the_record_that_brings_the_request(live_store: Store, wish: Wish) -> None:
    store_of.append(live_store)
    async with Worker(live_store, [single, threaded]):
        for flow in (single, threaded):
            ran.clear()
            run_id = await begun(live_store, flow, wish)
            await ended(live_store, run_id, wish)
            assert ran == [(1, 0), (1, 1), (1, 2), (1, 3), "asked"], flow.name


@BOTH
@pytest.mark.proves("L-12", "P-10")
async def test_each_branch_begins_at_most_one_more_step(live_store: Store, wish: Wish) -> None:
    store_of.append(live_store)
    async with Worker(live_store, [gathers]):
        run_id = await begun(live_store, gathers, wish)
        await ended(live_store, run_id, wish)
    after = ran[ran.index("asked") + 1 :]
    for branch in (1, 2, 3):
        assert len([one for one in after if isinstance(one, tuple) and one[0] == branch]) <= 1, ran


@pytest.mark.proves("P-02", "P-10")
async def test_a_run_that_was_let_go_is_not_stopped_again_by_what_was_asked_of_its_last_turn(live_store: Store) -> None:
    store_of.append(live_store)
    async with Worker(live_store, [single]) as worker:
        async with stillness(live_store):  # a beat removes the request of a turn that has ended
            run_id = await begun(live_store, single, Wish.PAUSE)
            await ended(live_store, run_id, Wish.PAUSE)
            session = worker.id
            assert await requests(live_store) == [(session, run_id, 1, "pause")], "it was removed before: void"
            await live_store.unpause(run_id)
        assert await live_store.result(run_id, timeout=20) == 7
    assert ran.count("asked") == 1
    assert (await task_of(live_store, run_id)).turn == 2, "it was stopped again"


@BOTH
@pytest.mark.proves("L-12")
async def test_a_request_is_written_for_the_turn_under_way_and_goes_with_it(store: Store, wish: Wish) -> None:
    run_id, other = await begun(store, single, wish), await begun(store, single, wish)
    await quietly(store, wish, other)
    assert await requests(store) == [], "nobody executes it"
    session = await begin(store)
    [task] = await claim(store, session, "single")
    await quietly(store, wish, run_id)
    await quietly(store, wish, run_id)
    assert await requests(store) == [(session, run_id, 1, str(wish))]
    assert [one.task_id for one in await owned(store, session)] == [run_id]
    assert await requests(store) == [(session, run_id, 1, str(wish))], "it is still to be heard"
    await store.database.tasks.settle(task.id, session, task.turn, DONE)
    assert await owned(store, session) == []  # a beat
    assert await requests(store) == []


@pytest.mark.parametrize("dies", [True, False])
@pytest.mark.proves("L-12")
async def test_what_a_session_was_asked_goes_with_it(store: Store, dies: bool) -> None:
    run_id = await begun(store, single, Wish.PAUSE)
    session = await begin(store)
    assert await claim(store, session, "single")
    await quietly(store, Wish.PAUSE, run_id)
    if dies:
        [seen] = [one for one in await store.database.sessions.living() if one.worker_id == session]
        assert await store.database.sessions.bury(SeenWorker(session, seen.beat_at))
    else:
        await store.database.sessions.end(session, "stopped")
    assert await requests(store) == []


@pytest.mark.proves("L-12")
async def test_a_flush_with_steps_reads_them_as_one_more_part_and_asks_nothing_else(store: Store) -> None:
    store, driver = watched(store)
    store_of.append(store)
    run_id = await begun(store, single, Wish.PAUSE)
    driver.forget()
    await drained(store, single)
    flushes = [[call.statement for call in calls] for calls in driver.flushes]
    assert any("add_steps" in calls for calls in flushes)
    for calls in flushes:
        recorded = bool({"add_steps", "change_steps"} & set(calls))
        assert calls.count("control_requests") == (1 if recorded else 0), calls
    assert (await store.get_run(run_id)).status == RunStatus.PAUSED


@workflow
async def polls(ctx: Context) -> None:
    await ctx.step("poll", _poll)


@workflow
async def polls_in_a_thread(ctx: Context) -> None:
    await ctx.step("poll", _poll_in_thread)


@workflow
def polls_in_its_own_thread(ctx: sync.Context) -> None:
    ctx.step("poll", _poll_in_thread)


async def _poll() -> None:
    ran.append("begun")
    try:
        await asyncio.Event().wait()
    finally:
        ran.append("stopped")


def _poll_in_thread() -> None:
    ran.append("begun")
    given_up = time.monotonic() + 20
    while not sync.current().is_cancelled() and time.monotonic() < given_up:
        time.sleep(0.01)
    ran.append("stopped" if sync.current().is_cancelled() else "heard nothing")


@BOTH
@pytest.mark.proves("L-12", "L-18")
@pytest.mark.parametrize("flow", [polls, polls_in_a_thread, polls_in_its_own_thread], ids=lambda flow: flow.name)
async def test_a_body_that_records_nothing_hears_of_it_long_before_a_beat(
    store_url: str, wish: Wish, flow: object
) -> None:
    async with connect(store_url, lease=600) as store, Worker(store, [flow]):
        run_id = await begun(store, flow)  # type: ignore[arg-type]
        await until(lambda: "begun" in ran, 20, message="the body to begin")
        await quietly(store, wish, run_id)
        await until(lambda: len(ran) == 2, 25, message="the body to end")
        assert ran == ["begun", "stopped"]
        await ended(store, run_id, wish)


@pytest.mark.proves("L-12")
async def test_a_message_that_is_executed_hears_of_it_too(live_store: Store) -> None:
    @handler("letters")
    async def read(text: str) -> None:
        ran.append(text)
        try:
            await asyncio.Event().wait()
        finally:
            ran.append("stopped")

    async with Worker(live_store, [read]):
        task_id = await live_store.enqueue(read, "hello")
        await until(lambda: ran == ["hello"], 20, message="the body to begin")
        params: dict[str, Value] = {"now": None, "beat_now": None, "tenant": ""}
        script = lambda: cancelling(params, [task_id], UNSAID_BY, set(), live_store.database.audit, before=set())  # noqa: E731
        assert await live_store.database.driver.transact(script)

        async def is_cancelled() -> bool:
            return (task := await live_store.get(task_id)) is not None and task.status == RunStatus.CANCELLED

        await until(is_cancelled, 20, message="the message to be cancelled")
    assert ran == ["hello", "stopped"]


@pytest.mark.proves("L-12")
async def test_who_is_cancelled_and_paused_at_once_is_cancelled(live_store: Store) -> None:
    let_go = threading.Event()

    def wait() -> None:
        ran.append("begun")
        let_go.wait(20)

    @workflow
    async def waits(ctx: Context) -> None:
        await ctx.step("wait", wait)

    async with Worker(live_store, [waits]):
        run_id = await begun(live_store, waits)
        await until(lambda: ran == ["begun"], 20, message="the body to begin")
        await quietly(live_store, Wish.PAUSE, run_id)
        await quietly(live_store, Wish.CANCEL, run_id)
        let_go.set()
        with pytest.raises(RunCancelled):
            await live_store.result(run_id, timeout=20)
