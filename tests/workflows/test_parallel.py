"""Steps beside each other: loops, gathers, sequences in gathers, and bodies that still work when another has failed."""

import asyncio
import threading
from collections import Counter, defaultdict
from typing import Any

import pytest

from stepwell import Context, Retry, Store, TransientError, sleep, step, workflow
from stepwell.base.clock import TestClock
from tests.workflows.kit import begun, die, drained, names_in, statuses


@pytest.mark.proves("S-11", "S-26", "R-15")
async def test_what_is_gathered_runs_at_once_and_after_a_crash_only_what_is_missing_runs_again(store: Store) -> None:
    called: Counter[str] = Counter()
    third_done, together = asyncio.Event(), asyncio.Barrier(2)

    @step
    async def t1() -> str:
        called["t1"] += 1
        return "t1"

    @step
    async def t2(before: str) -> str:
        called["t2"] += 1
        if called["t2"] == 1:
            await together.wait()
            await third_done.wait()
            await die(store.database)
        return f"{before} > t2"

    @step
    async def t3(before: str) -> str:
        called["t3"] += 1
        await together.wait()
        return f"{before} > t3"

    async def last(before: str) -> str:
        found = await t3(before)
        third_done.set()
        return found

    @step
    async def count(n: int) -> int:
        called[f"count {n}"] += 1
        if n == 3 and called["count 3"] == 1:
            await die(store.database)
        return n

    @workflow
    async def diamond() -> list[Any]:
        before = await t1()
        beside = await asyncio.gather(t2(before), last(before))
        return [*beside, [await count(n) for n in range(6)]]

    run_id = await begun(store, diamond)
    for _ in range(3):
        await drained(store, diamond)
    assert (await store.get_run(run_id)).output() == ["t1 > t2", "t1 > t3", [0, 1, 2, 3, 4, 5]]
    again = {name for name, times in called.items() if times == 2}
    assert again == {"t2", "count 3"}
    assert sorted(one.name for one in await store.steps(run_id)) == [*["count"] * 6, "t1", "t2", "t3"]


@pytest.mark.proves("S-11", "S-12", "protocol-19")
async def test_calls_of_one_name_find_their_own_records_whatever_ends_first(store: Store, clock: TestClock) -> None:
    numbers = iter(range(100))
    turns: list[Any] = []

    @step
    async def ticket(of: str) -> int:
        return next(numbers)

    async def line(name: str, ahead: int) -> list[int]:
        for _ in range(ahead if not turns else 5 - ahead):
            await asyncio.sleep(0)
        first = await ticket("same")
        for _ in range(5 - ahead if not turns else ahead):
            await asyncio.sleep(0)
        return [first, await ticket("same")]

    @workflow
    async def counter() -> list[Any]:
        calls = [ticket("same") for _ in range(3)]
        numbered = [0, 0, 0]  # when they are called, not when they are awaited
        for place in (0, 1, 2) if turns else (2, 1, 0):
            numbered[place] = await calls[place]
        lines = await asyncio.gather(*(line(str(ahead), ahead) for ahead in range(5)))
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(ticket("same")),
                group.create_task(line("x", 1)),
                group.create_task(ticket("same")),
            ]
        turns.append([numbered, list(lines), [task.result() for task in tasks]])
        await sleep(60)
        return turns

    run_id = await begun(store, counter)
    await drained(store, counter)
    clock.advance(60)
    await drained(store, counter)
    first, again = turns
    assert first == again
    assert sorted(_flat(first)) == list(range(17))  # each its own
    assert (await store.get_run(run_id)).status == "SUCCESS"
    keys = names_in(list(await statuses(store, run_id)))
    assert [f"ticket#{n}" for n in range(1, 6)] == sorted(key for key in keys if key.startswith("ticket"))
    assert {key.partition("/")[0] for key in keys if "/" in key} == {f"line:{n}" for n in range(1, 7)}


def _flat(found: Any) -> list[int]:
    return [one for part in found for one in _flat(part)] if isinstance(found, list) else [found]


@pytest.mark.proves("S-13", "E-03")
async def test_no_body_of_a_run_is_at_work_when_it_is_given_back(store: Store, clock: TestClock) -> None:
    order: list[str] = []
    again: defaultdict[str, threading.Event] = defaultdict(threading.Event)

    def in_thread(name: str) -> None:
        again[name].wait(0.2)  # for what must not happen: the run's next turn
        order.append(f"{name} ended")

    async def in_loop(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            order.append(f"{name} ended")

    async def failing(ctx: Context) -> None:
        await asyncio.sleep(0)
        raise TransientError("now", retry_after=0)

    async def cancelled(ctx: Context) -> None:
        task = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        task.cancel()
        await task

    async def waiting(ctx: Context) -> None:
        await ctx.sleep(60)

    def shape(name: str, body: Any, end: Any) -> Any:
        async def run(ctx: Context) -> None:
            if f"{name} began" not in order:
                order.append(f"{name} began")
                await asyncio.gather(ctx.step("body", body, name), end(ctx))
            order.append(f"{name} again")
            again[name].set()

        return workflow(name=name, retry=Retry(3, base=0))(run)

    shapes = [
        shape("thread.fails", in_thread, failing),
        shape("loop.fails", in_loop, failing),
        shape("thread.cancelled", in_thread, cancelled),
        shape("thread.waits", in_thread, waiting),
    ]
    runs = {one.name: await begun(store, one) for one in shapes}
    await drained(store, *shapes)
    clock.advance(60)
    await drained(store, *shapes)
    for name in runs:
        assert order.index(f"{name} ended") < order.index(f"{name} again"), order
    assert [(await store.get_run(run)).status for run in runs.values()] == ["SUCCESS"] * len(runs)
