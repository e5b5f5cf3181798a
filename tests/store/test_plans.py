"""What claims and beats cost on Postgres besides their plans: indexes, old snapshots, locks that pile up."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from stepwell import Store, connect
from stepwell.work.demand import Places
from tests.ground.postgres import PostgresServer
from tests.ground.scale import Scale
from tests.store.plans import Calls, Prepared, buffers, fill
from tests.store.seam import DONE, begin, claim, do

pytestmark = pytest.mark.backends("postgres", reason="plans, snapshots and row locks are Postgres's own")


@pytest.mark.proves("protocol-16", "rule-24")
async def test_no_index_holds_a_column_that_a_beat_changes(store: Store, store_url: str, backend: str) -> None:
    connection = await asyncpg.connect(store_url)
    try:
        worker = await begin(store)
        for _ in range(50):
            await do(store, f"update {{beat}} set beat_at = beat_at + 1 where worker_id = {worker}")
        await connection.execute("select pg_stat_force_next_flush()")
        found = await connection.fetchval(
            "select count(*) from pg_index join pg_attribute on attrelid = indexrelid"
            " where indrelid = 'stepwell.beat'::regclass and attname = 'beat_at'"
        )
        assert found == 0
        columns = await connection.fetch(
            "select a.attname from pg_index join pg_class c on c.oid = indexrelid"
            " join pg_attribute a on a.attrelid = indrelid and a.attnum = any(indkey)"
            " where indrelid = 'stepwell.task'::regclass"
        )
        assert not {row["attname"] for row in columns} & {"turn", "attempt", "claimed_at", "updated_at"}
    finally:
        await connection.close()


@pytest.mark.proves("protocol-17")
async def test_with_an_old_snapshot_open_a_claim_in_a_backlog_does_not_get_dearer(
    live_store: Store, prepared: Prepared, store_url: str, scale: Scale, measured: Callable[..., None]
) -> None:
    store = live_store
    await store.create_queue("q")
    queue = await store.database.queue_id("q")
    worker = await begin(store)
    calls = Calls(store, worker)
    from_the_beginning = await calls.claim([queue], 10)
    above = await calls.claim_above([(queue, 10, 0, 0, 0)], 10)
    await fill(store, range(1, scale.of(20_000, 200_000) + 1), "PENDING", ready="true", run_at="number")
    places = Places()
    keeper = await asyncpg.connect(store_url)
    try:
        snapshot = keeper.transaction(isolation="repeatable_read")
        await snapshot.start()
        await keeper.fetchval("select count(*) from stepwell.queue")
        places.claimed(await store.database.tasks.claim(worker, [(queue, 200)], 200), 200, 0.0, plain=True)

        async def cost() -> tuple[int, int]:
            further = [replace(above[0], rows=places.above([(queue, 10)], 0.5))]
            plain = await prepared.explain("plain", from_the_beginning)
            return buffers(plain), buffers(await prepared.explain("above", further))

        await prepared.prepare("plain", from_the_beginning)
        await prepared.prepare("above", above)
        plain_first, above_first = await cost()
        for _ in range(scale.of(60, 600)):
            tasks = await store.database.tasks.claim_above(worker, places.above([(queue, 200)], 0.5), 200)
            assert len(tasks) == 200
            places.claimed(tasks, 200, 0.5, plain=False)
        plain_last, above_last = await cost()
        await snapshot.rollback()
    finally:
        await keeper.close()
    assert plain_last > plain_first + 300, "the plain claim has no trouble either: void"
    assert above_last <= above_first + 30
    assert above_last < 200
    claimed = 200 * scale.of(61, 601)
    costs = {"first": above_first, "last": above_last, "plain_first": plain_first, "plain_last": plain_last}
    measured("snapshot", claimed=claimed, **costs)


async def multixacts(connection: Any) -> int:
    """The next multixact's number: the server's own counter, which every new one moves."""
    return int(await connection.fetchval("select mxid_age('1'::xid)"))


@pytest.mark.proves("protocol-10")
async def test_flushes_over_all_lanes_beside_claims_make_no_multixact(
    postgres_server: PostgresServer, backend: str
) -> None:
    url = postgres_server.url()
    connection = await asyncpg.connect(url)
    try:
        async with connect(url) as store:
            await store.create_queue("q")
            await store.enqueue_many("q", range(3000))
            worker = await begin(store)
            before = await multixacts(connection)
            flushes = 0

            async def work() -> None:
                nonlocal flushes
                for _ in range(25):
                    tasks = await claim(store, worker, "q", 6)
                    await asyncio.gather(
                        *(store.database.tasks.settle(task.id, worker, task.turn, DONE) for task in tasks)
                    )
                    flushes += 2

            await asyncio.gather(*(work() for _ in range(6)))
            assert flushes >= 200
            assert await multixacts(connection) - before == 0
            # That the counter counts: two connections that share one row make one.
            other = await asyncpg.connect(url)
            lock = f"select 1 from stepwell.fence where worker_id = {worker} and slot = 0 for share"
            async with connection.transaction(), other.transaction():
                await connection.execute(lock)
                await other.execute(lock)
                assert await multixacts(connection) - before == 1
            await other.close()
    finally:
        await connection.close()
