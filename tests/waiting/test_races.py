"""The first of several: who won is recorded, replays go the same way, and a signal that lost is kept."""

import asyncio
from typing import Any

import pytest

from stepwell import Context, PermanentError, SignalAnswer, StepFailed, Store, race, step, wait, workflow
from stepwell.base.clock import TestClock
from stepwell.base.events import StepsUnasked
from stepwell.base.futures import begin_apart
from tests.workflows.kit import begun, drained, names_in, statuses, steps_of

WOKE, KEPT = SignalAnswer.WOKE, SignalAnswer.KEPT
executed: list[int] = []


@step
async def work(number: int) -> int:
    executed.append(number)
    return number


@step
async def fail() -> int:
    raise PermanentError("no")


async def sequence(number: int) -> int:
    return await work(number) + await work(number + 1)


@workflow
async def double(number: int) -> int:
    return 2 * number


@workflow
async def approved(ctx: Context) -> list[Any]:
    place, value = await ctx.race(ctx.wait("yes", str), ctx.wait("no", str), ctx.sleep("1h"))
    return [place, value, await ctx.wait("no", str, timeout="1h")]


@workflow
async def branches(ctx: Context) -> list[Any]:
    place, value = await ctx.race(sequence(10), ctx.sleep("1h"), sequence(20))
    await ctx.sleep("1h")
    return [place, value, [*await ctx.race(sequence(30))]]


@workflow
async def with_child(ctx: Context) -> list[Any]:
    won = await ctx.race(double.trigger(4).wait().execute(ctx), ctx.wait("stop"), ctx.sleep("1h"))
    return [*won, await work(1)]


async def told(store: Store) -> list[StepsUnasked]:
    events: list[StepsUnasked] = []
    store.database.telemetry.subscribe(lambda event: events.append(event) if isinstance(event, StepsUnasked) else None)
    return events


@pytest.mark.proves("promise-15", "protocol-18")
async def test_the_first_signal_wins_and_the_other_is_kept_for_the_next_wait(store: Store) -> None:
    run_id = await begun(store, approved)
    await drained(store, approved)
    assert await store.signal(run_id, "no", "first") is WOKE
    assert await store.signal(run_id, "no", "second") is KEPT
    assert await store.signal(run_id, "yes", "late") is WOKE
    await drained(store, approved)
    run = await store.get_run(run_id)
    assert run.output() in ([0, "late", "first"], [1, "first", "second"])
    [row] = [one for one in await store.steps(run_id) if one.name == "race()"]
    assert row.output == run.output()[0]


@pytest.mark.proves("promise-15")
async def test_of_two_signals_that_are_there_a_race_takes_one(store: Store) -> None:
    run_id = await begun(store, approved)
    assert await store.signal(run_id, "yes", "a") is KEPT
    assert await store.signal(run_id, "no", "b") is KEPT
    await drained(store, approved)
    assert (await store.get_run(run_id)).output() == [0, "a", "b"]


@pytest.mark.proves("promise-15")
async def test_a_wait_that_has_lost_is_told_of_no_signal_any_more(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, approved)
    await drained(store, approved)
    clock.advance(3601)
    await drained(store, approved)
    assert await statuses(store, run_id) == {
        "yes#1": "CANCELLED",
        "no#1": "CANCELLED",
        "sleep#1": "SUCCESS",
        "race()#1": "SUCCESS",
        "no#2": "PAUSED",
    }
    assert await store.signal(run_id, "yes", "nobody waits") is KEPT
    assert await drained(store, approved) == 0
    assert await store.signal(run_id, "no", "in time") is WOKE
    await drained(store, approved)
    assert (await store.get_run(run_id)).output() == [2, None, "in time"]


@pytest.mark.proves("S-06", "protocol-19", "protocol-21")
async def test_a_replay_begins_the_branch_that_won_and_asks_for_all_that_was_recorded(
    store: Store, clock: TestClock
) -> None:
    executed.clear()
    events = await told(store)
    run_id = await begun(store, branches)
    for _ in range(3):
        await drained(store, branches)
        clock.advance(3601)
    run = await store.get_run(run_id)
    assert run.output() in ([0, 21, [0, 61]], [2, 41, [0, 61]])
    assert events == []
    assert len(executed) == len(set(executed))


@pytest.mark.proves("S-06", "protocol-18")
async def test_a_worker_lost_right_after_the_race_changes_nothing(store: Store, clock: TestClock) -> None:
    dying = iter([True])

    @step
    async def die_once() -> None:
        if next(dying, False):
            for session in await store.database.sessions.living():
                await store.database.sessions.bury(session)

    @workflow
    async def raced(ctx: Context) -> list[Any]:
        won = await ctx.race(ctx.wait("a", int), ctx.wait("b", int))
        await die_once()
        return [*won, await ctx.wait("a" if won[0] else "b", int, timeout="1h")]

    run_id = await begun(store, raced)
    await drained(store, raced)
    assert await store.signal(run_id, "b", 2) is WOKE
    await drained(store, raced)
    assert await store.signal(run_id, "a", 1)
    await drained(store, raced)
    clock.advance(3601)
    await drained(store, raced)
    assert (await store.get_run(run_id)).output() == [1, 2, 1]


@pytest.mark.proves("S-06", "protocol-18")
async def test_of_two_that_are_over_when_it_is_replayed_the_one_that_was_recorded_has_won(
    store: Store, clock: TestClock
) -> None:
    @workflow
    async def slept(ctx: Context) -> int:
        place, _ = await ctx.race(ctx.sleep("2h"), ctx.sleep("1h"))
        await ctx.sleep("3h")
        return place

    run_id = await begun(store, slept)
    await drained(store, slept)
    clock.advance("1h")
    await drained(store, slept)
    assert (await statuses(store, run_id))["race()#1"] == "SUCCESS"
    clock.advance("3h")
    await drained(store, slept)
    assert (await store.get_run(run_id)).output() == 1


@pytest.mark.proves("R-21", "promise-15")
async def test_a_child_a_signal_and_a_moment_race(store: Store, clock: TestClock) -> None:
    first, second, third = [await begun(store, with_child) for _ in range(3)]
    await drained(store, with_child)
    assert await store.signal(second, "stop") is WOKE
    await drained(store, with_child)
    assert (await store.get_run(second)).output() == [1, None, 1]
    [child] = [run for run in await store.runs("double") if run.parent_id == first]
    assert child.status == "PENDING"  # a child that lost goes on, too
    others = [run for run in await store.runs("double") if run.parent_id != first]
    for run in others:
        await store.pause(run.id)
    await drained(store, double, with_child)
    assert (await store.get_run(first)).output() == [0, 8, 1]
    clock.advance(3601)
    await drained(store, with_child)
    assert (await store.get_run(third)).output() == [2, None, 1]


@pytest.mark.proves("E-01", "S-06")
async def test_who_fails_first_has_won_and_raises_on_every_replay(store: Store, clock: TestClock) -> None:
    @workflow
    async def failing(ctx: Context) -> str:
        try:
            await ctx.race(ctx.wait("never"), fail())
        except StepFailed as error:
            await ctx.sleep("1h")
            return error.step
        return ""

    run_id = await begun(store, failing)
    await drained(store, failing)
    clock.advance(3601)
    await drained(store, failing)
    assert (await store.get_run(run_id)).output() == "fail#1"


@pytest.mark.proves("S-13", "protocol-19")
async def test_races_in_a_gather_and_in_each_other(store: Store, clock: TestClock) -> None:
    executed.clear()
    events = await told(store)

    @workflow(strict=True)
    async def nested(ctx: Context) -> list[Any]:
        inner = race(wait("a", int), sequence(1))
        found = await asyncio.gather(ctx.race(inner, ctx.sleep("1h")), race(sequence(3), ctx.wait("b")))
        await ctx.sleep("1h")
        (place, won), other = found
        return [[place, list(won)], list(other), await work(9)]

    run_id = await begun(store, nested)
    for _ in range(3):
        await drained(store, nested)
        clock.advance(3601)
    assert (await store.get_run(run_id)).output() == [[0, [1, 3]], [0, 7], 9]
    assert sorted(executed) == [1, 2, 3, 4, 9]
    assert events == []
    assert "a#1" in names_in(list(await steps_of(store, run_id)))


@pytest.mark.proves("S-13", "S-15")
async def test_a_run_that_is_asking_for_a_child_is_not_given_back(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbering the child may take a while, in a way that looks like waiting for a task; the sleep waits meanwhile."""
    draft_children = store.database.new_tasks.draft_children

    async def slowly(*asked: Any) -> Any:
        await asyncio.wait([begin_apart(asyncio.sleep(0.1), "slow")])
        return await draft_children(*asked)

    monkeypatch.setattr(store.database.new_tasks, "draft_children", slowly)
    run_id = await begun(store, with_child)
    await drained(store, with_child, double)
    assert await store.result(run_id, timeout=1) == [0, 8, 1]
