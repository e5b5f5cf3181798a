"""What takes part in the user's transaction is whole there too, and in the right database."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import aiosqlite
import asyncpg
import psycopg
import pytest

from stepwell import IdempotencyConflict, InvalidOption, connect, sync


@pytest.mark.proves("Q-05", "Q-25")
@pytest.mark.backends("sqlite", reason="a sqlite3 connection joins there only")
def test_after_a_conflict_that_was_caught_nothing_of_the_bulk_stays_on_sqlite(store_url: str, backend: str) -> None:
    with sync.connect(store_url) as store, closing(sqlite3.connect(store_url.removeprefix("sqlite:///"))) as own:
        store.create_queue("mail")
        store.enqueue("mail", 1, key="b")
        with own:
            with pytest.raises(IdempotencyConflict):
                store.enqueue_many("mail", [5, 6, 7], keys=["a", "b", "c"], tx=own)
            store.enqueue("mail", 9, tx=own)
        assert [message.payload for message in store.dequeue("mail", 10)] == [1, 9]


@pytest.mark.proves("Q-05", "Q-25")
@pytest.mark.backends("postgres", reason="an asyncpg connection joins there only")
async def test_after_a_conflict_that_was_caught_nothing_of_the_bulk_stays_on_asyncpg(
    store_url: str, backend: str
) -> None:
    own = await asyncpg.connect(store_url)
    try:
        async with connect(store_url) as store:
            await store.create_queue("mail")
            await store.enqueue("mail", 1, key="b")
            async with own.transaction():
                with pytest.raises(IdempotencyConflict):
                    await store.enqueue_many("mail", [5, 6, 7], keys=["a", "b", "c"], tx=own)
                await store.enqueue("mail", 9, tx=own)
            assert [message.payload for message in await store.dequeue("mail", 10)] == [1, 9]
    finally:
        await own.close()


@pytest.mark.proves("Q-05", "Q-25")
@pytest.mark.backends("postgres", reason="a psycopg connection joins there only")
def test_after_a_conflict_that_was_caught_nothing_of_the_bulk_stays_on_psycopg(store_url: str, backend: str) -> None:
    with sync.connect(store_url) as store:
        store.create_queue("mail")
        store.enqueue("mail", 1, key="b")
        with psycopg.connect(store_url) as own:
            with pytest.raises(IdempotencyConflict):
                store.enqueue_many("mail", [5, 6, 7], keys=["a", "b", "c"], tx=own)
            store.enqueue("mail", 9, tx=own)
        assert [message.payload for message in store.dequeue("mail", 10)] == [1, 9]


@pytest.mark.proves("Q-25")
@pytest.mark.backends("sqlite", reason="its transactions belong to a file")
def test_a_transaction_of_another_file_is_refused(store_url: str, backend: str, tmp_path: Path) -> None:
    path = store_url.removeprefix("sqlite:///")
    (tmp_path / "link.db").symlink_to(path)
    with sync.connect(store_url) as store, sync.connect(f"sqlite:///{tmp_path}/other.db") as other:
        for one in (store, other):
            one.create_queue("mail")
        for place in (f"{tmp_path}/other.db", ":memory:"):
            with closing(sqlite3.connect(place)) as wrong, pytest.raises(InvalidOption, match="the store is"):
                store.enqueue("mail", 1, tx=wrong)
        with closing(sqlite3.connect(tmp_path / "link.db")) as right, right:
            store.enqueue("mail", 2, tx=right)
        assert (store.counts("mail"), other.counts("mail")) == ({"PENDING": 1}, {})


@pytest.mark.proves("Q-25")
@pytest.mark.backends("sqlite", reason="its transactions belong to a file")
async def test_an_awaited_transaction_of_another_file_is_refused_too(
    store_url: str, backend: str, tmp_path: Path
) -> None:
    async with connect(store_url) as store, connect(f"sqlite:///{tmp_path}/other.db") as other:
        for one in (store, other):
            await one.create_queue("mail")
        async with aiosqlite.connect(tmp_path / "other.db") as wrong:
            with pytest.raises(InvalidOption, match="the store is"):
                await store.enqueue("mail", 1, tx=wrong)
        async with aiosqlite.connect(store_url.removeprefix("sqlite:///")) as right:
            await store.enqueue("mail", 2, tx=right)
            await right.commit()
        assert (await store.counts("mail"), await other.counts("mail")) == ({"PENDING": 1}, {})


WITHOUT_GREENLET = """
import sys
sys.modules["greenlet"] = None
sys.modules["sqlalchemy.ext.asyncio"] = None  # what needs it since SQLAlchemy 2.1
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from stepwell import sync
with sync.connect(sys.argv[1]) as store:
    store.create_queue("mail")
    with Session(create_engine(sys.argv[1])) as session, session.begin():
        store.enqueue("mail", 1, tx=session)
    assert store.counts("mail") == {"PENDING": 1}
"""


@pytest.mark.proves("Q-25")
@pytest.mark.backends("sqlite", reason="the driver below is Python's own")
def test_a_session_of_sqlalchemy_joins_without_greenlet(store_url: str, backend: str) -> None:
    program = [sys.executable, "-c", WITHOUT_GREENLET, store_url]
    ended = subprocess.run(program, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
