"""Raw SQL on Postgres: the same durable steps with nothing around them, through asyncpg."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

import asyncpg

from bench.contestants import State, chunks

BATCH: Final = 500
CHUNK: Final = 1000
TABLE: Final = """
create table raw_task (
    id bigint generated always as identity primary key, ready boolean not null default true, run_at timestamptz,
    payload json not null, finished_at timestamptz);
create index on raw_task (id) where ready;
"""
ADD: Final = "insert into raw_task (payload) values ($1)"
ADD_MANY: Final = "insert into raw_task (payload) select unnest(cast(string_to_array($1, chr(31)) as json[]))"
CLAIM: Final = """
update raw_task set ready = false
 where id = any(array(select id from raw_task where ready order by id limit $1 for update skip locked))
returning id, payload
"""
FINISH: Final = """
update raw_task set finished_at = now() where id = any(cast(string_to_array($1, ',') as bigint[]))
"""


async def connect(url: str) -> "RawPostgres":
    """Open one connection to add and one to claim."""
    return RawPostgres(await asyncpg.connect(url), await asyncpg.connect(url))


class RawPostgres:
    """A queue of two statements."""

    api = {  # noqa: RUF012 - nobody changes it
        "enqueue": "insert, one row a commit",
        "enqueue_many": f"insert of {CHUNK} rows a commit, from one joined string",
        "drain": f"claim and finish {BATCH} rows a commit, an awaited no-op between",
        "serving": "insert, then pg_notify in a commit of its own; a listener claims one",
    }
    unfinished = "select count(*) from raw_task where finished_at is null and run_at is null"
    finished = "select count(*) from raw_task where finished_at is not null"

    def __init__(self, adding: Any, claiming: Any) -> None:
        self._adding = adding
        self._claiming = claiming
        self._notified = asyncio.Event()
        self._notifies = False

    async def install(self) -> None:
        """Make the table."""
        if not await self._adding.fetchval("select to_regclass('raw_task') is not null"):
            await self._adding.execute(TABLE)

    def filling(self, state: State, count: int) -> Iterable[str]:
        """Copies of the one row."""
        columns = "ready, run_at, payload, finished_at"
        yield (
            f"insert into raw_task ({columns}) select {columns}"
            f" from (select * from raw_task limit 1) as one, generate_series(1, {count})"
        )
        yield "analyze raw_task"

    async def schedule(self, number: int) -> None:
        """Add a row that is not ready."""
        await self._adding.execute(
            "insert into raw_task (ready, run_at, payload) values (false, now() + interval '1 day', '{}')"
        )

    async def enqueue(self, number: int) -> None:
        """Add a row; whoever listens is told after the commit."""
        await self._adding.fetch(ADD, f'{{"i":{number}}}')
        if self._notifies:
            await self._adding.fetch("select pg_notify('raw_task', '')")

    async def enqueue_many(self, numbers: range) -> None:
        """Add many rows."""
        for chunk in chunks(numbers, CHUNK):
            await self._adding.fetch(ADD_MANY, "\x1f".join([f'{{"i":{number}}}' for number in chunk]))

    async def drain(self, count: int) -> None:
        """Claim, do nothing, finish."""
        while rows := await self._claiming.fetch(CLAIM, BATCH):
            for _ in rows:
                await _noop()
            await self._claiming.fetch(FINISH, ",".join([str(row["id"]) for row in rows]))

    @contextlib.asynccontextmanager
    async def serving(self, arrived: Callable[[int], None]) -> AsyncIterator[None]:
        """Claim whenever told."""
        await self._claiming.add_listener("raw_task", lambda *_: self._notified.set())
        task = asyncio.create_task(self._serve(arrived))
        try:
            yield
        finally:
            task.cancel()

    async def _serve(self, arrived: Callable[[int], None]) -> None:
        while True:
            await self._notified.wait()
            self._notified.clear()
            for row in await self._claiming.fetch(CLAIM, 1):
                arrived(int(row["payload"][5:-1]))
                await self._claiming.fetch(FINISH, str(row["id"]))

    def notify(self) -> None:
        """From now on, tell whoever listens."""
        self._notifies = True

    async def close(self) -> None:
        """Close both."""
        await self._adding.close()
        await self._claiming.close()


async def _noop() -> None:
    pass
