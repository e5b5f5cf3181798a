"""What can be a step: any callable, of either colour, called from a workflow of either colour."""

import asyncio
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stepwell import (
    Context,
    Future,
    InvalidName,
    InvalidOption,
    NotInRun,
    Store,
    TransientError,
    Worker,
    current,
    sleep,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from tests.ground.waiting import until
from tests.workflows.kit import begun, drained, executed, names_in, statuses, steps_of, task_of


async def add(a: int, b: int = 1, *, client: object = None) -> int:
    await asyncio.sleep(0)
    return a + b


def subtract(a: int, b: int = 1) -> int:
    return a - b


class Service:
    """A callable, and one with methods."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def times(self, n: int) -> int:
        return n * self.factor

    async def times_soon(self, n: int) -> int:
        return n * self.factor

    async def __call__(self) -> int:
        return self.factor


@step
async def doubled(n: int) -> int:
    return 2 * n


@step(id="thirds")
def tripled(n: int) -> int:
    return 3 * n


CLIENT = object()  # cannot be stored, and need not be
BODIES: dict[str, tuple[Any, ...]] = {
    "async": (add, 1, 2),
    "sync": (subtract, 5, 2),
    "named": (functools.partial(add, b=4), 1),
    "bound": (functools.partial(add, 1, 2, client=CLIENT),),
    "method": (Service(3).times, 2),
    "async method": (Service(3).times_soon, 2),
    "object": (Service(9),),
    "lambda": (lambda: 4,),
    "lambda of a coroutine": (lambda: add(3, 4),),
    "lambda of a step": (lambda: doubled(4),),
    "lambda with arguments": (lambda a: a, 1),
    "decorated": (tripled, 2),
    "built in": (len, [1, 2]),
}
WANTED = [3, 3, 5, 3, 6, 6, 9, 4, 7, 8, 1, 6, 2]


@pytest.mark.proves("S-08", "S-09", "S-24")
async def test_any_callable_is_a_step_in_a_workflow_of_either_colour(store: Store, clock: TestClock) -> None:
    @workflow
    async def soon(ctx: Context) -> list[int]:
        found = [await ctx.step(name, *body) for name, body in BODIES.items()]
        found += [await doubled(5), await ctx.step(doubled, 6), await ctx.step(tripled, n=7)]
        await ctx.sleep(60)
        return found

    @workflow
    def now(ctx: sync.Context) -> list[int]:
        found = [ctx.step(name, *body) for name, body in BODIES.items()]
        found += [ctx.step(doubled, 5), ctx.step(doubled, 6), tripled(7)]
        ctx.sleep(60)
        return found

    runs = [await begun(store, one) for one in (soon, now)]
    await drained(store, soon, now)
    clock.advance(60)
    await drained(store, soon, now)
    for run_id in runs:
        run = await store.get_run(run_id)
        assert (run.status, run.last_error) == ("SUCCESS", None)
        assert run.output() == [*WANTED, 10, 12, 21]
        steps = await steps_of(store, run_id)
        assert list(steps) == [*(f"{name}#1" for name in BODIES), "doubled#1", "doubled#2", "thirds#1", "sleep#1"]
        inputs = [steps[key].input for key in ("async#1", "bound#1", "object#1", "lambda#1", "built in#1", "doubled#2")]
        assert inputs == [{"a": 1, "b": 2}, None, None, None, [1, 2], 6]


@pytest.mark.proves("S-10", "W-17", "W-06")
async def test_sync_code_blocks_no_loop_and_runs_in_the_order_of_its_calls(store: Store) -> None:
    here, go = threading.get_ident(), threading.Event()
    order: list[int] = []

    def blocking() -> bool:
        return go.wait(10) and threading.get_ident() != here

    async def free() -> None:
        go.set()

    @workflow
    async def beside(ctx: Context) -> bool:
        waited, _ = await asyncio.gather(ctx.step("blocking", blocking), free())
        return waited

    @step
    def note(n: int) -> int:
        order.append(n)
        return threading.get_ident()

    @workflow
    def in_order() -> list[bool]:
        threads = [note(n) for n in range(5)]
        return [len(set(threads)) == 1, here not in threads, go.wait(10)]

    runs = [await begun(store, one) for one in (in_order, beside)]
    await drained(store, in_order, beside)
    assert [(await store.get_run(one)).output() for one in runs] == [[True] * 3, True]
    assert order == [0, 1, 2, 3, 4]


@pytest.mark.proves("S-10", "protocol-20")
async def test_calls_of_the_other_colour_and_from_elsewhere_are_refused_with_the_way(store: Store) -> None:
    def told(call: Callable[[], object], kind: type[Exception] = InvalidOption) -> str:
        with pytest.raises(kind) as refused:
            call()
        return str(refused.value)

    async def told_of(call: Callable[[], Awaitable[object]], kind: type[Exception] = InvalidOption) -> str:
        with pytest.raises(kind) as refused:
            await call()
        return str(refused.value)

    @workflow
    async def soon(ctx: Context) -> list[str]:
        loop, thread = asyncio.get_running_loop(), _Thread(lambda: told(lambda: doubled(1), NotInRun))
        return [
            told(lambda: tripled(1)),
            told(lambda: tripled.start(1), NotInRun),
            told(lambda: ctx.step("a/b", add, 1), InvalidName),
            told(lambda: ctx.step("a")),  # type: ignore[call-overload]
            told(lambda: ctx.step(add, 1)),  # type: ignore[call-overload]
            told(lambda: ctx.step("type", dict)),
            await asyncio.to_thread(told, lambda: doubled(1), NotInRun),
            await asyncio.to_thread(told, lambda: ctx.step("x", add, 1), NotInRun),
            await loop.run_in_executor(None, told, lambda: doubled(1), NotInRun),
            await loop.run_in_executor(None, thread.result),
            await ctx.step("inside", lambda: told(lambda: ctx.step("x", add, 1), NotInRun)),
            str(await loop.run_in_executor(None, tripled.local, 3)),
        ]

    @workflow
    def now(ctx: sync.Context) -> list[str]:
        return [told(lambda: doubled(1)), _Thread(lambda: told(lambda: tripled(1), NotInRun)).result()]

    found = (await executed(store, soon)).output()
    assert "`await ctx.step(thirds, ...)`" in found[0]
    assert "asyncio.create_task" in found[1]
    assert all(".local(...)" in one for one in found[6:10])
    assert "a step's body" in found[10]
    assert found[11] == "9"
    found = (await executed(store, now)).output()
    assert "`ctx.step(doubled, ...)`" in found[0]
    assert "thirds.local(...)" in found[1]
    with pytest.raises(NotInRun, match="no run executes this code"):
        current()


class _Thread:
    """A thread of the user's own, which knows no run."""

    def __init__(self, work: Callable[[], str]) -> None:
        self._work = work

    def result(self) -> str:
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.append(self._work()))
        thread.start()
        thread.join()
        return found[0]


@pytest.mark.proves("S-17", "S-06")
async def test_a_sync_workflow_begins_steps_in_the_background(store: Store, clock: TestClock) -> None:
    together, called = threading.Barrier(3), []

    @step(retry=1)
    def part(n: int) -> int:
        called.append(n)
        together.wait(10)  # all three at once, or never
        return 10 * n

    @step(retry=1, raises=(ZeroDivisionError,))
    def broken() -> None:
        called.append(0)
        raise ZeroDivisionError("nothing")

    @step
    def left(n: int) -> int:
        called.append(n)
        return n

    @workflow
    def parts() -> list[Any]:
        futures: list[Future[int]] = [part.start(n) for n in (1, 2, 3)]
        with pytest.raises(ZeroDivisionError, match="nothing"):
            broken.start().result()
        if clock.now() == begun_at:
            sync.sleep(60)  # with steps under way beside it: they end first
        found = [one.result() for one in reversed(futures)]
        left.start(7)  # nobody waits for it, but the run does
        return found

    begun_at = clock.now()
    run_id = await begun(store, parts)
    assert await drained(store, parts) == 1
    assert await statuses(store, run_id) == {
        **{f"part#{n}": "SUCCESS" for n in (1, 2, 3)},
        "broken#1": "ERROR",
        "sleep#1": "SUCCESS",
    }
    clock.advance(60)
    assert await drained(store, parts) == 1
    assert (await store.get_run(run_id)).output() == [30, 20, 10]
    assert sorted(called) == [0, 1, 2, 3, 7]
    assert (await statuses(store, run_id))["left#1"] == "SUCCESS"
    assert names_in(["f.<locals>.g:1/a#1"]) == ["g:1/a#1"]


@pytest.mark.proves("S-17", "protocol-18")
async def test_while_a_thread_of_the_workflow_is_at_work_its_background_steps_wait_in_memory(
    store: Store, clock: TestClock
) -> None:
    go, called = threading.Event(), []

    @step(retry=2)
    def flaky() -> str:
        called.append("flaky")
        if len(called) == 1:
            raise TransientError("later", retry_after=60)
        return "in the end"

    @workflow
    def busy() -> str:
        future = flaky.start()
        assert go.wait(10)  # code of its own: the run works
        return future.result()

    run_id = await begun(store, busy)
    async with Worker(store, [busy]) as worker:
        await until(lambda: _is_pending(store, run_id), message="the failed attempt is recorded")
        clock.advance(60)
        await until(lambda: len(called) == 2, timeout=3, message="the second attempt, while the thread works")
        go.set()
        await worker.drain()
    assert (await store.get_run(run_id)).output() == "in the end"
    assert (await task_of(store, run_id)).turn == 1


async def _is_pending(store: Store, run_id: int) -> bool:
    return (await statuses(store, run_id)).get("flaky#1") == "PENDING"


@workflow
async def other(n: int) -> int:
    return await doubled(n)


def here(offset: int) -> str:
    """The place of a call that stands so many lines below the caller's."""
    return f"test_bodies.py, line {inspect.currentframe().f_back.f_lineno + offset}"  # type: ignore[union-attr]


def forgetting(ctx: Context, what: str) -> Any:
    """A call that gives a coroutine."""
    calls: dict[str, Callable[[], Any]] = {
        "doubled": lambda: doubled(1),
        "other": lambda: other(1),
        "sleep": lambda: sleep("1h"),
        "wait": lambda: ctx.wait("word"),
        "execute": lambda: other.trigger(1).execute(ctx),
        "ctx.step: add": lambda: ctx.step("add", add, 1),
        "results": lambda: ctx.results([]),
        "race": lambda: ctx.race(asyncio.sleep(0)),
    }
    return calls[what]()


@pytest.mark.filterwarnings("ignore:coroutine 'sleep' was never awaited")
@pytest.mark.parametrize("what", ["doubled", "other", "sleep", "wait", "execute", "ctx.step: add", "results", "race"])
async def test_a_call_that_nobody_awaits_is_an_error_that_names_its_line(store: Store, what: str) -> None:
    @workflow
    async def forgetful(ctx: Context) -> str:
        await doubled(2)
        forgetting(ctx, what)
        await doubled(3)
        return "done"

    run = await executed(store, forgetful)
    assert run.status == "ERROR"
    assert f"{what} was called without `await` in " in (run.last_error or "")
    assert "test_bodies.py, line " in (run.last_error or "")


async def test_the_line_is_that_of_the_call(store: Store) -> None:
    @workflow
    async def forgetful() -> None:
        places.append(here(1))
        left = doubled(1)
        del left

    places: list[str] = []
    run = await executed(store, forgetful)
    assert places[0] in (run.last_error or "")


async def test_calls_that_are_awaited_later_or_given_to_tasks_are_not_forgotten(store: Store) -> None:
    @workflow
    async def orderly(ctx: Context) -> list[int]:
        first, second = doubled(1), other(2)
        third = asyncio.create_task(doubled(3))
        place, _ = await ctx.race(asyncio.wait_for(doubled(4), 10), ctx.sleep("1h"))
        fourth = doubled(5)
        fourth.close()
        return [await second, await first, await third, place]

    run = await executed(store, orderly)
    assert run.output() == [4, 2, 6, 0]
    again = await store.fork(run.id, at="doubled#1")
    await drained(store, orderly)
    assert await store.result(again, timeout=0) == [4, 2, 6, 0]


async def test_a_call_of_the_other_colour_is_an_error_that_names_its_line(store: Store) -> None:
    places: list[str] = []

    @workflow
    def sync_flow(what: str) -> None:
        places.append(here(1))
        sleep("1h") if what == "sleep" else other(1)

    @workflow
    async def async_flow() -> None:
        places.append(here(1))
        sync.sleep("1h")

    for flow, what, words in (
        (sync_flow, ["sleep"], "the async sleep was called in a sync workflow"),
        (sync_flow, ["other"], "the async other was called in a sync workflow"),
        (async_flow, [], "the sync sleep was called in an async workflow"),
    ):
        run = await executed(store, flow, *what)
        assert run.status == "ERROR"
        assert words in (run.last_error or "")
        assert places[-1] in (run.last_error or "")
