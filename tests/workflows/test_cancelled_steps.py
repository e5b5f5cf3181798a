"""A step that its workflow cancels is recorded, and no replay executes it again."""

import asyncio
import contextlib
from typing import Any

import pytest

from stepwell import Context, Retry, Store, TransientError, step, workflow
from stepwell.base.clock import TestClock
from stepwell.testing import world
from tests.workflows.kit import begun, die, drained, statuses, steps_of

began: list[str] = []
let_go: dict[str, asyncio.Event] = {}


@step
async def slow(name: str) -> str:
    began.append(name)
    await let_go.setdefault(name, asyncio.Event()).wait()
    return name


@step
async def quick(name: str) -> str:
    began.append(name)
    return name


@pytest.fixture(autouse=True)
def nothing_has_begun() -> None:
    began.clear()
    let_go.clear()


async def is_at(name: str) -> None:
    async with asyncio.timeout(10):
        while name not in began:  # noqa: ASYNC110 - the fact is a list
            await asyncio.sleep(0)


@workflow
async def stops(ctx: Context) -> list[Any]:
    task = asyncio.create_task(slow("a"))
    await ctx.step("see", is_at, "a")
    task.cancel()
    said = None
    try:
        await task
    except asyncio.CancelledError:
        said = await quick("b")
    await ctx.sleep("1h")
    return [said, task.cancelled(), await quick("c")]


@pytest.mark.proves("compose-03")
async def test_a_cancelled_step_is_recorded_and_not_executed_by_a_replay(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, stops)
    await drained(store, stops)
    found = await steps_of(store, run_id)
    assert str(found["slow#1"].status) == "CANCELLED"
    assert (found["slow#1"].error or {})["message"] == "the workflow has cancelled it"
    clock.advance(3601)
    await drained(store, stops)
    assert (await store.get_run(run_id)).output() == ["b", True, "c"]
    assert began == ["a", "b", "c"]


@pytest.mark.proves("compose-03")
async def test_neither_a_lost_worker_nor_a_fork_executes_it_again(store: Store, clock: TestClock) -> None:
    dying = iter([True])

    @step
    async def die_once() -> None:
        if next(dying, False):
            await die(store.database)

    async def part() -> str:
        await quick("before")
        return await slow("a")

    @workflow
    async def unlucky(ctx: Context) -> list[Any]:
        task = asyncio.create_task(part())
        await ctx.step("see", is_at, "a")
        task.cancel()
        await asyncio.wait([task])
        await die_once()
        return [task.cancelled(), await quick("after")]

    run_id = await begun(store, unlucky)
    with contextlib.suppress(Exception):
        await drained(store, unlucky)
    await drained(store, unlucky)
    copy = await store.fork(run_id, at="quick#1")
    await drained(store, unlucky)
    for one in (run_id, copy):
        assert (await store.get_run(one)).output() == [True, "after"]
    assert began == ["before", "a", "after", "after"]


@pytest.mark.proves("compose-03")
async def test_a_limit_of_asyncio_ends_a_step_for_every_replay(store: Store, clock: TestClock) -> None:
    @workflow
    async def limited(ctx: Context) -> list[str]:
        found = []
        try:
            await asyncio.wait_for(slow("a"), 0.05)
        except TimeoutError:
            found.append("late")
        try:
            async with asyncio.timeout(0.05):
                await slow("b")
        except TimeoutError:
            found.append("late too")
        await ctx.sleep("1h")
        return found

    run_id = await begun(store, limited)
    await drained(store, limited)
    clock.advance(3601)
    await drained(store, limited)
    assert (await store.get_run(run_id)).output() == ["late", "late too"]
    assert began == ["a", "b"]
    assert (await statuses(store, run_id))["slow#1"] == "CANCELLED"


@pytest.mark.proves("compose-03")
async def test_a_step_that_is_not_cancelled_again_is_executed(store: Store, clock: TestClock) -> None:
    failures = iter([True])

    async def flawed() -> None:
        await is_at("a")
        if next(failures, False):
            raise TransientError("no step of the run, so not recorded", retry_after=1)

    @workflow(retry=2)
    async def together() -> str:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(slow("a"))
            group.create_task(flawed())
        return one.result()

    run_id = await begun(store, together)
    await drained(store, together)
    assert (await statuses(store, run_id)) == {"slow#1": "CANCELLED"}
    let_go["a"].set()
    clock.advance(2)
    await drained(store, together)
    assert (await store.get_run(run_id)).output() == "a"
    assert began == ["a", "a"]


@pytest.mark.proves("compose-03")
async def test_a_step_is_cancelled_between_two_attempts_too(store: Store, clock: TestClock) -> None:
    @step(retry=Retry(5, base="1h", cap="1h"))
    async def failing() -> None:
        began.append("failing")
        raise TransientError("not yet")

    @workflow
    async def gives_up(ctx: Context) -> str:
        task = asyncio.create_task(failing())
        await ctx.wait("enough")
        task.cancel()
        await asyncio.wait([task])
        await ctx.sleep("5h")
        return await quick("after")

    run_id = await begun(store, gives_up)
    await drained(store, gives_up)
    await store.signal(run_id, "enough")
    await drained(store, gives_up)
    assert (await statuses(store, run_id))["failing#1"] == "CANCELLED"
    for _ in range(3):
        clock.advance(3 * 3600)
        await drained(store, gives_up)
    assert (await store.get_run(run_id)).output() == "after"
    assert began == ["failing", "after"]


@pytest.mark.proves("compose-03")
async def test_a_cancel_that_comes_while_the_result_is_written_is_too_late(store: Store, clock: TestClock) -> None:
    offer = store.database.steps.offer
    tasks: list[asyncio.Task[str]] = []
    was_cancelled: list[bool] = []

    def cancelling(row: Any, *args: Any, **options: Any) -> Any:
        answer = offer(row, *args, **options)
        if row.key == "quick#1" and not tasks[0].cancelling():
            asyncio.get_running_loop().call_soon(tasks[0].cancel)
        return answer

    store.database.steps.offer = cancelling  # type: ignore[method-assign]

    @workflow
    async def late(ctx: Context) -> list[str]:
        tasks.insert(0, task := asyncio.create_task(quick("a")))
        await asyncio.wait([task])
        was_cancelled.append(task.cancelled())
        await ctx.sleep("1h")
        return [await task, await quick("b")]

    run_id = await begun(store, late)
    await drained(store, late)
    clock.advance(3601)
    await drained(store, late)
    assert (await store.get_run(run_id)).output() == ["a", "b"]
    assert began == ["a", "b"]
    assert was_cancelled == [False, False]


@workflow
async def swept(ctx: Context) -> list[Any]:
    async def endless() -> None:
        await asyncio.sleep(60)

    task = asyncio.create_task(ctx.step("endless", endless))
    await quick("begin")
    task.cancel()
    await asyncio.wait([task])
    await ctx.sleep("1h")
    return [task.cancelled(), await quick("end")]


@pytest.mark.proves("compose-03", "TU-06")
async def test_it_survives_a_crash_at_every_call() -> None:
    async with world(swept) as w:
        await w.crash_everywhere(swept.trigger())
