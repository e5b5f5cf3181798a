"""Handlers that take several messages at once."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from stepwell import InvalidOption, PermanentError, Retry, Store, TransientError, Worker, handler
from tests.ground.waiting import until
from tests.store.seam import begin


@dataclass
class Reading:
    """What a meter says."""

    meter: str
    value: int


@pytest.mark.proves("Q-20")
async def test_a_batch_is_what_is_there_and_success_finishes_all_of_it(store: Store) -> None:
    sizes: list[int] = []

    @handler("meters", batch=40)
    async def write(readings: list[Reading]) -> None:
        assert all(isinstance(reading, Reading) for reading in readings)
        sizes.append(len(readings))

    await store.enqueue(write, Reading("a", 1))
    worker = Worker(store, [write], concurrency=1)
    assert await worker.drain() == 1, "it waited for a full batch"
    await store.enqueue_many(write, [Reading("a", number) for number in range(100)])
    assert await worker.drain() == 100
    assert sizes == [1, 40, 40, 20]
    assert await store.counts("meters") == {"SUCCESS": 101}


@pytest.mark.proves("Q-20")
async def test_a_batch_that_fails_is_delivered_again_one_by_one_and_costs_the_innocent_nothing(store: Store) -> None:
    calls: list[list[int]] = []

    @handler("meters", batch=10, retry=1)
    async def write(numbers: list[int]) -> None:
        calls.append(numbers)
        if 7 in numbers:
            raise ValueError("seven")

    ids = await store.enqueue_many(write, range(10))
    await Worker(store, [write]).drain()
    assert calls[0] == list(range(10))
    assert sorted(calls[1:]) == [[number] for number in range(10)]
    assert await store.counts("meters") == {"SUCCESS": 9, "ERROR": 1}
    attempts = {(await found(store, task_id)).attempt for task_id in ids}
    assert attempts == {1}, "the failed batch was counted"
    [letter] = await store.dead_letters()
    assert (letter.payload, letter.last_error) == (7, "ValueError: seven")


@pytest.mark.proves("Q-20")
async def test_what_failed_alone_stays_alone_and_spoils_no_other_batch(store: Store) -> None:
    calls: list[list[int]] = []

    @handler("meters", batch=10, retry=Retry(3, base=0.01, cap=0.01, jitter=0))
    async def write(numbers: list[int]) -> None:
        calls.append(numbers)
        if 7 in numbers:
            raise TransientError("busy", retry_after=0)

    await store.enqueue(write, 7)
    worker = Worker(store, [write], concurrency=1)
    await store.enqueue_many(write, [1, 2])
    await worker.drain()
    assert [call for call in calls if len(call) > 1] == [[7, 1, 2]]
    assert calls.count([7]) == 3
    assert await store.counts("meters") == {"SUCCESS": 2, "ERROR": 1}


@pytest.mark.proves("Q-20")
async def test_what_failed_as_a_batch_of_one_spoils_no_later_batch(store: Store) -> None:
    calls: list[list[int]] = []

    @handler("meters", batch=10, retry=Retry(3, base=0.01, cap=0.01, jitter=0))
    async def write(numbers: list[int]) -> None:
        calls.append(sorted(numbers))
        if 7 in numbers:
            if len(calls) == 1:
                await store.enqueue_many("meters", [1, 2])  # claimed together with its next attempt
            raise TransientError("busy", retry_after=0)

    await store.enqueue(write, 7)
    await Worker(store, [write], concurrency=1).drain()
    assert sorted(calls) == [[1, 2], [7], [7], [7]]


async def test_a_payload_that_does_not_fit_ends_alone_and_its_neighbours_succeed(store: Store) -> None:
    taken: list[int] = []

    @handler("meters", batch=5)
    def write(numbers: Sequence[int]) -> None:
        taken.extend(numbers)

    await store.create_queue("meters")
    await store.enqueue_many("meters", [1, 2, "three", 4])
    await Worker(store, [write]).drain()
    assert sorted(taken) == [1, 2, 4]
    [letter] = await store.dead_letters()
    assert (letter.payload, letter.attempt) == ("three", 1)


async def test_a_batch_asks_to_be_tried_later(store: Store) -> None:
    @handler("meters", batch=5)
    async def write(numbers: list[int]) -> None:
        raise TransientError("busy", retry_after=60)

    ids = await store.enqueue_many(write, [1, 2])
    assert await Worker(store, [write]).drain() == 2
    for task_id in ids:
        task = await found(store, task_id)
        assert (task.status, task.ready, task.attempt) == ("PENDING", False, 0)


async def test_a_permanent_error_of_a_batch_condemns_only_whom_it_meets_alone(store: Store) -> None:
    @handler("meters", batch=5)
    async def write(numbers: list[int]) -> None:
        if 2 in numbers:
            raise PermanentError("two")

    await store.enqueue_many(write, [1, 2, 3])
    await Worker(store, [write]).drain()
    assert await store.counts("meters") == {"SUCCESS": 2, "ERROR": 1}


async def test_a_batch_takes_one_place_and_its_timeout_is_the_calls(live_store: Store) -> None:
    most = running = 0
    late: list[list[int]] = []

    @handler("meters", batch=3, timeout=0.2)
    async def write(numbers: list[int]) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        try:
            if len(numbers) > 1 and 0 in numbers:
                late.append(numbers)
                await asyncio.sleep(60)
            await asyncio.sleep(0.01)
        finally:
            running -= 1

    await live_store.enqueue_many(write, range(30))
    async with Worker(live_store, [write], concurrency=2):
        await until(lambda: all_done(live_store, 30))
    assert (most, len(late)) == (2, 1)


async def test_a_queue_of_batches_and_plain_ones_take_turns(store: Store) -> None:
    order: list[str] = []

    @handler("many", batch=10)
    async def many(numbers: list[int]) -> None:
        order.append("many")

    @handler("one")
    async def one(number: int) -> None:
        order.append("one")

    await store.enqueue_many(many, range(50))
    await store.enqueue_many(one, range(50))
    await Worker(store, [many, one], concurrency=1).drain()
    assert order.count("many") == 5
    assert "many" in order[:3]
    assert "one" in order[:3]


async def test_what_a_lost_worker_held_comes_back_alone(store: Store) -> None:
    calls: list[list[int]] = []

    @handler("meters", batch=10)
    async def write(numbers: list[int]) -> None:
        calls.append(numbers)

    await store.enqueue_many(write, range(3))
    lost = await begin(store)
    await store.database.tasks.claim(lost, [(await store.database.queue_id("meters"), 2)], 2)
    await store.database.sessions.end(lost, "lost")
    await Worker(store, [write]).drain()
    assert sorted(calls) == [[0], [1], [2]]


def test_a_batch_handler_says_that_it_takes_a_list() -> None:
    async def one(number: int) -> None: ...

    with pytest.raises(InvalidOption, match="list"):
        handler("meters", batch=5)(one)  # type: ignore[arg-type]
    for wrong in (0, 1001, True, "5"):
        with pytest.raises(InvalidOption, match="batch"):
            handler("meters", batch=wrong)  # type: ignore[arg-type]


async def all_done(store: Store, count: int) -> bool:
    return await store.counts("meters") == {"SUCCESS": count}


async def found(store: Store, task_id: int) -> Any:
    task = await store.get(task_id)
    assert task is not None
    return task
