"""What the drivers' own connections can be in when they are passed as `tx`."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest

import stepwell
from stepwell import InvalidOption, Store, connect
from tests.store.seam import ask

JOINS = pytest.mark.proves("Q-25", "protocol-22")
ONLY_POSTGRES = pytest.mark.backends("postgres", reason="these connections belong to Postgres")
ONLY_SQLITE = pytest.mark.backends("sqlite", reason="these connections belong to SQLite")


@pytest.fixture
def sync_store(store_url: str) -> Iterator[stepwell.sync.Store]:
    with stepwell.sync.connect(store_url) as store:
        store.create_queue("q")
        yield store


@pytest.fixture
async def async_store(store_url: str) -> AsyncIterator[Store]:
    async with connect(store_url) as store:
        await store.create_queue("q")
        yield store


@JOINS
@ONLY_POSTGRES
def test_a_psycopg_connection_that_takes_no_more_is_refused_with_what_to_do(
    sync_store: stepwell.sync.Store, store_url: str
) -> None:
    mine = psycopg.connect(store_url)
    with pytest.raises(psycopg.errors.DivisionByZero):
        mine.execute("select 1/0")
    with pytest.raises(InvalidOption, match="has failed: roll it back"):
        sync_store.enqueue("q", 1, tx=mine)
    mine.rollback()
    mine.read_only = True
    with pytest.raises(InvalidOption, match="read-only: join one that may write"):
        sync_store.enqueue("q", 1, tx=mine)
    mine.rollback()
    mine.read_only = None
    with mine.pipeline(), pytest.raises(InvalidOption, match="leave the `pipeline"):
        sync_store.enqueue("q", 1, tx=mine)
    sync_store.enqueue("q", 1, tx=mine)
    mine.commit()
    mine.close()
    with pytest.raises(InvalidOption, match="it is closed"):
        sync_store.enqueue("q", 1, tx=mine)
    assert sync_store.counts("q") == {"PENDING": 1}


@JOINS
@ONLY_POSTGRES
def test_a_transaction_block_of_psycopg_is_joined_in_autocommit_mode_too(
    sync_store: stepwell.sync.Store, store_url: str
) -> None:
    with psycopg.connect(store_url, autocommit=True) as mine:
        with mine.transaction(force_rollback=True):
            with pytest.raises(psycopg.errors.DivisionByZero):
                mine.execute("select 1/0")
            with pytest.raises(InvalidOption, match="has failed: roll it back"):
                sync_store.enqueue("q", 1, tx=mine)
        with mine.transaction():
            sync_store.enqueue("q", 1, tx=mine)
            with mine.transaction(force_rollback=True):  # a savepoint
                sync_store.enqueue("q", 2, tx=mine)
            assert sync_store.counts("q") == {}
        assert sync_store.counts("q") == {"PENDING": 1}


@JOINS
@ONLY_POSTGRES
async def test_an_asyncpg_connection_that_takes_no_more_is_refused_with_what_to_do(
    async_store: Store, store_url: str
) -> None:
    mine = await asyncpg.connect(store_url)
    failed = mine.transaction()
    await failed.start()
    with pytest.raises(asyncpg.DivisionByZeroError):
        await mine.execute("select 1/0")
    with pytest.raises(InvalidOption, match="has failed: roll it back"):
        await async_store.enqueue("q", 1, tx=mine)
    await failed.rollback()
    async with mine.transaction(readonly=True):
        with pytest.raises(InvalidOption, match="read-only: join one that may write"):
            await async_store.enqueue("q", 1, tx=mine)
    async with mine.transaction():
        await async_store.enqueue("q", 1, tx=mine)
    await mine.close()
    with pytest.raises(InvalidOption, match="it is closed; pass an open connection"):
        await async_store.enqueue("q", 1, tx=mine)
    assert await async_store.counts("q") == {"PENDING": 1}


@JOINS
@ONLY_POSTGRES
async def test_what_the_users_connection_makes_of_json_does_not_touch_what_is_sent(
    store: Store, store_url: str
) -> None:
    await store.create_queue("mail")
    await store.create_workflow("waits")
    run_id = await stepwell.workflow("waits").trigger(0).execute(store)
    connection = await asyncpg.connect(store_url)
    try:
        for kind in ("json", "jsonb"):
            await connection.set_type_codec(kind, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
        async with connection.transaction():
            await store.enqueue("mail", {"to": "ada"}, tags=["a"], tx=connection)
            await store.enqueue_many("mail", [{"to": "bob"}, {"to": "eve"}], tx=connection)
            await store.signal(run_id, "said", {"word": 1}, tx=connection)
    finally:
        await connection.close()
    taken = await store.dequeue("mail", 3)
    assert [message.payload for message in taken] == [{"to": "ada"}, {"to": "bob"}, {"to": "eve"}]
    [signal] = await ask(store, "select data from {signal}")
    assert signal["data"] == '{"word":1}'


@JOINS
@ONLY_POSTGRES
def test_a_connection_of_another_database_is_refused_by_name(sync_store: stepwell.sync.Store) -> None:
    mine = sqlite3.connect(":memory:")
    with pytest.raises(InvalidOption, match=r"sqlite3\.Connection.*: pass the connection .* asyncpg's, psycopg 3's"):
        sync_store.enqueue("q", 1, tx=mine)
    mine.close()


@JOINS
@ONLY_SQLITE
async def test_an_aiosqlite_connection_that_takes_no_more_is_refused_with_what_to_do(
    async_store: Store, store_url: str
) -> None:
    path = store_url.removeprefix("sqlite:///")
    mine = await aiosqlite.connect(path)
    await mine.close()
    with pytest.raises(InvalidOption, match="it is closed"):
        await async_store.enqueue("q", 1, tx=mine)
    if sys.version_info >= (3, 12):
        options: dict[str, Any] = {"autocommit": True}
        async with aiosqlite.connect(path, **options) as silent:
            with pytest.raises(InvalidOption, match="autocommit mode"):
                await async_store.enqueue("q", 1, tx=silent)
    assert await async_store.counts("q") == {}


@JOINS
@ONLY_SQLITE
def test_a_closed_sqlite3_connection_is_refused_and_so_is_any_by_a_store_in_memory(
    sync_store: stepwell.sync.Store, store_url: str
) -> None:
    mine = sqlite3.connect(store_url.removeprefix("sqlite:///"))
    with stepwell.sync.connect("memory:") as elsewhere:
        elsewhere.create_queue("q")
        with pytest.raises(InvalidOption, match="no other connection reaches a store in memory"):
            elsewhere.enqueue("q", 1, tx=mine)
    mine.close()
    with pytest.raises(InvalidOption, match=r"pass an open connection of this thread .*closed"):
        sync_store.enqueue("q", 1, tx=mine)


@JOINS
@ONLY_SQLITE
def test_the_first_call_of_a_fresh_process_joins_and_loads_no_library_that_the_user_did_not(
    sync_store: stepwell.sync.Store, store_url: str
) -> None:
    path = store_url.removeprefix("sqlite:///")
    program = f"""
import sqlite3, sys, stepwell
store = stepwell.sync.connect({store_url!r}, timeout=3)
mine = sqlite3.connect({path!r})
mine.execute("create table orders (id integer)")
mine.execute("insert into orders values (1)")
assert mine.in_transaction
store.enqueue("q", "one", tx=mine)
assert mine.in_transaction and mine.row_factory is None
mine.commit()
store.close()
loaded = {{"psycopg", "sqlalchemy", "django", "aiosqlite", "asyncpg"}} & set(sys.modules)
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert sync_store.counts("q") == {"PENDING": 1}
