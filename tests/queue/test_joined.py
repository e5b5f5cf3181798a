"""Taking part in the user's own transaction."""

import asyncio
import sqlite3
import subprocess
import sys
import threading

import asyncpg
import pytest

import stepwell
from stepwell import InvalidOption, QueueNotFound, connect, handler

JOINS = pytest.mark.proves("protocol-22")
ONLY_POSTGRES = pytest.mark.backends("postgres", reason="an asyncpg connection belongs to Postgres")
ONLY_SQLITE = pytest.mark.backends("sqlite", reason="a sqlite3 connection belongs to SQLite")


@handler("mails")
async def mails(address: str) -> None:
    """Send nothing."""


@JOINS
@ONLY_POSTGRES
async def test_a_message_is_there_if_the_transaction_commits_and_never_was_if_not(store_url: str) -> None:
    connection = await asyncpg.connect(store_url)
    async with connect(store_url) as store:
        await store.create_queue("q")
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("create table orders (id int)")
        lost = await store.enqueue("q", 1, key="k", tx=connection)
        assert await store.get(lost) is None, "seen before the commit"
        await transaction.rollback()
        assert await store.counts("q") == {}
        async with connection.transaction():
            await connection.execute("create table orders (id int)")
            kept = await store.enqueue("q", 1, key="k", tx=connection)
            again = await store.enqueue("q", 1, key="k", tx=connection)
            many = await store.enqueue_many("q", range(2_500), tx=connection)
        assert (kept.created, again.created, kept == again) == (True, False, True)
        assert len(set(many)) == 2_500
        assert await store.counts("q") == {"PENDING": 2_501}
        assert await connection.fetchval("select 1") == 1
    await connection.close()


@JOINS
@ONLY_POSTGRES
async def test_a_handlers_queue_made_in_a_rolled_back_transaction_is_not_remembered(store_url: str) -> None:
    connection = await asyncpg.connect(store_url)
    async with connect(store_url) as store:
        transaction = connection.transaction()
        await transaction.start()
        await store.enqueue(mails, "ada@example.org", tx=connection)
        await transaction.rollback()
        with pytest.raises(QueueNotFound):
            await store.enqueue("mails", "ada@example.org")
        await store.enqueue(mails, "ada@example.org")
        assert await store.counts("mails") == {"PENDING": 1}
    await connection.close()


@JOINS
@ONLY_POSTGRES
async def test_what_cannot_be_joined_is_refused_with_what_to_do(store_url: str) -> None:
    connection = await asyncpg.connect(store_url)
    async with connect(store_url) as store:
        await store.create_queue("q")
        with pytest.raises(InvalidOption, match="begin a transaction"):
            await store.enqueue("q", 1, tx=connection)
        with pytest.raises(InvalidOption, match="pass the asyncpg connection"):
            await store.enqueue("q", 1, tx=object())
        assert await store.counts("q") == {}
    await connection.close()


@JOINS
@ONLY_SQLITE
def test_the_first_call_of_a_fresh_process_joins_a_transaction_that_has_already_written(store_url: str) -> None:
    # In a process of its own: ours has ids and queue numbers at hand, a fresh one has to get them through the
    # connection that holds the file's only write lock.
    with stepwell.sync.connect(store_url) as store:
        store.create_queue("q")
    path = store_url.removeprefix("sqlite:///")
    program = f"""
import sqlite3, stepwell
from tests.queue.test_joined import mails
store = stepwell.sync.connect({store_url!r}, timeout=3)
mine = sqlite3.connect({path!r})
mine.execute("create table orders (id integer)")
mine.execute("insert into orders values (1)")
assert mine.in_transaction
store.enqueue("q", "one", tx=mine)
store.enqueue(mails, "two", tx=mine)
store.enqueue_many("q", ["three", "four"], tx=mine)
assert mine.in_transaction and mine.row_factory is None
mine.commit()
store.close()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    with stepwell.sync.connect(store_url) as store:
        assert store.counts("q") == {"PENDING": 3}
        assert store.counts("mails") == {"PENDING": 1}


@JOINS
@ONLY_SQLITE
def test_ids_of_a_rolled_back_transaction_are_never_used_twice(store_url: str) -> None:
    path = store_url.removeprefix("sqlite:///")
    with stepwell.sync.connect(store_url) as store:
        store.create_queue("q")
        mine = sqlite3.connect(path)
        mine.execute("begin immediate")
        store.enqueue("q", 1, tx=mine)
        mine.rollback()
        assert store.counts("q") == {}
        mine.execute("begin immediate")
        joined = store.enqueue("q", 2, tx=mine)
        mine.commit()
        mine.close()
        own = store.enqueue_many("q", range(1_500))
        assert joined not in own
        assert store.counts("q") == {"PENDING": 1_501}


@JOINS
@ONLY_SQLITE
def test_a_sync_connection_is_used_in_its_own_thread_and_refused_by_the_async_store(store_url: str) -> None:
    path = store_url.removeprefix("sqlite:///")
    with stepwell.sync.connect(store_url) as store:
        store.create_queue("q")
        threads: set[int] = set()
        mine = sqlite3.connect(path)  # sqlite3 itself refuses every other thread
        mine.execute("begin immediate")
        mine.set_trace_callback(lambda _: threads.add(threading.get_ident()))
        store.enqueue("q", 1, tx=mine)
        mine.commit()
        assert threads == {threading.get_ident()}
        autocommit = sqlite3.connect(path, isolation_level=None)
        with pytest.raises(InvalidOption, match="autocommit"):
            store.enqueue("q", 1, tx=autocommit)
        autocommit.close()

    async def refused() -> None:
        async with connect(store_url) as asynchronous:
            with pytest.raises(InvalidOption, match=r"stepwell\.sync"):
                await asynchronous.enqueue("q", 1, tx=mine)

    asyncio.run(refused())
    mine.close()


@pytest.mark.backends("turso", reason="the one that cannot be joined yet")
async def test_turso_says_that_it_does_not_join_yet(store_url: str) -> None:
    async with connect(store_url) as store:
        await store.create_queue("q")
        with pytest.raises(InvalidOption, match="does not join"):
            await store.enqueue("q", 1, tx=object())
