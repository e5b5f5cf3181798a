"""Behind PgBouncer in transaction mode, where every transaction may have another server's connection."""

import asyncio
from collections import Counter

import asyncpg
import pytest

import stepwell
from stepwell import LeaseLost, Store, StoreUnavailable, Worker, connect
from stepwell.base.events import ListenerLost, PoolerFound, SessionsRecovered
from tests.ground.pgbouncer import needs_pgbouncer
from tests.ground.waiting import until
from tests.store.plans import Calls, Prepared, buffers, drawn, fill, nodes, picked
from tests.store.seam import DONE, begin, do, one
from tests.wakeups.ways import Mail, hearing

pytestmark = [
    needs_pgbouncer,
    pytest.mark.backends("postgres", reason="a pooler of Postgres"),
    pytest.mark.usefixtures("backend"),
]


@pytest.mark.proves("rule-22")
@pytest.mark.parametrize("pooled_url", ["refused", "ignored"], indirect=True)
async def test_many_clients_share_two_connections_and_every_message_is_handled_once(
    pooled_url: str, postgres_url: str, mail: Mail
) -> None:
    count, senders = 200, 6
    async with asyncio.timeout(60):
        # All at once on an empty database: one of them installs, the others wait for it.
        stores = await asyncio.gather(
            *(connect(pooled_url, telemetry=mail.telemetry, timeout=20) for _ in range(senders))
        )
        try:
            assert all(store.database.driver.pooled for store in stores)
            assert len(mail.told(PoolerFound)) == senders
            await stepwell.admin(stores[0]).verify()
            async with mail.worker(stores[0]), mail.worker(stores[1]):
                numbers = [range(first, count, senders) for first in range(senders)]
                await asyncio.gather(*map(_enqueue_each, stores, [mail] * senders, numbers))
                await until(lambda: len(mail.done) == count, 30)
                assert await _server_connections(postgres_url) <= 2
            assert Counter(mail.done) == Counter(range(count))
            assert await stores[2].counts("mail") == {"SUCCESS": count}
        finally:
            await asyncio.gather(*(store.close() for store in stores))


@pytest.mark.proves("rule-22")
async def test_fences_recovery_and_keys_hold(pooled_url: str, mail: Mail) -> None:
    async with connect(pooled_url, lease=1, telemetry=mail.telemetry) as store:
        worker = await begin(store, lease=1_000_000)  # and never beats
        task = await one(store, worker, "mail", max_attempts=3)
        assert await store.enqueue("mail", 7, key="k") == await store.enqueue("mail", 7, key="k")
        async with Worker(store, [mail.send]):
            await until(lambda: mail.told(SessionsRecovered), 20)
            with pytest.raises(LeaseLost):
                await store.database.tasks.settle(task.id, worker, task.turn, DONE)
            await until(lambda: 7 in mail.done)


@pytest.mark.proves("rule-22", "Q-21")
async def test_a_users_transaction_is_joined(pooled_url: str) -> None:
    users = await asyncpg.connect(pooled_url, statement_cache_size=0)
    async with connect(pooled_url) as store:
        await store.create_queue("mail")
        async with users.transaction():
            kept = await store.enqueue("mail", 1, tx=users)
        undone = users.transaction()
        await undone.start()
        await store.enqueue("mail", 2, tx=users)
        await undone.rollback()
        [message] = await store.dequeue("mail", limit=10)
        assert message.id == kept
    await users.close()


@pytest.mark.proves("rule-19", "rule-22")
async def test_a_call_that_gets_no_connection_of_the_pooler_ends_at_its_deadline(pooled_url: str) -> None:
    async with connect(pooled_url, timeout=1) as store:
        await store.create_queue("mail")
        holders = [await asyncpg.connect(pooled_url, statement_cache_size=0) for _ in range(2)]
        for holder in holders:
            await holder.execute("begin")
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(store.counts("mail"), 10)
        for holder in holders:
            await holder.execute("rollback")
            await holder.close()
        await until(lambda: _answers(store))


@pytest.mark.proves("rule-17", "rule-22")
async def test_listening_through_the_pooler_is_noticed_to_hear_nothing(
    pooled_url: str, quick: None, mail: Mail, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(pooled_url, telemetry=mail.telemetry) as store, connect(pooled_url) as other:
        async with mail.worker(store):
            await until(lambda: mail.told(ListenerLost), message="an ear that hears nothing is given up")
            await other.enqueue(mail.send, 1)
            await until(lambda: mail.done == [1], message="found by polling")
        assert len(mail.told(ListenerLost)) == 1
        assert "give `listen` the database's own address" in caplog.text


@pytest.mark.usefixtures("no_polls")
@pytest.mark.proves("rule-17", "rule-22")
async def test_a_direct_address_hears_what_is_told_through_the_pooler(
    pooled_url: str, postgres_url: str, mail: Mail
) -> None:
    async with (
        connect(pooled_url, listen=postgres_url, telemetry=mail.telemetry) as store,
        connect(pooled_url) as other,
        mail.worker_that_never_polls(store),
    ):
        await hearing(store)
        await other.enqueue(mail.send, 1)
        await until(lambda: mail.done == [1])
        assert mail.told(ListenerLost) == []


@pytest.mark.proves("rule-22", "protocol-16")
async def test_without_our_settings_claim_and_settle_are_planned_well_as_they_come(postgres_url: str) -> None:
    """What the pooler costs: the plan is made each time, by statistics that may be those of an empty table."""
    connection = await asyncpg.connect(postgres_url)
    async with connect(postgres_url) as store:
        await connection.execute("set plan_cache_mode = force_custom_plan")  # what nobody keeps is planned anew
        prepared = Prepared(connection, store)
        await store.create_queue("q")
        queue = await store.database.queue_id("q")
        worker = await begin(store)
        calls = Calls(store, worker)
        everything = {"claim": await calls.claim([queue], 10), "settle": await calls.settle(range(20_001, 20_011))}
        await do(store, "analyze {task}", "analyze {queue}", "analyze {fence}")
        await fill(store, range(1, 20_001), "PENDING", ready="true", run_at="number")
        await fill(store, range(20_001, 20_011), "PENDING", ready="false", run_at="1")
        await do(
            store,
            f"update {{task}} set status = 'RUNNING', owner = {worker}, turn = 1, claimed_at = 1"
            " where id between 20001 and 20010",
        )
        await fill(store, range(30_000, 130_000), "SUCCESS", ready="false", run_at="number", finished="number")
        for statistics in ("of the empty table", "of the full one"):
            for name, asked in everything.items():
                await prepared.prepare(name, asked)
                plan = await prepared.explain(name, asked)
                reads = [node for node in nodes(plan) if node.get("Relation Name") == "task"]
                told = f"statistics {statistics}\n{drawn(name, plan)}"
                assert "Seq Scan" not in {node["Node Type"] for node in reads}, told
                assert buffers(plan) < 300, told
                assert (picked(plan) if name == "claim" else plan)["Actual Rows"] >= 10, told
            await do(store, "analyze {task}")
    await connection.close()


async def _enqueue_each(store: Store, mail: Mail, numbers: range) -> None:
    for number in numbers:
        await store.enqueue(mail.send, number)


async def _server_connections(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        number: int = await connection.fetchval(
            "select count(*) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
        )
    finally:
        await connection.close()
    return number


async def _answers(store: Store) -> bool:
    try:
        return await store.counts("mail") == {}
    except StoreUnavailable:
        return False
