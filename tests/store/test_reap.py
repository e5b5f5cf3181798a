"""Recovery: who is dead, what becomes of its tasks, and the races with claims, beats and locks."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from stepwell import Store, connect
from stepwell.base.clock import TestClock
from stepwell.errors import LeaseLost, StoreBusy, StoreUnavailable
from stepwell.store.driver import Call
from stepwell.store.postgres.compose import Composer
from stepwell.store.recovery import Recovery, Watch
from stepwell.store.rows import SeenWorker
from stepwell.store.tasks import wanted_of
from tests.ground.waiting import until
from tests.store.seam import (
    DONE,
    ask,
    beat,
    begin,
    claim,
    claim_again,
    claim_alone,
    do,
    one,
    proven_dead,
    row_of,
    silent,
    waiting_for_locks,
    watched,
)

ONLY_POSTGRES = pytest.mark.backends(
    "postgres", reason="an embedded store has one writer: there is no such interleaving"
)


async def living(store: Store) -> set[int]:
    return {row["worker_id"] for row in await ask(store, "select worker_id from {beat}")}


async def seen(store: Store, worker: int) -> SeenWorker:
    [row] = await ask(store, f"select beat_at from {{beat}} where worker_id = {worker}")
    return SeenWorker(worker, row["beat_at"])


async def running_under_the_dead(store: Store) -> int:
    rows = await ask(
        store, "select id from {task} as task where owner is not null and owner not in (select worker_id from {fence})"
    )
    return len(rows)


# Who is dead


@pytest.mark.proves("L-03", "rule-08")
async def test_a_session_whose_helper_saw_its_process_end_is_dead_at_once(store: Store) -> None:
    gone, other = await begin(store), await begin(store)
    task = await one(store, gone)
    await store.database.driver.write(Call("note_gone", {}, [(gone,)]))
    assert await Recovery(store.database).look() == {task.queue_id}
    assert await living(store) == {other}
    assert (await row_of(store, task.id))["status"] == "PENDING"


@pytest.mark.proves("protocol-09", "L-05")
async def test_what_was_seen_before_a_wait_for_the_database_proves_nothing(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits a third of a lease for the database, to declare another dead, kept that one from beating perhaps."""
    worker, recovery, transact = await begin(store), Recovery(store.database), store.database.driver.transact

    async def slow(script: Any, **more: Any) -> Any:
        clock.advance(10.1, leases=True)
        return await transact(script, **more)

    for _ in range(4):
        await recovery.look()
        clock.advance(10, leases=True)
    with monkeypatch.context() as patched:
        patched.setattr(store.database.driver, "transact", slow)
        await recovery.look()
    assert await living(store) == {worker}
    await recovery.look()
    assert await living(store) == set()


@pytest.mark.proves("protocol-09", "rule-08", "L-03")
async def test_a_session_is_dead_when_stale_by_the_database_and_seen_so_for_a_third_of_its_lease(
    store: Store, clock: TestClock
) -> None:
    worker = await begin(store)
    task = await one(store, worker)
    recovery = Recovery(store.database)
    for _ in range(3):  # seen unchanged all along, but its beat is not older than its lease
        await recovery.look()
        clock.advance(10, leases=True)
    await recovery.look()
    assert await living(store) == {worker}
    clock.advance(0.1, leases=True)
    newcomer = Recovery(store.database)
    await newcomer.look()
    assert await living(store) == {worker}, "stale, but this observer sees it for the first time"
    clock.advance(9.9, leases=True)
    await newcomer.look()
    assert await living(store) == {worker}, "9.9 s are not a third of the lease"
    assert await recovery.look() == {task.queue_id}
    assert await living(store) == set()
    assert (await row_of(store, task.id))["status"] == "PENDING"
    [info] = await store.workers()
    assert (info.alive, info.stop_reason) == (False, "lost")


@pytest.mark.proves("protocol-09", "promise-14")
async def test_a_fresh_observer_after_an_outage_declares_none_of_twenty_sessions_dead(
    store: Store, clock: TestClock
) -> None:
    workers = [await begin(store) for _ in range(20)]
    truly_dead = await begin(store)
    clock.advance(3600, leases=True)  # nobody could beat
    recovery = Recovery(store.database)
    assert len(await silent(store)) == 21, "they do not look dead: void"
    await recovery.look()
    clock.advance(9.9, leases=True)
    assert await beat(store, *workers) == set(workers)
    await recovery.look()
    clock.advance(5, leases=True)
    await recovery.look()
    assert await living(store) == set(workers)
    assert truly_dead not in workers


@pytest.mark.proves("protocol-09", "L-06")
async def test_each_session_is_watched_by_its_own_lease_whatever_the_observers_is(
    store: Store, clock: TestClock
) -> None:
    short, long = await begin(store, lease=3_000_000), await begin(store, lease=300_000_000)
    recovery = Recovery(store.database)
    assert recovery.look_every == 1.0
    await recovery.look()
    assert recovery.look_every == 0.5, "a session of 3 s is watched without a gap"
    clock.advance(3600, leases=True)  # nobody could beat
    for _ in range(2):
        await recovery.look()
        assert await living(store) == {short, long}
        clock.advance(0.6, leases=True)
    await recovery.look()
    assert await living(store) == {long}, "a third of its 3 s"
    for _ in range(98):
        clock.advance(1, leases=True)
        await recovery.look()
    assert recovery.look_every == 1.0
    assert await living(store) == {long}, "99.2 s are not a third of its 300 s"
    clock.advance(1, leases=True)
    await recovery.look()
    assert await living(store) == set()


@pytest.mark.proves("protocol-09")
async def test_a_beat_in_the_future_counts_as_stale_and_is_watched_like_any_other(
    store: Store, clock: TestClock
) -> None:
    worker = await begin(store)
    await do(store, f"update {{beat}} set beat_at = beat_at + {3600 * 1_000_000}")
    recovery = Recovery(store.database)
    await recovery.look()
    assert await living(store) == {worker}
    clock.advance(10, leases=True)
    await recovery.look()
    assert await living(store) == set()


@pytest.mark.proves("protocol-09", "L-05")
async def test_a_session_that_beats_between_look_and_burial_survives_and_goes_on_writing(
    store: Store, clock: TestClock
) -> None:
    worker = await begin(store)
    task = await one(store, worker)
    clock.advance(60, leases=True)
    [dead] = await silent(store)
    assert await beat(store, worker) == {worker}
    assert await store.database.sessions.bury(dead) is None
    assert await living(store) == {worker}
    assert await store.database.tasks.settle(task.id, worker, task.turn, DONE) == "SUCCESS"


@pytest.mark.proves("protocol-09", "rule-08")
async def test_two_observers_bury_a_session_once(store: Store, clock: TestClock) -> None:
    worker = await begin(store)
    task = await one(store, worker)
    clock.advance(60, leases=True)
    [dead] = await silent(store)
    answers = await asyncio.gather(*(store.database.sessions.bury(dead) for _ in range(4)), return_exceptions=True)
    buried = [answer for answer in answers if isinstance(answer, list)]
    assert [[row["id"] for row in rows] for rows in buried] == [[task.id]]
    assert (await row_of(store, task.id))["turn"] == 1


@pytest.mark.proves("L-05", "rule-12")
async def test_a_beat_sets_the_lease_from_now_and_a_dead_session_cannot_renew(store: Store, clock: TestClock) -> None:
    worker = await begin(store)
    clock.advance(20, leases=True)
    assert await beat(store, worker) == {worker}
    assert (await seen(store, worker)).beat_at == clock.beat_now()
    await store.database.sessions.bury(await seen(store, worker))
    assert await beat(store, worker) == set()
    assert await living(store) == set()


@pytest.mark.proves("protocol-25", "protocol-09")
async def test_a_session_is_never_taken_for_dead_at_the_moment_of_its_birth(store: Store) -> None:
    beginning, driver = watched(store)
    proven: list[SeenWorker] = []

    async def look_around(_: object) -> None:
        proven.extend(await proven_dead(store))

    driver.after = look_around
    worker = await begin(beginning)
    assert proven == []
    assert await living(store) == {worker}


WORKER, CHANGED = SeenWorker(1, 100), SeenWorker(1, 200)


@pytest.mark.proves("protocol-09")
def test_the_watch_needs_the_same_beat_for_the_whole_patience() -> None:
    clock = TestClock()
    watch = Watch(clock)
    assert watch.dead_among([WORKER]) == []
    clock.advance(9, leases=True)
    assert watch.dead_among([CHANGED]) == [], "it has beaten: the watch begins again"
    clock.advance(9, leases=True)
    assert watch.dead_among([CHANGED]) == []
    clock.advance(1, leases=True)
    assert watch.dead_among([CHANGED]) == [CHANGED]


@pytest.mark.proves("protocol-09")
def test_the_watch_begins_anew_when_a_session_was_heard_of_meanwhile() -> None:
    clock = TestClock()
    watch = Watch(clock)
    watch.dead_among([WORKER])
    clock.advance(5, leases=True)
    assert watch.dead_among([]) == []
    clock.advance(5, leases=True)
    assert watch.dead_among([WORKER]) == []


@pytest.mark.proves("protocol-09", "promise-14")
def test_the_watch_begins_anew_after_a_gap_or_a_failed_look() -> None:
    clock = TestClock()
    watch = Watch(clock)
    watch.dead_among([WORKER])
    clock.advance(21, leases=True)  # the observer could not look: the others could not beat
    assert watch.dead_among([WORKER]) == []
    clock.advance(9, leases=True)
    watch.interrupted()
    clock.advance(1, leases=True)
    assert watch.dead_among([WORKER]) == []
    clock.advance(10, leases=True)
    assert watch.dead_among([WORKER]) == [WORKER]


@pytest.mark.proves("protocol-09", "promise-14")
async def test_a_look_that_the_database_does_not_answer_makes_the_watch_begin_anew(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await begin(store)
    clock.advance(60, leases=True)
    recovery = Recovery(store.database)
    await recovery.look()

    async def lost(call: Call) -> list[Any]:
        raise StoreUnavailable("reset")

    clock.advance(5, leases=True)
    with monkeypatch.context() as broken:
        broken.setattr(store.database.driver, "read", lost)
        with pytest.raises(StoreUnavailable):
            await recovery.look()
    clock.advance(5, leases=True)
    await recovery.look()
    assert await living(store) == {worker}


# What is given back


@pytest.mark.proves("protocol-01", "rule-25")
async def test_a_dead_sessions_tasks_come_back_all_and_only_they(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.store.sessions.MOST_RETURNED", 7)
    await store.create_queue("q")
    await store.enqueue_many("q", range(40))
    dead, other = await begin(store), await begin(store)
    lost = await claim(store, dead, "q", 25)
    kept = await claim(store, other, "q", 5)
    returned = await store.database.sessions.bury(await seen(store, dead))
    assert returned is not None
    assert sorted(row["id"] for row in returned) == sorted(task.id for task in lost)
    rows = await ask(store, "select id, owner from {task} where owner is not null")
    assert {row["id"]: row["owner"] for row in rows} == {task.id: other for task in kept}


@pytest.mark.proves("protocol-01", "rule-08")
async def test_a_task_left_under_a_dead_owner_is_returned_by_any_observer(store: Store) -> None:
    worker = await begin(store)
    task = await one(store, worker)
    await do(
        store,
        f"delete from {{beat}} where worker_id = {worker}",
        f"delete from {{fence}} where worker_id = {worker}",
    )
    assert await running_under_the_dead(store) == 1
    assert await Recovery(store.database).look() == {task.queue_id}
    assert await running_under_the_dead(store) == 0
    assert len(await claim(store, await begin(store), "q")) == 1


# Interleavings on Postgres, forced with raw connections


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


class ByHand:
    """A script of the store's, played statement by statement on a connection of the test's own."""

    def __init__(self, connection: asyncpg.Connection, store: Store) -> None:
        self._connection = connection
        self._composer = Composer(store.database.statements)

    async def say(self, call: Call) -> list[Any]:
        text, values = self._composer.compose([call])
        return list(await self._connection.fetch(text, *values))

    async def bury(self, store: Store, dead: SeenWorker, pause: asyncio.Event, waiting: asyncio.Event) -> list[Any]:
        """What `Sessions.bury` does, pausing before the tasks are given back."""
        stop = Call("stop_beat", {"worker": dead.worker_id, "seen": dead.beat_at})
        talk = store.database.sessions._end(stop, dead.worker_id, "lost", died=True)
        rows: list[Any] | None = None
        async with self._connection.transaction():
            while True:
                try:
                    call = talk.send(rows) if rows is not None else next(talk)
                except StopIteration as end:
                    return list(end.value)
                assert isinstance(call, Call)
                if call.statement == "return_tasks":
                    waiting.set()
                    await pause.wait()
                rows = await self.say(call)


@ONLY_POSTGRES
@pytest.mark.proves("protocol-01", "L-02")
async def test_a_claim_that_commits_while_the_reaper_waits_for_it_leaves_nothing_running_under_the_dead(
    live_store: Store, store_url: str, backend: str
) -> None:
    store = live_store
    await store.create_queue("q")
    await store.enqueue_many("q", range(3))
    worker = await begin(store)
    dead = await seen(store, worker)
    async with raw(store_url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        rows = wanted_of([(await store.database.queue_id("q"), 3)], {})
        claimed = await ByHand(connection, store).say(
            Call("claim", {"worker": worker, "slot": store.database.claim_slot, "limit": 3}, rows)
        )
        assert len(claimed) == 3
        burial = asyncio.create_task(store.database.sessions.bury(dead))
        await until(lambda: waiting_for_locks(store), message="the reaper waits for the claim's fence")
        await transaction.commit()
        returned = await burial
    assert returned is not None
    assert len(returned) == 3
    assert await running_under_the_dead(store) == 0


@ONLY_POSTGRES
@pytest.mark.proves("protocol-01", "L-02")
async def test_a_claim_that_comes_while_the_reaper_is_at_work_takes_nothing(
    live_store: Store, store_url: str, backend: str
) -> None:
    store = live_store
    await store.create_queue("q")
    await store.enqueue_many("q", range(3))
    worker = await begin(store)
    pause, waiting = asyncio.Event(), asyncio.Event()
    async with raw(store_url) as connection:
        burial = asyncio.create_task(ByHand(connection, store).bury(store, await seen(store, worker), pause, waiting))
        await waiting.wait()
        late = asyncio.create_task(claim_again(store, worker, "q", 3))
        await until(lambda: waiting_for_locks(store), message="the claim waits for the fence")
        pause.set()
        await burial
        assert await late == []
    assert await running_under_the_dead(store) == 0
    assert len(await claim(store, await begin(store), "q", 3)) == 3


@ONLY_POSTGRES
@pytest.mark.proves("protocol-01", "protocol-03", "rule-02")
async def test_a_settle_that_comes_while_the_reaper_is_at_work_is_refused(
    live_store: Store, store_url: str, backend: str
) -> None:
    store = live_store
    worker = await begin(store)
    task = await one(store, worker)
    pause, waiting = asyncio.Event(), asyncio.Event()
    async with raw(store_url) as connection:
        burial = asyncio.create_task(ByHand(connection, store).bury(store, await seen(store, worker), pause, waiting))
        await waiting.wait()
        late = asyncio.create_task(store.database.tasks.settle(task.id, worker, task.turn, DONE))
        await until(lambda: waiting_for_locks(store), message="the settle waits for the fence")
        pause.set()
        assert [row["id"] for row in await burial] == [task.id]
        with pytest.raises(LeaseLost):
            await late
    assert (await row_of(store, task.id))["status"] == "PENDING"


@ONLY_POSTGRES
@pytest.mark.proves("protocol-08", "rule-20")
async def test_the_reaper_gives_up_on_a_lock_quickly_and_nobody_waits_behind_it(
    live_store: Store, store_url: str, backend: str
) -> None:
    store = live_store
    frozen, other = await begin(store), await begin(store)
    await store.create_queue("q")
    await store.enqueue_many("q", range(10))
    dead = await seen(store, frozen)
    async with raw(store_url) as connection, connection.transaction():
        await connection.execute("select 1 from stepwell.fence where worker_id = $1 for share", frozen)
        started = time.monotonic()
        burial = asyncio.create_task(store.database.sessions.bury(dead))
        waiting = [await until(lambda: waiting_for_locks(store))]
        [task] = await claim(store, other, "q")
        waiting.append(await waiting_for_locks(store))
        await store.database.tasks.settle(task.id, other, task.turn, DONE)
        waiting.append(await waiting_for_locks(store))
        assert await beat(store, other) == {other}
        assert max(waiting) == 1, "somebody waits behind the reaper"
        with pytest.raises(StoreBusy):
            await burial
        assert time.monotonic() - started < 4, "it waited as long as any other statement"
        assert await living(store) == {frozen, other}, "nothing was written"
    assert await store.database.sessions.bury(dead) == []


@ONLY_POSTGRES
@pytest.mark.proves("protocol-08", "rule-08")
async def test_a_session_that_cannot_be_buried_does_not_keep_the_others_from_it(
    store: Store, clock: TestClock, store_url: str, backend: str
) -> None:
    frozen, dead = await begin(store), await begin(store)
    task = await one(store, dead)
    recovery = Recovery(store.database)
    clock.advance(60, leases=True)
    await recovery.look()
    clock.advance(10, leases=True)
    async with raw(store_url) as connection, connection.transaction():
        await connection.execute("select 1 from stepwell.fence where worker_id = $1 for share", frozen)
        await recovery.look()
        assert await living(store) == {frozen}
        assert (await row_of(store, task.id))["status"] == "PENDING"
    await recovery.look()
    assert await living(store) == set()


@ONLY_POSTGRES
@pytest.mark.proves("protocol-01", "rule-08")
async def test_what_the_reaper_had_to_skip_because_it_was_locked_is_returned_by_the_next_sweep(
    live_store: Store, store_url: str, backend: str
) -> None:
    store = live_store
    worker = await begin(store)
    await store.create_queue("q")
    await store.enqueue_many("q", range(3))
    tasks = await claim(store, worker, "q", 3)
    async with raw(store_url) as connection, connection.transaction():
        await connection.execute("select 1 from stepwell.task where id = $1 for update", tasks[0].id)
        returned = await store.database.sessions.bury(await seen(store, worker))
        assert returned is not None
        assert sorted(row["id"] for row in returned) == sorted(task.id for task in tasks[1:])
    assert await running_under_the_dead(store) == 1
    assert await Recovery(store.database).look() == {tasks[0].queue_id}
    assert await running_under_the_dead(store) == 0


@ONLY_POSTGRES
@pytest.mark.proves("protocol-01", "L-02", "promise-04")
async def test_claims_settles_and_burials_at_once_strand_nothing_and_close_every_turn_once(
    store_url: str, backend: str
) -> None:
    async with connect(store_url, pool=6) as first, connect(store_url, pool=6) as second:
        await first.create_queue("q")
        await first.enqueue_many("q", range(600))
        closed: list[tuple[int, int]] = []
        ended = asyncio.Event()

        async def work(store: Store) -> None:
            while not ended.is_set():
                worker = await begin(store)
                tasks = []
                for _ in range(3):
                    tasks += await claim(store, worker, "q", 4)
                    tasks += await claim_alone(store, worker, "q", beside=True)
                killer = asyncio.create_task(other_of[store].database.sessions.bury(await seen(store, worker)))
                answers = await asyncio.gather(
                    *(store.database.tasks.settle(task.id, worker, task.turn, DONE) for task in tasks),
                    claim(store, worker, "q", 4),
                    return_exceptions=True,
                )
                closed.extend(
                    (task.id, task.turn) for task, answer in zip(tasks, answers, strict=False) if answer == "SUCCESS"
                )
                await asyncio.gather(killer, return_exceptions=True)

        other_of = {first: second, second: first}
        await do(first, "update {task} set max_attempts = 1000")
        workers = [asyncio.create_task(work(store)) for store in (first, second) for _ in range(2)]
        await asyncio.sleep(2)
        ended.set()
        await asyncio.gather(*workers)
        for worker in await living(first):
            await first.database.sessions.bury(await seen(first, worker))
        await Recovery(first.database).look()
        assert await running_under_the_dead(first) == 0
        rows = await ask(first, "select id from {task} where status = 'SUCCESS'")
        assert len(closed) == len(set(closed)) == len(rows)
        assert {row["id"] for row in rows} == {task_id for task_id, _ in closed}
        [turns] = await ask(
            first, "select max(turn) as most, count(*) filter (where owner is not null) as held from {task}"
        )
        assert turns["held"] == 0
        assert turns["most"] > 1, "nothing was taken from anybody: void"
