"""Signals in the user's own transaction: sent if it commits, and never were if it does not."""

import sqlite3
from contextlib import closing
from typing import Any

import psycopg
import pytest

from stepwell import Context, InvalidOption, RunNotFound, SignalAnswer, Store, Worker, connect, sync, workflow
from tests.ground.databases import run_apart, run_sql
from tests.queue.joining import drivers
from tests.queue.joining.users import User

WOKE, KEPT, TOO_LATE = SignalAnswer.WOKE, SignalAnswer.KEPT, SignalAnswer.TOO_LATE


@workflow(name="paid")
async def paid(ctx: Context) -> list[int]:
    return [await ctx.wait("paid", int), await ctx.wait("paid", int)]


def apart(url: str, *, begin: bool = False) -> list[Any]:
    """Let a worker do what is due; the runs then, as another connection sees them."""

    async def work() -> list[Any]:
        async with connect(url) as store:
            if begin:
                await paid.trigger().options(require_worker="ignore").execute(store)
            await Worker(store, [paid]).drain()
            return list(await store.runs("paid"))

    return run_apart(work())


async def a_signal_is_sent_with_the_commit_and_never_was_after_a_rollback(user: User) -> None:
    [run] = apart(user.url, begin=True)
    async with user:
        await user.begin()
        await user.ask("insert into orders values (1)")
        assert await user.do("signal", run.id, "paid", 1, tx=user.tx) is WOKE
        await user.rollback()
        [run] = apart(user.url)
        assert run.status == "PAUSED"
        await user.begin()
        await user.ask("insert into orders values (2)")
        assert await user.do("signal", run.id, "paid", 2, key="a", tx=user.tx) is WOKE
        assert await user.do("signal", run.id, "paid", 3, key="a", tx=user.tx) is TOO_LATE
        assert await user.do("signal", run.id, "paid", 4, tx=user.tx) is KEPT
        await user.commit()
        [run] = apart(user.url)
        assert run.output() == [2, 4]
        await user.begin()
        assert await user.do("signal", run.id, "paid", 5, tx=user.tx) is TOO_LATE
        await user.commit()


@pytest.mark.proves("P-05", "P-06", "Q-25", "protocol-22")
@pytest.mark.backends("postgres", reason="these libraries' connections belong to Postgres")
@pytest.mark.parametrize("library", [drivers.Asyncpg, drivers.Psycopg, drivers.AsyncPsycopg])
def test_on_postgres(library: type[User], store_url: str) -> None:
    run_sql(store_url, "create table orders (id int)")
    user = library(store_url)
    user.run(a_signal_is_sent_with_the_commit_and_never_was_after_a_rollback(user))


@pytest.mark.proves("P-05", "P-06", "Q-25", "protocol-22")
@pytest.mark.backends("sqlite", reason="these libraries' connections belong to SQLite")
@pytest.mark.parametrize("library", [drivers.Sqlite3, drivers.Sqlite3ByHand, drivers.Aiosqlite])
def test_on_sqlite(library: type[User], store_url: str) -> None:
    with closing(sqlite3.connect(drivers.path_of(store_url))) as mine:
        mine.execute("create table orders (id int)")
    user = library(store_url)
    user.run(a_signal_is_sent_with_the_commit_and_never_was_after_a_rollback(user))


@pytest.mark.proves("P-05", "Q-25", "protocol-22")
@pytest.mark.backends("sqlite", reason="elsewhere a transaction begins before its first write")
def test_what_is_read_for_a_signal_is_read_inside_of_the_transaction(store_url: str, backend: str) -> None:
    [run] = apart(store_url, begin=True)
    with closing(sqlite3.connect(drivers.path_of(store_url))) as mine:
        said: list[str] = []
        mine.set_trace_callback(said.append)
        with sync.connect(store_url) as face:
            assert face.signal(run.id, "paid", 1, tx=mine) is WOKE
        mine.commit()
    begun = [text.split()[0].lower() for text in said if "pragma" not in text.lower()]
    assert begun[:2] == ["begin", "update"]


@pytest.mark.proves("Q-25", "protocol-22")
@pytest.mark.backends("sqlite", "postgres", reason="Turso does not join transactions yet")
async def test_a_connection_of_the_other_face_is_refused(store: Store, store_url: str, backend: str) -> None:
    tx: Any = sqlite3.connect(drivers.path_of(store_url)) if backend == "sqlite" else psycopg.connect(store_url)
    with closing(tx), pytest.raises(InvalidOption, match="belongs to its thread"):
        await store.signal(1, "paid", tx=tx)
    with pytest.raises(InvalidOption, match="tx"):
        await store.signal(1, "paid", tx=object())


async def a_number_that_is_no_runs_is_said_to_be_that_of_a_message(user: User) -> None:
    async def sent() -> int:
        async with connect(user.url) as store:
            await store.create_queue("mail")
            return await store.enqueue("mail", 1)

    number = run_apart(sent())
    async with user:
        await user.begin()
        with pytest.raises(RunNotFound, match=rf"{number} is the message of that number in 'mail': `store.get"):
            await user.do("signal", number, "paid", 1, tx=user.tx)
        with pytest.raises(RunNotFound, match="there is no run 123456; finished ones are kept"):
            await user.do("signal", 123_456, "paid", 1, tx=user.tx)
        await user.rollback()


@pytest.mark.proves("P-05", "Q-25")
@pytest.mark.backends("postgres", reason="these libraries' connections belong to Postgres")
@pytest.mark.parametrize("library", [drivers.Asyncpg, drivers.Psycopg, drivers.AsyncPsycopg])
def test_the_number_of_a_message_on_postgres(library: type[User], store_url: str) -> None:
    user = library(store_url)
    user.run(a_number_that_is_no_runs_is_said_to_be_that_of_a_message(user))


@pytest.mark.proves("P-05", "Q-25")
@pytest.mark.backends("sqlite", reason="these libraries' connections belong to SQLite")
@pytest.mark.parametrize("library", [drivers.Sqlite3, drivers.Sqlite3ByHand, drivers.Aiosqlite])
def test_the_number_of_a_message_on_sqlite(library: type[User], store_url: str) -> None:
    user = library(store_url)
    user.run(a_number_that_is_no_runs_is_said_to_be_that_of_a_message(user))
