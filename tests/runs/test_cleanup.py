"""Cleanup after a cancel: inside of a shield a run goes on, whatever happens to it, and for a bounded time."""

import asyncio
import threading
import time
from typing import Any

import msgspec
import pytest

from stepwell import (
    CancelAnswer,
    Cancelled,
    Context,
    InvalidOption,
    NotInRun,
    Reason,
    Retry,
    RunCancelled,
    RunStatus,
    Store,
    Worker,
    connect,
    current,
    race,
    shield,
    sleep,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import DatabaseClock, TestClock
from stepwell.base.durations import datetime_of
from stepwell.records import TaskKind
from stepwell.store.rows import Claimed, Settlement, Wish
from stepwell.work.deadline import Deadline
from tests.ground.waiting import until
from tests.queue.raw import ask
from tests.runs.kit import quietly
from tests.store.seam import begin, claim
from tests.workflows.kit import begun, die, drained, statuses, task_of

ran: list[Any] = []
failures: list[Exception] = []
store_of: list[Store] = []
entered = asyncio.Event()
PAUSES = Settlement(RunStatus.PAUSED, attempt_back=True, wakes=0)
SLEEPS = Settlement(RunStatus.PENDING, delay=3_600_000_000, attempt_back=True)


@pytest.fixture(autouse=True)
def anew() -> None:
    global entered  # noqa: PLW0603 - an event belongs to the loop of its test
    ran.clear()
    failures.clear()
    store_of.clear()
    entered = asyncio.Event()


@step
async def reserve(what: str) -> str:
    ran.append(f"reserve {what}")
    return f"reservation of {what}"


@step(retry=Retry(5, base=10, jitter=0))
async def release(reservation: str) -> None:
    if failures:
        ran.append("failed")
        raise failures.pop()
    ran.append(f"release {reservation}")


@step
async def pay(what: str) -> None:
    ran.append(f"pay {what}")


@step
async def steered() -> str:
    await quietly(store_of[0], Wish.CANCEL, current().run_id)
    return "steered"


@workflow(cleanup="60s")
async def sleeps(what: str) -> None:
    room = await reserve(what)
    try:
        await sleep("1h")
        await pay(what)
    except Cancelled:
        async with shield():
            await release(room)
        raise


@workflow(cleanup="60s")
async def works(what: str) -> None:
    room = await reserve(what)
    try:
        entered.set()
        await asyncio.Event().wait()
    finally:
        async with shield():
            await release(room)
        await pay(what)  # not any more


@workflow(cleanup="60s")
def threaded(ctx: sync.Context, what: str) -> None:
    room = ctx.step(reserve, what)
    try:
        ctx.sleep("1h")
        ctx.step(pay, what)
    except Cancelled:
        with sync.shield():
            ctx.step(release, room)
        raise


async def cancelled(store: Store, run_id: int) -> str | None:
    """What is said of a run that is CANCELLED now."""
    run = await store.get_run(run_id)
    assert run.status == RunStatus.CANCELLED
    return run.last_error


# It survives


@pytest.mark.proves("L-13")
@pytest.mark.parametrize("flow", [sleeps, threaded], ids=lambda flow: str(flow.name))
async def test_a_sleeping_run_cleans_up_when_a_worker_claims_it(store: Store, flow: Any) -> None:
    run_id = await begun(store, flow, "room")
    await drained(store, flow)
    assert await store.cancel(run_id, reason="no") is CancelAnswer.REQUESTED
    assert (await task_of(store, run_id)).ready
    await drained(store, flow)
    assert await cancelled(store, run_id) == "cancelled: no"
    assert ran == ["reserve room", "release reservation of room"]
    assert (await statuses(store, run_id))["shield():1/release#1"] == "SUCCESS"


@pytest.mark.proves("L-13", "L-12")
async def test_a_run_under_way_cleans_up_and_begins_nothing_else(live_store: Store) -> None:
    async with Worker(live_store, [works]):
        run_id = await begun(live_store, works, "room")
        await asyncio.wait_for(entered.wait(), 20)
        assert await live_store.cancel(run_id) is CancelAnswer.REQUESTED
        with pytest.raises(RunCancelled):
            await live_store.result(run_id, timeout=20)
    assert ran == ["reserve room", "release reservation of room"]


@pytest.mark.proves("L-13", "L-12")
async def test_what_is_recorded_is_known_to_the_cleanup(live_store: Store) -> None:
    @workflow(cleanup="60s")
    async def known() -> None:
        room = "none"
        try:
            room = await steered()
            await pay("room")
        except Cancelled:
            async with shield():
                await release(room)

    store_of.append(live_store)
    async with Worker(live_store, [known]):
        run_id = await begun(live_store, known)
        with pytest.raises(RunCancelled):
            await live_store.result(run_id, timeout=20)
    assert ran == ["release steered"]


@pytest.mark.proves("L-13")
@pytest.mark.parametrize("flow", [sleeps, threaded], ids=lambda flow: str(flow.name))
async def test_an_undo_that_failed_is_tried_again(store: Store, clock: TestClock, flow: Any) -> None:
    run_id = await begun(store, flow, "room")
    await drained(store, flow)
    await store.cancel(run_id)
    failures.extend([ConnectionError("closed"), ConnectionError("closed")])
    await drained(store, flow)
    task = await task_of(store, run_id)
    assert (task.status, task.ready) == (RunStatus.PENDING, False), "the cleanup was lost when its retry parked"
    told = await store.why(run_id)
    assert told.reason is Reason.CANCELLING
    clock.advance("10s")
    await drained(store, flow)
    clock.advance("20s")
    await drained(store, flow)
    assert await cancelled(store, run_id) == "cancelled"
    assert ran == ["reserve room", "failed", "failed", "release reservation of room"]


@pytest.mark.proves("L-13", "L-15")
@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_cleanup_survives_the_death_of_its_worker(store: Store, attempts: int) -> None:
    @step
    async def dies(room: str) -> None:
        ran.append(f"release {room}")
        if len(ran) == 1:
            await die(store.database)

    @workflow(cleanup="60s", retry=attempts)
    async def mortal() -> None:
        try:
            await sleep("1h")
        finally:
            async with shield():
                await dies("room")

    run_id = await begun(store, mortal)
    await drained(store, mortal)
    await store.cancel(run_id)
    for _ in range(2):
        await drained(store, mortal)
    assert ran == ["release room", "release room"]
    assert await cancelled(store, run_id) == "cancelled"


@pytest.mark.proves("L-13", "L-15")
async def test_a_run_whose_worker_died_before_it_heard_cleans_up_elsewhere(store: Store) -> None:
    run_id = await begun(store, sleeps, "room")
    await drained(store, sleeps)
    await store.database.register_workflow("sleeps", None, 60)
    session = await begin(store)
    await store.database.tasks.wake()
    await store.pause(run_id)
    await store.unpause(run_id)
    assert await claim(store, session, "sleeps")
    await store.cancel(run_id)
    await die(store.database)
    await drained(store, sleeps)
    assert ran == ["reserve room", "release reservation of room"]
    assert await cancelled(store, run_id) == "cancelled"


@pytest.mark.proves("L-13")
async def test_a_shield_may_wait_and_hold_nothing(store: Store, clock: TestClock) -> None:
    @workflow(cleanup="1d")
    async def patient(ctx: Context) -> None:
        try:
            await ctx.wait("go", int)
        finally:
            async with shield():
                await sleep("1h")
                ran.append(await ctx.wait("undo", str))
                await release("room")

    run_id = await begun(store, patient)
    await drained(store, patient)
    assert await store.cancel(run_id) is CancelAnswer.REQUESTED
    await drained(store, patient)
    assert (await task_of(store, run_id)).owner is None
    clock.advance("1h")
    await drained(store, patient)
    assert await store.signal(run_id, "undo", "now")
    await drained(store, patient)
    assert ran[-1] == "release room"
    assert await cancelled(store, run_id) == "cancelled"


@pytest.mark.proves("L-13", "R-16")
async def test_a_replay_is_stopped_where_the_first_turn_was(store: Store, clock: TestClock) -> None:
    @workflow(cleanup="2h")
    async def two_places() -> None:
        for number in (1, 2):
            try:
                await sleep("1h")
            except Cancelled:
                async with shield():
                    ran.append(f"stopped at {number}")
                    await release(f"room {number}")
                raise

    run_id = await begun(store, two_places)
    await drained(store, two_places)
    await store.cancel(run_id)
    failures.append(ConnectionError("closed"))
    await drained(store, two_places)
    clock.advance("61m")  # its first sleep is over, and the second turn of its cleanup must not go past it
    await drained(store, two_places)
    assert ran == ["stopped at 1", "failed", "stopped at 1", "release room 1"]
    assert await cancelled(store, run_id) == "cancelled"


@pytest.mark.proves("L-13")
async def test_each_branch_cleans_up_by_itself(store: Store, clock: TestClock) -> None:
    async def leg(what: str) -> None:
        room = await reserve(what)
        try:
            await sleep("1h")
        finally:
            async with shield():
                await sleep("1s")
                await release(room)

    @workflow(cleanup="60s")
    async def trip() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(leg("flight"))
            group.create_task(leg("hotel"))
        await pay("trip")

    @workflow(cleanup="60s")
    async def gathered() -> None:
        await asyncio.gather(leg("flight"), leg("hotel"), sleep("1h"))  # the last has nothing to undo, and ends first

    for flow in (trip, gathered):
        ran.clear()
        run_id = await begun(store, flow)
        await drained(store, flow)
        await store.cancel(run_id)
        await drained(store, flow)
        clock.advance("1s")
        await drained(store, flow)
        assert sorted(ran) == [
            "release reservation of flight",
            "release reservation of hotel",
            "reserve flight",
            "reserve hotel",
        ]
        assert await cancelled(store, run_id) == "cancelled"


@pytest.mark.proves("L-13")
async def test_a_branch_in_its_shield_is_not_disturbed_when_its_siblings_are_stopped(live_store: Store) -> None:
    let_go = asyncio.Event()

    @step
    async def slow(room: str) -> None:
        ran.append(f"release {room}")

    async def in_shield() -> None:
        async with shield():
            await slow("a")
            entered.set()
            await let_go.wait()
            await release("b")

    async def waits() -> None:
        await asyncio.Event().wait()

    @workflow(cleanup="60s")
    async def mixed() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(in_shield())
            group.create_task(waits())

    async with Worker(live_store, [mixed]):
        run_id = await begun(live_store, mixed)
        await asyncio.wait_for(entered.wait(), 20)
        assert await live_store.cancel(run_id) is CancelAnswer.REQUESTED
        await asyncio.sleep(0.3)  # time for a sweep to do harm
        let_go.set()
        with pytest.raises(RunCancelled):
            await live_store.result(run_id, timeout=20)
    assert ran == ["release a", "release b"]


@pytest.mark.proves("L-13", "L-18")
async def test_a_body_in_a_thread_is_waited_for_before_it_is_undone(live_store: Store) -> None:
    let_go = threading.Event()

    def book() -> str:
        ran.append("booking")
        while not sync.current().is_cancelled():
            let_go.wait(0.01)
        ran.append("booked")
        return "booking 1"

    @workflow(cleanup="60s")
    async def books(ctx: Context) -> None:
        booking = await ctx.step("book", book)
        try:
            await pay("booking")
        except Cancelled:
            async with shield():
                await release(booking)

    async with Worker(live_store, [books]):
        run_id = await begun(live_store, books)
        await until(lambda: ran == ["booking"], 20, message="the body to begin")
        assert await live_store.cancel(run_id) is CancelAnswer.REQUESTED
        with pytest.raises(RunCancelled):
            await live_store.result(run_id, timeout=20)
    assert ran == ["booking", "booked", "release booking 1"]


@pytest.mark.proves("L-13", "protocol-05")
@pytest.mark.parametrize("settlement", [PAUSES, SLEEPS], ids=["waits", "sleeps"])
async def test_a_run_that_goes_to_sleep_as_it_is_cancelled_is_claimed_for_its_cleanup(
    store: Store, settlement: Settlement
) -> None:
    run_id = await begun(store, sleeps, "room")
    await store.database.register_workflow("sleeps", None, 60)
    session = await begin(store)
    [task] = await claim(store, session, "sleeps")
    assert await store.cancel(run_id) is CancelAnswer.REQUESTED
    assert await store.database.tasks.settle(task.id, session, task.turn, settlement) == RunStatus.PENDING
    [again] = await claim(store, session, "sleeps")
    assert again.cleanup_until is not None
    knows = msgspec.structs.replace(settlement, cleans_up=True)
    assert await store.database.tasks.settle(again.id, session, again.turn, knows) == settlement.status
    left = await task_of(store, run_id)
    assert (left.ready, left.run_at) == (False, datetime_of(again.cleanup_until)), "it waits longer than it may"


@pytest.mark.proves("L-13", "L-15")
async def test_a_cancel_that_is_heard_while_the_run_is_being_read_is_cleaned_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await begun(store, sleeps, "room")
    await drained(store, sleeps)
    await store.pause(run_id)
    await store.unpause(run_id)
    read = store.database.steps.of

    async def of(run_id: int, generation: int) -> Any:
        if "cancel" not in ran:
            ran.append("cancel")
            assert await store.cancel(run_id) is CancelAnswer.REQUESTED
            await asyncio.sleep(0)
        return await read(run_id, generation)

    monkeypatch.setattr(store.database.steps, "of", of)
    await drained(store, sleeps)
    assert ran == ["reserve room", "cancel", "release reservation of room"]
    assert await cancelled(store, run_id) == "cancelled"


# It is no more than that


@pytest.mark.proves("L-13")
async def test_a_shield_needs_a_declared_time_also_on_the_way_to_success(store: Store) -> None:
    @workflow(retry=1)
    async def undeclared() -> None:
        async with shield():
            await pay("room")

    run_id = await begun(store, undeclared)
    await drained(store, undeclared)
    run = await store.get_run(run_id)
    assert run.status == RunStatus.ERROR
    assert "@workflow(cleanup=" in (run.last_error or "")
    assert ran == []
    with pytest.raises(NotInRun):
        async with shield():
            pass
    with pytest.raises(InvalidOption):
        workflow(cleanup=0)


@pytest.mark.proves("L-13")
async def test_a_shield_on_the_way_to_success_changes_nothing(store: Store, clock: TestClock) -> None:
    @workflow(cleanup="60s")
    async def well() -> str:
        async with shield():
            room = await reserve("room")
            await sleep("1h")
        await pay(room)
        return room

    run_id = await begun(store, well)
    await drained(store, well)
    clock.advance("1h")
    await drained(store, well)
    assert await store.result(run_id, timeout=0) == "reservation of room"
    assert ran == ["reserve room", "pay reservation of room"]


@pytest.mark.proves("L-13", "P-02")
async def test_nothing_is_undone_because_a_run_went_to_sleep_or_was_paused(store: Store, clock: TestClock) -> None:
    @workflow(cleanup="60s")
    async def undoes_in_finally() -> None:
        try:
            await sleep("1h")
        finally:
            ran.append("finally")
            async with shield():
                ran.append("undo")
                await release("room")

    run_id = await begun(store, undoes_in_finally)
    await drained(store, undoes_in_finally)
    assert ran == ["finally"]
    await store.pause(run_id)
    await store.unpause(run_id)
    await drained(store, undoes_in_finally)
    assert ran == ["finally", "finally"]
    clock.advance("1h")
    await drained(store, undoes_in_finally)
    assert ran == ["finally", "finally", "finally", "undo", "release room"]
    assert (await store.get_run(run_id)).status == RunStatus.SUCCESS


@pytest.mark.proves("L-13", "P-10")
async def test_nothing_is_undone_because_a_worker_was_asked_to_pause_the_run(live_store: Store) -> None:
    async with Worker(live_store, [works]):
        run_id = await begun(live_store, works, "room")
        await asyncio.wait_for(entered.wait(), 20)
        assert await live_store.pause(run_id)

        async def is_paused() -> bool:
            return (await live_store.get_run(run_id)).status == RunStatus.PAUSED

        await until(is_paused, 20, message="the run to be paused")
        assert ran == ["reserve room"]
        assert await live_store.cancel(run_id) is CancelAnswer.REQUESTED
        with pytest.raises(RunCancelled):
            await live_store.result(run_id, timeout=20)
    assert ran == ["reserve room", "release reservation of room"]


@pytest.mark.proves("L-13", "L-11")
async def test_a_run_that_was_never_begun_has_nothing_to_clean_up(store: Store) -> None:
    await store.database.register_workflow("sleeps", None, 60)
    run_id = await begun(store, sleeps, "room")
    assert await store.cancel(run_id) is CancelAnswer.CANCELLED
    assert await drained(store, sleeps) == 0


@pytest.mark.proves("L-13")
async def test_a_cleanup_is_bounded_in_time(live_store: Store) -> None:
    @step
    async def hangs() -> None:
        ran.append("hangs")
        await asyncio.Event().wait()

    @workflow(cleanup="300ms")
    async def endless() -> None:
        try:
            await sleep("1h")
        finally:
            async with shield():
                await hangs()

    async with Worker(live_store, [endless]):
        run_id = await begun(live_store, endless)
        await until(lambda: _sleeps(live_store, run_id), 20, message="the run to sleep")
        assert await live_store.cancel(run_id, reason="no") is CancelAnswer.REQUESTED
        with pytest.raises(RunCancelled):
            await live_store.result(run_id, timeout=20)
    assert "cleaned up in 0.3 s" in (await cancelled(live_store, run_id) or "")
    assert ran == ["hangs"]


def test_the_time_of_a_cleanup_does_not_grow_with_the_age_of_the_turn() -> None:
    rest: dict[str, Any] = {"priority": 0, "run_at": 0, "key": None, "input": None, "wakes": 0}
    task = Claimed(1, TaskKind.RUN, 1, 1, 1, 1, 3, suspect=False, created_at=0, claimed_at=1_000_000, **rest)
    hour_ago = time.monotonic() - 3600
    deadline = Deadline.of_cleanup(task, 1_000_000 + 3_660_000_000, 60, DatabaseClock(), claimed=hour_ago)
    assert 59 < deadline.left <= 60


async def _sleeps(store: Store, run_id: int) -> bool:
    return (await store.why(run_id)).reason is Reason.SLEEPING


@pytest.mark.proves("L-13")
async def test_a_cleanup_that_waits_ends_when_its_time_is_over(store: Store, clock: TestClock) -> None:
    @workflow(cleanup="60s")
    async def waits_on(ctx: Context) -> None:
        try:
            await ctx.wait("go", int)
        finally:
            async with shield():
                await ctx.wait("never", int)

    run_id = await begun(store, waits_on)
    await drained(store, waits_on)
    await store.cancel(run_id)
    await drained(store, waits_on)
    assert (await store.why(run_id)).reason is Reason.CANCELLING
    clock.advance("60s")
    await drained(store, waits_on)
    assert await cancelled(store, run_id) == "cancelled; its cleanup was not finished in time"


@pytest.mark.proves("L-13")
async def test_a_second_cancel_ends_a_run_whose_time_is_over_though_no_worker_came(
    store: Store, clock: TestClock
) -> None:
    run_id = await begun(store, sleeps, "room")
    await drained(store, sleeps)
    assert await store.cancel(run_id) is CancelAnswer.REQUESTED
    assert await store.cancel(run_id) is CancelAnswer.REQUESTED
    clock.advance("61s")
    assert await store.cancel(run_id) is CancelAnswer.CANCELLED


@pytest.mark.proves("L-13")
async def test_a_run_that_nobody_claimed_in_time_is_cleaned_up_late(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, sleeps, "room")
    await drained(store, sleeps)
    assert await store.cancel(run_id) is CancelAnswer.REQUESTED
    clock.advance("10m")
    await drained(store, sleeps)
    assert ran[-1] == "release reservation of room"
    assert await cancelled(store, run_id) == "cancelled"


@pytest.mark.proves("L-13")
async def test_an_undo_that_gives_up_is_told_with_the_cancel(store: Store) -> None:
    @step(retry=1)
    async def undo() -> None:
        raise RuntimeError("the bank is closed")

    @workflow(cleanup="60s")
    async def gives_up() -> None:
        try:
            await sleep("1h")
        finally:
            async with shield():
                await undo()

    run_id = await begun(store, gives_up)
    await drained(store, gives_up)
    await store.cancel(run_id, reason="no")
    await drained(store, gives_up)
    said = await cancelled(store, run_id)
    assert said is not None
    assert said.startswith("cancelled: no; its cleanup: ")
    assert "the bank is closed" in said
    assert (await store.get_run(run_id)).error == {"type": "Cancelled", "message": "no"}


@pytest.mark.proves("L-13", "R-21")
async def test_children_are_cancelled_and_what_a_cleanup_asks_for_is_not(store: Store) -> None:
    @workflow
    async def child(what: str) -> str:
        await sleep("1h")
        return what

    @workflow(cleanup="60s")
    async def parent(ctx: Context) -> None:
        try:
            await child.trigger("work").wait().execute(ctx)
        finally:
            async with shield():
                await child.trigger("undo").execute(ctx)
                await sleep("10s")

    run_id = await begun(store, parent)
    await drained(store, parent, child)
    await store.cancel(run_id)
    await drained(store, parent, child)
    assert await store.cancel(run_id) is CancelAnswer.REQUESTED
    ends = {run.input(): run.status for run in await store.runs("child")}
    assert ends == {"work": RunStatus.CANCELLED, "undo": RunStatus.PENDING}


@pytest.mark.proves("L-13")
async def test_a_child_that_is_asked_for_outside_of_a_shield_after_the_cancel_is_not_there(live_store: Store) -> None:
    @workflow
    async def child(what: str) -> None:
        await sleep("1h")

    @workflow(cleanup="60s")
    async def parent(ctx: Context) -> None:
        await quietly(live_store, Wish.CANCEL, ctx.run_id)
        try:
            await child.trigger("work").execute(ctx)
        except Cancelled:
            ran.append("cancelled")
            async with shield():
                await child.trigger("undo").execute(ctx)

    async with Worker(live_store, [parent, child]):
        run_id = await begun(live_store, parent)
        with pytest.raises(RunCancelled):
            await live_store.result(run_id, timeout=20)
    assert ran == ["cancelled"]
    assert [run.input() for run in await live_store.runs("child")] == ["undo"]


@pytest.mark.proves("L-13")
async def test_a_race_that_is_stopped_is_cleaned_up(store: Store) -> None:
    @workflow(cleanup="60s")
    async def races(ctx: Context) -> None:
        try:
            await race(ctx.wait("go", int), ctx.sleep("1h"))
        finally:
            async with shield():
                await release("room")

    run_id = await begun(store, races)
    await drained(store, races)
    assert await store.cancel(run_id) is CancelAnswer.REQUESTED
    await drained(store, races)
    assert ran == ["release room"]
    assert await cancelled(store, run_id) == "cancelled"


@pytest.mark.proves("L-13", "L-14")
async def test_a_run_that_was_cancelled_does_not_restart(store: Store) -> None:
    @workflow(cleanup="60s")
    async def restarts(ctx: Context, number: int) -> None:
        try:
            await sleep("1h")
        finally:
            async with shield():
                await release(f"room {number}")
                ctx.restart(number + 1)

    run_id = await begun(store, restarts, 1)
    await drained(store, restarts)
    assert await store.cancel(run_id) is CancelAnswer.REQUESTED
    await drained(store, restarts)
    assert ran == ["release room 1"]
    assert await cancelled(store, run_id) == "cancelled"


@pytest.mark.proves("I-10", "L-13")
async def test_plain_sql_and_why_say_that_it_is_being_cancelled(store: Store) -> None:
    async def state() -> Any:
        [[said]] = await ask(store, f"select state from {{runs}} where id = {int(run_id)}")
        return said

    run_id = await begun(store, sleeps, "room")
    await drained(store, sleeps)
    await store.cancel(run_id)
    assert await state() == "cancelling, cleans up when a worker claims it"
    told = await store.why(run_id)
    assert told.reason is Reason.CANCELLING
    assert told.until is not None
    await claim(store, await begin(store), "sleeps")
    assert await state() == "cancelling"
    assert (await store.why(run_id)).reason is Reason.CANCELLING
    assert (await store.get_run(run_id)).cancel_requested_at is not None


@pytest.mark.proves("L-13")
@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process, whose workers are told at once")
async def test_a_worker_of_another_store_cleans_up(live_store: Store, store_url: str) -> None:
    async with connect(store_url, lease=600) as other, Worker(other, [works]):
        run_id = await begun(live_store, works, "room")
        await asyncio.wait_for(entered.wait(), 20)
        assert await live_store.cancel(run_id) is CancelAnswer.REQUESTED
        with pytest.raises(RunCancelled):
            await live_store.result(run_id, timeout=20)
    assert ran == ["reserve room", "release reservation of room"]
