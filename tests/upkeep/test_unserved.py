"""Work that no living worker serves is found, and told once."""

import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from stepwell import NoWorkerAvailable, Store, Unserved, Worker, connect, handler, workflow
from stepwell.base import count, telemetry
from stepwell.base.clock import TestClock
from stepwell.base.count import Count
from stepwell.base.events import WorkUnserved
from stepwell.base.telemetry import LogBudget
from stepwell.store.sessions import Identity
from stepwell.work import upkeep
from stepwell.work.upkeep import Tidying
from tests.ground.processes import spawn
from tests.ground.waiting import until
from tests.queue.raw import change
from tests.store.seam import LEASE
from tests.upkeep.rows import finished, put


@handler("mail")
async def send(payload: object) -> None: ...


@handler("zip")
async def pack(payload: object) -> None: ...


async def serve(store: Store, *handlers: str) -> int:
    return await store.database.sessions.begin(Identity("w", "host", 1, None, "0", handlers), LEASE)


@pytest.mark.proves("PR-16")
async def test_queues_with_work_that_nobody_serves_are_listed(store: Store) -> None:
    worker = await serve(store, "mail", "media.*")
    await put(store, [1], queue="mail", ready=True)
    await put(store, [2], queue="media.video.v1", ready=True)
    await put(store, [3, 4, 5], queue="zip", ready=True)
    await put(store, [6], queue="zip", run_at=10**17)
    await put(store, [7], queue="zip", status="RUNNING")
    await put(store, [8], queue="later", run_at=10**17)
    await finished(store, [9], days_ago=1, queue="done")
    await put(store, [10], queue="deleted", deleted_at=1)
    await store.create_queue("empty")
    assert await store.unserved() == [Unserved("later", Count(1)), Unserved("zip", Count(5))]
    await store.pause_queue("later")
    await store.drain_queue("zip")
    assert [one.queue for one in await store.unserved()] == ["later", "zip"]  # they wait all the same
    await store.database.sessions.end(worker, "stopped")
    assert [one.queue for one in await store.unserved()] == ["later", "mail", "media.video.v1", "zip"]


async def test_it_is_not_counted_to_the_end_and_is_one_tenants(
    store: Store, store_url: str, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(count, "MOST_COUNTED", 3)
    await put(store, range(1, 6), queue="zip", ready=True)
    await put(store, range(6, 11), queue="zip", run_at=10**17)
    assert await store.unserved() == [Unserved("zip", Count(3, is_floor=True))]
    async with connect(store_url, clock=clock, tenant="ann") as ann:
        await serve(ann, "zip")
        assert await ann.unserved() == []
        assert await store.unserved() == [Unserved("zip", Count(3, is_floor=True))]


@pytest.mark.proves("DP-08", "PR-16")
async def test_a_worker_that_starts_tells_what_it_and_the_others_do_not_serve(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "_budget", LogBudget())
    caplog.set_level(logging.WARNING, "stepwell")
    events: list[Any] = []
    store.database.telemetry.subscribe(events.append)
    await store.enqueue_many(send, range(3))
    await store.enqueue_many(pack, range(2))
    await store.enqueue_many("zip", [1], delay="1d")
    async with Worker(store, [send]):  # the new release has no handler for `zip` any more
        await until(lambda: any(isinstance(event, WorkUnserved) for event in events))
        async with Worker(store, [pack]) as second:
            await second.drain()
    assert [event for event in events if isinstance(event, WorkUnserved)] == [WorkUnserved((("zip", 3),))]
    [line] = [record.getMessage() for record in caplog.records if "no living worker" in record.getMessage()]
    assert line == "no living worker serves zip (3 waiting): start one that does, or take them by hand"


@pytest.mark.proves("DP-08")
async def test_it_is_told_again_only_when_there_is_more_to_tell(store: Store) -> None:
    events: list[Any] = []
    store.database.telemetry.subscribe(events.append)
    tidying = Tidying(store.database)
    await put(store, [1, 2], queue="a", ready=True)
    assert await tidying.report_unserved() is True
    await put(store, [3], queue="a", ready=True)
    assert await tidying.report_unserved() is False
    await put(store, [4], queue="b", ready=True)
    assert await tidying.report_unserved() is True
    worker = await serve(store, "b")
    assert await tidying.report_unserved() is False
    await store.database.sessions.end(worker, "stopped")
    assert await tidying.report_unserved() is True
    assert [event.queues for event in events] == [(("a", 2),), (("a", 3), ("b", 1)), (("a", 3), ("b", 1))]


async def test_a_running_worker_looks_again_and_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "ROUND_EVERY", 0.01)
    monkeypatch.setattr(upkeep, "REPORT_EVERY", 0.01)
    events: list[Any] = []
    store.database.telemetry.subscribe(events.append)
    async with Worker(store, [send]):
        await store.create_queue("zip")
        await change(
            store,
            "insert into {task} (id, kind, queue_id, ready, run_at, max_attempts, created_at, updated_at)"
            " select 1001, 'MESSAGE', queue.id, true, 1, 3, 1, 1 from {queue} as queue where queue.name = 'zip'",
        )
        await until(lambda: WorkUnserved((("zip", 1),)) in events)


@pytest.mark.proves("PR-16")
async def test_a_worker_that_is_silent_for_longer_than_its_lease_serves_nothing(store: Store, clock: TestClock) -> None:
    await serve(store, "mail")
    await put(store, [1], queue="mail", ready=True)
    assert ([one.alive for one in await store.workers()], await store.unserved()) == ([True], [])
    clock.advance(LEASE / 1_000_000 + 1, leases=True)
    [dead] = await store.workers()
    assert (dead.alive, dead.stopped_at) == (False, None), "nobody has taken over yet"
    assert await store.unserved() == [Unserved("mail", Count(1))]


@pytest.mark.proves("PR-16", "Q-26")
async def test_a_process_that_is_known_to_be_gone_serves_nothing_from_then_on(store: Store) -> None:
    worker = await serve(store, "mail", "mail.flow")
    await put(store, [1], queue="mail", ready=True)
    await change(store, f"update {{beat}} set gone = true where worker_id = {worker}")  # as its helper notes it
    assert [one.alive for one in await store.workers()] == [False]
    assert await store.unserved() == [Unserved("mail", Count(1))]
    await store.create_workflow("mail.flow")
    with pytest.raises(NoWorkerAvailable):
        await workflow("mail.flow").trigger().options(require_worker="error").execute(store)
    await store.delete_workflow("mail.flow")  # that a living worker served it would be a reason to refuse


@pytest.mark.proves("PR-16")
@pytest.mark.backends("sqlite", "postgres", reason="Turso serves one process")
async def test_the_only_worker_is_killed(live_store: Store, store_url: str, tmp_path: Path) -> None:
    """Its process and the one above it: nobody is left to say that it is gone, but on SQLite a lock that is free."""
    url = f"{store_url}{'&' if '?' in store_url else '?'}lease=1s"
    environment = {**os.environ, "STEPWELL_URL": url}
    command = [sys.executable, "-m", "stepwell", "worker", "tests.cli.shop", "--queue", "emails"]
    with (tmp_path / "out").open("wb") as out:
        above = spawn(command, stdout=out, stderr=out, env=environment)
    try:
        await live_store.create_queue("emails")

        async def lives() -> bool:
            return [one.alive for one in await live_store.workers()] == [True]

        await until(lives, 30, message="it to begin")
        [worker] = await live_store.workers()
        above.send_signal(signal.SIGSTOP)
        os.kill(worker.pid, signal.SIGKILL)
    finally:
        above.kill()
        above.wait(10)
    await live_store.enqueue("emails", "ada@example.org")

    async def noticed() -> bool:
        gone = [one.alive for one in await live_store.workers()] == [False]
        return gone and await live_store.unserved() == [Unserved("emails", Count(1))]

    await until(noticed, 20)
