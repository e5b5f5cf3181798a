"""Fifty sessions after the same few tasks: what a claim costs does not grow with them, and who waits can be seen."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from stepwell import Store
from stepwell.store.postgres.connection import connect as connect_as_the_driver_does
from tests.ground.waiting import until
from tests.store.plans import Calls, Prepared, buffers, drawn, fill
from tests.store.seam import ask, begin, do

pytestmark = pytest.mark.backends("postgres", reason="an embedded store has one writer: claims never meet")

SESSIONS = 50
TASKS = 20


@pytest.fixture
async def connections(store_url: str) -> AsyncIterator[list[Any]]:
    """A connection like the driver's own for each session."""
    async with AsyncExitStack() as stack:
        opened = []
        for _ in range(SESSIONS):
            connection = await connect_as_the_driver_does(store_url, 30)
            stack.push_async_callback(connection.close)
            opened.append(connection)
        yield opened


@pytest.mark.proves("L-20", "promise-18")
async def test_fifty_sessions_after_twenty_tasks_pay_alike_and_none_waits(
    live_store: Store, connections: list[Any], measured: Callable[..., None]
) -> None:
    store = live_store
    await store.create_queue("q")
    queue = await store.database.queue_id("q")
    sessions = [Prepared(connection, store) for connection in connections]
    claims = [await Calls(store, await begin(store)).claim([queue], 10) for _ in sessions]
    await do(store, "analyze {task}", "analyze {queue}", "analyze {fence}")
    for session, claim in zip(sessions, claims, strict=True):
        await session.prepare("claim", claim)
    await fill(store, range(1, TASKS + 1), "PENDING", ready="true", run_at="number")
    plans = []
    async with AsyncExitStack() as stack:  # nobody commits: every task stays locked by whoever came first
        for connection, session, claim in zip(connections, sessions, claims, strict=True):
            await stack.enter_async_context(connection.transaction())
            async with asyncio.timeout(10):
                plans.append(await session.do("claim", claim))
        assert await waiting(store) == []
    assert [plan["Actual Rows"] for plan in plans] == [10, 10] + [0] * (SESSIONS - 2)
    costs = [buffers(plan) for plan in plans]
    assert max(costs[2:]) <= costs[2] + 5, drawn("late", plans[-1])  # the fiftieth pays what the third does
    assert max(costs[2:]) <= 10 + 3 * TASKS, drawn("late", plans[-1])
    measured("crowd", sessions=SESSIONS, tasks=TASKS, first=costs[0], third=costs[2], last=costs[-1])


@pytest.mark.proves("L-20")
async def test_whoever_waits_for_a_lock_is_seen_with_our_name_and_who_holds_it(
    live_store: Store, store_url: str, backend: str
) -> None:
    store = live_store
    await store.create_queue("q")
    queue, worker = await store.database.queue_id("q"), await begin(store)
    holder = await asyncpg.connect(store_url)
    try:
        async with holder.transaction():
            await holder.execute(f"select 1 from stepwell.fence where worker_id = {worker} for update")
            claiming = asyncio.create_task(store.database.tasks.claim(worker, [(queue, 1)], 1))
            await until(lambda: waiting(store))
            [seen] = await waiting(store)
            assert seen["application_name"] == "stepwell"
            assert seen["blocked_by"] == [holder.get_server_pid()]
            assert "picked as materialized" in seen["query"]
        assert await claiming == []
        assert await waiting(store) == []
    finally:
        await holder.close()


async def waiting(store: Store) -> list[Any]:
    """The connections to this database that wait for a lock, by what Postgres shows to everybody."""
    return await ask(
        store,
        "select application_name, query, pg_blocking_pids(pid) as blocked_by from pg_stat_activity"
        " where wait_event_type = 'Lock' and datname = current_database()",
    )
