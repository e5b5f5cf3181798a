"""Runs that are stopped, or whose bodies are late: their place is free again, and nobody else waits for them."""

import asyncio
import concurrent.futures
import contextlib
import gc
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from stepwell import (
    Context,
    InvalidOption,
    PermanentError,
    Retry,
    RunCancelled,
    RunStatus,
    StepFailed,
    Store,
    Worker,
    sleep,
    step,
    sync,
    workflow,
)
from stepwell.runs import sync_turn
from tests.ground.waiting import until
from tests.workflows.kit import begun, drained, executed

begins: list[object] = []
release = threading.Event()


@pytest.fixture(autouse=True)
def anew() -> Any:
    begins.clear()
    release.clear()
    yield
    release.set()


@step(timeout="50ms", retry=Retry(2, base="10ms"))
def late() -> None:
    begins.append("late")
    release.wait(20)


@step
async def slow() -> int:
    begins.append("slow")
    await asyncio.Event().wait()
    return 1


@workflow
async def waits_for_late(ctx: Context) -> str:
    try:
        await ctx.step(late)
    except StepFailed as failure:
        return failure.type
    return "in time"


@workflow
def parked(ctx: sync.Context) -> None:
    slow.start()
    ctx.sleep("1h")


@workflow
def asks_for_slow(ctx: sync.Context) -> int:
    return ctx.step(slow)


@workflow
async def quick() -> int:
    return 7


@workflow
async def swallows() -> int:
    while not release.is_set():
        with contextlib.suppress(BaseException):
            begins.append("swallowed")
            await sleep("1h")
    return 1


@pytest.mark.proves("S-13", "E-13")
async def test_a_body_in_a_thread_that_outlives_its_timeout_keeps_nobody_waiting(live_store: Store) -> None:
    async with Worker(live_store, [waits_for_late]):
        run_id = await waits_for_late.trigger().execute(live_store)
        assert await live_store.result(run_id, timeout=20) == "Timeout"
        assert begins == ["late", "late"]
        release.set()


@pytest.mark.proves("L-13", "L-12")
@pytest.mark.parametrize("stopped", [parked, asks_for_slow])
async def test_a_sync_run_that_is_stopped_leaves_its_place_and_its_async_bodies(
    live_store: Store, stopped: Any
) -> None:
    async with Worker(live_store, [stopped, quick], concurrency=1):
        run_id = await stopped.trigger().execute(live_store)
        await until(lambda: bool(begins), 20, message="a body to begin")
        assert await live_store.cancel(run_id, reason="enough")
        with pytest.raises(RunCancelled) as caught:
            await live_store.result(run_id, timeout=20)
        assert caught.value.error is not None
        assert caught.value.error["message"] == "enough"
        other = await quick.trigger().execute(live_store)
        assert await live_store.result(other, timeout=20) == 7


async def never() -> None: ...


def later() -> Any:
    return never()


@pytest.mark.proves("protocol-18")
@pytest.mark.parametrize(
    "call", [lambda ctx: ctx.wait("go"), lambda ctx: ctx.step("later", later)], ids=["wait", "step"]
)
async def test_a_call_that_a_thread_makes_as_its_run_is_stopped_is_not_made_and_leaves_nothing_behind(
    live_store: Store, monkeypatch: pytest.MonkeyPatch, call: Callable[[sync.Context], object]
) -> None:
    turns: list[Any] = []
    asked = threading.Event()

    class Answer(concurrent.futures.Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            asked.set()  # the loop was asked to make the call, and this thread waits for that
            return super().result(timeout)

    futures = SimpleNamespace(futures=SimpleNamespace(Future=Answer))
    monkeypatch.setattr(sync_turn, "concurrent", futures)

    @workflow
    def asks(ctx: sync.Context) -> None:
        turns.append(ctx._run)
        release.wait(20)
        call(ctx)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        async with Worker(live_store, [asks], grace=0):
            await asks.trigger().execute(live_store)
            await until(lambda: bool(turns), 20, message="the run to begin")
            release.set()
            assert asked.wait(20)  # and the loop is kept from making the call
            turns[0].slot.give_up()
        gc.collect()
    assert [str(one.message) for one in told] == []


@pytest.mark.proves("W-17", "protocol-18")
async def test_a_run_that_swallows_everything_does_not_block_the_others(live_store: Store) -> None:
    async with Worker(live_store, [swallows, quick], grace=0):
        await swallows.trigger().execute(live_store)
        await until(lambda: len(begins) >= 3, 20, message="what was refused to be asked for again")
        other = await quick.trigger().execute(live_store)
        assert await live_store.result(other, timeout=20) == 7
        release.set()


@pytest.mark.proves("S-08", "E-13")
async def test_a_decorated_step_under_another_name_keeps_its_options(store: Store) -> None:
    @step(retry=1)
    async def charge(cents: int) -> str:
        begins.append(cents)
        raise RuntimeError("no")

    @workflow
    async def pays(ctx: Context) -> None:
        await ctx.step("charge-eu", charge, 5)

    run = await executed(store, pays)
    assert (run.status, begins) == (RunStatus.ERROR, [5])


@pytest.mark.proves("S-06")
async def test_an_exception_that_is_a_frozen_dataclass_comes_back_as_itself(store: Store) -> None:
    run = await executed(store, catches)
    assert run.output() == "declined: 7"


@dataclass(frozen=True)
class Declined(Exception):  # noqa: N818 - a word of the shop's
    code: int


@step(raises=(Declined,), retry=1)
async def declines() -> None:
    raise Declined(7)


@workflow
async def catches() -> str:
    try:
        await declines()
    except Declined as error:
        return f"declined: {error.code}"
    return "paid"


@pytest.mark.proves("R-08", "T-03", "DP-07")
async def test_a_parameter_with_a_default_may_be_added_while_runs_are_open(store: Store) -> None:
    @workflow(name="buy")
    async def before(cents: int) -> int:
        return cents

    @workflow(name="buy")
    async def after(cents: int, gift: bool = False) -> list[object]:
        return [cents, gift]

    run_id = await begun(store, before, 5)
    await drained(store, after)
    assert (await store.get_run(run_id)).output(list[object]) == [5, False]


@pytest.mark.proves("E-11")
async def test_a_workflow_is_not_told_of_its_own_failures(store: Store) -> None:
    with pytest.raises(InvalidOption, match="for ever"):

        @workflow(dead_letter="loops")
        async def loops() -> None:
            raise PermanentError("no")


@pytest.mark.proves("DD-09")
async def test_a_context_that_is_not_first_or_not_called_so_is_refused(store: Store) -> None:
    with pytest.raises(InvalidOption, match="called `ctx`"):

        @workflow
        async def misnamed(context: Context, number: int) -> None: ...
