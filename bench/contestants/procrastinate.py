"""procrastinate, through psycopg."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

import procrastinate  # type: ignore[import-not-found]

from bench.contestants import QUEUE, State, chunks

CONCURRENCY: Final = 10
CHUNK: Final = 1000


async def connect(url: str) -> "Procrastinate":
    """Open the app with a pool for its workers."""
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=4, max_size=20)
    app = procrastinate.App(connector=connector)
    await app.open_async()
    return Procrastinate(app)


class Procrastinate:
    """The queue as procrastinate serves it."""

    api = {  # noqa: RUF012 - nobody changes it
        "enqueue": "task.defer_async",
        "enqueue_many": f"task.batch_defer_async of {CHUNK}",
        "drain": f"run_worker_async(wait=False, concurrency={CONCURRENCY}), async task, jobs kept",
        "serving": f"run_worker_async(concurrency={CONCURRENCY}), woken by LISTEN",
    }
    unfinished = (
        "select count(*) from procrastinate_jobs where status in ('todo', 'doing')"
        " and coalesce(scheduled_at, now()) < now() + interval '1 hour'"
    )
    finished = "select count(*) from procrastinate_jobs where status = 'succeeded'"

    def __init__(self, app: Any) -> None:
        self._app = app
        self._arrived: Callable[[int], None] = _ignored
        self._task = app.task(queue=QUEUE, name="bench")(self._handle)

    async def _handle(self, i: int) -> None:
        self._arrived(i)

    async def install(self) -> None:
        """Make the tables."""
        found = await self._app.connector.execute_query_one_async(
            "select to_regclass('procrastinate_jobs') is not null as found"
        )
        if not found["found"]:
            await self._app.schema_manager.apply_schema_async()

    def filling(self, state: State, count: int) -> Iterable[str]:
        """Copies of the one row, without what its triggers would add for each."""
        columns = "queue_name, task_name, priority, args, status, scheduled_at, attempts"
        yield "alter table procrastinate_jobs disable trigger user"
        yield (
            f"insert into procrastinate_jobs ({columns}) select {columns}"
            f" from (select * from procrastinate_jobs limit 1) as one, generate_series(1, {count})"
        )
        yield "alter table procrastinate_jobs enable trigger user"
        yield "analyze procrastinate_jobs"

    async def schedule(self, number: int) -> None:
        """Defer by a day."""
        await self._task.configure(schedule_in={"days": 1}).defer_async(i=number)

    async def enqueue(self, number: int) -> None:
        """Defer one job."""
        await self._task.defer_async(i=number)

    async def enqueue_many(self, numbers: range) -> None:
        """Defer jobs by the thousand."""
        for chunk in chunks(numbers, CHUNK):
            await self._task.batch_defer_async(*[{"i": number} for number in chunk])

    async def drain(self, count: int) -> None:
        """Run a worker that ends when it has caught up."""
        await self._app.run_worker_async(
            queues=[QUEUE], wait=False, concurrency=CONCURRENCY, install_signal_handlers=False
        )

    @contextlib.asynccontextmanager
    async def serving(self, arrived: Callable[[int], None]) -> AsyncIterator[None]:
        """Run a worker in the background."""
        self._arrived = arrived
        task = asyncio.create_task(
            self._app.run_worker_async(queues=[QUEUE], concurrency=CONCURRENCY, install_signal_handlers=False)
        )
        await asyncio.sleep(0.5)
        try:
            yield
        finally:
            task.cancel()

    async def close(self) -> None:
        """The process ends anyway."""


def _ignored(number: int) -> None:
    pass
