"""Stopping: nothing new is taken, what runs may finish within the grace, the rest is somebody else's at once."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from stepwell import Store, Worker, connect, handler
from stepwell.store.rows import Claimed
from tests.ground.waiting import until


@pytest.fixture
def handlers() -> Iterator[None]:
    """Whatever a test does to the process's signals is undone."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handled in before.items():
        signal.signal(number, handled)


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_what_runs_may_finish_and_nothing_new_is_taken(live_store: Store, colour: str) -> None:
    started, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    @handler("async")
    async def wait(name: str) -> None:
        started.set()
        await until(go_on.is_set, timeout=30, every=0.005)
        done.append(name)

    @handler("sync")
    def wait_too(name: str) -> None:
        started.set()
        go_on.wait(20)
        done.append(name)

    one = wait if colour == "async" else wait_too
    worker = Worker(live_store, [one], concurrency=1, grace=20)
    running = asyncio.create_task(worker.poll_forever())
    first = await live_store.enqueue(one, "first")
    await until(started.is_set)
    second = await live_store.enqueue(one, "second")
    worker.stop()
    await asyncio.sleep(0.05)
    assert not running.done()
    [session] = await live_store.workers()
    assert session.alive  # it beats while its bodies finish
    go_on.set()
    await asyncio.wait_for(running, 10)
    tasks = [await live_store.get(each) for each in (first, second)]
    assert [(task.status, task.attempt, task.ready) for task in tasks if task] == [
        ("SUCCESS", 1, False),
        ("PENDING", 0, True),
    ]
    assert done == ["first"]
    [session] = await live_store.workers()
    assert (session.alive, session.stop_reason) == (False, "stopped")


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_beyond_the_grace_it_is_released_with_its_attempt(live_store: Store, colour: str) -> None:
    started, end = threading.Event(), threading.Event()
    cancelled: list[str] = []

    @handler("async", retry=1)
    async def wait(name: str) -> None:
        started.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(name)
            raise

    @handler("sync", retry=1)
    def wait_too(name: str) -> None:
        started.set()
        end.wait(20)

    one = wait if colour == "async" else wait_too
    async with Worker(live_store, [one], grace=0.05):
        message = await live_store.enqueue(one, "first")
        await until(started.is_set)
    assert cancelled == (["first"] if colour == "async" else [])
    task = await live_store.get(message)
    assert task is not None
    assert (task.status, task.ready, task.owner, task.attempt, task.last_error) == ("PENDING", True, None, 0, None)
    assert task.turn == 1
    started.clear()
    async with Worker(live_store, [one], grace=0):  # another takes it at once
        await until(started.is_set, timeout=5)
    end.set()


@pytest.mark.proves("W-13", "CF-05")
async def test_at_the_stop_the_quick_finish_the_slow_are_released_and_the_rest_is_not_touched(
    live_store: Store,
) -> None:
    started: list[str] = []
    stopping = asyncio.Event()

    @handler("mail", retry=1)
    async def work(how: str) -> None:
        started.append(how)
        await stopping.wait()
        await asyncio.sleep(0.02 if how == "quick" else 3600)

    worker = Worker(live_store, [work], concurrency=2, grace=1)
    running = asyncio.create_task(worker.run())
    ids = [await live_store.enqueue(work, how) for how in ("quick", "slow")]
    await until(lambda: len(started) == 2)
    ids.append(await live_store.enqueue(work, "rest"))
    worker.stop()
    stopping.set()
    await asyncio.wait_for(running, 20)
    tasks = [await live_store.get(each) for each in ids]
    assert [(task.status, task.ready, task.attempt, task.turn, task.last_error) for task in tasks if task] == [
        ("SUCCESS", False, 1, 1, None),
        ("PENDING", True, 0, 1, None),
        ("PENDING", True, 0, 0, None),
    ]
    assert len(started) == 2
    async with Worker(live_store, [work], grace=0):
        await until(lambda: sorted(started[2:]) == ["rest", "slow"], timeout=5)  # another claims it at once


async def test_a_claim_that_is_under_way_when_the_worker_stops_is_not_lost(
    live_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks are this session's in the database: cut off, they would have used up their only attempt."""
    executed: list[int] = []
    taken, answer = asyncio.Event(), asyncio.Event()
    real = live_store.database.tasks.claim

    async def claim(worker: int, queues: Sequence[tuple[int, int]], limit: int, **options: Any) -> list[Claimed]:
        claimed = await real(worker, queues, limit, **options)
        if claimed:
            taken.set()
            await answer.wait()
        return claimed

    monkeypatch.setattr(live_store.database.tasks, "claim", claim)

    @handler("mail", retry=1)
    async def send(number: int) -> None:
        executed.append(number)

    await live_store.enqueue_many(send, [1, 2])
    async with Worker(live_store, [send]):
        await asyncio.wait_for(taken.wait(), 10)
        asyncio.get_running_loop().call_later(0.1, answer.set)
    assert executed == [1, 2]
    assert await live_store.counts("mail") == {"SUCCESS": 2}


async def test_a_turn_given_up_before_it_began_is_released_too(
    live_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker: Worker
    executed: list[int] = []
    real = live_store.database.tasks.claim

    async def claim(worker_id: int, queues: Sequence[tuple[int, int]], limit: int, **options: Any) -> list[Claimed]:
        claimed = await real(worker_id, queues, limit, **options)
        if claimed:  # the second signal comes in right after the claim: before the first step of any body
            asyncio.get_running_loop().call_soon(worker.stop)
        return claimed

    monkeypatch.setattr(live_store.database.tasks, "claim", claim)

    @handler("mail", retry=1)
    async def send(number: int) -> None:
        executed.append(number)

    message = await live_store.enqueue(send, 1)
    worker = Worker(live_store, [send])
    worker.stop()
    async with worker:
        await until(lambda: worker._runtime._hurried)
    task = await live_store.get(message)
    assert task is not None
    assert executed == []
    assert (task.status, task.ready, task.attempt, task.last_error) == ("PENDING", True, 0, None)


async def test_a_body_that_swallows_its_cancellation_and_returns_has_succeeded(live_store: Store) -> None:
    started = asyncio.Event()

    @handler("mail")
    async def stubborn(number: int) -> None:
        started.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)

    async with Worker(live_store, [stubborn], grace=0):
        message = await live_store.enqueue(stubborn, 1)
        await asyncio.wait_for(started.wait(), 10)
    task = await live_store.get(message)
    assert task is not None
    assert (task.status, task.attempt) == ("SUCCESS", 1)


async def test_a_body_that_swallows_every_cancellation_cannot_keep_the_worker(store_url: str) -> None:
    started = asyncio.Event()
    end = asyncio.Event()

    @handler("mail")
    async def stubborn(number: int) -> None:
        started.set()
        while not end.is_set():
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    async with connect(store_url, timeout=0.5) as store:
        worker = Worker(store, [stubborn], grace=0)
        await worker.__aenter__()
        message = await store.enqueue(stubborn, 1)
        await asyncio.wait_for(started.wait(), 10)
        leaving = asyncio.create_task(worker.__aexit__(None, None, None))
        done, _ = await asyncio.wait([leaving], timeout=10)
        end.set()
        left = [task for task in asyncio.all_tasks() if "_execute" in repr(task.get_coro())]
        for task in left:
            task.cancel()
        await asyncio.wait([leaving, *left], timeout=10)
        assert done, "the worker waited for a body that never ends"
        found = await store.get(message)
        assert found is not None
        assert (found.status, found.owner) == ("PENDING", None)


async def test_a_second_stop_does_not_wait(live_store: Store) -> None:
    started = asyncio.Event()

    @handler("mail")
    async def wait(number: int) -> None:
        started.set()
        await asyncio.sleep(3600)

    worker = Worker(live_store, [wait], grace=3600)
    running = asyncio.create_task(worker.run())
    message = await live_store.enqueue(wait, 1)
    await asyncio.wait_for(started.wait(), 10)
    worker.stop()
    await asyncio.sleep(0.02)
    assert not running.done()
    worker.stop()
    await asyncio.wait_for(running, 10)
    task = await live_store.get(message)
    assert task is not None
    assert (task.status, task.ready, task.attempt) == ("PENDING", True, 0)


@pytest.mark.proves("W-13")
async def test_a_stop_that_is_cut_off_leaves_nothing_at_work(live_store: Store) -> None:
    """Its tasks are given back, and no session goes on beating for bodies that nobody waits for."""
    at_work = asyncio.Event()
    ended: list[str] = []

    @handler("mail")
    async def stands(name: str) -> None:
        at_work.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    task_id = await live_store.enqueue(stands, "x")
    running = asyncio.create_task(Worker(live_store, [stands], grace=60).run())
    await at_work.wait()
    heartbeat = live_store.database.heartbeat
    while not running.done():  # the first ends `run`, another cuts off the stop that waits for the body
        running.cancel()
        await asyncio.wait([running], timeout=0.05)
    await until(lambda: ended == ["x"])

    async def is_back() -> bool:
        task = await live_store.get(task_id)
        return task is not None and task.status == "PENDING"

    await until(is_back)
    await asyncio.wait_for(heartbeat.left(), 10)
    assert not heartbeat._last.is_alive()


async def test_a_store_that_is_closed_under_its_worker_beats_for_nobody(store_url: str) -> None:
    @handler("mail")
    async def send(name: str) -> None: ...

    async with connect(store_url) as store:
        worker = Worker(store, [send])
        await worker.__aenter__()
        heartbeat = store.database.heartbeat
        assert heartbeat._last.is_alive()
    assert not heartbeat._last.is_alive()
    await worker.__aexit__(None, None, None)


async def test_run_ends_with_its_shutdown(live_store: Store) -> None:
    done: list[int] = []
    shutdown = asyncio.Event()

    @handler("mail")
    async def send(number: int) -> None:
        done.append(number)
        shutdown.set()

    await live_store.enqueue(send, 1)
    await asyncio.wait_for(Worker(live_store, [send]).run(shutdown=shutdown.wait()), 10)
    assert done == [1]
    [session] = await live_store.workers()
    assert not session.alive


@pytest.mark.backends("sqlite", reason="signals know no database")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals_stop_a_worker_that_asked_for_them_and_are_given_back(
    live_store: Store, number: signal.Signals, handlers: None
) -> None:
    heard: list[int] = []
    signal.signal(signal.SIGTERM, lambda got, _: heard.append(got))
    own = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}

    @handler("mail")
    async def send(payload: int) -> None: ...

    worker = Worker(live_store, [send])
    running = asyncio.create_task(worker.run(signals=True))
    await until(lambda: signal.getsignal(number) is not own[number])
    os.kill(os.getpid(), number)
    await asyncio.wait_for(running, 10)
    assert {each: signal.getsignal(each) for each in own} == own
    assert heard == []
    os.kill(os.getpid(), signal.SIGTERM)
    await until(lambda: heard == [signal.SIGTERM])


@pytest.mark.backends("sqlite", reason="signals know no database")
async def test_without_asking_a_worker_takes_no_signal(live_store: Store, handlers: None) -> None:
    own = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}

    @handler("mail")
    async def send(payload: int) -> None: ...

    async with Worker(live_store, [send]):
        assert {each: signal.getsignal(each) for each in own} == own
    worker = Worker(live_store, [send])
    running = asyncio.create_task(worker.run())
    await until(lambda: worker._started)
    assert {each: signal.getsignal(each) for each in own} == own
    worker.stop()
    await running


async def test_a_sync_body_that_never_ends_keeps_neither_the_worker_nor_its_threads_waited_for(
    live_store: Store,
) -> None:
    started, end = threading.Event(), threading.Event()

    @handler("mail")
    def hang(payload: int) -> None:
        started.set()
        end.wait(30)

    before = time.monotonic()
    async with Worker(live_store, [hang], grace=0, name="hangs"):
        await live_store.enqueue(hang, 1)
        await until(started.is_set)
    assert time.monotonic() - before < 10
    hanging: list[Any] = [thread for thread in threading.enumerate() if thread.name.startswith("stepwell-hangs")]
    assert [thread.daemon for thread in hanging] == [True]
    end.set()
    await until(lambda: not any(thread.is_alive() for thread in hanging))
