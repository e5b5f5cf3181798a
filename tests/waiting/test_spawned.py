"""Steps that any worker of their queue executes: the run that calls them holds nothing meanwhile."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from stepwell import (
    Context,
    InvalidOption,
    PermanentError,
    StepFailed,
    Store,
    TransientError,
    Worker,
    current,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from tests.ground.waiting import until
from tests.waiting.family import children_of, is_ready
from tests.workflows.kit import begun, drained, statuses, task_of

log: list[object] = []


class DeclinedError(Exception):
    """A class that comes back as itself."""


@step(queue="gpu", raises=(DeclinedError,), retry=1)
async def render(frame: int, *, scale: int = 1) -> str:
    log.append((frame, current().key))
    if frame == 13:
        raise PermanentError("unlucky")
    if frame == 14:
        raise DeclinedError("no", 14)
    return f"frame {frame} x{scale}"


@step(queue="gpu")
def slow(ctx: sync.Context, frame: int) -> int:
    return frame + 1


@step(queue="gpu", retry=3)
async def flaky(frame: int) -> int:
    log.append(("flaky", current().attempt))
    if current().attempt < 3:
        raise TransientError("not yet")
    return frame


@step(queue="gpu", timeout="50ms", retry=1)
async def endless() -> None:
    await asyncio.Event().wait()


@step(queue="gpu")
async def told(ctx: Context, frame: int) -> list[object]:
    return [ctx.run_id, ctx.step_id, ctx.attempt, frame]


@dataclass(frozen=True)
class Frame:
    number: int
    at: datetime


@step(queue="gpu")
async def later(frame: Frame) -> Frame:
    return Frame(frame.number + 1, frame.at)


@workflow
async def film(ctx: Context, frames: int) -> list[str]:
    first = await render(0, scale=2)
    more = await asyncio.gather(*(render(frame) for frame in range(1, frames)))
    last = await ctx.step(slow, ctx, 1)  # type: ignore[call-overload]  # its context is of its own colour
    return [first, *more, str(last)]


@workflow
async def broken(frame: int) -> str:
    try:
        return await render(frame)
    except DeclinedError as error:
        return f"declined {error.args}"


@workflow
def in_a_thread(ctx: sync.Context) -> int:
    return slow(ctx, 4)


@pytest.mark.proves("S-14", "S-15")
async def test_a_spawned_step_is_executed_by_the_workers_of_its_queue(store: Store) -> None:
    run_id = await begun(store, film, 3)
    await drained(store, film)
    task = await task_of(store, run_id)
    assert (task.status, task.owner, task.ready) == ("PAUSED", None, False)
    await drained(store, render, slow)
    assert (await task_of(store, run_id)).ready
    await drained(store, film, render, slow)
    assert (await store.get_run(run_id)).output() == ["frame 0 x2", "frame 1 x1", "frame 2 x1", "2"]
    assert set((await statuses(store, run_id)).values()) == {"SUCCESS"}
    assert len(set(log[-3:])) == len(log[-3:]) == 3


@pytest.mark.proves("S-16")
async def test_its_error_is_raised_where_it_is_awaited(store: Store) -> None:
    failed, declined = await begun(store, broken, 13), await begun(store, broken, 14)
    await drained(store, broken, render)
    run = await store.get_run(failed)
    assert (run.status, run.error["type"]) == ("ERROR", StepFailed.__name__)  # type: ignore[index]
    assert "PermanentError: unlucky" in str(run.last_error)
    assert (await store.get_run(declined)).output() == "declined ('no', 14)"


@pytest.mark.proves("S-14")
async def test_a_sync_workflow_spawns_too_and_a_step_without_a_queue_is_not_served(store: Store) -> None:
    run_id = await begun(store, in_a_thread)
    await drained(store, in_a_thread, slow)
    assert (await store.get_run(run_id)).output() == 5

    @step
    async def plain() -> None: ...

    with pytest.raises(InvalidOption, match="names no queue"):
        Worker(store, [plain])


@pytest.mark.proves("S-14", "S-16")
async def test_its_attempts_are_counted_where_it_is_executed(store: Store, clock: TestClock) -> None:
    @workflow
    async def persistent() -> int:
        return await flaky(5)

    log.clear()
    run_id = await begun(store, persistent)
    await drained(store, persistent)
    for _ in range(3):
        await drained(store, flaky)
        clock.advance("1m")
    await drained(store, persistent)
    assert (await store.get_run(run_id)).output() == 5
    assert log == [("flaky", 1), ("flaky", 2), ("flaky", 3)]
    assert (await task_of(store, run_id)).attempt == 1


@pytest.mark.proves("S-14", "S-16")
async def test_its_timeout_ends_it_where_it_is_executed(store: Store) -> None:
    @workflow
    async def hurried() -> None:
        await endless()

    run_id = await begun(store, hurried)
    await drained(store, hurried, endless)
    run = await store.get_run(run_id)
    assert (run.status, run.error["type"]) == ("ERROR", "StepFailed")  # type: ignore[index]
    assert "Timeout" in str(run.last_error)


@pytest.mark.proves("S-14")
async def test_it_gets_its_context_and_its_types_as_any_step(store: Store) -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)

    @workflow
    async def asks(ctx: Context) -> list[object]:
        frame = await later(Frame(1, moment))
        assert isinstance(frame, Frame)
        return [*await told(ctx, 7), frame.number, frame.at == moment]

    run_id = await begun(store, asks)
    await drained(store, asks, told, later)
    _, executed = await children_of(store, run_id)
    assert (await store.get_run(run_id)).output() == [executed, "told", 1, 7, 2, True]


@pytest.mark.proves("S-14", "S-17")
async def test_a_sync_workflow_begins_several_in_the_background(store: Store) -> None:
    @workflow
    def starts(ctx: sync.Context) -> list[int]:
        begun = [slow.start(ctx, number) for number in range(4)]
        return [one.result() for one in begun]

    run_id = await begun(store, starts)
    await drained(store, starts)
    task = await task_of(store, run_id)
    assert (task.status, task.owner) == ("PAUSED", None)
    assert len(await children_of(store, run_id)) == 4
    await drained(store, slow, starts)
    assert (await store.get_run(run_id)).output() == [1, 2, 3, 4]


@pytest.mark.proves("S-14")
async def test_a_worker_without_the_step_says_so_and_another_one_executes_it(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, in_a_thread)
    await drained(store, in_a_thread)
    [child] = await children_of(store, run_id)
    await drained(store, render)
    task = await task_of(store, child)
    assert task.status == "PENDING"
    assert "without the step slow" in str(task.last_error)
    clock.advance("1m")
    await drained(store, slow)
    await drained(store, in_a_thread)
    assert (await store.get_run(run_id)).output() == 5


@pytest.mark.proves("S-16")
async def test_a_cancelled_run_cancels_the_steps_it_has_spawned(store: Store) -> None:
    run_id = await begun(store, film, 3)
    await drained(store, film)
    assert await store.cancel(run_id)
    [child] = await children_of(store, run_id)
    assert (await task_of(store, child)).status == "CANCELLED"
    assert await drained(store, render, slow) == 0


@pytest.mark.proves("S-16")
async def test_its_key_is_that_of_the_call_however_often_its_run_is_retried(store: Store) -> None:
    log.clear()
    run_id = await begun(store, broken, 13)
    await drained(store, broken, render)
    assert await store.retry(run_id)
    await drained(store, broken, render)
    first, second = log
    assert first == second  # two children, and one call to whoever is asked to do it once
    assert str(first[1]).startswith(f"{run_id}-")  # type: ignore[index]
    assert str(first[1]).endswith("/render#1")  # type: ignore[index]


@pytest.mark.proves("S-16", "R-20")
async def test_a_step_that_was_cancelled_fails_its_run_and_a_retry_spawns_it_anew(store: Store) -> None:
    run_id = await begun(store, in_a_thread)
    await drained(store, in_a_thread)
    [child] = await children_of(store, run_id)
    assert await store.cancel(child)
    assert await is_ready(store, run_id)
    await drained(store, in_a_thread)
    assert (await store.get_run(run_id)).error["type"] == "RunCancelled"  # type: ignore[index]
    assert await store.retry(run_id)
    await drained(store, in_a_thread, slow)
    assert (await store.get_run(run_id)).output() == 5


@pytest.mark.proves("S-14")
async def test_a_queue_of_steps_is_limited_as_a_whole(store: Store) -> None:
    at_once, most, go_on = 0, 0, asyncio.Event()

    @step(queue="narrow")
    async def first() -> None:
        await enter()

    @step(queue="narrow")
    async def second() -> None:
        await enter()

    async def enter() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await go_on.wait()
        at_once -= 1

    @workflow
    async def many() -> None:
        await asyncio.gather(*(one() for one in (first, second) * 4))

    run_id = await begun(store, many)
    async with Worker(store, [many]), Worker(store, [first, second], concurrency=3):
        await until(lambda: at_once == 3)
        go_on.set()
        await store.result(run_id, timeout=10)
    assert most == 3


@pytest.mark.proves("S-14")
async def test_two_steps_of_one_queue_with_one_name_are_refused(store: Store) -> None:
    @step(queue="gpu", id="slow")
    async def other() -> None: ...

    with pytest.raises(InvalidOption, match="two steps of the queue gpu are named slow"):
        Worker(store, [slow, other])
