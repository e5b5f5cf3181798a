"""A worker that has heard nothing of its lease for too long begins no body before it has been renewed."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from stepwell import Context, Store, Worker, handler, workflow
from stepwell.base.clock import TestClock
from stepwell.store.recovery import Recovery
from stepwell.work.session import Session
from tests.ground.waiting import until
from tests.queue.raw import ask
from tests.worker.silence import silence, stillness
from tests.workflows.kit import begun

pytestmark = pytest.mark.proves("rule-10")


def grown_old(worker: Worker) -> Session:
    """Let the last beat of a worker have been answered longer ago than its lease, by its own clock."""
    [session] = worker._runtime.leases
    session.renewed_at -= session.lease + 1
    session.over_at -= session.lease + 1
    return session


def asks_for_a_beat(session: Session) -> Callable[[], bool]:
    return lambda: session._renewing is not None and not session._renewing.done()


async def test_a_message_that_was_claimed_waits_for_the_beat(store: Store) -> None:
    handled: list[int] = []

    @handler("mail")
    async def mail(number: int) -> None:
        handled.append(number)

    async with Worker(store, [mail]) as worker:
        async with stillness(store):
            session = grown_old(worker)
            await store.enqueue(mail, 1)
            await until(asks_for_a_beat(session))
            assert handled == []
        await until(lambda: handled == [1])
        assert session.over_at > time.monotonic()


@pytest.mark.parametrize("kind", ["sync", "async", "of a sync workflow"])
async def test_a_step_waits_for_the_beat(store: Store, kind: str) -> None:
    called: list[str] = []

    def send() -> str:
        called.append("send")
        return "sent"

    async def send_async() -> str:
        return send()

    beforehand, go = asyncio.Event(), threading.Event()

    @workflow(name="flow")
    async def flow(ctx: Context) -> str:
        beforehand.set()
        await asyncio.to_thread(go.wait)
        return await ctx.step("send", send_async if kind == "async" else send, returns=str)

    @workflow(name="flow")
    def sync_flow(ctx: Context) -> Any:
        loop.call_soon_threadsafe(beforehand.set)
        go.wait()
        return ctx.step("send", send, returns=str)

    loop, serves = asyncio.get_running_loop(), sync_flow if kind == "of a sync workflow" else flow
    async with Worker(store, [serves]) as worker:
        run_id = await begun(store, serves)
        await beforehand.wait()
        async with stillness(store):
            session = grown_old(worker)
            go.set()
            await until(asks_for_a_beat(session))
            assert called == []
        assert await store.result(run_id, str, timeout=10) == "sent"
        assert called == ["send"]


async def test_one_that_was_declared_dead_meanwhile_begins_nothing_more(store: Store, clock: TestClock) -> None:
    called: list[str] = []

    def send() -> str:
        called.append("send")
        return "sent"

    beforehand, go = asyncio.Event(), asyncio.Event()

    @workflow
    async def flow(ctx: Context) -> str:
        beforehand.set()
        await go.wait()
        return await ctx.step("send", send, returns=str)

    async with Worker(store, [flow], grace=0) as worker:
        run_id = await begun(store, flow)
        await beforehand.wait()
        async with stillness(store):
            session, recovery = grown_old(worker), Recovery(store.database)
            for seconds in (31, 11):
                clock.advance(seconds, leases=True)
                await recovery.look()
            assert await ask(store, f"select owner from {{task}} where id = {run_id}") == [(None,)]
            go.set()
            await until(asks_for_a_beat(session))
        await until(lambda: session.lost)
        assert await store.result(run_id, str, timeout=10) == "sent"
    assert called == ["send"], "once, in the turn that its new session has"


async def test_a_worker_that_stops_does_not_wait_for_a_beat_that_will_not_come(store: Store) -> None:
    @handler("mail")
    async def mail(_: int) -> None:
        raise AssertionError("it was not to begin")

    async with Worker(store, [mail], grace=0) as worker:
        await silence(store)
        session = grown_old(worker)
        message = await store.enqueue(mail, 1)
        await until(asks_for_a_beat(session))
    [(status, attempt, owner)] = await ask(store, f"select status, attempt, owner from {{task}} where id = {message}")
    assert (status, attempt, owner) == ("PENDING", 0, None), "given back with its attempt"
