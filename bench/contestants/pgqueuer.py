"""pgqueuer, through asyncpg."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import timedelta
from typing import Any, Final

import asyncpg
from pgqueuer import PgQueuer, types  # type: ignore[import-not-found]
from pgqueuer.db import AsyncpgDriver  # type: ignore[import-not-found]
from pgqueuer.queries import Queries  # type: ignore[import-not-found]

from bench.contestants import QUEUE, State, chunks

BATCH: Final = 500
CHUNK: Final = 1000


async def connect(url: str) -> "Pgqueuer":
    """Open one connection to enqueue and one to work."""
    return Pgqueuer(await asyncpg.connect(url), await asyncpg.connect(url))


class Pgqueuer:
    """The queue as pgqueuer serves it."""

    api = {  # noqa: RUF012 - nobody changes it
        "enqueue": "Queries.enqueue",
        "enqueue_many": f"Queries.enqueue of {CHUNK}",
        "drain": f"PgQueuer.run(mode=drain, batch_size={BATCH}), async entrypoint",
        "serving": "PgQueuer.run(batch_size=10), woken by LISTEN",
    }
    unfinished = "select count(*) from pgqueuer where execute_after < now() + interval '1 hour'"
    finished = "select count(*) from pgqueuer_log where status = 'successful'"

    def __init__(self, adding: Any, working: Any) -> None:
        self._queries = Queries(AsyncpgDriver(adding))
        self._adding = adding
        self._working = working

    async def install(self) -> None:
        """Make the tables."""
        if not await self._adding.fetchval("select to_regclass('pgqueuer') is not null"):
            await self._queries.install()

    def filling(self, state: State, count: int) -> Iterable[str]:
        """Copies of the one log row, or of the one job."""
        table, picked = ("pgqueuer_log", "status = 'successful'") if state == "finished" else ("pgqueuer", "true")
        yield f"""
            do $$ declare columns text; begin
            select string_agg(quote_ident(column_name), ',') into columns from information_schema.columns
             where table_name = '{table}' and column_name <> 'id';
            execute format('insert into {table} (%1$s) select %1$s from
              (select * from {table} where {picked.replace("'", "''")} limit 1) one, generate_series(1, {count})',
              columns); end $$"""
        yield f"analyze {table}"

    async def schedule(self, number: int) -> None:
        """Enqueue with a delay."""
        await self._queries.enqueue([QUEUE], [b"{}"], [0], [timedelta(days=1)])

    async def enqueue(self, number: int) -> None:
        """Enqueue one job."""
        await self._queries.enqueue(QUEUE, b'{"i":%d}' % number, 0)

    async def enqueue_many(self, numbers: range) -> None:
        """Enqueue jobs by the thousand."""
        for chunk in chunks(numbers, CHUNK):
            payloads = [b'{"i":%d}' % number for number in chunk]
            await self._queries.enqueue([QUEUE] * len(payloads), payloads, [0] * len(payloads))

    async def drain(self, count: int) -> None:
        """Run in its own drain mode."""
        queuer = PgQueuer(AsyncpgDriver(self._working))
        queuer.entrypoint(QUEUE)(_noop)
        await queuer.run(mode=types.QueueExecutionMode.drain, batch_size=BATCH)

    @contextlib.asynccontextmanager
    async def serving(self, arrived: Callable[[int], None]) -> AsyncIterator[None]:
        """Run until shut down."""

        async def tell(job: Any) -> None:
            arrived(json.loads(job.payload)["i"])

        queuer = PgQueuer(AsyncpgDriver(self._working))
        queuer.entrypoint(QUEUE)(tell)
        task = asyncio.create_task(queuer.run(batch_size=10))
        await asyncio.sleep(0.5)
        try:
            yield
        finally:
            queuer.shutdown.set()
            task.cancel()

    async def close(self) -> None:
        """The process ends anyway."""


async def _noop(job: Any) -> None:
    pass
