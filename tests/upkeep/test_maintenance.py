"""Maintenance: nobody claims, what runs goes on, nothing is lost or counted, and everybody notices by themselves."""

import asyncio
from typing import Any

import pytest

from stepwell import Store, Worker, connect, handler
from stepwell.base.clock import TestClock
from stepwell.store.rows import SeenWorker
from tests.ground.waiting import until
from tests.queue.raw import ask
from tests.store.seam import beat, begin, claim, one
from tests.upkeep.rows import put


@pytest.mark.proves("DP-10")
async def test_nobody_claims_in_any_way_while_it_lasts(store: Store) -> None:
    worker = await begin(store)
    held = await one(store, worker)
    for number in range(3):
        await store.enqueue("q", number, priority=number)
    await store.begin_maintenance("moving to another host")
    assert await claim(store, worker, "q", 10) == []
    assert await store.dequeue("q", 10) == []
    place = (await store.database.queue_id("q"), 10, 0, 0, 0)
    if store.database.driver.claims_many_queues:
        assert await store.database.tasks.claim_above(worker, [place], 10) == []
    # What is due becomes ready, what runs is settled, a session beats: only the claim stands still.
    assert await beat(store, worker) == {worker}
    tasks = [await store.get(task) for task in range(1, 1000) if await store.get(task)]
    assert [task.attempt for task in tasks if task is not None and task.id != held.id] == [0, 0, 0]
    await store.end_maintenance()
    assert len(await claim(store, worker, "q", 1)) == 1
    assert len(await store.dequeue("q", 1)) == 1
    if store.database.driver.claims_many_queues:
        assert len(await store.database.tasks.claim_above(worker, [place], 10)) == 1


@pytest.mark.proves("DP-10")
async def test_it_says_since_when_why_and_what_still_runs(store: Store, clock: TestClock) -> None:
    assert await store.maintenance() is None
    await store.end_maintenance()
    worker = await begin(store)
    held = await one(store, worker)
    await store.begin_maintenance("moving")
    began = await store.maintenance()
    assert began is not None
    assert (began.reason, began.running) == ("moving", 1)
    clock.advance("1h")
    await store.begin_maintenance()
    again = await store.maintenance()
    assert again is not None
    assert (again.reason, again.began_at) == (None, began.began_at)
    await store.delete(held.id)
    assert await store.maintenance() == again
    await put(store, [1001], ready=True)
    assert await ask(store, "select state from {messages} where id = 1001") == [("the store is in maintenance",)]
    await store.end_maintenance()
    assert await store.maintenance() is None
    assert await ask(store, "select state from {messages} where id = 1001") == [("ready",)]


@pytest.mark.proves("DP-10")
async def test_workers_notice_its_beginning_and_its_end_and_finish_what_they_have(live_store: Store) -> None:
    started, release = asyncio.Event(), asyncio.Event()
    done: list[int] = []

    @handler("mail")
    async def send(number: int) -> None:
        started.set()
        if number == 0:
            await release.wait()
        done.append(number)

    async with Worker(live_store, [send]) as worker:
        running = await live_store.enqueue(send, 0)
        await started.wait()
        await live_store.begin_maintenance()
        waiting = await live_store.enqueue_many(send, range(1, 4))
        await worker._runtime._claim_once()
        release.set()
        await until(lambda: done == [0])
        await until(lambda: _status(live_store, running, "SUCCESS"))
        assert await worker.drain() == 0
        tasks = [await live_store.get(task) for task in waiting]
        assert [(task.status, task.attempt, task.ready) for task in tasks if task] == [("PENDING", 0, True)] * 3
        await live_store.end_maintenance()
        await until(lambda: sorted(done) == [0, 1, 2, 3])


async def test_another_process_may_end_it(live_store: Store, store_url: str) -> None:
    done: list[int] = []

    @handler("mail")
    async def send(number: int) -> None:
        done.append(number)

    await live_store.begin_maintenance()
    await live_store.enqueue(send, 1)
    async with Worker(live_store, [send]):
        async with connect(store_url) as other:  # no hint comes from there, as from another process
            assert await other.maintenance() is not None
            await other.end_maintenance()
        await until(lambda: done == [1])


@pytest.mark.proves("DP-10")
async def test_recovery_and_the_sweep_go_on_meanwhile(store: Store, clock: TestClock) -> None:
    session = await begin(store)
    lost = await one(store, session)
    late = await store.enqueue("q", "late", delay="1m")
    await store.begin_maintenance()
    [living] = await store.database.sessions.living()
    assert await store.database.sessions.bury(SeenWorker(session, living.beat_at)) is not None
    clock.advance("2m")
    await store.database.tasks.wake()
    for task_id, ready in ((lost.id, False), (late, True)):  # what was lost is executed alone
        task = await store.get(task_id)
        assert task is not None
        assert (task.status, task.ready) == ("PENDING", ready)
    assert await store.dequeue("q", 10) == []
    await store.end_maintenance()
    assert [message.id for message in await store.dequeue("q", 10)] == [late]
    assert [message.id for message in await store.dequeue("q", 10)] == [lost.id]


async def test_it_is_for_one_tenant(store: Store, store_url: str, clock: TestClock) -> None:
    async with connect(store_url, clock=clock, tenant="ann") as ann:
        for each in (store, ann):
            await each.create_queue("q")
            await each.enqueue("q", 1)
        await ann.begin_maintenance()
        assert await store.maintenance() is None
        assert await ann.dequeue("q") == []
        assert len(await store.dequeue("q")) == 1


@pytest.mark.proves("DP-10")
async def test_one_queue_alone_is_paused(store: Store) -> None:
    for name in ("stopped", "open"):
        await store.create_queue(name)
        await store.enqueue(name, 1)
    await store.pause_queue("stopped")
    assert [message.queue for message in await store.dequeue(["stopped", "open"], 10)] == ["open"]
    await store.resume_queue("stopped")
    assert [message.queue for message in await store.dequeue(["stopped", "open"], 10)] == ["stopped"]


async def _status(store: Store, task_id: int, status: str) -> bool:
    task: Any = await store.get(task_id)
    return bool(task.status == status)
