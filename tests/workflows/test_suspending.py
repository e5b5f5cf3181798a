"""A run that waits is given back when, and only when, nobody of it works; and nothing of it is seen by its own code."""

import asyncio
import gc
import weakref
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import Context, Store, TransientError, Worker, step, sync, workflow
from stepwell.base.clock import TestClock
from stepwell.runs.sync_turn import SyncTurn
from tests.ground.waiting import until, wait_for
from tests.queue.raw import ask
from tests.workflows import shapes
from tests.workflows.kit import begun, drained, statuses, task_of
from tests.workflows.shapes import AFTER, BEFORE, FROM_OUTSIDE, SHAPES


@pytest.mark.every_loop
@pytest.mark.proves("protocol-18", "S-13", "E-08", "P-09")
async def test_in_every_shape_the_others_finish_first_and_the_run_is_given_back_once(
    store: Store, clock: TestClock
) -> None:
    shapes.log.clear()
    shapes.released, shapes.limit = asyncio.Event(), asyncio.Semaphore(0)
    runs = {one.name: await begun(store, one) for one in SHAPES}
    async with Worker(store, SHAPES, concurrency=50) as worker:
        others = {name: run_id for name, run_id in runs.items() if name not in FROM_OUTSIDE}
        await until(lambda: _rest(store, others), message="all but these are given back")
        for name in FROM_OUTSIDE:  # something may still come
            assert (await task_of(store, runs[name])).status == "RUNNING"
        shapes.released.set()
        shapes.limit.release()
        await worker.drain()
    assert await _rest(store, runs)
    for name, run_id in runs.items():
        before = BEFORE.get(name, [f"{name} {number}" for number in (1, 2, 3)])
        assert sorted(_of(before, shapes.log)) == before, name
        task = await task_of(store, run_id)
        assert (name, task.turn, task.attempt, task.owner, task.error) == (name, 1, 0, None, None)
        assert set((await statuses(store, run_id)).values()) == {"SUCCESS"}, name
    assert sorted(shapes.log) == sorted(
        line for name in runs for line in BEFORE.get(name, [f"{name} {number}" for number in (1, 2, 3)])
    )  # nothing else: no `finally` has called its step, no `except` has gone on
    shapes.log.clear()
    clock.advance(60)
    assert await drained(store, *SHAPES, concurrency=50) == len(SHAPES)
    for name, run_id in runs.items():
        run = await store.get_run(run_id)
        assert (name, run.status, run.last_error) == (name, "SUCCESS", None)
        assert f"{name} awake" in str(run.output()), name
        after = AFTER.get(name, [f"{name} awake"])
        assert _of(after, shapes.log) == after, name
    assert len(shapes.log) == sum(len(AFTER.get(name, "1")) for name in runs)


async def _rest(store: Store, runs: Mapping[str, int]) -> bool:
    tasks = [await task_of(store, run_id) for run_id in runs.values()]
    return all(task.status == "PENDING" and task.turn == 1 for task in tasks)


def _of(lines: list[str], log: list[str]) -> list[str]:
    return [line for line in log if line in lines]


@pytest.mark.proves("R-11", "P-09", "P-10", "W-19")
async def test_a_sleeping_run_holds_no_place_no_lease_no_memory_and_no_attempt(store: Store, clock: TestClock) -> None:
    class Large:
        """Something a run holds while it runs."""

    held: list[weakref.ref[Large]] = []
    turns: list[int] = []

    @workflow
    async def sleeper(ctx: Context) -> int:
        large = Large()
        held.append(weakref.ref(large))
        for number in range(30):
            await ctx.sleep(60)
            turns.append(number)
        return len(str(large))

    @workflow
    def sleeper_too() -> None:
        sync.sleep(timedelta(minutes=1))
        sync.sleep("1m")

    @workflow
    async def other() -> str:
        return "done"

    sleeping = [await begun(store, one, max_attempts=1) for one in (sleeper, sleeper_too)]
    await begun(store, other)
    async with Worker(store, [sleeper, sleeper_too, other], concurrency=1) as worker:
        assert await worker.drain() == 3  # one place was enough for all
        for run_id in sleeping:
            task = await task_of(store, run_id)
            assert (task.status, task.owner, task.ready, task.attempt) == ("PENDING", None, False, 0)
        gc.collect()
        assert held[0]() is None
        for _ in range(30):
            clock.advance(60)
            await worker.drain()
    runs = [await store.get_run(run_id) for run_id in sleeping]
    assert [(run.status, run.attempt) for run in runs] == [("SUCCESS", 1)] * 2
    assert len(held) == 31
    assert turns[-1] == 29


@pytest.mark.proves("P-09", "L-10")
async def test_a_run_sleeps_until_a_moment_that_is_recorded_when_it_falls_asleep(
    store: Store, clock: TestClock
) -> None:
    moments = [datetime(2026, 1, 1, 6, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC), timedelta(0), "90m"]
    woken: list[datetime] = []

    @workflow
    async def alarm(ctx: Context) -> None:
        for moment in moments:
            await ctx.sleep(moment)  # type: ignore[arg-type]
        woken.append(ctx.now())
        with pytest.raises(ValueError, match="time zone"):
            await ctx.sleep(datetime(2030, 1, 1))  # noqa: DTZ001 - that is the point
        with pytest.raises(ValueError, match="until"):
            await ctx.sleep(-1)

    run_id = await begun(store, alarm)
    await drained(store, alarm)
    clock.advance("3h")
    moments[0] = timedelta(days=400)  # the code has changed: what was recorded stands
    assert await drained(store, alarm) == 0
    clock.advance("5h")  # nobody was there at six
    await drained(store, alarm)
    clock.advance("89m")
    assert await drained(store, alarm) == 0
    clock.advance("1m")
    await drained(store, alarm)
    assert (await store.get_run(run_id)).status == "SUCCESS"
    assert woken == [datetime(2026, 1, 1, 9, 30, tzinfo=UTC)]


@pytest.mark.proves("protocol-18", "P-09")
@pytest.mark.parametrize("when", ["before the loop has heard of it", "before the loop has begun it"])
async def test_a_call_that_a_thread_has_made_is_waited_for_before_its_run_is_given_back(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    begin = SyncTurn._begin

    def looked_at(run: SyncTurn, *given: Any) -> None:
        if when == "before the loop has heard of it":
            run._see(0.0)
        begin(run, *given)
        if when == "before the loop has begun it":
            run._see(0.0)

    attempts: list[int] = []

    @step(retry=3)
    def flaky() -> None:
        attempts.append(sync.current().attempt)
        if len(attempts) == 1:
            raise TransientError("again", retry_after="5h")

    @workflow
    def sleeper(ctx: sync.Context) -> None:
        flaky.start()
        wait_for(lambda: ctx._run._parked or len(attempts) == 2, 10, message="the step waits for its next attempt")
        with monkeypatch.context() as patched:
            patched.setattr(SyncTurn, "_begin", looked_at)
            ctx.sleep("1h")

    run_id = await begun(store, sleeper)
    await drained(store, sleeper)
    task = await task_of(store, run_id)
    assert (task.turn, await statuses(store, run_id)) == (1, {"flaky#1": "PENDING", "sleep#1": "SUCCESS"})
    clock.advance("1h")
    assert await drained(store, sleeper) == 1  # after an hour, not after five
    clock.advance("4h")
    await drained(store, sleeper)
    assert (await store.get_run(run_id)).status == "SUCCESS"


@pytest.mark.proves("P-09", "L-10")
async def test_by_the_databases_own_clock_nobody_wakes_early(live_store: Store) -> None:
    @workflow
    async def brief(ctx: Context) -> None:
        await ctx.sleep(0.3)  # long enough for a busy machine to give the run back meanwhile

    @workflow
    def brief_too() -> None:
        sync.sleep(0.3)

    async with Worker(live_store, [brief, brief_too]):
        runs = [await begun(live_store, one) for one in (brief, brief_too)]
        for run_id in runs:
            await live_store.result(run_id, timeout=10)
    for run_id in runs:
        [row] = await live_store.steps(run_id)
        [task] = await _claimed_at(live_store, run_id)
        assert task[0] >= row.output
        assert task[1] == 2


async def _claimed_at(store: Store, run_id: int) -> list[tuple[int, int]]:
    found = await ask(store, f"select claimed_at, turn from {{task}} where id = {int(run_id)}")
    return [(claimed_at, turn) for claimed_at, turn in found]


@pytest.mark.proves("protocol-18", "S-22")
async def test_a_retry_is_waited_for_in_memory_while_others_work_and_elsewhere_if_not(
    store: Store, clock: TestClock
) -> None:
    called: list[str] = []
    go = asyncio.Event()

    @step(retry=2)
    async def flaky(name: str) -> str:
        called.append(name)
        if called.count(name) == 1:
            raise ValueError(name)
        return name

    @step
    async def long() -> None:
        await go.wait()

    @workflow
    async def beside() -> tuple[str, None]:
        return await asyncio.gather(flaky("beside"), long())

    @workflow
    async def alone() -> str:
        return await flaky("alone")

    runs = [await begun(store, one) for one in (beside, alone)]
    async with Worker(store, [beside, alone]) as worker:
        await until(lambda: len(called) == 2)
        await until(lambda: _is_given_back(store, runs[1]))
        clock.advance(2)  # the backoff is a second and up to half of it
        await until(lambda: called.count("beside") == 2)
        assert (await task_of(store, runs[0])).status == "RUNNING"
        go.set()
        await worker.drain()
    assert [(await store.get_run(run_id)).output() for run_id in runs] == [("beside", None), "alone"]
    assert [(await task_of(store, run_id)).turn for run_id in runs] == [1, 2]


async def _is_given_back(store: Store, run_id: int) -> bool:
    return (await task_of(store, run_id)).status == "PENDING"
