"""pgqrs: a compiled core with Python bindings."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

import pgqrs  # type: ignore[import-untyped]

from bench.contestants import QUEUE, State, chunks

BATCH: Final = 100  # more is refused
CONSUMERS: Final = 4
POLL: Final = 5  # milliseconds


async def connect(url: str) -> "Pgqrs":
    """Open the store without its limits of enqueues a second."""
    config = pgqrs.Config(url)
    config.max_enqueue_per_second = config.max_enqueue_burst = None
    config.max_connections = 16
    return Pgqrs(await pgqrs.connect_with(config))


class Pgqrs:
    """The queue as pgqrs has it."""

    api = {  # noqa: RUF012 - nobody changes it
        "enqueue": "producer.enqueue",
        "enqueue_many": f"enqueue_batch of {BATCH}, the most it takes",
        "drain": f"{CONSUMERS} consumers at once: dequeue({BATCH}), then an awaited no-op and archive each",
        "drain_batches": f"{CONSUMERS} consumers at once: dequeue({BATCH}), an awaited no-op, archive_many",
        "serving": f"store.consume_iter, polling every {POLL} ms",
    }
    unfinished = "select count(*) from pgqrs_messages where archived_at is null and vt < now() + interval '1 hour'"
    finished = "select count(*) from pgqrs_messages where archived_at is not null"

    def __init__(self, store: Any) -> None:
        self._store = store
        self._producer: Any = None

    async def install(self) -> None:
        """Make tables, queue and producer."""
        await self._store.bootstrap()
        with contextlib.suppress(pgqrs.QueueAlreadyExistsError):
            await self._store.queue(QUEUE)
        self._producer = await self._store.producer(QUEUE)

    def filling(self, state: State, count: int) -> Iterable[str]:
        """Copies of the one row."""
        yield f"""
            do $$ declare columns text; begin
            select string_agg(quote_ident(column_name), ',') into columns from information_schema.columns
             where table_name = 'pgqrs_messages' and column_name <> 'id';
            execute format('insert into pgqrs_messages (%1$s) select %1$s from
              (select * from pgqrs_messages limit 1) one, generate_series(1, {count})', columns); end $$"""
        yield "analyze pgqrs_messages"

    async def schedule(self, number: int) -> None:
        """Enqueue with a delay."""
        await self._producer.enqueue_delayed({"i": number}, 86_400)

    async def enqueue(self, number: int) -> None:
        """Enqueue one message."""
        await self._producer.enqueue({"i": number})

    async def enqueue_many(self, numbers: range) -> None:
        """Enqueue batches."""
        for chunk in chunks(numbers, BATCH):
            await pgqrs.enqueue_batch(self._producer, [{"i": number} for number in chunk])

    async def drain(self, count: int) -> None:
        """Let several consumers empty the queue, each message handled and acknowledged by itself."""
        await asyncio.gather(*(self._empty() for _ in range(CONSUMERS)))

    async def drain_batches(self, count: int) -> None:
        """Let several consumers empty the queue, acknowledging what they took together."""
        await asyncio.gather(*(self._empty_batches() for _ in range(CONSUMERS)))

    async def _empty(self) -> None:
        consumer = await self._store.consumer(QUEUE)

        async def handle(message: Any) -> None:
            await _noop(message.payload)
            await consumer.archive(message.id)

        while messages := await consumer.dequeue(batch_size=BATCH):
            await asyncio.gather(*map(handle, messages))

    async def _empty_batches(self) -> None:
        consumer = await self._store.consumer(QUEUE)
        while messages := await consumer.dequeue(batch_size=BATCH):
            await _noop([message.payload for message in messages])
            await consumer.archive_many([message.id for message in messages])

    @contextlib.asynccontextmanager
    async def serving(self, arrived: Callable[[int], None]) -> AsyncIterator[None]:
        """Iterate over what comes."""
        task = asyncio.create_task(self._serve(arrived))
        try:
            yield
        finally:
            task.cancel()

    async def _serve(self, arrived: Callable[[int], None]) -> None:
        async with self._store.consume_iter(QUEUE, poll_interval_ms=POLL) as messages:
            async for message in messages:
                arrived(message.payload["i"])
                await messages.archive(message.id)

    async def close(self) -> None:
        """The process ends anyway."""


async def _noop(message: Any) -> None:
    pass
