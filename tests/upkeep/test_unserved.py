"""Work that no living worker serves is found, and told once."""

import logging
from typing import Any

import pytest

from stepwell import Store, Unserved, Worker, connect, handler, telemetry
from stepwell.clock import TestClock
from stepwell.engine import upkeep
from stepwell.engine.upkeep import Tidying
from stepwell.store import serving
from stepwell.store.sessions import Identity
from stepwell.telemetry import LogBudget, WorkUnserved
from tests.ground.waiting import until
from tests.queue.raw import change
from tests.store.seam import LEASE
from tests.upkeep.rows import finished, put


@handler("mail")
async def send(payload: object) -> None: ...


@handler("zip")
async def pack(payload: object) -> None: ...


async def serve(store: Store, *handlers: str) -> int:
    return await store.sessions.begin(Identity("w", "host", 1, None, "0", handlers), LEASE)


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
    assert await store.unserved() == [Unserved("later", 1), Unserved("zip", 5)]
    await store.pause_queue("later")
    await store.drain_queue("zip")
    assert [one.queue for one in await store.unserved()] == ["later", "zip"]  # they wait all the same
    await store.sessions.end(worker, "stopped")
    assert [one.queue for one in await store.unserved()] == ["later", "mail", "media.video.v1", "zip"]


async def test_it_is_not_counted_to_the_end_and_is_one_tenants(
    store: Store, store_url: str, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MOST_COUNTED", 3)
    await put(store, range(1, 6), queue="zip", ready=True)
    await put(store, range(6, 11), queue="zip", run_at=10**17)
    assert await store.unserved() == [Unserved("zip", 3)]
    async with connect(store_url, clock=clock, tenant="ann") as ann:
        await serve(ann, "zip")
        assert await ann.unserved() == []
        assert await store.unserved() == [Unserved("zip", 3)]


@pytest.mark.proves("DP-08", "PR-16")
async def test_a_worker_that_starts_tells_what_it_and_the_others_do_not_serve(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "_budget", LogBudget())
    caplog.set_level(logging.WARNING, "stepwell")
    events: list[Any] = []
    store.telemetry.subscribe(events.append)
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
    store.telemetry.subscribe(events.append)
    tidying = Tidying(store)
    await put(store, [1, 2], queue="a", ready=True)
    assert await tidying.report_unserved() is True
    await put(store, [3], queue="a", ready=True)
    assert await tidying.report_unserved() is False
    await put(store, [4], queue="b", ready=True)
    assert await tidying.report_unserved() is True
    worker = await serve(store, "b")
    assert await tidying.report_unserved() is False
    await store.sessions.end(worker, "stopped")
    assert await tidying.report_unserved() is True
    assert [event.queues for event in events] == [(("a", 2),), (("a", 3), ("b", 1)), (("a", 3), ("b", 1))]


async def test_a_running_worker_looks_again_and_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "ROUND_EVERY", 0.01)
    monkeypatch.setattr(upkeep, "REPORT_EVERY", 0.01)
    events: list[Any] = []
    store.telemetry.subscribe(events.append)
    async with Worker(store, [send]):
        await store.create_queue("zip")
        await change(
            store,
            "insert into {task} (id, kind, queue_id, ready, run_at, max_attempts, created_at, updated_at)"
            " select 1001, 'message', queue.id, true, 1, 3, 1, 1 from {queue} as queue where queue.name = 'zip'",
        )
        await until(lambda: WorkUnserved((("zip", 1),)) in events)
