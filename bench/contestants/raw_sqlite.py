"""Raw SQL on SQLite: the same durable steps with nothing around them, through the standard library."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Final

from bench.asking import path_of
from bench.contestants import State, chunks
from bench.durability import check_sqlite

BATCH: Final = 500
CHUNK: Final = 1000
POLL: Final = 0.001
TABLE: Final = """
create table if not exists raw_task (
    id integer primary key, ready boolean not null default true, run_at integer, payload text not null,
    finished_at integer);
create index if not exists raw_task_ready on raw_task (id) where ready;
"""
ADD: Final = "insert into raw_task (payload) values (?)"
CLAIM: Final = """
update raw_task set ready = false where id in (select id from raw_task where ready order by id limit ?)
returning id, payload
"""
FINISH: Final = "update raw_task set finished_at = unixepoch() where id = ?"


async def connect(url: str) -> "RawSqlite":
    """Open one connection."""
    connection = sqlite3.connect(path_of(url), isolation_level=None, timeout=60)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    return RawSqlite(connection)


class RawSqlite:
    """A queue of two statements."""

    api = {  # noqa: RUF012 - nobody changes it
        "enqueue": "insert, one row a commit, on the loop's own thread",
        "enqueue_many": f"executemany of {CHUNK} rows a commit",
        "drain": f"claim and finish {BATCH} rows a commit, an awaited no-op between",
        "serving": f"insert; the worker asks every {1000 * POLL:g} ms",
    }
    unfinished = "select count(*) from raw_task where finished_at is null and run_at is null"
    finished = "select count(*) from raw_task where finished_at is not null"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def install(self) -> None:
        """Make the table, and see that commits are durable."""
        self._connection.executescript(TABLE)
        check_sqlite(
            self._connection.execute("pragma journal_mode").fetchone()[0],
            self._connection.execute("pragma synchronous").fetchone()[0],
        )

    def filling(self, state: State, count: int) -> Iterable[str]:
        """Copies of the one row."""
        columns = "ready, run_at, payload, finished_at"
        yield (
            f"with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < {count})"
            f" insert into raw_task ({columns}) select {columns} from numbers, (select * from raw_task limit 1) as one"
        )
        yield "analyze raw_task"

    async def schedule(self, number: int) -> None:
        """Add a row that is not ready."""
        self._connection.execute(
            "insert into raw_task (ready, run_at, payload) values (false, unixepoch() + 86400, '{}')"
        )

    async def enqueue(self, number: int) -> None:
        """Add a row."""
        self._connection.execute(ADD, (f'{{"i":{number}}}',))

    async def enqueue_many(self, numbers: range) -> None:
        """Add many rows."""
        for chunk in chunks(numbers, CHUNK):
            with self._transaction():
                self._connection.executemany(ADD, [(f'{{"i":{number}}}',) for number in chunk])

    async def drain(self, count: int) -> None:
        """Claim, do nothing, finish."""
        while rows := self._claim(BATCH):
            for _ in rows:
                await _noop()
            with self._transaction():
                self._connection.executemany(FINISH, [(row[0],) for row in rows])

    @contextlib.asynccontextmanager
    async def serving(self, arrived: Callable[[int], None]) -> AsyncIterator[None]:
        """Claim again and again."""
        task = asyncio.create_task(self._serve(arrived))
        try:
            yield
        finally:
            task.cancel()

    async def _serve(self, arrived: Callable[[int], None]) -> None:
        while True:
            await asyncio.sleep(POLL)
            if not self._connection.execute("select 1 from raw_task where ready limit 1").fetchone():
                continue
            for row in self._claim(1):
                arrived(int(row[1][5:-1]))
                self._connection.execute(FINISH, (row[0],))

    def _claim(self, limit: int) -> list[tuple[int, str]]:
        with self._transaction():
            return self._connection.execute(CLAIM, (limit,)).fetchall()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("begin immediate")
        yield
        self._connection.execute("commit")

    async def close(self) -> None:
        """Close the connection."""
        self._connection.close()


async def _noop() -> None:
    pass
