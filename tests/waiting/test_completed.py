"""`as_completed`: results as they come, in an order that every replay repeats."""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any

import pytest

from stepwell import (
    Context,
    InvalidOption,
    PermanentError,
    RunStatus,
    StepFailed,
    Store,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.testing import world
from tests.workflows.kit import begun, die, drained, statuses

executed: list[int] = []
gates: dict[int, asyncio.Event] = {}


@step
async def opened(number: int) -> int:
    executed.append(number)
    if number in gates:
        await gates[number].wait()
    if number - 1 in gates:
        gates[number - 1].set()
    return number * 10


@step(retry=1)
async def fail() -> int:
    raise PermanentError("no")


@step
def thirty(number: int) -> int:
    executed.append(number)
    return 30 + number


@workflow
async def doubled(number: int) -> int:
    return 2 * number


@pytest.fixture(autouse=True)
def nothing_has_run() -> None:
    executed.clear()
    gates.clear()


@pytest.mark.proves("compose-01")
async def test_results_come_in_the_order_of_their_ends_and_a_replay_repeats_it(store: Store, clock: TestClock) -> None:
    replays: list[list[Any]] = []

    @workflow
    async def backwards(ctx: Context) -> list[Any]:
        replays.append(got := [])
        async for place, value in ctx.as_completed(opened(1), opened(2), opened(3)):
            got.append([place, value])
        await ctx.sleep("1h")
        return got

    gates.update({1: asyncio.Event(), 2: asyncio.Event()})
    run_id = await begun(store, backwards)
    await drained(store, backwards)
    clock.advance(3601)
    await drained(store, backwards)
    backwards_order = [[2, 30], [1, 20], [0, 10]]
    assert (await store.get_run(run_id)).output() == backwards_order
    assert replays == [backwards_order] * 2
    assert sorted(executed) == [1, 2, 3]
    found = await statuses(store, run_id)
    assert [key for key in found if key.startswith("as_completed()")] == ["as_completed()#1", "as_completed()#2"]


@pytest.mark.proves("compose-01")
async def test_steps_waits_sleeps_and_children_hold_nothing_while_they_are_awaited(
    store: Store, clock: TestClock
) -> None:
    @workflow
    async def mixed(ctx: Context) -> list[Any]:
        calls = (ctx.sleep("2h"), ctx.wait("word", str), doubled.trigger(4).wait().execute(ctx), opened(1))
        return [[place, value] async for place, value in ctx.as_completed(*calls)]

    run_id = await begun(store, mixed)
    await drained(store, mixed)
    assert (await store.get_run(run_id)).status is RunStatus.PAUSED
    await drained(store, doubled, mixed)
    await store.signal(run_id, "word", "said")
    await drained(store, mixed)
    clock.advance(7201)
    await drained(store, mixed)
    assert (await store.get_run(run_id)).output() == [[3, 10], [2, 8], [1, "said"], [0, None]]


@pytest.mark.proves("compose-01")
async def test_a_failure_is_raised_at_its_turn_and_the_others_come_after_it(store: Store, clock: TestClock) -> None:
    @workflow
    async def patient(ctx: Context) -> list[Any]:
        got: list[Any] = []
        results = ctx.as_completed(ctx.wait("late", str), fail(), opened(1))
        while True:
            try:
                got.append(list(await anext(results)))
            except StepFailed as error:
                got.append(error.step)
            except StopAsyncIteration:
                return got if got[0] == [2, 10] else [got[1], got[0], got[2]]

    run_id = await begun(store, patient)
    await drained(store, patient)
    await store.signal(run_id, "late", "at last")
    await drained(store, patient)
    assert (await store.get_run(run_id)).output() == [[2, 10], "fail#1", [0, "at last"]]


@pytest.mark.proves("compose-01")
async def test_after_a_break_the_rest_goes_on(store: Store, clock: TestClock) -> None:
    @workflow
    async def hasty(ctx: Context) -> list[Any]:
        first: list[Any] = []
        late = asyncio.create_task(ctx.wait("late", str))
        async for place, value in ctx.as_completed(late, opened(1)):
            first = [place, value]
            break
        await ctx.sleep("1h")
        return [*first, await late]

    run_id = await begun(store, hasty)
    await drained(store, hasty)
    await store.signal(run_id, "late", "still")
    clock.advance(3601)
    await drained(store, hasty)
    assert (await store.get_run(run_id)).output() == [1, 10, "still"]
    assert executed == [1]


@pytest.mark.proves("compose-01")
async def test_a_worker_lost_in_between_changes_nothing(store: Store) -> None:
    dying = iter([True])

    @step
    async def die_once() -> None:
        if next(dying, False):
            await die(store.database)

    @workflow
    async def unlucky(ctx: Context) -> list[Any]:
        got = []
        async for place, value in ctx.as_completed(opened(1), opened(2), opened(3)):
            got.append([place, value])
            if len(got) == 2:
                await die_once()
        return got

    gates.update({1: asyncio.Event(), 2: asyncio.Event()})
    run_id = await begun(store, unlucky)
    with contextlib.suppress(Exception):
        await drained(store, unlucky)
    gates.clear()
    await drained(store, unlucky)
    assert (await store.get_run(run_id)).output() == [[2, 30], [1, 20], [0, 10]]
    assert sorted(executed) == [1, 2, 3]


@pytest.mark.proves("compose-01")
async def test_a_sync_workflow_gets_the_results_of_steps_that_have_begun(store: Store, clock: TestClock) -> None:
    @workflow
    def in_a_thread(ctx: sync.Context) -> list[Any]:
        got = [[place, value] for place, value in ctx.as_completed(*(thirty.start(number) for number in range(3)))]
        ctx.sleep("1h")
        return got

    run_id = await begun(store, in_a_thread)
    await drained(store, in_a_thread)
    recorded = [row.output for row in await store.steps(run_id) if row.name == "as_completed()"]
    clock.advance(3601)
    await drained(store, in_a_thread)
    output = (await store.get_run(run_id)).output()
    assert sorted(output) == [[0, 30], [1, 31], [2, 32]]
    assert [place for place, _ in output[:2]] == recorded
    assert sorted(executed) == [0, 1, 2]


@pytest.mark.proves("compose-01")
async def test_a_fork_repeats_the_order_up_to_its_step(store: Store, clock: TestClock) -> None:
    @workflow
    async def forked(ctx: Context) -> list[Any]:
        got = [[place, value] async for place, value in ctx.as_completed(opened(1), opened(2))]
        return [*got, await opened(9)]

    gates[1] = asyncio.Event()
    run_id = await begun(store, forked)
    await drained(store, forked)
    gates.clear()
    copy = await store.fork(run_id, at="opened#3")
    await drained(store, forked)
    assert (await store.get_run(copy)).output() == (await store.get_run(run_id)).output() == [[1, 20], [0, 10], 90]
    assert executed.count(9) == 2
    assert executed.count(1) == executed.count(2) == 1


@pytest.mark.proves("compose-01")
async def test_what_is_no_call_is_refused_and_none_at_all_is_at_its_end_at_once(store: Store) -> None:
    @workflow
    async def wrong(ctx: Context) -> list[Any]:
        calls: list[Awaitable[None]] = []
        none = [list(one) async for one in ctx.as_completed(*calls)]
        with pytest.raises(InvalidOption, match="pass calls, one by one"):
            ctx.as_completed([])  # type: ignore[arg-type]
        return none

    @workflow
    def wrong_too(ctx: sync.Context) -> list[Any]:
        with pytest.raises(InvalidOption, match="pass steps that have begun"):
            ctx.as_completed(thirty)  # type: ignore[arg-type]
        return list(ctx.as_completed())

    for flow in (wrong, wrong_too):
        run_id = await begun(store, flow)
        await drained(store, flow)
        assert (await store.get_run(run_id)).output() == []


@workflow
async def swept(ctx: Context, n: int) -> list[Any]:
    calls = (ctx.sleep("2h"), doubled.trigger(n).wait().execute(ctx), opened(n), ctx.sleep("1h"))
    got = [place async for place, _ in ctx.as_completed(*calls)]
    return [sorted(got[:2]), got[2:]]


@pytest.mark.proves("compose-01", "TU-06")
async def test_it_survives_a_crash_at_every_call() -> None:
    async with world(swept, doubled) as w:
        await w.crash_everywhere(swept.trigger(2))
        run_id = await swept.trigger(2).execute(w.store)
        await w.advance("3h")
        assert (await w.store.get_run(run_id)).output() == [[1, 2], [3, 0]]
