"""The life of a run: what each turn changes, what code that has changed since may ask for, and what it is told."""

import asyncio
import contextlib
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from stepwell import (
    Context,
    Store,
    TransientError,
    Workflow,
    current,
    sleep,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.base.events import Event, StepsUnasked
from tests.workflows.kit import begun, die, drained, statuses, steps_of, task_of


@step
async def charge(cents: int) -> int:
    return cents


@step
async def ship() -> str:
    return "shipped"


@pytest.mark.proves("R-02", "R-03", "R-04", "R-07", "R-08", "R-12", "R-14", "E-08", "L-17")
async def test_a_run_from_its_trigger_to_its_end(store: Store, clock: TestClock) -> None:
    turns: list[tuple[Any, ...]] = []

    @workflow
    async def long(ctx: Context, choice: str) -> str:
        run = await store.get_run(ctx.run_id)
        turns.append((run.status, run.started_at, run.worker, ctx.attempt))
        paid = await charge(7) if choice == "charge" else await ship()
        if len(turns) == 1:
            raise TransientError("once", retry_after=60)
        if len(turns) == 2:
            await die(store.database)  # between the last step and the settlement
            return "lost"
        return f"{paid} {len(turns)}"

    run_id = await begun(store, long, "charge")
    begun_at = datetime.fromtimestamp(clock.now() / 1_000_000, tz=(await store.get_run(run_id)).created_at.tzinfo)
    clock.advance(5)
    await drained(store, long)
    run = await store.get_run(run_id)
    assert (run.status, run.worker, run.attempt, run.finished_at) == ("PENDING", None, 1, None)
    assert (run.last_error, run.created_at) == ("TransientError: once", begun_at)
    clock.advance(60)
    await drained(store, long)
    await drained(store, long)
    run = await store.get_run(run_id)
    assert (run.status, run.output(), run.attempt, run.worker, run.error) == ("SUCCESS", "7 3", 3, None, None)
    assert run.finished_at is not None
    assert [turn[0] for turn in turns] == ["RUNNING"] * 3
    assert {turn[1] for turn in turns} == {run.started_at}  # the first claim's
    assert len({turn[2] for turn in turns}) == 3  # who has it now
    assert [turn[3] for turn in turns] == [1, 2, 3]
    assert list(await steps_of(store, run_id)) == ["charge#1"]  # what was not chosen has no row
    before = await task_of(store, run_id)
    assert await drained(store, long) == 0
    assert await task_of(store, run_id) == before


def versions(name: str, *bodies: Any, **options: Any) -> list[Workflow[..., Any]]:
    """The same workflow as its code was, and as it is now."""
    return [workflow(name=name, **options)(body) for body in bodies]


@pytest.mark.proves("R-16", "protocol-21")
async def test_a_call_that_contradicts_the_record_ends_the_run_and_names_both(store: Store, clock: TestClock) -> None:
    executed_since: list[str] = []

    async def paid_seven(ctx: Context) -> None:
        await charge(7)
        await ctx.sleep(60)

    async def paid_eight(ctx: Context) -> str:
        try:
            await charge(8)
        except Exception:  # noqa: BLE001 - a workflow that catches everything
            with contextlib.suppress(Exception):
                await ctx.step("compensate", lambda: executed_since.append("compensated"))
        return "went on"

    async def paid_nothing(ctx: Context) -> None:
        await ctx.sleep(60)

    old, new, less = versions("pay", paid_seven, paid_eight, paid_nothing)
    runs = [await begun(store, old) for _ in range(2)]
    await drained(store, old)
    told: list[Event] = []
    store.database.telemetry.subscribe(told.append)
    clock.advance(60)
    await drained(store, new, concurrency=1)
    for run_id in runs:
        run = await store.get_run(run_id)
        assert (run.status, run.attempt) == ("ERROR", 1)  # at once: trying again cannot help
        assert run.error is not None
        assert run.error["type"] == "NonDeterminismError"
        assert "recorded charge#1 with 7 and now asks for charge#1 with 8" in run.error["message"]
        assert "@step(id=...)" in run.error["message"]
    assert executed_since == []
    assert await store.retry(runs[0])
    await drained(store, less)
    assert (await store.get_run(runs[0])).status == "SUCCESS"
    [unasked] = [event for event in told if isinstance(event, StepsUnasked)]
    assert (unasked.run_id, unasked.workflow, unasked.keys) == (runs[0], "pay", ("charge#1",))


@pytest.mark.proves("R-16", "protocol-21")
async def test_steps_may_be_added_and_with_strict_only_after_what_is_recorded(store: Store, clock: TestClock) -> None:
    async def before(ctx: Context) -> None:
        await charge(7)
        await ctx.sleep(60)
        await ship()

    async def renamed(ctx: Context) -> None:
        await ctx.step("charge_card", lambda: 7)
        await ctx.sleep(60)
        await ship()

    async def longer(ctx: Context) -> None:
        await charge(7)
        await ctx.sleep(60)
        await ctx.step("weigh", lambda: 5)
        await ship()

    runs = {}
    names = [(strict, body.__name__, body) for strict in (False, True) for body in (renamed, longer)]
    now = []
    for strict, name, body in names:
        old, new = versions(f"{name}.{strict}", before, body, strict=strict)
        runs[name, strict] = await begun(store, old)
        await drained(store, old)
        now.append(new)
    clock.advance(60)
    await drained(store, *now)
    found = {case: await store.get_run(run_id) for case, run_id in runs.items()}
    steps = {case: list(await statuses(store, run_id)) for case, run_id in runs.items()}
    assert [run.status for run in found.values()] == ["SUCCESS", "SUCCESS", "PAUSED", "SUCCESS"]
    assert steps["renamed", False] == ["charge#1", "sleep#1", "charge_card#1", "ship#1"]
    assert steps["renamed", True] == ["charge#1", "sleep#1"]  # held before it was executed
    refusal = found["renamed", True].last_error
    assert refusal is not None
    assert "step charge_card#1 was about to be executed, and the run has recorded charge, sleep" in refusal
    for strict in (False, True):
        assert steps["longer", strict] == ["charge#1", "sleep#1", "weigh#1", "ship#1"]


@pytest.mark.proves("S-25", "S-19")
async def test_the_context_says_which_run_and_step_it_is_and_chance_and_time_are_the_same_on_replay(
    store: Store, clock: TestClock
) -> None:
    turns: list[list[Any]] = []
    bodies: list[tuple[Any, ...]] = []

    @step
    async def look(ctx: Context, n: int) -> int:
        here = current()
        assert (here.run_id, here.workflow, ctx.run_id) == (ctx.run_id, "curious", here.run_id)
        bodies.append((here.step_id, here.key, here.attempt, ctx.key, await ctx.heartbeat(), here.uuid(), here.now()))
        return n

    @step
    def look_too(n: int) -> int:
        here = sync.current()
        bodies.append((here.step_id, here.key, here.attempt, here.key, here.heartbeat(), here.uuid(), here.now()))
        return n

    @workflow
    async def curious(ctx: Context) -> str:
        found = [ctx.run_id, ctx.workflow, ctx.step_id, ctx.attempt, ctx.key, ctx.is_cancelled(), await ctx.heartbeat()]
        found += [ctx.now(), ctx.uuid(), ctx.uuid(), ctx.random(), ctx.random(), await _chances(ctx)]
        await look(ctx, 1)
        await ctx.step(look_too, 2)
        found += [ctx.now()]
        turns.append(found)
        await sleep(60)
        return ctx.key

    @workflow
    def curious_too(ctx: sync.Context) -> str:
        turns.append([ctx.run_id, ctx.now(), ctx.uuid(), ctx.random(), sync.current().now(), ctx.is_cancelled()])
        ctx.sleep(60)
        return ctx.key

    runs = [await begun(store, curious), await begun(store, curious), await begun(store, curious_too)]
    await drained(store, curious, curious_too)
    clock.advance(60)
    await drained(store, curious, curious_too)
    of = {run_id: [turn for turn in turns if turn[0] == run_id] for run_id in runs}
    assert all(first == again for first, again in of.values())
    one, other = of[runs[0]][0], of[runs[1]][0]
    assert one[1:4] == ["curious", None, 1]
    assert one[5:7] == [False, True]
    assert isinstance(one[8], UUID)
    assert one[8].version == 4
    assert len({one[8], one[9], other[8], other[9]}) == 4
    assert len({one[10], one[11], other[10], other[11]}) == 4
    assert all(0 <= chance < 1 for chance in one[10:12])
    keys = {(await store.get_run(run_id)).output() for run_id in runs}
    assert len(keys) == 3
    assert sorted(body[:3] for body in bodies if body[0] == "look") == [
        ("look", f"{key}/look#1", 1) for key in sorted((one[4], other[4]))
    ]
    assert {body[0] for body in bodies} == {"look", "look_too"}
    assert all(body[1] == body[3] and body[4] for body in bodies)


async def _chances(ctx: Context) -> list[float]:
    async def chance() -> float:
        return ctx.random()

    return list(await asyncio.gather(chance(), chance()))
