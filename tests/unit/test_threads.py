"""Threads for sync bodies: results, exceptions, context, reuse, and an end that waits for nobody."""

import asyncio
import contextvars
import threading
import weakref
from functools import partial
from typing import Any

import pytest

from stepwell.work.threads import Threads
from tests.ground.waiting import until

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME", default="nobody")


def named(prefix: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(prefix)]


async def test_results_and_exceptions_come_back() -> None:
    threads = Threads("t-results")

    def fail() -> None:
        raise KeyError("no")

    assert await threads.run(lambda: 7) == 7
    with pytest.raises(KeyError):
        await threads.run(fail)
    assert await threads.run(threading.current_thread) is not threading.current_thread()
    threads.close()
    await until(lambda: not named("t-results"))


@pytest.mark.parametrize("error", [StopIteration("s"), GeneratorExit(), KeyboardInterrupt()])
async def test_what_no_future_or_loop_can_bear_becomes_an_error(error: BaseException) -> None:
    threads = Threads("t-odd")

    def fail() -> None:
        raise error

    with pytest.raises(RuntimeError, match=f"a body raised {type(error).__name__}"):
        await threads.run(fail)
    threads.close()


async def test_system_exit_is_the_bodys() -> None:
    threads = Threads("t-exit")
    future = threads.run(lambda: (_ for _ in ()).throw(SystemExit(3)))
    await asyncio.wait([future])
    assert isinstance(future.exception(), SystemExit)
    threads.close()


class Large:
    """What a body was called with."""


async def test_an_idle_thread_keeps_nothing_of_its_last_body() -> None:
    threads = Threads("t-idle")
    given = Large()
    kept = weakref.ref(given)
    assert await threads.run(partial(isinstance, given, Large))
    del given
    await until(lambda: kept() is None, 5, message="what the last body was called with is still there")
    assert len(named("t-idle")) == 1
    threads.close()


async def test_a_body_sees_a_copy_of_its_callers_context() -> None:
    threads = Threads("t-context")
    NAME.set("ann")

    def change() -> str:
        before = NAME.get()
        NAME.set("bob")
        return before

    assert [await threads.run(change) for _ in range(2)] == ["ann", "ann"]
    assert NAME.get() == "ann"
    threads.close()


async def test_an_idle_thread_is_used_again_and_busy_ones_are_not_waited_for() -> None:
    threads = Threads("t-reuse")
    for _ in range(20):
        await threads.run(lambda: None)
        await until(lambda: threads._idle == threads._count, every=0.001)
    assert threads._count == 1
    gate = threading.Event()
    waiting = [threads.run(gate.wait) for _ in range(5)]
    await until(lambda: len(named("t-reuse")) == 5)
    assert all(thread.daemon for thread in named("t-reuse"))
    gate.set()
    await asyncio.gather(*waiting)
    threads.close()
    await until(lambda: not named("t-reuse"))


async def test_many_at_once_all_run() -> None:
    threads = Threads("t-many")
    barrier = threading.Barrier(30)  # passes only if thirty run side by side
    assert len(await asyncio.wait_for(asyncio.gather(*(threads.run(barrier.wait) for _ in range(30))), 20)) == 30
    threads.close()


async def test_a_cancelled_answer_is_dropped_and_the_body_ends_by_itself() -> None:
    threads = Threads("t-cancel")
    gate = threading.Event()
    future = threads.run(gate.wait)
    future.cancel()
    gate.set()
    assert await threads.run(lambda: "next") == "next"
    threads.close()


def test_a_body_may_outlive_its_loop() -> None:
    threads = Threads("t-outlive")
    gate = threading.Event()
    ended: list[str] = []
    waiting: list[asyncio.Future[Any]] = []

    def work() -> None:
        gate.wait(20)
        ended.append("ended")

    async def start() -> None:
        waiting.append(threads.run(work))

    asyncio.run(start())
    gate.set()
    threads.close()
    for thread in named("t-outlive"):
        thread.join(10)
    assert ended == ["ended"]


@pytest.mark.proves("promise-18")
async def test_bodies_one_after_the_other_share_one_thread() -> None:
    threads = Threads("test")
    try:
        used = {await threads.run(threading.get_ident) for _ in range(2_000)}
        assert len(used) == 1
    finally:
        threads.close()
