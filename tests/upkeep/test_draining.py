"""Draining a queue: nothing new comes in, what is there is worked off, and the end is told."""

import asyncio
import sqlite3
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from stepwell import QueueDraining, QueueNotFound, Store, StoreUnavailable, Worker, connect, handler, sync
from stepwell.base.clock import TestClock
from stepwell.store.driver import Call
from tests.ground.waiting import until
from tests.queue.raw import ask
from tests.store.seam import begin, do, one, watched
from tests.upkeep.rows import count, put


@handler("mail")
async def send(payload: Any) -> None:
    if payload == "bad":
        raise ValueError("no")


@pytest.mark.proves("DP-09")
async def test_a_queue_that_is_drained_takes_nothing_new_whoever_asks(
    store: Store, store_url: str, clock: TestClock
) -> None:
    async with connect(store_url, clock=clock) as other:
        kept = await other.enqueue(send, "kept", key="k")  # the other one knows the queue's number now
        assert await store.drain_queue("mail") == 1
        attempts: list[Any] = [
            lambda: other.enqueue("mail", 1),
            lambda: other.enqueue(send, 1),
            lambda: other.enqueue("mail", 1, key="new"),
            lambda: other.enqueue("mail", 1, delay="1h"),
            lambda: other.enqueue_many("mail", range(3)),
            lambda: other.enqueue_many(send, range(2), keys=["new", "newer"]),
        ]
        for attempt in attempts:
            with pytest.raises(QueueDraining, match="reopen_queue") as refused:
                await attempt()
            assert refused.value.name == "mail"
        assert await count(store, "task") == 1
        again = await other.enqueue(send, "kept", key="k")  # nothing new
        assert (again, again.created) == (kept, False)
        [queue] = await store.queues()
        assert (queue.name, queue.draining, queue.paused) == ("mail", True, False)
        assert await ask(store, "select queue, draining from {queue_counts} where draining") == [("mail", True)]
        await store.create_queue("mail")
        with pytest.raises(QueueDraining):
            await other.enqueue("mail", 1)
        await store.reopen_queue("mail")
        assert (await other.enqueue("mail", 1)).created
        assert not (await store.queues())[0].draining
    for verb in (store.drain_queue, store.reopen_queue):
        with pytest.raises(QueueNotFound):
            await verb("mial")


async def test_of_several_messages_all_or_none_are_taken(store: Store) -> None:
    await store.enqueue(send, "kept", key="k")
    await store.drain_queue("mail")
    with pytest.raises(QueueDraining):
        await store.enqueue_many(send, ["kept", "new"], keys=["k", "new"])
    assert await count(store, "task") == 1
    [task_id] = await store.enqueue_many(send, ["kept"], keys=["k"])
    assert not task_id.created


@pytest.mark.proves("DP-09")
@pytest.mark.backends("postgres", reason="an asyncpg connection joins there only")
async def test_a_joined_message_is_refused_and_one_under_way_is_waited_for(
    store: Store, store_url: str, backend: str
) -> None:
    await store.create_queue("mail")
    connection = await asyncpg.connect(store_url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await store.enqueue("mail", "under way", tx=connection)
        assert await store.drain_queue("mail") == 1  # not 0: it may yet commit
        await transaction.commit()
        assert await store.drain_queue("mail") == 1
        async with connection.transaction():
            with pytest.raises(QueueDraining):
                await store.enqueue("mail", "late", tx=connection)
        await Worker(store, [send]).drain()
        assert await store.drain_queue("mail") == 0
        assert await count(store, "task") == 1
    finally:
        await connection.close()


@pytest.mark.backends("sqlite", reason="a sqlite3 connection joins there only")
def test_a_message_joined_through_the_sync_face_is_refused(store_url: str, backend: str) -> None:
    with sync.connect(store_url) as store:
        store.create_queue("mail")
        assert store.drain_queue("mail") == 0
        own = sqlite3.connect(store_url.removeprefix("sqlite:///"))
        with own, pytest.raises(QueueDraining):
            store.enqueue("mail", 1, tx=own)
        own.close()
        assert store.counts("mail") == {}


@pytest.mark.proves("DP-09", "VR-03")
async def test_what_is_there_is_worked_off_retries_and_requeues_included(store: Store, clock: TestClock) -> None:
    await store.enqueue(send, "good")
    await store.enqueue(send, "bad")
    await store.enqueue(send, "later", delay="1d")
    assert await store.drain_queue("mail") == 3
    worker = Worker(store, [send])
    assert await worker.drain() == 2
    assert await store.drain_queue("mail") == 2
    for _ in range(3):
        clock.advance("10m")
        await worker.drain()
    assert await store.drain_queue("mail") == 1
    assert await store.requeue(queue="mail") == 1
    assert await store.drain_queue("mail") == 2
    for _ in range(4):
        clock.advance("1d")
        await worker.drain()
    assert await store.drain_queue("mail") == 0
    assert await store.counts("mail") == {"SUCCESS": 2, "ERROR": 1}


async def test_whatever_is_not_finished_counts(store: Store) -> None:
    worker = await begin(store)
    running = await one(store, worker, "q")
    await store.enqueue("q", "by hand")
    await store.dequeue("q")
    await put(store, [1001], status="PAUSED")
    await put(store, [1002], status="PENDING", run_at=None)
    await put(store, [1003], deleted_at=1)
    await put(store, [1004], queue="other", ready=True)
    assert await store.drain_queue("q") == 4
    await store.delete(running.id)
    assert await store.drain_queue("q") == 4  # it is deleted, and still being executed


async def test_draining_can_be_waited_for(live_store: Store) -> None:
    release = asyncio.Event()

    @handler("slow")
    async def slow(payload: int) -> None:
        await release.wait()

    await live_store.enqueue(slow, 1)
    async with Worker(live_store, [slow]):
        assert await live_store.drain_queue("slow", wait="50ms") == 1
        waiting = asyncio.create_task(live_store.drain_queue("slow", wait="30s"))
        await asyncio.sleep(0)
        release.set()
        assert await waiting == 0


@pytest.mark.proves("VR-03")
async def test_a_queue_reopened_by_others_is_never_called_drained(live_store: Store, store_url: str) -> None:
    await live_store.create_queue("mail")
    await live_store.enqueue("mail", 1)
    async with connect(store_url) as other:
        waiting = asyncio.create_task(live_store.drain_queue("mail", wait="500ms"))
        await until(lambda: _is_draining(other))
        await other.reopen_queue("mail")
        [message] = await other.dequeue("mail")
        assert await message.delete()
        assert await waiting == 1
        assert (await other.enqueue("mail", 2)).created


async def _is_draining(store: Store) -> bool:
    return (await store.queues())[0].draining


async def test_a_message_whose_reply_was_lost_before_the_draining_is_found(store: Store) -> None:
    await store.create_queue("mail")
    over, driver = watched(store)

    async def lose(calls: Sequence[Call]) -> None:
        if calls and calls[0].statement == "add_tasks":
            await do(store, "update {queue} set draining = true")
            raise StoreUnavailable("the reply was lost")

    driver.after = lose
    task_id = await over.enqueue("mail", 1)
    driver.after = None
    assert task_id.created
    assert await count(store, "task") == 1
    with pytest.raises(QueueDraining):
        await over.enqueue("mail", 2)
    await over.database.flusher.close()


async def test_a_queue_deleted_while_it_is_drained_is_not_found(store: Store, store_url: str, clock: TestClock) -> None:
    async with connect(store_url, clock=clock) as other:
        await other.create_queue("mail")
        assert await store.drain_queue("mail") == 0
        await store.delete_queue("mail")
        for attempt in (other.enqueue("mail", 1), other.enqueue_many("mail", [1, 2])):
            with pytest.raises(QueueNotFound):
                await attempt
        assert (await other.enqueue(send, 1)).created  # a handler makes its queue anew
