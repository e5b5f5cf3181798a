"""Sessions: a living one is never taken for dead, a dead one writes nothing, and its worker goes on under another."""

import asyncio
import os
import sqlite3
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    LeaseLost,
    PermanentError,
    Store,
    StoreBusy,
    StoreUnavailable,
    TransientError,
    Worker,
    connect,
    handler,
)
from stepwell.base.clock import TestClock
from stepwell.base.events import LateWriteRefused, SessionLost, SessionsRecovered, SessionStarted, StoreBack, StoreLost
from stepwell.records import RunStatus
from stepwell.store.recovery import Recovery
from stepwell.store.rows import Settlement
from stepwell.work.heartbeat import Heartbeat
from tests.ground.faultproxy import FaultProxy
from tests.ground.processes import spawn
from tests.ground.waiting import until
from tests.queue.raw import ask, change
from tests.worker.silence import silence, stillness


@asynccontextmanager
async def beating(store_url: str, lease: float = 1.5) -> AsyncIterator[Store]:
    async with connect(f"{store_url}?lease={lease}") as store:
        yield store


async def bury(store: Store, worker_id: int) -> None:
    """Do what another worker does that has found this session dead."""
    await change(
        store,
        f"delete from {{beat}} where worker_id = {worker_id}",
        f"delete from {{fence}} where worker_id = {worker_id}",
    )


@pytest.mark.proves("L-08")
async def test_a_worker_declared_dead_stops_its_bodies_writes_nothing_and_goes_on(store_url: str) -> None:
    told: list[str] = []
    events: list[Any] = []
    started = asyncio.Event()

    @handler("mail", retry=5)
    async def wait(name: str) -> None:
        told.append(f"{name} starts")
        started.set()
        if told == ["first starts"]:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                told.append(f"{name} is cancelled")
                raise
        told.append(f"{name} ends")

    async with beating(store_url) as store:
        store.database.telemetry.subscribe(events.append)
        async with Worker(store, [wait]) as worker:
            dead = worker.id
            message = await store.enqueue(wait, "first")
            await asyncio.wait_for(started.wait(), 10)
            await bury(store, dead)
            with pytest.raises(LeaseLost):  # whatever it still has to say is refused
                await store.database.tasks.settle(message, dead, 1, Settlement(RunStatus.SUCCESS))
            await until(lambda: told[-1] == "first ends")
            assert worker.id != dead
            second = await store.enqueue(wait, "second")
            await until(lambda: _is_done(store, second))
        task = await store.get(message)
        assert task is not None
        assert (task.status, task.attempt, task.turn) == ("SUCCESS", 2, 2)
    assert told[:4] == ["first starts", "first is cancelled", "first starts", "first ends"]
    kinds = [type(event) for event in events]
    assert kinds.index(SessionStarted) < kinds.index(SessionLost) < len(kinds) - kinds[::-1].index(SessionStarted)
    assert [event.worker_id for event in events if isinstance(event, SessionLost)] == [dead]
    assert kinds.count(SessionLost) == 1


async def _is_done(store: Store, task_id: int) -> bool:
    task = await store.get(task_id)
    return task is not None and task.status == "SUCCESS"


async def test_a_body_that_ends_after_its_session_died_is_refused_by_the_database(store_url: str) -> None:
    executed: list[int] = []
    events: list[Any] = []
    started, go_on = threading.Event(), threading.Event()

    @handler("mail", retry=5)
    def work(number: int) -> None:
        executed.append(number)
        if len(executed) == 1:
            started.set()
            go_on.wait(30)

    async with beating(store_url, lease=30) as store:  # no beat comes in between: the fence alone decides
        store.database.telemetry.subscribe(events.append)
        async with Worker(store, [work]) as worker:
            message = await store.enqueue(work, 1)
            await until(started.is_set)
            dead = worker.id
            await bury(store, dead)
            go_on.set()
            await until(lambda: LateWriteRefused(dead, message, 1) in events)
            task = await store.get(message)
            assert task is not None
            assert task.status != "SUCCESS"


@pytest.mark.proves("L-07")
async def test_neither_a_blocked_loop_nor_a_long_thread_costs_the_session(store_url: str) -> None:
    """Five leases, watched by a worker on another loop that would take the messages of a dead session."""
    lease = 1.0
    executed: list[str] = []
    recovered: list[Any] = []
    ready, stop = threading.Event(), threading.Event()

    @handler("async", retry=5)
    async def block(name: str) -> None:
        executed.append(name)
        watcher.start()
        ready.wait(30)
        time.sleep(5 * lease)  # noqa: ASYNC251 - this is the fault

    @handler("sync", retry=5)
    def hold(name: str) -> None:
        executed.append(name)
        time.sleep(5 * lease)

    async def watch() -> None:
        async with beating(store_url, lease) as store:
            store.database.telemetry.subscribe(
                lambda event: recovered.append(event) if isinstance(event, SessionsRecovered) else None
            )
            async with Worker(store, [block, hold], grace=0):
                ready.set()
                await until(stop.is_set, timeout=60)

    watcher = threading.Thread(target=lambda: asyncio.run(watch()))
    async with beating(store_url, lease) as store:
        async with Worker(store, [block, hold]) as worker:
            session = worker.id
            ids = [await store.enqueue(hold, "sync")]
            await until(lambda: executed == ["sync"])
            ids.append(await store.enqueue(block, "async"))
            await until(lambda: _all_done(store, ids), timeout=40)
            assert worker.id == session
        stop.set()
        await asyncio.to_thread(watcher.join, 30)
    assert executed == ["sync", "async"]
    assert recovered == []


async def _all_done(store: Store, ids: list[Any]) -> bool:
    return all([await _is_done(store, each) for each in ids])


@pytest.mark.proves("W-08", "L-03", "protocol-09")
async def test_a_session_that_is_not_heard_of_counts_as_dead_after_its_lease(store: Store, clock: TestClock) -> None:
    started = asyncio.Event()

    @handler("mail", retry=2)
    async def wait(number: int) -> None:
        started.set()
        await asyncio.sleep(3600)

    async with Worker(store, [wait], name="ann", port=8080, grace=0) as worker:
        session = worker.id
        message = await store.enqueue(wait, 1)
        await asyncio.wait_for(started.wait(), 10)
        await silence(store)
        recovery = Recovery(store.database)
        clock.advance(29, leases=True)
        assert await recovery.look() == set()
        [info] = [each for each in await store.workers() if each.id == session]
        assert (info.name, info.port, info.alive, info.silent) == ("ann", 8080, True, 29.0)
        clock.advance(2, leases=True)
        assert await recovery.look() == set()  # silent for a lease, but not yet seen so for a third of one
        clock.advance(9, leases=True)
        assert await recovery.look() == set()
        clock.advance(2, leases=True)
        assert await recovery.look() == {await store.database.queue_id("mail")}
        [info] = [each for each in await store.workers() if each.id == session]
        assert (info.alive, info.stop_reason) == (False, "lost")
        task = await store.get(message)
        assert task is not None
        assert (task.status, task.ready, task.owner) == ("PENDING", False, None), "it is executed alone"
        assert (task.attempt, task.last_error) == (1, "worker_lost")


async def test_workers_of_one_store_share_one_heartbeat(live_store: Store) -> None:
    @handler("mail")
    async def send(number: int) -> None: ...

    def beats() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "stepwell-heartbeat"]

    before = len(beats())
    async with Worker(live_store, [send]) as one:
        assert len(beats()) == before + 1
        async with Worker(live_store, [send]) as two, Worker(live_store, [send]):
            assert one.id != two.id
            assert len(beats()) == before + 1
        assert len(beats()) == before + 1
        assert [each.alive for each in await live_store.workers()] == [False, False, True]
    assert len(beats()) == before


@pytest.mark.proves("L-06")
async def test_the_lease_is_thirty_seconds_and_the_beat_a_third_of_it(store_url: str) -> None:
    for lease, options in ((30.0, ""), (9.0, "?lease=9"), (90.0, "?lease=1m30s")):
        async with connect(f"{store_url}{options}") as store, Worker(store, []) as worker:
            assert store.database.options.lease == lease
            assert Heartbeat.of(store.database)._every == lease / 3
            [[stored]] = await ask(store, f"select lease from {{worker}} where id = {worker.id}")
            assert stored == lease * 1_000_000


async def test_beats_keep_a_session_alive_for_many_leases(store_url: str) -> None:
    async with beating(store_url, lease=0.9) as store, Worker(store, []) as worker, Worker(store, []):
        session = worker.id
        first = (await ask(store, f"select beat_at from {{beat}} where worker_id = {session}"))[0][0]
        await until(lambda: _beat_after(store, session, first + 2_700_000))
        assert worker.id == session
        infos = {each.id: each for each in await store.workers()}
        assert infos[session].alive


async def _beat_after(store: Store, session: int, moment: int) -> bool:
    rows = await ask(store, f"select beat_at from {{beat}} where worker_id = {session}")
    return bool(rows) and rows[0][0] > moment


@pytest.mark.proves("W-16")
async def test_any_replica_does_everything(store_url: str) -> None:
    """Whoever is left, the first or the last that came, wakes what is due, recovers the dead and executes."""
    done: list[str] = []

    @handler("mail", retry=5)
    async def send(to: str) -> None:
        done.append(to)

    async with beating(store_url, 3) as a, beating(store_url, 3) as b, beating(store_url, 3) as c:
        stores = [a, b, c]
        workers = [Worker(store, [send]) for store in stores]
        for worker in workers:
            await worker.__aenter__()
        for round_, gone in enumerate((0, 2)):
            await workers[gone].__aexit__(None, None, None)
            store = stores[1]
            await store.enqueue(send, f"due {round_}", delay=0.05)
            lost = await store.enqueue(send, f"lost {round_}", delay="1h")
            await change(  # a task of a session that was buried, but that its recovery had to skip
                store,
                "insert into {worker} (name, host, pid, version, handlers, lease, started_at) "
                "values ('gone', 'gone', 1, '0', '[]', 1, 1)",
                "update {task} set status = 'RUNNING', turn = 1, attempt = 1, "
                f"owner = (select max(id) from {{worker}}) where id = {lost}",
            )
            await until(lambda: {f"due {round_}", f"lost {round_}"} <= set(done), timeout=20)  # noqa: B023
        await workers[1].__aexit__(None, None, None)
    assert sorted(done) == ["due 0", "due 1", "lost 0", "lost 1"]


@pytest.mark.proves("L-17")
async def test_whatever_ends_a_claim_clears_the_owner(store: Store, clock: TestClock) -> None:
    started = asyncio.Event()

    @handler("mail")
    async def work(how: str) -> None:
        if how == "wait":
            started.set()
            await asyncio.sleep(3600)
        if how != "succeed":
            raise {"fail": PermanentError, "retry": ValueError, "later": TransientError}[how]

    async def owners() -> list[Any]:
        return await ask(store, "select id, status, owner from {task} where owner is not null or status = 'RUNNING'")

    for how in ("succeed", "fail", "retry", "later"):
        await store.enqueue(work, how)
        assert await Worker(store, [work]).drain() == 1
        assert await owners() == []
    waiting = await store.enqueue(work, "wait")
    async with Worker(store, [work], grace=0) as worker:
        await asyncio.wait_for(started.wait(), 10)
        assert await owners() == [(waiting, "RUNNING", worker.id)]
    assert await owners() == []  # released
    started.clear()
    async with Worker(store, [work], grace=0) as worker:
        await asyncio.wait_for(started.wait(), 10)
        await change(store, f"update {{task}} set cancel_requested_at = 1 where id = {waiting}")
        async with stillness(store):  # a beat in between says that it lives
            clock.advance(31, leases=True)
            recovery = Recovery(store.database)
            await recovery.look()
            clock.advance(10, leases=True)
            await recovery.look()
            assert await owners() == []  # lost
    task = await store.get(waiting)
    assert task is not None
    assert task.status == "CANCELLED"


@handler("early")
async def early(number: int) -> None: ...


@pytest.mark.proves("promise-14")
@pytest.mark.parametrize("error", [StoreUnavailable("away"), StoreBusy("locked")])
async def test_a_worker_that_starts_while_the_database_is_away_waits_and_says_so(
    live_store: Store, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    events: list[Any] = []
    live_store.database.telemetry.subscribe(events.append)
    begin, failures = live_store.database.sessions.begin, iter([error, error])

    async def beginning(*args: Any) -> int:
        if (failure := next(failures, None)) is not None:
            raise failure
        return await begin(*args)

    monkeypatch.setattr(live_store.database.sessions, "begin", beginning)
    message = await live_store.enqueue(early, 1)
    async with Worker(live_store, [early]) as worker:
        assert await worker.drain() <= 1
        await until(lambda: _succeeded(live_store, message), message="it works as if nothing had been")
    assert [type(event) for event in events if isinstance(event, StoreLost | StoreBack)] == [
        StoreLost,
        StoreLost,
        StoreBack,
    ]


async def _succeeded(store: Store, message: int) -> bool:
    task = await store.get(message)
    return task is not None and task.status == RunStatus.SUCCESS


@pytest.mark.proves("promise-14")
async def test_a_worker_that_waits_for_the_database_can_be_stopped(
    live_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def beginning(*args: Any) -> int:
        raise StoreUnavailable("away")

    monkeypatch.setattr(live_store.database.sessions, "begin", beginning)
    worker = Worker(live_store, [early])
    running = asyncio.ensure_future(worker.run())
    await until(lambda: live_store.database.telemetry.counts[StoreLost] > 0)
    worker.stop()
    await asyncio.wait_for(running, 10)
    with pytest.raises(StoreUnavailable):
        await worker.drain()  # does what is due now, and does not wait for a later day


@pytest.mark.proves("promise-14")
@pytest.mark.backends("postgres", reason="a file is not away, and never slow without being locked")
@pytest.mark.parametrize(
    "worsen",
    [FaultProxy.refuse, FaultProxy.stall_replies, lambda proxy: proxy.delay(3.0)],
    ids=["away", "silent", "slow"],
)
async def test_the_process_of_a_worker_waits_for_a_server_that_is_away_or_slow(
    live_store: Store, store_url: str, proxy: FaultProxy, tmp_path: Path, worsen: Callable[[FaultProxy], None]
) -> None:
    worsen(proxy)
    log = tmp_path / "log"
    address = proxy.url(store_url)
    environment = {**os.environ, "STEPWELL_URL": f"{address}{'&' if '?' in address else '?'}timeout=1s"}
    command = [sys.executable, "-m", "stepwell", "worker", "tests.cli.shop"]
    with log.open("wb") as out:
        process = spawn(command, stdout=out, stderr=out, env=environment)
    try:
        await until(lambda: "the database does not answer" in log.read_text(), 30, message="it to say so")
        assert process.poll() is None, log.read_text()
        proxy.heal()

        async def lives() -> bool:  # a session that it began when it had given up waiting may stand beside its own
            return any(one.alive for one in await live_store.workers())

        await until(lives, 30, message="it to begin")
        assert "the database answers again" in log.read_text()
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.proves("promise-14")
@pytest.mark.backends("sqlite", reason="one writer, and other processes beside it")
async def test_the_process_of_a_worker_waits_for_a_file_that_is_locked(
    live_store: Store, store_url: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    environment = {**os.environ, "STEPWELL_URL": f"{store_url}?timeout=300ms"}
    command = [sys.executable, "-m", "stepwell", "worker", "tests.cli.shop"]
    other = sqlite3.connect(store_url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("begin immediate")
    with log.open("wb") as out:
        process = spawn(command, stdout=out, stderr=out, env=environment)
    try:
        await until(lambda: "the database does not answer" in log.read_text(), 30, message="it to say so")
        assert process.poll() is None, log.read_text()
        other.execute("rollback")

        async def lives() -> bool:  # a session that it began when it had given up waiting may stand beside its own
            return any(one.alive for one in await live_store.workers())

        await until(lives, 30, message="it to begin")
    finally:
        other.close()
        process.terminate()
        process.wait(30)
