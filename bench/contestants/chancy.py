"""chancy, through psycopg, with its asyncio executor."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

from chancy import Chancy as Application  # type: ignore[import-not-found]
from chancy import Queue as Declared
from chancy import Worker, job

from bench.contestants import QUEUE, State

CONCURRENCY: Final = 100
WRITE_EVERY: Final = 0.05


class Handled:
    """What the handler, which chancy finds by its name, tells about what it was given."""

    count = 0
    arrived: Callable[[int], None] | None = None


async def handle(*, i: int) -> None:
    """Do nothing, or tell."""
    Handled.count += 1
    if Handled.arrived is not None:
        Handled.arrived(i)


async def connect(url: str) -> "Chancy":
    """Open the application."""
    log = logging.getLogger("chancy")
    log.setLevel(logging.CRITICAL)
    application = Application(url, log=log, min_connection_pool_size=2, max_connection_pool_size=10)
    await application.__aenter__()
    return Chancy(application)


class Chancy:
    """The queue as chancy serves it."""

    api = {  # noqa: RUF012 - nobody changes it
        "enqueue": "push",
        "enqueue_many": "push_many, batches of 1000",
        "drain": f"Worker, AsyncExecutor, concurrency={CONCURRENCY}, eager_polling; completions written every "
        f"{1000 * WRITE_EVERY:g} ms (default 1 s)",
        "serving": f"Worker, AsyncExecutor, concurrency={CONCURRENCY}, eager_polling, woken by LISTEN",
    }
    unfinished = (
        "select count(*) from chancy_jobs where state in ('pending', 'running', 'retrying')"
        " and scheduled_at < now() + interval '1 hour'"
    )
    finished = "select count(*) from chancy_jobs where state = 'succeeded'"

    def __init__(self, application: Any) -> None:
        self._application = application
        self._job = job(queue=QUEUE)(handle).job

    async def install(self) -> None:
        """Make tables and queue; its default queue would only start processes for nothing."""
        await self._application.migrate()
        await self._application.delete_queue("default")
        executor = "chancy.executors.asyncex.AsyncExecutor"
        await self._application.declare(
            Declared(QUEUE, concurrency=CONCURRENCY, executor=executor, polling_interval=1, eager_polling=True)
        )

    def filling(self, state: State, count: int) -> Iterable[str]:
        """Copies of the one row."""
        yield f"""
            do $$ declare columns text; begin
            select string_agg(quote_ident(column_name), ',') into columns from information_schema.columns
             where table_name = 'chancy_jobs' and column_name <> 'id';
            execute format('insert into chancy_jobs (id, %1$s) select gen_random_uuid(), %1$s from
              (select * from chancy_jobs limit 1) one, generate_series(1, {count})', columns); end $$"""
        yield "analyze chancy_jobs"

    async def schedule(self, number: int) -> None:
        """Push, and put off by a day."""
        await self.enqueue(number)
        async with self._application.pool.connection() as connection:
            await connection.execute("update chancy_jobs set scheduled_at = now() + interval '1 day'")

    async def enqueue(self, number: int) -> None:
        """Push one job."""
        await self._application.push(self._job.with_kwargs(i=number))

    async def enqueue_many(self, numbers: range) -> None:
        """Push jobs in one call."""
        async for _ in self._application.push_many([self._job.with_kwargs(i=number) for number in numbers]):
            pass

    async def drain(self, count: int) -> None:
        """Run a worker until every job has been handled; the last completions are written as it stops."""
        wanted = Handled.count + count
        async with Worker(self._application, register_signal_handlers=False) as worker:
            worker.send_outgoing_interval = WRITE_EVERY
            while Handled.count < wanted or not worker.outgoing.empty():
                await asyncio.sleep(0.002)

    @contextlib.asynccontextmanager
    async def serving(self, arrived: Callable[[int], None]) -> AsyncIterator[None]:
        """Run a worker in the background."""
        Handled.arrived = arrived
        async with Worker(self._application, register_signal_handlers=False):
            await asyncio.sleep(0.7)
            yield

    async def close(self) -> None:
        """The process ends anyway."""
