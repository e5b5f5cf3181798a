"""A worker that may be killed or frozen around the commit of a transactional step: `python -m tests.crash.committer`.

The step writes a row with a token in its transaction and returns the token. With `--stop` a worker waits at that
point, where the test stops it, until the gate is there. `--via` says whose transaction it is; `once` is a step without
one that begins at most once.
"""

import argparse
import asyncio
import contextlib
import sqlite3
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from stepwell import Store, Worker, connect, current, step, workflow
from tests.ground.ledger import Ledger
from tests.queue.joining.drivers import path_of
from tests.queue.joining.frameworks import address, django_connection

WORKFLOW = "committer"
POINTS = ("before the commit", "at the commit", "after the commit")
INSERT = "insert into written (n, token) values ({}, '{}')"
OWN, ONCE = "own", "once"
VIA = {
    "postgres": ("asyncpg", "psycopg", "psycopg async", "session", "async session", "django"),
    "sqlite": ("sqlite3", "aiosqlite", "session", "async session", "django"),
}


class Stops:
    """Where this worker waits to be stopped."""

    def __init__(self, ledger: Ledger, stop: str, gate: Path) -> None:
        self.ledger = ledger
        self.n = -1  # of the run that is executed: a worker here executes one at a time
        self._stop = stop
        self._gate = gate

    def at(self, point: str) -> None:
        """Wait here, if it is the point; the loop waits too, as it does in a process that is stopped."""
        if point == self._stop and self.n >= 0:
            self.ledger.write(phase="at", n=self.n)
            while not self._gate.exists():
                time.sleep(0.01)

    def watch(self, store: Store) -> None:
        """Wait after the record, before the commit; and after the commit of the store's own transaction."""
        steps, transactions = store.database.steps, store.database.transactions
        in_turn, of_step = steps.in_turn, transactions.of_step

        def recording(*args: Any) -> Any:
            written = yield from in_turn(*args)
            self.at(POINTS[1])
            return written

        @contextlib.asynccontextmanager
        async def committing(lease: float) -> AsyncIterator[Any]:
            async with of_step(lease) as tx:
                yield tx
            self.at(POINTS[2])

        steps.in_turn = recording  # type: ignore[method-assign, assignment]
        transactions.of_step = committing  # type: ignore[method-assign]


def committer(stops: Stops, via: str, url: str) -> Any:
    """The workflow, whose one step writes once."""

    def begun(n: int) -> str:
        stops.n = n
        stops.ledger.write(phase="start", n=n, key=current().key)
        return uuid.uuid4().hex

    async def write(tx: Any, n: int) -> str:
        token = begun(n)
        await tx.execute(statement(via, n, token))
        stops.at(POINTS[0])
        return token

    def write_here(tx: Any, n: int) -> str:
        token = begun(n)
        (tx.cursor() if via == "django" else tx).execute(statement(via, n, token))
        stops.at(POINTS[0])
        return token

    async def act(n: int) -> str:
        token = begun(n)
        stops.at(POINTS[0])
        return token

    if via == ONCE:
        one: Any = step(at_most_once=True, id="act")(act)
    elif via == OWN:
        one = step(tx=True, id="act")(write)
    else:
        source, is_async = source_of(stops, via, url)
        one = step(tx=source, id="act")(write if is_async else write_here)

    @workflow(name=WORKFLOW, retry=20)
    async def run(n: int) -> str:
        token: str = await current().step(one, n)
        return token

    return run


def statement(via: str, n: int, token: str) -> Any:
    return text(INSERT.format(n, token)) if "session" in via else INSERT.format(n, token)


def source_of(stops: Stops, via: str, url: str) -> tuple[Any, bool]:
    """What opens a transaction of this library, and whether it needs a loop. After its commit comes the last point."""
    kind = url.partition(":")[0]
    async_driver, sync_driver = ("aiosqlite", "pysqlite") if kind == "sqlite" else ("asyncpg", "psycopg")
    made: dict[str, Callable[[], Any]] = {
        "asyncpg": lambda: asyncpg.connect(url),
        "psycopg async": lambda: psycopg.AsyncConnection.connect(url),
        "aiosqlite": lambda: aiosqlite.connect(path_of(url)),
        "async session": partial(opened_session, url, async_driver),
        "psycopg": lambda: psycopg.connect(url),
        "sqlite3": lambda: contextlib.closing(sqlite3.connect(path_of(url))),
        "session": partial(opened_session_here, url, sync_driver),
    }

    @contextlib.asynccontextmanager
    async def block() -> AsyncIterator[Any]:
        opened = made[via]()
        opened = await opened if asyncio.iscoroutine(opened) else opened
        try:
            if hasattr(opened, "__aenter__"):
                async with opened as tx:
                    yield tx
                    stops.at(POINTS[2])
            else:
                yield opened
                stops.at(POINTS[2])
        finally:
            if via == "asyncpg":
                await opened.close()

    @contextlib.contextmanager
    def block_here() -> Iterator[Any]:
        with made[via]() as tx:
            yield tx
            stops.at(POINTS[2])

    if via == "django":
        return django_connection(url), False
    is_async = via in ("asyncpg", "psycopg async", "aiosqlite", "async session")
    return (block if is_async else block_here), is_async


def opened_session(url: str, driver: str) -> Any:
    return async_sessionmaker(create_async_engine(address(url, driver), poolclass=NullPool))()


def opened_session_here(url: str, driver: str) -> Any:
    return sessionmaker(create_engine(address(url, driver), poolclass=NullPool))()


async def work(options: argparse.Namespace, ledger: Ledger) -> None:
    """Serve the workflow until SIGTERM."""
    stops = Stops(ledger, options.stop, options.gate)
    async with connect(options.url, lease=options.lease) as store:
        stops.watch(store)
        served = committer(stops, options.via, options.url)
        await Worker(store, [served], concurrency=1).run(signals=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--ledger", required=True, type=Path)
    parser.add_argument("--lease", type=float, required=True)
    parser.add_argument("--via", required=True)
    parser.add_argument("--stop", default="")
    parser.add_argument("--gate", type=Path, default=Path("/nowhere"))
    options = parser.parse_args()
    with Ledger(options.ledger) as ledger:
        asyncio.run(work(options, ledger))


if __name__ == "__main__":
    main()
