"""The claim: in which order, of which queues, how many, and never one task twice."""

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from datetime import timedelta

import asyncpg
import pytest

from stepwell import Store, connect
from stepwell.base.clock import TestClock
from stepwell.base.durations import datetime_of
from stepwell.records import TaskKind
from stepwell.store.rows import Claimed
from stepwell.work.demand import Demand, Places
from tests.ground.faultproxy import FaultProxy
from tests.ground.waiting import until
from tests.store.seam import RELEASED, asked, begin, claim, claim_again, do, one, row_of, waiting_for_locks, watched


async def fill(store: Store, **queues: int) -> dict[str, int]:
    """Queues with that many messages each; their numbers."""
    for name, messages in queues.items():
        await store.create_queue(name)
        await store.enqueue_many(name, range(messages))
    return {name: await store.database.queue_id(name) for name in queues}


def inputs(tasks: list[Claimed]) -> list[str | None]:
    return [task.input for task in tasks]


# Order


@pytest.mark.proves("promise-16", "Q-17")
async def test_claims_go_by_priority_then_due_time_then_id(store: Store, clock: TestClock) -> None:
    await store.create_queue("q")
    now = datetime_of(clock.now())
    expected = []
    for priority in (-1, 0, 5):
        for minutes in (3, 1, 2):
            for twin in (1, 2):
                run_at = now - timedelta(minutes=minutes)
                task_id = await store.enqueue("q", 0, priority=priority, run_at=run_at)
                expected.append((-priority, run_at, int(task_id), twin))
    worker = await begin(store)
    one_by_one = [(await claim(store, worker, "q"))[0].id for _ in range(9)]
    together = [task.id for task in await claim(store, worker, "q", 100)]
    assert one_by_one + together == [task_id for _, _, task_id, _ in sorted(expected)]


@pytest.mark.proves("L-01", "Q-08")
async def test_a_claim_returns_the_whole_task_under_its_session(store: Store, clock: TestClock) -> None:
    worker = await begin(store)
    task = await one(store, worker, key="k", priority=7, max_attempts=9)
    assert task == Claimed(
        id=task.id,
        kind=TaskKind.MESSAGE,
        queue_id=await store.database.queue_id("q"),
        owner=worker,
        turn=1,
        attempt=1,
        max_attempts=9,
        priority=7,
        run_at=clock.now(),
        key="k",
        input='"work"',
        wakes=0,
        suspect=False,
        created_at=clock.now(),
        started_at=clock.now() or 0,
        claimed_at=clock.now(),
        asked_at=task.asked_at,
    )
    row = await row_of(store, task.id)
    assert (row["status"], row["owner"], row["claimed_at"], row["started_at"]) == (
        "RUNNING",
        worker,
        clock.now(),
        clock.now(),
    )
    clock.advance(60)
    await store.database.tasks.settle(task.id, worker, task.turn, RELEASED)
    await claim(store, worker, "q")
    again = await row_of(store, task.id)
    assert again["claimed_at"] - row["claimed_at"] == 60_000_000
    assert again["started_at"] == row["started_at"]


# Several queues


@pytest.mark.proves("Q-23")
async def test_several_queues_are_claimed_in_one_transaction(store: Store) -> None:
    store, driver = watched(store)
    queues = await fill(store, a=3, b=3, c=3)
    worker = await begin(store)
    driver.forget()
    tasks = await store.database.tasks.claim(worker, [(queue, 10) for queue in queues.values()], 10)
    assert Counter(task.queue_id for task in tasks) == Counter(dict.fromkeys(queues.values(), 3))
    assert driver.transactions == 1


@pytest.mark.proves("Q-23")
@pytest.mark.backends("postgres", reason="an embedded store has no wire to count on")
async def test_several_queues_are_claimed_in_one_statement_and_round_trip(
    backend: str, proxy: FaultProxy, proxied_url: str
) -> None:
    async with connect(proxied_url, listen=False) as store:  # what others are told is no part of a claim
        queues = await fill(store, a=10, b=10, c=10)
        worker = await begin(store)
        asked = [(queue, 3) for queue in queues.values()]
        await store.database.tasks.claim(worker, asked, 9)
        trips, statements = proxy.round_trips, len(proxy.statements)
        assert len(await store.database.tasks.claim(worker, asked, 9)) == 9
        assert proxy.round_trips - trips == 1
        assert len(proxy.statements) - statements == 1


@pytest.mark.proves("rule-24", "L-01")
async def test_a_claim_keeps_to_each_queues_capacity_and_to_the_limit_in_the_order_given(store: Store) -> None:
    queues = await fill(store, a=9, b=9, c=9)
    a, b, c = queues.values()
    worker = await begin(store)

    async def taken(asked: list[tuple[int, int]], limit: int) -> list[tuple[int, int]]:
        tasks = await store.database.tasks.claim(worker, asked, limit)
        return list(Counter(task.queue_id for task in tasks).items())

    assert await taken([(a, 2), (b, 3), (c, 1)], 10) == [(a, 2), (b, 3), (c, 1)]
    assert await taken([(c, 3), (a, 3), (b, 3)], 4) == [(c, 3), (a, 1)]
    assert await taken([(b, 2), (c, 2), (a, 2)], 3) == [(b, 2), (c, 1)]
    assert await taken([(a, 100)], 100) == [(a, 6)]
    assert await taken([(a, 5), (b, 1)], 5) == [(b, 1)]


@pytest.mark.proves("Q-23")
def test_every_queue_comes_first_equally_often() -> None:
    demand = Demand(1, dict.fromkeys(range(1, 6)))
    first = Counter(asked(demand)[0][0] for _ in range(100))
    assert first == Counter(dict.fromkeys(range(1, 6), 20))


@pytest.mark.proves("Q-23")
async def test_a_full_queue_does_not_starve_a_small_one(store: Store) -> None:
    queues = await fill(store, big=50, small=3)
    worker = await begin(store)
    demand = Demand(1, dict.fromkeys(queues.values()))
    claimed = [(await store.database.tasks.claim(worker, asked(demand), 1))[0].queue_id for _ in range(6)]
    assert Counter(claimed) == Counter({queues["big"]: 3, queues["small"]: 3})


def test_demand_counts_what_is_busy_against_the_queues_limit_and_the_workers() -> None:
    demand = Demand(5, {1: 2, 2: None})
    demand.take(1)
    demand.take(2)
    assert dict(asked(demand)) == {1: 1, 2: 3}
    demand.take(1)
    assert dict(asked(demand)) == {2: 2}
    demand.give_back(1)
    demand.give_back(2)
    assert (dict(asked(demand)), demand.free, demand.busy) == ({1: 1, 2: 4}, 4, 1)


# What may not be claimed


@pytest.mark.proves("L-01")
async def test_a_paused_queue_is_skipped_and_the_others_are_not(store: Store) -> None:
    queues = await fill(store, a=2, b=2)
    await do(store, "update {queue} set paused = true where name = 'a'")
    worker = await begin(store)
    asked = [(queue, 5) for queue in queues.values()]
    assert {task.queue_id for task in await store.database.tasks.claim(worker, asked, 5)} == {queues["b"]}
    await do(store, "update {queue} set paused = false where name = 'a'")
    assert [task.queue_id for task in await store.database.tasks.claim(worker, asked, 5)] == [queues["a"]] * 2


@pytest.mark.proves("Q-04", "B-06", "Q-14")
@pytest.mark.parametrize("given", ["delay", "run_at"])
async def test_a_message_is_not_claimed_before_its_moment_and_is_at_it(
    store: Store, clock: TestClock, given: str
) -> None:
    await store.create_queue("q")
    span = timedelta(seconds=10, microseconds=250_000)
    if given == "delay":
        await store.enqueue("q", 1, delay=span)
    else:
        await store.enqueue("q", 1, run_at=datetime_of(clock.now()) + span)
    worker = await begin(store)
    assert await store.database.tasks.wake_due() == (set(), 10.25)
    assert await claim(store, worker, "q") == []
    clock.advance(span - timedelta(microseconds=1))
    assert await store.database.tasks.wake_due() == (set(), 0.000001)
    assert await claim(store, worker, "q") == []
    clock.advance(timedelta(microseconds=1))
    assert await store.database.tasks.wake_due() == ({await store.database.queue_id("q")}, None)
    assert len(await claim(store, worker, "q")) == 1


@pytest.mark.proves("L-11")
async def test_deleted_and_finished_tasks_are_never_claimed(store: Store, clock: TestClock) -> None:
    await store.create_queue("q")
    ids = await store.enqueue_many("q", range(4))
    later = await store.enqueue("q", 4, delay=5)
    await do(
        store,
        f"update {{task}} set deleted_at = 1, ready = false where id in ({ids[0]}, {later})",
        f"update {{task}} set status = 'CANCELLED', ready = false, finished_at = 1 where id = {ids[1]}",
        f"update {{task}} set status = 'SUCCESS', ready = false, finished_at = 1 where id = {ids[2]}",
    )
    clock.advance("1h")
    assert await store.database.tasks.wake_due() == (set(), None)
    assert [task.id for task in await claim(store, await begin(store), "q", 10)] == [ids[3]]


# At once


@pytest.mark.proves("L-02", "L-04", "B-05", "rule-24", "promise-04")
async def test_eight_connections_never_claim_one_task_twice(store_url: str, backend: str) -> None:
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(connect(store_url, pool=4)) for _ in range(8)]
        empty = await stores[0].database.queue_id("empty", create=True)
        workers = [await begin(store) for store in stores]
        for store, worker in zip(stores, workers, strict=True):  # connected, so that none begins when all is claimed
            assert await store.database.tasks.claim(worker, [(empty, 1)], 1) == []
        queues = await fill(stores[0], a=100, b=100)
        seen: set[int] = set()

        async def drain(store: Store, worker: int) -> list[int]:
            found: list[int] = []
            # Nothing found is not the end: a claim locks three of each queue and takes five, so the sixth is passed
            # over by whoever looks meanwhile.
            while len(seen) < 200:
                tasks = await store.database.tasks.claim(worker, [(queue, 3) for queue in queues.values()], 5)
                assert len(tasks) <= 5
                found += [task.id for task in tasks]
                seen.update(found)
            return found

        async with asyncio.timeout(60):
            claimed = await asyncio.gather(*map(drain, stores, workers))
        everything = [task_id for found in claimed for task_id in found]
        assert len(everything) == len(set(everything)) == 200
        assert sum(bool(found) for found in claimed) >= 4, "they did not compete: void"


@pytest.mark.proves("L-04")
@pytest.mark.backends("postgres", reason="only there can a row be locked by a transaction beside the claim")
async def test_a_claim_passes_over_locked_rows_without_waiting(live_store: Store, store_url: str, backend: str) -> None:
    await fill(live_store, q=5)
    worker = await begin(live_store)
    other = await asyncpg.connect(store_url)
    try:
        async with other.transaction():
            locked = await other.fetch("select id from stepwell.task order by id limit 2 for update")
            started = time.monotonic()
            tasks = await claim(live_store, worker, "q", 5)
            assert time.monotonic() - started < 4, "it waited for the lock"
        assert len(tasks) == 3
        assert {row["id"] for row in locked}.isdisjoint(task.id for task in tasks)
        assert len(await claim(live_store, worker, "q", 5)) == 2
    finally:
        await other.close()


@pytest.mark.proves("L-04")
@pytest.mark.backends(
    "postgres", reason="an embedded store claims one at a time: no claim is blocked after its snapshot"
)
async def test_a_claim_that_was_blocked_after_its_snapshot_leaves_what_was_overtaken_to_the_next(
    live_store: Store, store_url: str, backend: str
) -> None:
    await fill(live_store, q=2)
    blocked, quick = await begin(live_store), await begin(live_store)
    async with connect(store_url) as beside:
        other = await asyncpg.connect(store_url)
        try:
            transaction = other.transaction()
            await transaction.start()
            await other.execute("select 1 from stepwell.fence where worker_id = $1 for update", blocked)
            waiting = asyncio.create_task(claim_again(live_store, blocked, "q", 2))
            await until(lambda: waiting_for_locks(beside))
            [overtaken] = await claim(beside, quick, "q")
            await beside.database.tasks.settle(overtaken.id, quick, overtaken.turn, RELEASED)
            await transaction.rollback()
            tasks = {task.id: task for task in await waiting}
        finally:
            await other.close()
    if overtaken.id not in tasks:  # else it gave up waiting and was repeated with a new snapshot: the machine was slow
        [late] = await claim(live_store, blocked, "q", 2)
        tasks[late.id] = late
    assert len(tasks) == 2
    assert {task.id: task.turn for task in tasks.values() if task.turn > 1} == {overtaken.id: 2}


# Places in a backlog


def backlog(first: int, last: int, priority: int = 0, queue_id: int = 1) -> list[Claimed]:
    return [
        Claimed(
            number,
            TaskKind.MESSAGE,
            queue_id,
            1,
            1,
            1,
            3,
            priority,
            number,
            None,
            None,
            0,
            False,
            0,
        )
        for number in range(first, last)
    ]


@pytest.mark.proves("protocol-17")
def test_in_a_backlog_the_claim_goes_on_where_it_ended_and_looks_behind_once_a_second() -> None:
    places = Places()
    assert places.above([(1, 10)], 0.0) == []
    places.claimed(backlog(0, 10), 10, 0.0, plain=True)
    assert places.above([(1, 5)], 0.1) == [(1, 5, 0, 9, 9)]
    places.claimed(backlog(10, 15), 5, 0.2, plain=False)
    assert places.above([(1, 10)], 0.9) == [(1, 10, 0, 14, 14)]
    assert places.above([(1, 10)], 1.0) == [], "a second has passed: from the beginning"


@pytest.mark.proves("protocol-17")
def test_without_a_backlog_or_for_an_unknown_queue_the_claim_looks_from_the_beginning() -> None:
    places = Places()
    places.claimed(backlog(0, 9), 10, 0.0, plain=True)
    assert places.above([(1, 10)], 0.1) == [], "it found less than it asked for"
    places.claimed(backlog(0, 10), 10, 0.2, plain=True)
    assert places.above([(1, 10), (2, 10)], 0.3) == [], "nothing is known of the second queue"
    places.claimed(backlog(10, 12), 10, 0.4, plain=False)
    assert places.above([(1, 10)], 0.5) == [], "the backlog has ended"


@pytest.mark.proves("protocol-17", "promise-16")
@pytest.mark.backends("postgres", reason="only there do old index entries linger, so only there is `claim_above`")
async def test_in_a_backlog_nothing_is_missed_for_more_than_a_second(store: Store) -> None:
    queues = await fill(store, q=60)
    [queue] = queues.values()
    worker = await begin(store)
    places = Places()
    missed: dict[int, float] = {}
    seen: set[int] = set()
    now = 0.0

    async def claim_more() -> list[Claimed]:
        above = places.above([(queue, 4)], now)
        if above:
            tasks = await store.database.tasks.claim_above(worker, above, 4)
        else:
            tasks = await store.database.tasks.claim(worker, [(queue, 4)], 4)
        places.claimed(tasks, 4, now, plain=not above)
        return tasks

    while now < 3:
        if now in (0.25, 0.75):
            missed[await store.enqueue("q", "urgent", priority=9)] = now
            await do(store, f"update {{task}} set run_at = 1 where id = {list(missed)[-1]}")
        for task in await claim_more():
            assert task.id not in seen
            seen.add(task.id)
            if task.id in missed:
                assert now - missed[task.id] <= 1.0
        now += 0.25
    assert set(missed) <= seen
    seen.update(task.id for task in await claim(store, worker, "q", 100))
    assert len(seen) == 62


@pytest.mark.proves("protocol-17")
@pytest.mark.backends("postgres", reason="only there is `claim_above`")
async def test_a_claim_above_is_fenced_ordered_and_bounded_like_any_other(store: Store) -> None:
    queues = await fill(store, q=10, r=10)
    q, r = queues.values()
    dead, worker = await begin(store), await begin(store)
    tasks = await store.database.tasks.claim(worker, [(q, 3), (r, 3)], 6)
    above = [
        (queue, 2, 0, *max((task.run_at, task.id) for task in tasks if task.queue_id == queue)) for queue in (q, r)
    ]
    await store.database.sessions.end(dead, "stopped")
    assert await store.database.tasks.claim_above(dead, above, 10) == []
    more = await store.database.tasks.claim_above(worker, above, 3)
    assert [task.queue_id for task in more] == [q, q, r]
    assert inputs(more) == ["3", "4", "3"]
    assert {(await row_of(store, task.id))["worker_id"] for task in more} == {worker}
    await do(store, "update {queue} set paused = true where name = 'q'")
    rest = await store.database.tasks.claim_above(worker, above, 10)
    assert inputs(rest) == ["4", "5"]
