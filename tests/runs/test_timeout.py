"""The time that a run has in all: from its first start, whatever it does with it, by the database's clock."""

import asyncio
import threading

import pytest

from stepwell import (
    Context,
    ExecutionFailed,
    InvalidOption,
    Retry,
    RunStatus,
    Store,
    Worker,
    current,
    sleep,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from tests.ground.waiting import until
from tests.store.seam import begin, claim
from tests.workflows.kit import begun, die, drained, executed

ran: list[str] = []
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


@workflow(timeout="1h")
async def sleeper(span: str) -> str:
    await note("before")
    await sleep(span)
    return await note("after")


@workflow(timeout="1h", retry=Retry(5, base="50m", cap="50m"))
async def failing() -> None:
    ran.append("tried")
    raise ConnectionError("again")


@workflow(timeout="1h")
async def stuck() -> None:
    try:
        await note("before")
        entered.set()
        await asyncio.Event().wait()
    finally:
        await note("in finally")


@workflow(timeout="1h")
def stubborn(ctx: sync.Context) -> None:
    ctx.step("wait", _wait)
    ran.append("after")


def _wait() -> None:
    ran.append("body")
    let_go.wait(20)


async def _ended_late(store: Store, run_id: int) -> None:
    run = await store.get_run(run_id)
    assert (run.status, run.worker) == (RunStatus.ERROR, None)
    assert run.error is not None
    assert (run.error["type"], run.error["limit"]) == ("Timeout", 3600)
    assert f"run {run_id} was not finished 3600 s after its start" in str(run.last_error)
    with pytest.raises(ExecutionFailed, match="Timeout"):
        await store.result(run_id, timeout=0)


async def test_a_run_that_is_asleep_ends_when_its_time_is_over(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, sleeper, "2h")
    clock.advance("5h")  # before its first start nothing counts
    await drained(store, sleeper)
    clock.advance("59m")
    assert await drained(store, sleeper) == 0
    clock.advance("1m")
    assert await drained(store, sleeper) == 1
    await _ended_late(store, run_id)
    assert ran == ["before"]


async def test_a_run_that_waits_for_somebody_ends_when_its_time_is_over(store: Store, clock: TestClock) -> None:
    @workflow(timeout="1h")
    async def waiter(ctx: Context) -> str:
        return await ctx.wait("go", str)

    run_id = await begun(store, waiter)
    await drained(store, waiter)
    clock.advance("1h")
    await drained(store, waiter)
    await _ended_late(store, run_id)
    assert not await store.signal(run_id, "go", "late")


async def test_a_run_that_is_in_time_is_left_alone(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, sleeper, "50m")
    await drained(store, sleeper)
    clock.advance("50m")
    await drained(store, sleeper)
    assert await store.result(run_id, timeout=0) == "after"


async def test_a_run_that_backs_off_is_not_tried_again_too_late(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, failing)
    await drained(store, failing)
    clock.advance("50m")
    await drained(store, failing)
    assert ran == ["tried", "tried"]
    clock.advance("10m")  # the next attempt would be 40 minutes later
    await drained(store, failing)
    await _ended_late(store, run_id)
    assert ran == ["tried", "tried"]


async def test_a_run_between_two_workers_ends_before_it_is_executed_again(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, sleeper, "10m")
    assert await claim(store, await begin(store), "sleeper")
    await die(store.database)
    clock.advance("2h")
    await drained(store, sleeper)
    await _ended_late(store, run_id)
    assert ran == []


async def test_a_retry_gives_it_its_whole_time_again(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, sleeper, "90m")
    await drained(store, sleeper)
    clock.advance("1h")
    await drained(store, sleeper)
    await _ended_late(store, run_id)
    assert await store.retry(run_id)
    clock.advance("30m")
    await drained(store, sleeper)
    assert await store.result(run_id, timeout=0) == "after"
    assert ran == ["before", "after"]


async def test_a_body_under_way_is_stopped_and_records_nothing_more(store: Store, clock: TestClock) -> None:
    async with Worker(store, [stuck]):
        run_id = await begun(store, stuck)
        await asyncio.wait_for(entered.wait(), 20)
        clock.advance("1h")
        with pytest.raises(ExecutionFailed):
            await store.result(run_id, timeout=20)
    await _ended_late(store, run_id)
    assert ran == ["before"]


async def test_a_thread_that_cannot_be_stopped_does_not_keep_the_run(store: Store, clock: TestClock) -> None:
    async with Worker(store, [stubborn]):
        run_id = await begun(store, stubborn)
        await until(lambda: ran == ["body"], 20, message="the body to begin")
        clock.advance("1h")
        with pytest.raises(ExecutionFailed):
            await store.result(run_id, timeout=20)
        let_go.set()
    await _ended_late(store, run_id)
    assert ran == ["body"]


async def test_by_the_database_s_own_clock(live_store: Store) -> None:
    @workflow(timeout="200ms")
    async def endless() -> None:
        current().progress("begun")
        await asyncio.Event().wait()

    @workflow(timeout="200ms")
    async def asleep() -> None:
        await sleep("1h")

    async with Worker(live_store, [endless, asleep]):
        for one in (endless, asleep):
            with pytest.raises(ExecutionFailed, match="Timeout"):
                await one.trigger().wait(timeout=20).execute(live_store)


async def test_a_run_that_fails_late_tells_its_dead_letters(store: Store, clock: TestClock) -> None:
    @workflow
    async def letters(letter: dict[str, object]) -> None:
        error = letter["error"]
        assert isinstance(error, dict)
        ran.append(str(error["type"]))

    @workflow(timeout="1h", dead_letter="letters")
    async def slow() -> None:
        await sleep("2h")

    await executed(store, slow)
    clock.advance("1h")
    await drained(store, slow, letters)
    assert ran == ["Timeout"]


def test_what_is_no_limit_is_refused() -> None:
    for wrong in (0, "0s", -1, "soon"):
        with pytest.raises(InvalidOption, match="timeout"):
            workflow(timeout=wrong)
    with pytest.raises(InvalidOption, match="options belong to a definition"):
        workflow("name", timeout="1h")  # type: ignore[call-overload]
    assert sleeper.options["timeout"] == 3600
