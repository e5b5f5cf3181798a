"""Waiting work is done at another moment, or with another priority; what runs, or waits for its own reasons, stays."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stepwell import (
    Context,
    InvalidOption,
    RescheduleAnswer,
    RunNotFound,
    Store,
    Worker,
    current,
    handler,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.base.durations import datetime_of
from tests.runs.kit import tick
from tests.store.seam import begin, claim

RESCHEDULED, RUNNING, WAITING, TOO_LATE = RescheduleAnswer
ran: list[object] = []
failures: list[Exception] = []


@pytest.fixture(autouse=True)
def anew() -> None:
    ran.clear()
    failures.clear()


@handler("letters")
async def letter(text: str) -> None:
    ran.append(text)


@step(retry=1)
async def fragile() -> None:
    if failures:
        raise failures.pop()


@workflow(retry=3)
async def errand(ctx: Context, what: str) -> str:
    match what:
        case "sleeps":
            await ctx.sleep("1h")
        case "waits":
            await ctx.wait("word")
        case "fails":
            ran.append(f"attempt {current().attempt}")
            if failures:
                raise failures.pop()
    ran.append(what)
    return what


@pytest.mark.proves("ST-03")
async def test_a_message_and_a_run_that_wait_are_moved_to_another_moment(store: Store, clock: TestClock) -> None:
    message = await store.enqueue(letter, "hello", delay="1h")
    run = await errand.trigger("now").options(delay="1h").execute(store)
    worker = Worker(store, [letter, errand])
    assert await worker.drain() == 0
    assert await store.reschedule(message, delay=0) is RESCHEDULED
    assert await store.reschedule(run, run_at=datetime_of(clock.now()) + timedelta(minutes=1)) is RESCHEDULED
    await worker.drain()
    assert ran == ["hello"]
    clock.advance("61s")
    await worker.drain()
    assert ran == ["hello", "now"]


@pytest.mark.proves("ST-03")
async def test_what_is_ready_is_put_off(store: Store, clock: TestClock) -> None:
    message = await store.enqueue(letter, "later")
    assert await store.reschedule(message, delay="1h", reason="not today", actor="ann")
    worker = Worker(store, [letter])
    await worker.drain()
    assert ran == []
    clock.advance("2h")
    await worker.drain()
    assert ran == ["later"]
    [note] = await store.history(message)
    assert (note.what, note.detail, note.actor) == ("rescheduled", "in 3600 s: not today", "ann")


@pytest.mark.proves("ST-03")
async def test_a_higher_priority_goes_before(store: Store) -> None:
    first, second = await store.enqueue_many(letter, ["first", "second"])
    assert await store.reschedule(second, priority=5) is RESCHEDULED
    worker = await begin(store)
    assert [task.id for task in await claim(store, worker, "letters", limit=2)] == [second, first]


@pytest.mark.proves("ST-03")
async def test_a_run_that_waits_to_be_tried_again_is_tried_at_once(store: Store) -> None:
    failures.append(ConnectionError("down"))
    run = await errand.trigger("fails").execute(store)
    worker = Worker(store, [errand])
    await worker.drain()
    assert ran == ["attempt 1"]
    assert await store.reschedule(run, delay=0) is RESCHEDULED
    await worker.drain()
    assert ran == ["attempt 1", "attempt 2", "fails"]


@pytest.mark.proves("ST-03")
async def test_what_runs_or_is_over_or_waits_for_its_own_reasons_is_refused(store: Store) -> None:
    await store.create_queue("mail")
    taken = await store.enqueue("mail", 1)
    assert len(await store.dequeue("mail")) == 1
    assert await store.reschedule(taken, delay=0) is RUNNING
    held = await tick.trigger().execute(store)
    worker = await begin(store)
    await claim(store, worker, "tick")
    assert await store.reschedule(held, priority=3) is RUNNING
    asleep, waiting = [await errand.trigger(what).execute(store) for what in ("sleeps", "waits")]
    await Worker(store, [errand]).drain()
    for run in (asleep, waiting):
        assert await store.reschedule(run, delay=0) is WAITING
        assert await store.reschedule(run, priority=7) is RESCHEDULED
        assert (await store.get_run(run)).priority == 7
        assert await store.cancel(run)
        assert not await store.reschedule(run, delay=0)
        assert await store.reschedule(run, delay=0) is TOO_LATE
    with pytest.raises(RunNotFound):
        await store.reschedule(10**9, delay=0)


async def test_a_paused_run_that_has_not_begun_keeps_waiting_for_its_operator(store: Store, clock: TestClock) -> None:
    run = await errand.trigger("now").options(delay="1h").execute(store)
    await store.pause(run)
    assert await store.reschedule(run, delay=0)
    worker = Worker(store, [errand])
    await worker.drain()
    assert ran == []
    await store.unpause(run)
    await worker.drain()
    assert ran == ["now"]


async def test_wrong_use_is_told(store: Store) -> None:
    message = await store.enqueue(letter, "x")
    with pytest.raises(InvalidOption, match="say what to change"):
        await store.reschedule(message)
    with pytest.raises(InvalidOption, match="not both"):
        await store.reschedule(message, delay=1, run_at=datetime_of(0))
    with pytest.raises(InvalidOption):
        await store.reschedule(message, priority=10**6)


@pytest.mark.proves("ST-03")
def test_a_sync_store_reschedules_too(store_url: str) -> None:
    with sync.connect(store_url) as store:
        run = errand.trigger("now").options(key="k", delay="1h").execute(store)
        assert store.reschedule(errand.with_key("k"), delay=0) is RESCHEDULED
        found = store.get_run(run)
        assert found.run_at is not None
        assert found.run_at <= found.updated_at
