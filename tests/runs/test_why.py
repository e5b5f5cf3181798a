"""Why a run stands where it stands: every situation is made for real, and the reason names it."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    Context,
    Paused,
    PermanentError,
    Reason,
    Retry,
    RunNotFound,
    Store,
    Why,
    Worker,
    sleep,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.store.rows import SeenWorker
from tests.ground.waiting import until
from tests.runs.kit import serve, tick
from tests.store.seam import begin, claim, row_of
from tests.workflows.kit import begun, drained, executed

entered = asyncio.Event()


@pytest.fixture(autouse=True)
def anew() -> None:
    global entered  # noqa: PLW0603 - an event belongs to the loop of its test
    entered = asyncio.Event()


@step(retry=Retry(3, base="4m", jitter=0))
async def flaky() -> None:
    raise ConnectionError("the line is dead")


@workflow
async def sleeper() -> None:
    await sleep("1h")


@workflow
async def stepping() -> None:
    await flaky()


@workflow(retry=Retry(3, base="4m", jitter=0))
async def failing() -> None:
    raise ConnectionError("no luck")


@workflow
async def broken() -> None:
    raise PermanentError("it cannot be")


@workflow(timeout="1h")
async def late() -> None:
    await sleep("2h")


@workflow
async def approval(ctx: Context) -> Any:
    return await ctx.wait("approved", str)


@step
async def ask_for_it() -> None:
    raise Paused("the form is not back", resume_condition="form_is_back")


@step
async def ask_somebody() -> None:
    raise Paused("ask Ada")


@workflow
async def form() -> None:
    await ask_for_it()


@workflow
async def somebody() -> None:
    await ask_somebody()


@workflow
async def child(number: int) -> int:
    await sleep("1d")
    return number


@workflow
async def parent(ctx: Context) -> list[int]:
    return await ctx.results(await ctx.trigger_many([child.trigger(number) for number in range(3)]))


@workflow
async def stuck() -> None:
    await working()


@step
async def working() -> None:
    entered.set()
    await asyncio.Event().wait()


async def _why(store: Store, run_id: int, reason: Reason, *words: str) -> Why:
    told = await store.why(run_id)
    assert told.reason is reason
    assert all(word in str(told) for word in words), str(told)
    assert told.next
    return told


@pytest.mark.proves("I-10")
async def test_what_is_finished(store: Store, clock: TestClock) -> None:
    await _why(store, (await executed(store, tick)).id, Reason.SUCCEEDED, "ended well")
    failed = (await executed(store, broken)).id
    await _why(store, failed, Reason.FAILED, "PermanentError: it cannot be", "store.retry")
    run_id = await begun(store, sleeper)
    await store.cancel(run_id, reason="not needed")
    await _why(store, run_id, Reason.CANCELLED, "cancelled: not needed")
    await store.delete(run_id, reason="by mistake")
    await _why(store, run_id, Reason.DELETED, "by mistake", "store.restore")
    overdue = await begun(store, late)
    await drained(store, late)
    clock.advance("1h")
    await drained(store, late)
    await _why(store, overdue, Reason.TIMED_OUT, "not finished 3600 s after its start")
    with pytest.raises(RunNotFound):
        await store.why(999_999)


async def test_a_step_that_ended_the_run_is_named(store: Store) -> None:
    @step(retry=1)
    async def pay() -> None:
        raise PermanentError("no money")

    @workflow
    async def buying() -> None:
        await pay()

    told = await _why(store, (await executed(store, buying)).id, Reason.FAILED, "no money")
    assert told.waits_for == ("pay#1",)


async def test_a_run_that_killed_its_workers(store: Store) -> None:
    run_id = await begun(store, tick, max_attempts=1)
    session = await begin(store)
    await claim(store, session, "tick")
    [seen] = await store.database.sessions.living()
    assert await store.database.sessions.bury(SeenWorker(session, seen.beat_at))
    await _why(store, run_id, Reason.WORKER_LOST, "lost 1 times")


async def test_a_run_that_nobody_could_execute(store: Store) -> None:
    await store.create_workflow("default.unknown")
    run_id = await workflow("default.unknown").trigger().options(require_worker="ignore").execute(store)
    await Worker(store, []).drain()
    await _why(store, run_id, Reason.NO_HANDLER, "no_handler_registered", "start a worker")


async def test_who_executes_it(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, tick)
    await claim(store, await begin(store), "tick")
    told = await _why(store, run_id, Reason.RUNNING, "seam", "process 1 on host")
    assert told.waits_for == ("seam",)
    await store.pause(run_id)
    await _why(store, run_id, Reason.PAUSING, "asked to give it back")
    await store.cancel(run_id)
    await _why(store, run_id, Reason.CANCELLING, "asked to stop it")
    clock.advance("10m", leases=True)
    await _why(store, run_id, Reason.WORKER_SILENT, "not heard of", "when the lease of 30 s is over")


async def test_at_which_step_it_is(live_store: Store) -> None:
    async with Worker(live_store, [stuck], grace=0, name="crew"):
        run_id = await begun(live_store, stuck)
        await asyncio.wait_for(entered.wait(), 20)

        async def at_it() -> bool:
            return "at working#1" in str(await live_store.why(run_id))

        await until(at_it, 20, message="the step to be shown")
        await _why(live_store, run_id, Reason.RUNNING, "crew")


async def test_one_that_was_taken_by_hand(store: Store) -> None:
    run_id = await begun(store, tick)
    [message] = await store.dequeue("tick", visibility=60)
    told = await _why(store, run_id, Reason.TAKEN_BY_HAND, "dequeue")
    assert told.until == message.created_at + timedelta(seconds=60)


async def test_who_holds_it_back(store: Store) -> None:
    run_id = await begun(store, tick)
    await store.pause_queue("tick")
    await store.pause(run_id, reason="look first")
    await _why(store, run_id, Reason.HELD, "look first", "store.unpause")
    await store.unpause(run_id)
    await _why(store, run_id, Reason.QUEUE_PAUSED, "store.resume_queue('tick')")
    await store.begin_maintenance("new disks")
    await _why(store, run_id, Reason.MAINTENANCE, "new disks")
    await store.end_maintenance()
    await store.resume_queue("tick")
    await _why(store, run_id, Reason.UNSERVED, "no living worker serves tick")


async def test_who_could_execute_it(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, tick)
    await store.create_queue("other")
    await store.enqueue("other", 1)
    one = await serve(store, "tick")
    told = await _why(store, run_id, Reason.READY, "a worker claims it")
    assert told.waits_for == ("w",)
    assert await claim(store, one, "other")
    await _why(store, run_id, Reason.BUSY, "on 1 tasks in all")
    await serve(store, "ti*")
    await _why(store, run_id, Reason.READY)
    clock.advance("10m", leases=True)
    await _why(store, run_id, Reason.UNSERVED)


@pytest.mark.proves("rule-07")
async def test_one_that_was_lost_with_its_worker_is_executed_alone(store: Store) -> None:
    run_id = await begun(store, tick)
    session = await begin(store)
    await claim(store, session, "tick")
    [seen] = await store.database.sessions.living()
    assert await store.database.sessions.bury(SeenWorker(session, seen.beat_at))
    await serve(store, "tick")
    await _why(store, run_id, Reason.SUSPECT, "executed alone", "nothing else under way")
    [stats] = [one for one in await store.queue_stats() if one.queue == "tick"]
    assert (stats.ready, stats.waiting, stats.suspects) == (0, 1, 1)


async def test_which_moment_it_waits_for(store: Store, clock: TestClock) -> None:
    scheduled = await begun(store, tick, delay="1d")
    told = await _why(store, scheduled, Reason.SCHEDULED, "executed then")
    assert told.until == (await store.get_run(scheduled)).created_at + timedelta(days=1)
    asleep = (await executed(store, sleeper)).id
    told = await _why(store, asleep, Reason.SLEEPING)
    assert told.until == (await store.get_run(asleep)).created_at + timedelta(hours=1)
    again = (await executed(store, failing)).id
    told = await _why(store, again, Reason.BACKING_OFF, "attempt 1 of 3 failed with ConnectionError: no luck")
    assert told.until == (await store.get_run(again)).created_at + timedelta(minutes=4)
    stepwise = (await executed(store, stepping)).id
    told = await _why(store, stepwise, Reason.BACKING_OFF, "step flaky#1 failed in attempt 1 with ConnectionError")
    assert (told.waits_for, told.until is not None) == (("flaky",), True)
    clock.advance("2h")
    assert not (await row_of(store, asleep))["ready"]
    await _why(store, asleep, Reason.UNSERVED)  # its moment has come, and nobody was there to notice


async def test_what_it_waits_for(store: Store) -> None:
    told = await _why(store, (await executed(store, approval)).id, Reason.WAITING_FOR_SIGNAL, "store.signal")
    assert (told.waits_for, told.until) == (("approved",), None)
    told = await _why(store, (await executed(store, form)).id, Reason.STEP_PAUSED, "the form is not back")
    assert (told.waits_for, told.until is not None) == (("form_is_back",), True)
    told = await _why(store, (await executed(store, somebody)).id, Reason.STEP_PAUSED, "ask Ada", "store.resume")
    assert (told.waits_for, told.until) == (("ask_somebody",), None)
    run_id = await begun(store, parent)
    await drained(store, parent)
    told = await _why(store, run_id, Reason.WAITING_FOR_CHILDREN, "3 of the 3 unfinished runs")
    assert told.waits_for == ("results()",)


@pytest.mark.proves("R-16")
async def test_a_run_that_is_held_for_its_code(store: Store, clock: TestClock) -> None:
    @workflow(name="careful", strict=True)
    async def before(ctx: Context) -> None:
        await ctx.step("weigh", lambda: 1)
        await ctx.sleep(60)

    @workflow(name="careful", strict=True)
    async def after(ctx: Context) -> None:
        await ctx.step("pack", lambda: 1)

    run_id = await begun(store, before)
    await drained(store, before)
    clock.advance(60)
    await drained(store, after)
    told = await store.why(run_id)
    assert (told.reason, told.until, told.waits_for) == (Reason.CODE_DIFFERS, None, ("weigh", "sleep"))
    assert "step pack#1 was about to be executed" in told.message
    assert told.next == "`store.accept` lets it go on"


def test_every_reason_is_made_here_or_where_it_belongs() -> None:
    here = Path(__file__)
    others = (
        "broadcasts/test_waits.py",
        "deciders/test_order.py",
        "limits/test_running.py",
        "workflows/test_at_most_once.py",
        "talk/test_asks.py",
    )
    text = "".join(each.read_text(encoding="utf-8") for each in [here, *(here.parents[1] / one for one in others)])
    assert [reason.name for reason in Reason if f"Reason.{reason.name}" not in text] == []


def test_a_sync_store_says_it_too(store_url: str) -> None:
    with sync.connect(store_url) as store:
        run_id = tick.trigger().options(require_worker="ignore").execute(store)
        assert store.why(run_id).reason == "UNSERVED"
