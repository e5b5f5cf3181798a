"""stepwell itself, through its public API."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

from bench.contestants import QUEUE, State
from bench.durability import check_sqlite
from stepwell import Store, Worker, handler
from stepwell import connect as open_store
from stepwell.queue import Handler

CONCURRENCY: Final = 1000  # of 100 to 4000 the best, for handlers that do nothing: larger claims and flushes
BATCH: Final = 500
PLACES: Final = 4
LABOUR: Final = 15_000


@handler(QUEUE)
async def noop(message: dict[str, int]) -> None:
    """Do nothing with a message."""


@handler(QUEUE, batch=BATCH)
async def noop_batch(messages: list[dict[str, int]]) -> None:
    """Do nothing with many messages."""


@handler(QUEUE)
async def busy(message: dict[str, int]) -> None:
    """Compute for about a millisecond: the same work however many processes share the cores."""
    sum(number * message["i"] for number in range(LABOUR))


async def connect(url: str) -> "Stepwell":
    """Open the store with its defaults."""
    return Stepwell(await open_store(url), url)


class Stepwell:
    """The queue as stepwell serves it."""

    api = {  # noqa: RUF012 - nobody changes it
        "enqueue": "store.enqueue",
        "enqueue_many": "store.enqueue_many of 10,000, all or none",
        "drain": f"Worker(concurrency={CONCURRENCY}, tune_gc=True).drain(), async handler; else defaults",
        "drain_batches": f"the same with @handler(queue, batch={BATCH}), concurrency={PLACES}",
        "drain_busy": "the same with an async handler that computes for about a millisecond",
        "serving": "async with Worker(store, [handler], tune_gc=True)",
    }

    def __init__(self, store: Store, url: str) -> None:
        self._store = store
        self._embedded = url.startswith("sqlite:")
        self._task = "stepwell_task" if self._embedded else "stepwell.task"
        # By parts, each with an index that holds no finished row.
        self.unfinished = (
            f"select (select count(*) from {self._task} where ready)"
            f" + (select count(*) from {self._task} where owner is not null)"
        )
        self.finished = f"select count(*) from {self._task} where finished_at is not null"

    async def install(self) -> None:
        """The tables are there since the store was opened; see that its writer commits durably."""
        await self._store.create_queue(QUEUE)
        if self._embedded:
            check_writer(self._store)

    def filling(self, state: State, count: int) -> Iterable[str]:
        """Copies of the one row, under ids that stepwell never gives."""
        columns = (
            "kind, queue_id, status, ready, priority, turn, attempt, max_attempts, input, created_at, updated_at, "
            "claimed_at, started_at, finished_at"
        )
        numbers = (
            f"with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < {count})"
            if self._embedded
            else f"with numbers as (select generate_series(1, {count}) as n)"
        )
        yield (
            f"{numbers} insert into {self._task} (id, run_at, {columns})"
            f" select -n, run_at + n, {columns} from numbers, (select * from {self._task} limit 1) as one"
        )
        yield f"analyze {self._task}"

    async def schedule(self, number: int) -> None:
        """Enqueue with a delay."""
        await self._store.enqueue(noop, {"i": number}, delay="1d")

    async def enqueue(self, number: int) -> None:
        """Enqueue one message."""
        await self._store.enqueue(noop, {"i": number})

    async def enqueue_many(self, numbers: range) -> None:
        """Enqueue messages in one call."""
        await self._store.enqueue_many(noop, [{"i": number} for number in numbers])

    async def drain(self, count: int) -> None:
        """Let a worker drain the queue."""
        await Worker(self._store, [noop], concurrency=CONCURRENCY, tune_gc=True).drain()

    async def drain_busy(self, count: int) -> None:
        """Let a worker drain the queue with a handler that computes."""
        await Worker(self._store, [busy], concurrency=CONCURRENCY, tune_gc=True).drain()

    async def drain_batches(self, count: int) -> None:
        """Let a worker drain the queue, many messages a call."""
        await Worker(self._store, [noop_batch], concurrency=PLACES, tune_gc=True).drain()

    @contextlib.asynccontextmanager
    async def serving(self, arrived: Callable[[int], None]) -> AsyncIterator[None]:
        """Have a worker in the background."""
        async with Worker(self._store, [_telling(arrived)], tune_gc=True):
            yield

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()


def check_writer(store: Store) -> None:
    """Raise `NotDurable` unless the connection that writes, which is nobody's but the store's, commits durably."""

    def ask(connection: sqlite3.Connection) -> tuple[str, int]:
        return (
            connection.execute("pragma journal_mode").fetchone()[0],
            connection.execute("pragma synchronous").fetchone()[0],
        )

    driver: Any = store.database.driver
    check_sqlite(*driver._writer.submit(ask).result(10))


def _telling(arrived: Callable[[int], None]) -> Handler[dict[str, int]]:
    @handler(QUEUE)
    async def tell(message: dict[str, int]) -> None:
        arrived(message["i"])

    return tell
