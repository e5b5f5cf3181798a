"""What a handler knows of its message, and how a message is cancelled, also while it is handled."""

import asyncio
import threading
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

import stepwell.sync
from stepwell import CancelAnswer, NotInRun, RunNotFound, Store, Worker, connect, current, handler, workflow
from stepwell.base.clock import TestClock
from tests.ground.waiting import until


@pytest.mark.proves("messages-01")
async def test_a_handler_knows_its_message_and_says_how_far_it_is(store: Store, clock: TestClock) -> None:
    told: list[Any] = []

    def note(context: Any) -> None:
        told.append((context.id, context.message_key, context.key, context.attempt, context.is_cancelled()))
        context.progress({"pages": context.attempt})
        assert 0 <= context.random() < 1
        assert context.uuid() != context.uuid()
        assert context.now() is not None

    @handler("mail", retry=2)
    async def on_loop(number: int) -> None:
        note(current())
        assert await current().heartbeat()
        if current().attempt == 1:
            raise ValueError

    @handler("print")
    def in_thread(number: int) -> None:
        note(stepwell.sync.current())
        assert stepwell.sync.current().heartbeat()
        note(current())

    ids = [await store.enqueue(on_loop, 1, key="one", tags=["a", "b"]), await store.enqueue(in_thread, 2)]
    worker = Worker(store, [on_loop, in_thread])
    await worker.drain()
    clock.advance("1m")
    await worker.drain()
    tasks = [await store.get(each) for each in ids]
    assert [(task.progress, task.tags) for task in tasks if task] == [({"pages": 2}, ("a", "b")), ({"pages": 1}, ())]
    of_mail = sorted(each for each in told if each[0] == ids[0])
    assert [each[3:] for each in of_mail] == [(1, False), (2, False)]
    assert {each[1] for each in of_mail} == {"one"}
    assert len({each[2] for each in of_mail}) == 1, "the same key in every attempt"
    assert len({each[2] for each in told}) == 2, "and another for each message"


@pytest.mark.proves("messages-01")
async def test_what_only_a_run_can_do_is_refused_in_a_handler(store: Store) -> None:
    refused: list[str] = []

    def ask(call: Any) -> None:
        with pytest.raises(NotInRun) as caught:
            call()
        refused.append(str(caught.value))

    @handler("mail")
    async def mail(number: int) -> None:
        ask(lambda: current().step)
        with pytest.raises(AttributeError):
            _ = current().nonsense  # type: ignore[attr-defined]

    @handler("many", batch=2)
    async def many(numbers: list[int]) -> None:
        ask(current)

    @workflow
    async def nothing() -> None: ...

    @handler("asks")
    async def asks(number: int) -> None:
        with pytest.raises(NotInRun):
            await nothing.trigger().execute()

    message = await store.enqueue(mail, 1)
    await store.enqueue_many(many, [1, 2])
    await store.enqueue(asks, 1)
    await Worker(store, [mail, many, asks]).drain()
    assert await store.dead_letters() == []
    assert sorted(refused) == [
        "a batch of messages is handled here: what `current()` tells is of one message",
        f"message {message} is handled here, and `step` needs a run: trigger a workflow for it",
    ]


@pytest.mark.proves("messages-02")
async def test_a_message_that_waits_is_cancelled_at_once(store: Store, clock: TestClock) -> None:
    handled: list[int] = []

    @handler("mail")
    async def mail(number: int) -> None:
        handled.append(number)

    ready, scheduled = await store.enqueue(mail, 1, key="one"), await store.enqueue(mail, 2, delay="1h")
    assert await store.cancel(ready, reason="not needed") is CancelAnswer.CANCELLED
    assert await store.cancel(scheduled) is CancelAnswer.CANCELLED
    assert not await store.cancel(ready)
    done = await store.enqueue(mail, 3)
    [by_hand] = await store.dequeue("mail", 1)
    assert await store.cancel(by_hand.id) is CancelAnswer.CANCELLED
    assert not await by_hand.archive(), "the consumer does not hold it any more"
    assert done == by_hand.id
    clock.advance("2h")
    assert await Worker(store, [mail]).drain() == 0
    assert handled == []
    assert await store.counts("mail") == {"CANCELLED": 3}
    task = await store.get(ready)
    assert task is not None
    assert task.last_error == "cancelled: not needed"
    assert [note.what for note in await store.history(ready)][-1] == "cancelled"
    with pytest.raises(RunNotFound):
        await store.cancel(10**9)


@pytest.mark.proves("messages-02")
async def test_a_message_is_cancelled_while_it_is_handled(live_store: Store, store_url: str) -> None:
    """By another process, too: another store, where the database can have two."""
    store, begun, ended = live_store, threading.Event(), dict[str, Any]()
    leave = threading.Event()

    @handler("mail")
    async def on_loop(number: int) -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended["loop"] = current().is_cancelled()

    @handler("print")
    def in_thread(number: int) -> None:
        context = stepwell.sync.current()
        begun.set()
        while not context.is_cancelled() and not leave.wait(0.01):
            pass
        ended["thread"] = context.is_cancelled()

    try:
        async with AsyncExitStack() as stack:
            alone = store_url.startswith("turso")
            other = store if alone else await stack.enter_async_context(connect(store_url))
            await stack.enter_async_context(Worker(store, [on_loop, in_thread], grace=1))
            for canceller, queue in ((store, on_loop), (other, on_loop), (other, in_thread)):
                begun.clear()
                message = await store.enqueue(queue, 1)
                await until(begun.is_set)
                assert await canceller.cancel(message) is CancelAnswer.REQUESTED
                await until(partial(_status, store, message, "CANCELLED"))
            await until(lambda: len(ended) == 2)
    finally:
        leave.set()
    assert ended == {"loop": True, "thread": True}


async def _status(store: Store, task_id: int, status: str) -> bool:
    task = await store.get(task_id)
    return task is not None and task.status == status


@pytest.mark.proves("messages-02")
async def test_a_batch_goes_on_and_only_the_cancelled_one_of_it_is_cancelled(live_store: Store) -> None:
    store, begun, leave = live_store, asyncio.Event(), asyncio.Event()
    handled: list[list[int]] = []

    @handler("mail", batch=3)
    async def many(numbers: list[int]) -> None:
        begun.set()
        await leave.wait()
        handled.append(sorted(numbers))

    ids = await store.enqueue_many(many, [1, 2, 3])
    async with Worker(store, [many]):
        await until(begun.is_set)
        assert await store.cancel(ids[0]) is CancelAnswer.REQUESTED
        leave.set()
        await until(lambda: _status(store, ids[2], "SUCCESS"))
    assert await store.counts("mail") == {"SUCCESS": 2, "CANCELLED": 1}
    assert handled == [[1, 2, 3]]
