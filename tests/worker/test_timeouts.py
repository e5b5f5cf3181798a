"""A handler's time limit: what it ends, what it cannot end, and what that costs."""

import asyncio
import threading
from typing import Any

import pytest

from stepwell import Retry, Store, Worker, handler
from stepwell.base.clock import TestClock
from tests.ground.waiting import until


async def test_an_async_body_beyond_its_time_is_cancelled_and_tried_again(store: Store, clock: TestClock) -> None:
    ended: list[str] = []

    @handler("mail", timeout=0.05, retry=2)
    async def slow(number: int) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    message = await store.enqueue(slow, 1)
    worker = Worker(store, [slow])
    assert await worker.drain() == 1
    task = await store.get(message)
    assert task is not None
    assert (task.status, task.attempt) == ("PENDING", 1)
    assert task.last_error == "Timeout: the handler of mail ran longer than 0.05 s"
    clock.advance("1m")
    assert await worker.drain() == 1
    assert ended == ["cancelled"] * 2
    [letter] = await store.dead_letters(error="Timeout")
    assert letter.id == message


async def test_a_timeout_of_the_bodys_own_is_its_own(store: Store) -> None:
    @handler("mail", timeout=60)
    async def own(number: int) -> None:
        async with asyncio.timeout(0.001):
            await asyncio.sleep(60)

    @handler("raised", timeout=60)
    async def raised(number: int) -> None:
        raise TimeoutError("the printer")

    ids = [await store.enqueue(own, 1), await store.enqueue(raised, 1)]
    await Worker(store, [own, raised]).drain()
    tasks = [await store.get(each) for each in ids]
    assert [task.last_error for task in tasks if task] == ["TimeoutError", "TimeoutError: the printer"]


async def test_a_body_that_swallows_its_timeout_and_returns_has_succeeded(store: Store) -> None:
    @handler("mail", timeout=0.02)
    async def stubborn(number: int) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)

    message = await store.enqueue(stubborn, 1)
    await asyncio.wait_for(Worker(store, [stubborn]).drain(), 10)
    task = await store.get(message)
    assert task is not None
    assert (task.status, task.attempt) == ("SUCCESS", 1)


async def test_a_sync_body_beyond_its_time_keeps_its_place_until_its_thread_ends(live_store: Store) -> None:
    """A thread cannot be stopped: the message is tried again, but not in a place that is still taken."""
    gates: dict[int, threading.Event] = {number: threading.Event() for number in range(4)}
    running: set[int] = set()
    finished: list[int] = []

    @handler("mail", timeout=0.05, retry=Retry(1))
    def slow(number: int) -> None:
        running.add(number)
        gates[number].wait(30)
        finished.append(number)
        running.discard(number)

    @handler("other")
    async def other(number: int) -> None:
        finished.append(number)

    async with Worker(live_store, [slow, other], concurrency=2, grace=0):
        await live_store.enqueue_many(slow, [0, 1])
        await until(lambda: running == {0, 1})
        await until(lambda: _count(live_store.dead_letters(error="Timeout"), 2))
        waiting = await live_store.enqueue(other, 100)
        await asyncio.sleep(0.1)
        task = await live_store.get(waiting)
        assert task is not None
        assert (task.status, task.attempt) == ("PENDING", 0)  # both places are taken by threads that are late
        gates[0].set()
        await until(lambda: finished == [0, 100])
        gates[1].set()
        await until(lambda: 1 in finished)
    assert [letter.attempt for letter in await live_store.dead_letters()] == [1, 1]  # what came late changed nothing


async def _count(letters: Any, wanted: int) -> bool:
    return len(await letters) == wanted


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_a_body_within_its_time_is_left_alone(store: Store, colour: str) -> None:
    @handler("async", timeout=30)
    async def quick(number: int) -> None: ...

    @handler("sync", timeout=30)
    def quick_too(number: int) -> None: ...

    one = quick if colour == "async" else quick_too
    message = await store.enqueue(one, 1)
    await Worker(store, [one]).drain()
    task = await store.get(message)
    assert task is not None
    assert task.status == "SUCCESS"
