"""The connections of `store.transaction()` on Postgres: kept for the next one, which finds nothing of the last."""

import asyncio
import contextlib

import asyncpg
import pytest

from stepwell import Store
from stepwell.store.postgres import connection as connections

pytestmark = pytest.mark.backends("postgres", reason="SQLite and Turso open their writer once")
PID = "select pg_backend_pid()"


async def pid_of_a_transaction(store: Store, *statements: str) -> int:
    async with store.transaction() as tx:
        pid: int = await tx.connection.fetchval(PID)
        for statement in statements:
            await tx.connection.execute(statement)
    return pid


@pytest.mark.proves("B-03")
async def test_a_transaction_begins_on_the_connection_of_the_last_and_finds_nothing_of_it(live_store: Store) -> None:
    left = ("create temp table mine (n int)", "set statement_timeout = 7777", "listen somewhere", "set role pg_monitor")
    first = await pid_of_a_transaction(live_store, *left)
    async with live_store.transaction() as tx:
        found = tx.connection
        assert await found.fetchval(PID) == first
        assert await found.fetchval("select to_regclass('pg_temp.mine')") is None
        assert await found.fetchval("show statement_timeout") == "0"
        assert await found.fetchval("select current_user = session_user")
        assert await found.fetch("select pg_listening_channels()") == []
    assert await pid_of_a_transaction(live_store, "create temp table mine (n int)") == first


@pytest.mark.proves("B-03")
async def test_a_connection_whose_transaction_failed_or_that_was_lost_is_not_used_again(live_store: Store) -> None:
    first = await pid_of_a_transaction(live_store)
    with contextlib.suppress(ZeroDivisionError):
        async with live_store.transaction() as tx:
            assert await tx.connection.fetchval(PID) == first
            raise ZeroDivisionError
    second = await pid_of_a_transaction(live_store)
    assert second != first
    async with live_store.transaction() as tx:
        other = await asyncpg.connect(live_store.database.driver._dialer._url)  # type: ignore[attr-defined]
        killed = await tx.connection.fetchval(PID)
        assert killed == second
    await other.execute("select pg_terminate_backend($1, 5000)", killed)
    await other.close()
    assert await pid_of_a_transaction(live_store) != second


@pytest.mark.proves("B-03")
async def test_only_some_are_kept_and_none_after_the_store_is_closed(live_store: Store) -> None:
    gate = asyncio.Barrier(connections.KEPT + 2)

    async def together() -> int:
        async with live_store.transaction() as tx:
            await gate.wait()
            pid: int = await tx.connection.fetchval(PID)
            return pid

    pids = set(await asyncio.gather(*(together() for _ in range(connections.KEPT + 2))))
    assert len(pids) == connections.KEPT + 2
    lender = live_store.database.driver._lender  # type: ignore[attr-defined]
    assert sum(map(len, lender._kept.values())) == connections.KEPT
    kept = [connection for some in lender._kept.values() for connection in some]
    await live_store.close()
    assert all(connection.is_closed() for connection in kept)
