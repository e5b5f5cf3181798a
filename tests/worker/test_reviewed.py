"""What a review found wrong once, so that it stays right."""

import asyncio
import gc
import os
import sqlite3
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

import stepwell
from stepwell import InvalidOption, Message, Store, StoreBusy, StoreClosed, Worker, connect, handler
from stepwell.base.clock import TestClock
from stepwell.records import RunStatus, TaskKind
from stepwell.store.driver import Call
from stepwell.store.rows import NewTask, Settlement
from stepwell.store.sessions import Identity
from tests.ground.waiting import until
from tests.queue.raw import ask


@handler("mail")
async def mail(number: int) -> None:
    """Do nothing."""


async def test_a_worker_whose_store_is_closed_begins_nothing_more(store_url: str, backend: str) -> None:
    executed: list[int] = []

    @handler("mail")
    async def work(number: int) -> None:
        executed.append(number)

    async with connect(store_url, lease=2) as other:
        store = await connect(store_url, lease=2)
        running = asyncio.create_task(Worker(store, [work], grace=0).run())
        await other.create_queue("mail")
        await until(lambda: store.database.heartbeat is not None)
        await store.close()
        await other.enqueue_many("mail", range(5))
        deadline = time.monotonic() + 1.5  # three of the longest polls: nothing is to happen, so there is no fact
        while time.monotonic() < deadline:
            assert executed == []
            await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert await other.counts("mail") == {"PENDING": 5}


async def test_what_was_taken_by_hand_is_handed_out_whatever_becomes_of_the_sweep(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create_queue("mail")
    await store.enqueue("mail", 1, max_attempts=1)
    await store.dequeue("mail", until=0, visibility="1h")
    await store.enqueue("mail", 2, max_attempts=1)

    async def busy() -> set[int]:
        raise StoreBusy

    monkeypatch.setattr(store.database.tasks, "wake", busy)
    [message] = await store.dequeue("mail", 10)
    assert message.payload == 2


async def test_a_taker_that_leaves_gives_back_what_it_took(live_store: Store) -> None:
    await live_store.create_queue("mail")
    for number in range(10):
        await live_store.enqueue("mail", number, max_attempts=1)
        taking = asyncio.create_task(live_store.dequeue("mail", visibility="1h"))
        for _ in range(number):
            await asyncio.sleep(0)
        taking.cancel()
        taken = await asyncio.gather(taking, return_exceptions=True)
        if isinstance(taken[0], list):
            assert await taken[0][0].archive()
            continue
        await live_store.database.taken_messages.ended()
        [message] = await live_store.dequeue("mail", until=5)
        assert (message.payload, message.attempt) == (number, 1)
        assert await message.archive()


@pytest.mark.proves("Q-22")
async def test_two_consumers_never_see_a_message_twice(store: Store, clock: TestClock) -> None:
    """One takes all and comes to the last when they are visible again, unless it has given them back meanwhile."""
    await store.create_queue("mail")
    await store.enqueue_many("mail", range(8))
    seen: list[int] = []

    async def consume() -> None:
        async with store.consume("mail", limit=8, visibility="200ms") as messages:
            async for message in messages:
                seen.append(message.payload)
                await asyncio.sleep(0.11)  # by the loop's clock, longer than the others are kept here
                clock.advance("40ms")  # by the store's, which no busy machine can hurry
                assert await message.archive()

    consumers = [asyncio.create_task(consume()) for _ in range(2)]
    await until(lambda: _all_archived(store, 8), timeout=20)
    for consumer in consumers:
        consumer.cancel()
    await asyncio.gather(*consumers, return_exceptions=True)
    assert sorted(seen) == list(range(8))


async def _all_archived(store: Store, count: int) -> bool:
    return await store.counts("mail") == {"SUCCESS": count}


@pytest.mark.backends("sqlite", reason="the only one with a log that is folded by hand")
async def test_a_reader_in_the_way_of_the_log_delays_no_writer(store_url: str, backend: str) -> None:
    path = store_url.removeprefix("sqlite:///")
    log = Path(f"{path}-wal")
    async with connect(store_url, timeout=30) as store:
        await store.create_queue("mail")
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("begin")
        reader.execute("select count(*) from stepwell_task").fetchone()
        began = time.monotonic()
        for _ in range(10):
            await store.enqueue("mail", "x" * 900_000)
        assert log.stat().st_size > 8 * 1024 * 1024, "the log was never to be folded: void"  # noqa: ASYNC240
        assert time.monotonic() - began < 30, "it waited for the reader as long as it may"
        reader.execute("rollback")
        reader.close()
        for _ in range(6):
            await store.enqueue("mail", "x" * 900_000)
        assert log.stat().st_size < 8 * 1024 * 1024  # noqa: ASYNC240


@pytest.mark.backends("sqlite", reason="files and links are its own")
async def test_a_link_to_the_file_is_the_file(tmp_path: Path, backend: str) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "store.db")
    async with connect(f"sqlite:///{tmp_path}/link.db") as store:
        await store.create_queue("mail")
        for _ in range(8):
            await store.enqueue("mail", "x" * 900_000)
        assert (tmp_path / "real" / "store.db-wal").stat().st_size < 8 * 1024 * 1024
        async with Worker(store, [mail]):
            assert list((tmp_path / "real" / "store.db-stepwell").glob("worker-*.lock"))
    assert not (tmp_path / "link.db-stepwell").exists()


async def test_a_queue_made_anew_is_served_by_a_worker_that_knew_the_old_one(store_url: str, backend: str) -> None:
    async with connect(store_url) as store, connect(store_url) as other:
        await store.enqueue(mail, 1)
        await other.purge("mail")
        await other.delete_queue("mail")
        await other.create_queue("mail")
        await other.enqueue("mail", 2)
        assert await Worker(store, [mail]).drain() == 1
        await other.purge("mail")
        await other.delete_queue("mail")
        await store.enqueue(mail, 3)  # a handler makes its queue again
        assert await other.counts("mail") == {"PENDING": 1}


async def test_draining_a_started_worker_ends_when_it_stops(live_store: Store) -> None:
    release = asyncio.Event()

    @handler("mail")
    async def wait(number: int) -> None:
        await release.wait()

    worker = Worker(live_store, [wait], grace=0)
    async with worker:
        await live_store.enqueue(wait, 1)
        draining = asyncio.create_task(worker.drain())
        await until(lambda: _running(live_store))
    await asyncio.wait_for(draining, 10)


async def _running(store: Store) -> bool:
    return "RUNNING" in await store.counts("mail")


async def test_a_defect_in_one_flush_does_not_stop_the_next(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.create_queue("mail")
    await store.enqueue("mail", 0)
    real = store.database.driver.run
    failed = 0

    async def broken(slot: int, calls: Any) -> Any:
        nonlocal failed
        if not failed and calls[0].statement == "add_tasks":
            failed += 1
            await asyncio.sleep(0)
            raise ZeroDivisionError
        return await real(slot, calls)

    monkeypatch.setattr(store.database.driver, "run", broken)
    first = asyncio.create_task(store.enqueue("mail", 1))
    await until(lambda: failed)
    second = asyncio.create_task(store.enqueue("mail", 2))
    with pytest.raises(ZeroDivisionError):
        await first
    assert await asyncio.wait_for(second, 10)


async def test_a_cancellation_that_comes_with_a_hint_is_not_swallowed(live_store: Store) -> None:
    await live_store.create_queue("mail")
    queue_id = await live_store.database.queue_id("mail")
    for _ in range(20):
        waiting = asyncio.create_task(live_store.dequeue("mail", until=None))
        await asyncio.sleep(0.05)  # until it rests
        live_store.database.wakeups.hint({queue_id})
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(waiting, 10)


async def test_a_taker_by_hand_finds_what_a_dead_worker_left(store: Store, clock: TestClock) -> None:
    await store.create_queue("mail")
    message = await store.enqueue("mail", 1)
    worker = await store.database.sessions.begin(_identity(), 30_000_000)
    assert len(await store.database.tasks.claim(worker, [(await store.database.queue_id("mail"), 1)], 1)) == 1
    await store.database.sessions.end(worker, "lost")
    [taken] = await store.dequeue("mail", until=5)
    assert (taken.id, taken.attempt) == (message, 2)


def _identity() -> Identity:
    return Identity("crew", "ship", os.getpid(), None, "0", ["mail"])


async def test_a_closed_store_is_forgotten(store_url: str, backend: str) -> None:
    store = await connect(store_url)
    async with Worker(store, [mail]):
        pass
    await store.close()
    gone = weakref.ref(store)
    del store
    for _ in range(3):
        gc.collect()
        await asyncio.sleep(0)
    assert gone() is None


async def test_archived_by_hand_and_settled_by_a_worker_in_one_flush(store: Store) -> None:
    await store.enqueue_many(mail, range(40))
    taken: list[Message[Any]] = await store.dequeue("mail", 20)
    worker = await store.database.sessions.begin(_identity(), 30_000_000)
    claimed = await store.database.tasks.claim(worker, [(await store.database.queue_id("mail"), 20)], 20)
    done = Settlement(RunStatus.SUCCESS)
    await asyncio.gather(
        *(message.archive() for message in taken),
        *(store.database.tasks.settle(task.id, worker, task.turn, done) for task in claimed),
    )
    assert await store.counts("mail") == {"SUCCESS": 40}
    assert await ask(store, "select sum(succeeded) from {rollup}") == [(40,)]


async def test_a_tenant_sees_and_changes_nothing_of_another(store_url: str, backend: str) -> None:
    @handler("mail", retry=1)
    async def fail(number: int) -> None:
        raise ValueError

    async with connect(store_url, tenant="a") as ours, connect(store_url, tenant="b") as theirs:
        message = await ours.enqueue(fail, 1)
        await Worker(ours, [fail]).drain()
        await theirs.create_queue("mail")
        assert len(await ours.dead_letters()) == 1
        assert await theirs.dead_letters() == []
        assert await theirs.get(message) is None
        assert (await theirs.requeue(message), await theirs.drop(message)) == (0, 0)
        assert await theirs.workers() == []
        assert await ours.requeue(message) == 1


def test_what_cannot_be_called_as_a_handler_is_refused_when_it_is_declared() -> None:
    async def generator(number: int) -> Any:
        yield number

    def keyword(number: int, *, loud: bool) -> None: ...

    refused: list[tuple[Any, str]] = [(generator, "yield"), (keyword, "payload alone")]
    for fn, words in refused:
        with pytest.raises(InvalidOption, match=words):
            handler("mail")(fn)
    with pytest.raises(stepwell.InvalidName):
        handler(keyword)  # type: ignore[call-overload]


async def test_visibility_is_never_nothing(store: Store) -> None:
    await store.create_queue("mail")
    with pytest.raises(InvalidOption, match="visibility"):
        await store.dequeue("mail", visibility=0)


async def test_a_purge_of_what_was_claimed_meanwhile_ends(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.enqueue(mail, 1)
    real = store.database.driver.read

    async def late(call: Call) -> Any:
        rows = await real(call)
        if call.statement == "purgeable" and rows:
            worker = await store.database.sessions.begin(_identity(), 30_000_000)
            await store.database.tasks.claim(worker, [(await store.database.queue_id("mail"), 1)], 1)
        return rows

    monkeypatch.setattr(store.database.driver, "read", late)
    assert await store.purge("mail") == 0


def test_a_closed_sync_store_joins_nothing(tmp_path: Path) -> None:
    store = stepwell.sync.connect(f"sqlite:///{tmp_path}/store.db")
    store.create_queue("mail")
    mine = sqlite3.connect(tmp_path / "store.db")
    mine.execute("begin immediate")
    with pytest.raises(TypeError):
        store.enqueue_many("mail", [1], tx=mine, tag=("a",))  # type: ignore[call-overload]
    with pytest.raises(stepwell.InvalidName):
        store.enqueue("mail", 1, key="", tx=mine)
    mine.rollback()
    assert store.enqueue_many(queue="mail", payloads=[1, 2])
    store.close()
    with pytest.raises(StoreClosed):
        store.enqueue("mail", 1, tx=mine)
    mine.close()


async def test_dead_letters_whose_key_is_in_use_again_do_not_keep_the_others_dead(store: Store) -> None:
    @handler("mail", retry=1)
    async def fail(number: int) -> None:
        raise ValueError

    for number in range(3):
        await store.enqueue(fail, number, key=f"k{number}", unique="unfinished")
    await Worker(store, [fail]).drain()
    await store.enqueue(fail, 1, key="k1", unique="unfinished")
    assert await store.requeue(queue="mail") == 2
    assert [letter.payload for letter in await store.dead_letters()] == [1]


async def test_a_purge_leaves_what_was_added_meanwhile(store: Store, clock: TestClock) -> None:
    await store.enqueue_many(mail, range(1_500))
    real = store.database.driver.transact

    async def adding(script: Any, **options: Any) -> Any:
        clock.advance(1)
        await store.database.new_tasks.add_one(NewTask(TaskKind.MESSAGE, queue_id, "mail", "9"))
        return await real(script, **options)

    queue_id = await store.database.queue_id("mail")
    store.database.driver.transact = adding  # type: ignore[method-assign]
    try:
        assert await store.purge("mail") == 1_500
    finally:
        del store.database.driver.transact
    assert await store.counts("mail") == {"PENDING": 2}


async def test_a_thread_that_cannot_be_started_costs_neither_a_place_nor_an_attempt(
    live_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[int] = []
    refused = 0

    @handler("mail", retry=1)
    def work(number: int) -> None:
        executed.append(number)

    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        nonlocal refused
        if refused < 2 and thread.name.startswith("stepwell-crew"):
            refused += 1
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    await live_store.enqueue_many(work, [1, 2])
    async with Worker(live_store, [work], name="crew", concurrency=2):
        await until(lambda: sorted(executed) == [1, 2])
    assert refused == 2
    assert await live_store.counts("mail") == {"SUCCESS": 2}
