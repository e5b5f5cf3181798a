"""Every verb with `tx=` through every library, with a worker alive and with none, however the transaction ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import pytest

from stepwell import sync
from stepwell.store.driver import Call
from stepwell.store.postgres.compose import Composer
from stepwell.store.sql import Statements
from tests.deciders.workbench import Bench, Do, double, post
from tests.ground.databases import run_apart
from tests.ground.scale import Scale, measured, scale
from tests.queue.joining import drivers, frameworks, own
from tests.queue.joining.table import ENDS, Table
from tests.queue.joining.users import User
from tests.queue.joining.verbs import VERBS, paid

__all__ = ["measured", "scale"]
LIBRARIES: dict[str, tuple[type[User], ...]] = {
    "postgres": (
        drivers.Asyncpg,
        drivers.AsyncpgWithCodecs,
        drivers.PlainPsycopg,
        drivers.PsycopgWithAdapters,
        drivers.AsyncPsycopg,
        frameworks.SqlalchemySession,
        frameworks.SqlalchemyConnection,
        frameworks.AsyncSqlalchemySession,
        frameworks.AsyncSqlalchemyConnection,
        frameworks.on("psycopg", frameworks.AsyncSqlalchemySession),
        frameworks.Django,
        own.StoreTransaction,
        own.SyncStoreTransaction,
    ),
    "sqlite": (
        drivers.Sqlite3,
        drivers.Sqlite3ByHand,
        drivers.Sqlite3OfBytes,
        drivers.Aiosqlite,
        frameworks.on("pysqlite", frameworks.SqlalchemySession),
        frameworks.on("pysqlite", frameworks.SqlalchemyConnection),
        frameworks.on("aiosqlite", frameworks.AsyncSqlalchemySession),
        frameworks.Django,
        own.StoreTransaction,
        own.SyncStoreTransaction,
    ),
    "turso": (own.StoreTransaction, own.SyncStoreTransaction),
}


@contextmanager
def at_work(url: str, *, alive: bool) -> Iterator[sync.Store]:
    """A database with a table of the user's and, if asked for, a worker that serves everything."""
    with sync.connect(url) as store:
        with store.transaction() as tx:
            tx.execute("create table orders (label text)")
        engine = sync.Engine(store).register(Bench())
        for asked in (double.trigger(1), paid.trigger()):  # what the verbs make once: queues and workflows
            asked.options(require_worker="ignore").execute(store)
        store.enqueue(post, "first")
        engine.submit(Do("first"))
        engine.execute(Do("first"))
        if not alive:
            yield store
            return
        with sync.Worker(store, [engine, post, double, paid]):
            yield store


FEW: dict[str, tuple[type[User], ...]] = {  # each reads what the database answers in a way of its own
    "postgres": (drivers.PlainPsycopg, drivers.PsycopgWithAdapters, frameworks.AsyncSqlalchemySession),
    "sqlite": (drivers.Sqlite3, drivers.Sqlite3OfBytes),
    "turso": (own.StoreTransaction,),
}
READING = {"trigger", "signal", "execute again"}  # verbs that read what a worker or they themselves have written
READABLE = {"int4", "int8", "text", "bool"}  # what every driver reads alike, if it is asked as we ask it


@pytest.mark.timeout(1800)
@pytest.mark.proves("Q-25", "protocol-22", "T-02", "M-04")
@pytest.mark.parametrize("alive", [True, False], ids=["a worker", "no worker"])
def test_exactly_what_was_committed_is_there(
    alive: bool, backend: str, store_url: str, scale: Scale, measured: Callable[..., None]
) -> None:
    """Small: with no worker, all verbs of one library, failing at each statement; with one, those that read, of few."""
    libraries = scale.of(FEW[backend] if alive else FEW[backend][:1], LIBRARIES[backend])
    verbs = [verb for verb in VERBS if verb.name in READING or scale.of(not alive, True)]
    with at_work(store_url, alive=alive) as store:
        table = Table(
            store, alive, faults_of=scale.of("last" if alive else "each", "all"), undoes_all=backend == "turso"
        )
        for library in libraries:
            table.fill(library(store_url), verbs)
        if backend == "postgres":
            assert run_apart(types_of(store_url, table.statements)) <= READABLE
    told: dict[str, Any] = {"drivers": len(libraries), "verbs": len(verbs), "ends": len(ENDS)}
    measured("joined", **told, alive=alive, cells=table.cells, faults=table.faults, wrong=len(table.wrong))
    assert not table.wrong, "\n".join(table.wrong)
    assert table.cells == len(libraries) * len(verbs) * len(ENDS)
    assert table.faults >= table.cells / len(ENDS)


async def types_of(url: str, names: set[str]) -> set[str]:
    """The types of all that these statements return."""
    statements = Statements("postgres", "stepwell")
    composer = Composer(statements)
    connection = await asyncpg.connect(url)
    found: set[str] = set()
    for name in names:
        columns = statements[name].columns
        text, _ = composer.compose([Call(name, {}, [(None,) * len(columns)] if columns else None)])
        found |= {column.type.name for column in (await connection.prepare(text)).get_attributes()}
    await connection.close()
    return found
