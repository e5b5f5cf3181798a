"""Raw SQL on SQLite: the rows of a workflow's life with nothing around them, through the standard library."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

from bench.asking import path_of
from bench.contestants import chunks
from bench.contestants.workflows import AT_ONCE, STEPS
from bench.durability import check_sqlite

BATCH: Final = 500
CHUNK: Final = 1000
POLL: Final = 0.001
TABLES: Final = """
create table if not exists raw_run (
    id integer primary key, ready boolean not null default true, input text not null, output text,
    finished_at integer);
create index if not exists raw_run_ready on raw_run (id) where ready;
create table if not exists raw_step (
    run_id integer not null, key text not null, place integer not null, status text not null, attempt integer not null,
    input text, output text, error text, started_at integer not null, finished_at integer,
    primary key (run_id, key)) without rowid;
"""
ADD: Final = "insert into raw_run (input) values (?)"
CLAIM: Final = """
update raw_run set ready = false where id in (select id from raw_run where ready order by id limit ?)
returning id, input
"""
RECORD: Final = """
insert into raw_step (run_id, key, place, status, attempt, input, output, started_at, finished_at)
values (?1, 'add_one#' || ?2, ?2, 'SUCCESS', 1, ?3, ?4, unixepoch(), unixepoch())
"""
FINISH: Final = "update raw_run set output = ?, finished_at = unixepoch() where id = ?"
OUTPUT: Final = "select output from raw_run where id = ? and finished_at is not null"


async def connect(url: str) -> "RawSqlite":
    """Open one connection."""
    connection = sqlite3.connect(path_of(url), isolation_level=None, timeout=60)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    return RawSqlite(connection)


class RawSqlite:
    """Workflows of four statements."""

    api = {  # noqa: RUF012 - nobody changes it
        "execute": f"{BATCH} runs a commit: claim, five times an awaited no-op and an insert of the steps, update",
        "execute_few": f"the same, {AT_ONCE} runs a commit",
        "here": "insert, claim, an awaited no-op and an insert for each step, update: a commit each",
        "elsewhere": f"insert; the worker and the caller each ask every {1000 * POLL:g} ms",
    }
    unfinished = "select count(*) from raw_run where finished_at is null"
    finished = "select count(*) from raw_run where finished_at is not null"
    steps = "select count(*) from raw_step"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def install(self) -> None:
        """Make the tables, and see that commits are durable."""
        self._connection.executescript(TABLES)
        check_sqlite(
            self._connection.execute("pragma journal_mode").fetchone()[0],
            self._connection.execute("pragma synchronous").fetchone()[0],
        )

    async def trigger_many(self, numbers: range) -> None:
        """Add many rows."""
        for chunk in chunks(numbers, CHUNK):
            with self._transaction():
                self._connection.executemany(ADD, [(str(number),) for number in chunk])

    async def execute(self, count: int) -> None:
        """Claim, record step after step, finish."""
        while rows := self._claim(BATCH):
            await self._executed(rows, STEPS)

    async def execute_few(self, count: int) -> None:
        """The same in smaller batches."""
        while rows := self._claim(AT_ONCE):
            await self._executed(rows, STEPS)

    async def _executed(self, rows: Sequence[tuple[int, str]], steps: int) -> list[int]:
        runs = [(run_id, int(number)) for run_id, number in rows]
        for step in range(steps):
            done = [(run_id, await _add_one(number)) for run_id, number in runs]
            with self._transaction():
                self._connection.executemany(
                    RECORD,
                    [(run_id, step + 1, str(n), str(m)) for (run_id, n), (_, m) in zip(runs, done, strict=True)],
                )
            runs = done
        with self._transaction():
            self._connection.executemany(FINISH, [(str(number), run_id) for run_id, number in runs])
        return [number for _, number in runs]

    @contextlib.asynccontextmanager
    async def serving(self, *, here: bool) -> AsyncIterator[None]:
        """Claim again and again; callers in this process do it themselves."""
        task = None if here else asyncio.create_task(self._serve())
        try:
            yield
        finally:
            if task is not None:
                task.cancel()

    async def _serve(self) -> None:
        self._connection.executescript(TABLES)
        while True:
            await asyncio.sleep(POLL)
            if self._connection.execute("select 1 from raw_run where ready limit 1").fetchone():
                await self._executed(self._claim(1), 1)

    async def here(self, number: int, steps: int) -> int:
        """Every statement of a run, one after the other."""
        self._connection.execute(ADD, (str(number),))
        [output] = await self._executed(self._claim(1), steps)
        return output

    async def elsewhere(self, number: int) -> int:
        """Add a row, and ask for its output again and again."""
        run_id = self._connection.execute(ADD, (str(number),)).lastrowid
        while (found := self._connection.execute(OUTPUT, (run_id,)).fetchone()) is None:
            await asyncio.sleep(POLL)
        return int(found[0])

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


async def _add_one(number: int) -> int:
    return number + 1
