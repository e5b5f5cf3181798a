"""Which message comes first: priority, due time, and nothing else."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from stepwell import Store, TransientError, Worker, handler
from stepwell.base.clock import TestClock
from stepwell.work import demand as claiming
from tests.ground.waiting import until
from tests.queue.raw import change


async def _order(store: Store, worker: Worker, done: list[Any]) -> list[Any]:
    done.clear()
    await worker.drain()
    return list(done)


@pytest.mark.proves("PR-01", "PR-02")
async def test_higher_priorities_first_then_earlier_due_times(store: Store, clock: TestClock) -> None:
    done: list[str] = []

    @handler("mail")
    async def send(to: str) -> None:
        done.append(to)

    def at(hour: int) -> datetime:
        return datetime(2025, 12, 31, hour, tzinfo=UTC)

    await store.enqueue(send, "low, early", priority=-1, run_at=at(1))
    await store.enqueue(send, "plain, late", run_at=at(5))
    await store.enqueue(send, "high, late", priority=7, run_at=at(9))
    await store.enqueue(send, "lowest", priority=-32768, run_at=at(0))
    await store.enqueue(send, "plain, early", run_at=at(2))
    await store.enqueue(send, "high, early", priority=7, run_at=at(8))
    order = ["high, early", "high, late", "plain, early", "plain, late", "low, early", "lowest"]
    assert await _order(store, Worker(store, [send], concurrency=1), done) == order


@pytest.mark.proves("Q-17")
async def test_equal_priorities_by_due_time_not_by_arrival(store: Store, clock: TestClock) -> None:
    done: list[int] = []

    @handler("mail")
    async def send(number: int) -> None:
        done.append(number)

    for number, delay in enumerate([50, 10, 40, 20, 30, 0]):
        await store.enqueue(send, number, delay=delay)
    clock.advance(60)
    assert await _order(store, Worker(store, [send], concurrency=1), done) == [5, 1, 3, 4, 2, 0]


@pytest.mark.proves("PR-03")
async def test_an_urgent_message_does_not_interrupt_what_runs(live_store: Store) -> None:
    told: list[str] = []
    started, go_on = asyncio.Event(), asyncio.Event()

    @handler("mail")
    async def send(to: str) -> None:
        told.append(f"{to} starts")
        started.set()
        if to == "slow":
            await go_on.wait()
        told.append(f"{to} ends")

    async with Worker(live_store, [send], concurrency=1):
        await live_store.enqueue(send, "slow", priority=-5)
        await asyncio.wait_for(started.wait(), 10)
        urgent = await live_store.enqueue(send, "urgent", priority=100)
        task = await live_store.get(urgent)
        assert task is not None
        assert task.status == "PENDING"
        go_on.set()
        await until(lambda: told[-1] == "urgent ends")
    assert told == ["slow starts", "slow ends", "urgent starts", "urgent ends"]


async def test_what_a_handler_adds_is_drained_too_whatever_its_priority(store: Store) -> None:
    done: list[str] = []

    @handler("mail")
    async def send(to: str) -> None:
        done.append(to)
        if to == "parent":
            await store.enqueue(send, "urgent", priority=5)
            await store.enqueue(send, "humble", priority=-5)

    await store.enqueue(send, "parent")
    assert await Worker(store, [send], concurrency=1).drain() == 3
    assert done == ["parent", "urgent", "humble"]


async def test_an_urgent_message_overtakes_a_backlog(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its is the next free place. On Postgres a worker in a backlog looks for new priorities only once a second."""
    monkeypatch.setattr(claiming, "PLAIN_EVERY", 0.0)
    done: list[str] = []

    @handler("mail")
    async def send(to: str) -> None:
        done.append(to)
        if to == "0":
            await store.enqueue(send, "urgent", priority=5)

    await store.enqueue_many(send, [str(number) for number in range(6)])
    await Worker(store, [send], concurrency=1).drain()
    assert done == ["0", "urgent", "1", "2", "3", "4", "5"]


@pytest.mark.proves("Q-14")
async def test_nothing_but_the_due_time_delays_a_retry(store: Store, clock: TestClock) -> None:
    """Neither its attempts, its error, its age nor its former owner keep a task back once it is due."""
    tried: list[int] = []

    @handler("mail", retry=9)
    async def send(number: int) -> None:
        tried.append(number)
        raise TransientError("not yet", retry_after=3600)

    message = await store.enqueue(send, 1)
    worker = Worker(store, [send])
    await worker.drain()
    assert await worker.drain() == 0
    await change(store, "update {task} set run_at = run_at - 3600000000")  # an operator moves the due time, no more
    assert await worker.drain() == 1
    clock.advance("59m59s")
    assert await worker.drain() == 0
    clock.advance("1s")
    assert await worker.drain() == 1
    task = await store.get(message)
    assert task is not None
    assert (len(tried), task.attempt, task.status, task.ready) == (3, 3, "PENDING", False)


@pytest.mark.proves("promise-16")
async def test_in_a_backlog_every_tenth_claim_takes_what_has_waited_longest(store: Store, clock: TestClock) -> None:
    done: list[str] = []

    @handler("mail")
    async def send(to: str) -> None:
        done.append(to)

    await store.enqueue(send, "low", priority=-5)
    clock.advance(1)
    await store.enqueue(send, "middle")
    clock.advance(1)
    await store.enqueue_many(send, [f"high {number}" for number in range(40)], priority=9)
    await Worker(store, [send], concurrency=1).drain()
    assert (done.index("low"), done.index("middle")) == (9, 19)
    assert len(done) == 42


@pytest.mark.proves("promise-16")
async def test_taken_by_hand_it_is_no_other(store: Store, clock: TestClock) -> None:
    await store.create_queue("mail")
    await store.enqueue("mail", "low", priority=-5)
    clock.advance(1)
    await store.enqueue_many("mail", range(30), priority=9)
    taken = [(await store.dequeue("mail"))[0].payload for _ in range(12)]
    assert taken.index("low") == 9


@pytest.mark.proves("promise-16")
async def test_without_a_backlog_priority_alone_decides(store: Store) -> None:
    done: list[str] = []

    @handler("mail")
    async def send(to: str) -> None:
        done.append(to)

    worker = Worker(store, [send], concurrency=50)
    for _ in range(12):
        await store.enqueue(send, "low", priority=-5)
        await store.enqueue_many(send, ["high"] * 5, priority=9)
        await worker.drain()
        assert done == ["high"] * 5 + ["low"]
        done.clear()
