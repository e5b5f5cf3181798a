"""Two generations of workers on one database, and a database made by an earlier release."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from stepwell import Retry, Store, Worker, connect, handler
from stepwell.base.clock import TestClock
from stepwell.store import schema
from stepwell.store.sql import Statements
from tests.ground.waiting import until
from tests.store.place import NextRelease, Place, opened


def generation(name: str, done: list[tuple[str, str, Any]], *queues: str, attempts: int = 3) -> list[Any]:
    """Handlers as one release of a program has them."""

    def served(queue: str) -> Any:
        @handler(queue, retry=Retry(attempts, base="1ms", jitter=0))
        async def work(payload: Any) -> None:
            done.append((name, queue, payload))

        return work

    return [served(queue) for queue in queues]


@pytest.mark.proves("DP-06", "DP-07")
async def test_old_and_new_workers_share_a_database_and_old_ones_leave_new_queues_alone(
    live_store: Store, store_url: str
) -> None:
    done: list[tuple[str, str, Any]] = []
    old = generation("old", done, "mail", "gone")
    new = generation("new", done, "mail", "zip")
    async with connect(store_url, lease=2) as second:
        await second.enqueue_many(new[1], range(5))  # somebody knows the new queue before any worker does
        async with Worker(live_store, old):
            await live_store.enqueue_many(old[0], range(10))
            await live_store.enqueue(old[1], "last")
            await until(lambda: len(done) == 11)
            assert {name for name, _, _ in done} == {"old"}
            assert await live_store.counts("zip") == {"PENDING": 5}
            tasks = [letter for letter in await live_store.dead_letters() if letter.queue == "zip"]
            assert tasks == []
            async with Worker(second, new):
                await until(lambda: sum(queue == "zip" for _, queue, _ in done) == 5)
                await live_store.enqueue_many(old[0], range(10, 60))
                await live_store.enqueue(old[1], "of the old")
                await until(lambda: len(done) == 11 + 5 + 51)
        assert {(name, queue) for name, queue, _ in done if queue != "mail"} == {("old", "gone"), ("new", "zip")}
        assert sorted(payload for _, queue, payload in done if queue == "mail") == list(range(60))
        assert [(one.queue, one.waiting) for one in await second.unserved()] == []


@pytest.mark.proves("DP-07", "E-15")
async def test_raising_the_attempts_needs_nothing_and_revives_nothing(store: Store, clock: TestClock) -> None:
    tried: list[str] = []

    def release(attempts: int) -> Any:
        @handler("mail", retry=attempts)
        async def send(payload: str) -> None:
            tried.append(payload)
            raise ValueError("no")

        return send

    async def days(worker: Worker) -> None:
        for _ in range(6):
            await worker.drain()
            clock.advance("1d")

    old, new = release(1), release(4)
    dead = await store.enqueue(old, "dead")
    await days(Worker(store, [old]))
    assert tried == ["dead"]
    waiting = await store.enqueue(old, "of the old")
    fresh = await store.enqueue(new, "of the new")
    await days(Worker(store, [new]))
    # A message is tried as often as was said when it was written; who reads it needs not know.
    assert [tried.count(payload) for payload in ("dead", "of the old", "of the new")] == [1, 1, 4]
    letters = {letter.id: (letter.attempt, letter.max_attempts) for letter in await store.dead_letters()}
    assert letters == {dead: (1, 1), waiting: (1, 1), fresh: (4, 4)}


@pytest_asyncio.fixture
async def place(store_url: str) -> AsyncIterator[Place]:
    async with opened(store_url) as place:
        await place.install()
        yield place


@pytest.mark.proves("DP-02")
async def test_a_store_of_an_earlier_release_is_brought_up_to_date_with_all_it_holds(
    place: Place, store_url: str, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await schema.version(place.driver)
    task = "insert into {task} (id, kind, queue_id, status, ready, run_at, max_attempts, created_at, updated_at"
    await place.do(
        "insert into {queue} (name, paused, created_at) values ('mail', false, 1)",
        "insert into {queue} (name, paused, created_at) values ('stopped', true, 1)",
        f"{task}, key, input) values (1001, 'MESSAGE', 1, 'PENDING', true, 1, 3, 1, 1, 'k', '7')",
        f"{task}, finished_at) values (1002, 'MESSAGE', 1, 'SUCCESS', false, 1, 3, 1, 1, 1)",
        f"{task}, finished_at) values (1003, 'MESSAGE', 2, 'ERROR', false, 1, 3, 1, 1, 1)",
        f"{task}, deleted_at) values (1004, 'MESSAGE', 2, 'PENDING', false, 1, 3, 1, 1, 1)",
        "insert into {worker} (name, host, pid, version, handlers, lease, started_at, stopped_at)"
        " values ('w', 'h', 1, '0', '[]', 1, 1, 1)",
    )
    monkeypatch.setattr(Statements, "migrations", NextRelease.migrations)
    async with connect(store_url, clock=clock) as store:
        assert await schema.version(store.driver) == schema.latest(store.statements) == before + 1
        await schema.verify(store.driver, store.statements)
        assert [(queue.name, queue.paused, queue.draining) for queue in await store.queues()] == [
            ("mail", False, False),
            ("stopped", True, False),
        ]
        assert (await store.enqueue("mail", 8)).created
        assert await store.maintenance() is None
        [message] = await store.dequeue("mail")
        assert (message.id, message.payload, message.key) == (1001, 7, "k")
        await store.retention.round()
        there = [number for number in range(1001, 1005) if await store.get(number, deleted=True)]
        assert there == [1001, 1003]
        assert await store.workers() == []
    rows = await place.ask("select queue, draining, dead from {queue_counts} order by queue")
    assert [(row["queue"], bool(row["draining"]), row["dead"]) for row in rows] == [
        ("mail", False, 0),
        ("stopped", False, 1),
    ]
