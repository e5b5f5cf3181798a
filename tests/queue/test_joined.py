"""Taking part in the user's own transaction: the same promises through every library."""

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from stepwell import InvalidOption, connect
from tests.ground.databases import run_sql
from tests.queue.joining import drivers, frameworks
from tests.queue.joining.promises import PROMISES
from tests.queue.joining.users import User

ON_POSTGRES = (
    drivers.Asyncpg,
    drivers.Psycopg,
    drivers.AsyncPsycopg,
    frameworks.SqlalchemySession,
    frameworks.SqlalchemyConnection,
    frameworks.AsyncSqlalchemySession,
    frameworks.AsyncSqlalchemyConnection,
    frameworks.on("psycopg", frameworks.AsyncSqlalchemySession),
    frameworks.Django,
)
ON_SQLITE = (
    drivers.Sqlite3,
    drivers.Sqlite3ByHand,
    drivers.Aiosqlite,
    frameworks.on("pysqlite", frameworks.SqlalchemySession),
    frameworks.on("pysqlite", frameworks.SqlalchemyConnection),
    frameworks.on("aiosqlite", frameworks.AsyncSqlalchemySession),
    frameworks.Django,
)


def named(value: Any) -> str:
    return str(value.__name__)


def keep_every_promise(user: User) -> None:
    for promise in PROMISES:
        user.run(promise(user))


@pytest.mark.proves("Q-25", "protocol-22", "arrivals-02", "arrivals-03", "arrivals-04")
@pytest.mark.backends("postgres", reason="these libraries' connections belong to Postgres")
@pytest.mark.parametrize("library", ON_POSTGRES, ids=named)
def test_every_promise_on_postgres(library: type[User], store_url: str) -> None:
    run_sql(store_url, "create table orders (id int)")
    keep_every_promise(library(store_url))


@pytest.mark.proves("Q-25", "protocol-22", "arrivals-02", "arrivals-03", "arrivals-04")
@pytest.mark.backends("sqlite", reason="these libraries' connections belong to SQLite")
@pytest.mark.parametrize("library", ON_SQLITE, ids=named)
def test_every_promise_on_sqlite(library: type[User], store_url: str) -> None:
    with closing(sqlite3.connect(drivers.path_of(store_url))) as mine:
        mine.execute("create table orders (id int)")
    keep_every_promise(library(store_url))


@pytest.mark.backends("turso", reason="the one that cannot be joined yet")
async def test_turso_says_that_it_does_not_join_yet(store_url: str) -> None:
    async with connect(store_url) as store:
        await store.create_queue("q")
        with pytest.raises(InvalidOption, match="does not join"):
            await store.enqueue("q", 1, tx=object())
