"""`python -m bench.outbox [URL]`: what an event costs beside a row of your own, and what a store pays that emits none.

Each is measured in turns with the others, one commit at a time, and the least of the rounds counts. Without a URL it is
an SQLite file in a temporary folder.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Final

from stepwell import CloudEvent, Outbox, Store, Worker, connect

ROUNDS: Final = 5
CALLS: Final = 200
MANY: Final = 2_000
MAKE: Final = "create table if not exists bench_row (id integer, total integer)"
ADD: Final = "insert into bench_row values (1, 12)"


async def published(event: CloudEvent) -> None:
    """Take an event."""


OUTBOX: Final = Outbox("bench", published, types="bench.*")


async def row_alone(store: Store) -> None:
    """Commit a row of your own."""
    async with store.transaction() as tx:
        await tx.execute(ADD)


async def row_with_event(store: Store) -> None:
    """Commit a row of your own and an event about it."""
    async with store.transaction() as tx:
        await tx.execute(ADD)
        await store.emit("bench.done.v1", {"total": 12}, subject="row/1", tx=tx)


async def event_alone(store: Store) -> None:
    """Emit an event by itself."""
    await store.emit("bench.done.v1", {"total": 12})


async def message(store: Store) -> None:
    """Enqueue a message, for which no outbox is asked."""
    await store.enqueue("plain", {"total": 12})


CASES: Final[dict[str, Callable[[Store], Awaitable[None]]]] = {
    "a row of your own, in store.transaction()": row_alone,
    "the same row and an event": row_with_event,
    "store.emit": event_alone,
    "store.enqueue": message,
}


async def timed(case: Callable[[Store], Awaitable[None]], store: Store) -> float:
    """Microseconds of one call."""
    began = time.perf_counter()
    for _ in range(CALLS):
        await case(store)
    return (time.perf_counter() - began) / CALLS * 1e6


async def drain(store: Store) -> float:
    """Microseconds of an event from the queue of its outbox to published, of many at once."""
    await asyncio.gather(*(store.emit("bench.done.v1", {"total": 12}) for _ in range(MANY)))
    began = time.perf_counter()
    count = await Worker(store, [OUTBOX], concurrency=100).drain()
    return (time.perf_counter() - began) / count * 1e6


async def measure(url: str) -> dict[str, float]:
    """The least of the rounds of each case, in microseconds."""
    least = dict.fromkeys(CASES, float("inf"))
    async with connect(url) as store:
        await Worker(store, [OUTBOX]).drain()  # it registers itself
        await store.create_queue("plain")
        async with store.transaction() as tx:
            await tx.execute(MAKE)
        for _ in range(ROUNDS):
            for name, case in CASES.items():
                least[name] = min(least[name], await timed(case, store))
            await Worker(store, [OUTBOX], concurrency=100).drain()
        return {**least, "published, an event of many": await drain(store)}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/bench.db"
        for name, microseconds in asyncio.run(measure(url)).items():
            print(f"{microseconds:8.0f} us  {name}")


if __name__ == "__main__":
    main()
