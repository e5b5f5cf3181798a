"""Readings of meters, written many at a time: one bad reading does not spoil the others.

Run it:  python examples/batch_meters.py
It uses a temporary SQLite file, or the store that STEPWELL_URL names.
"""

import asyncio
import os
import tempfile
from dataclasses import dataclass

from stepwell import PermanentError, Store, Worker, connect, handler

QUEUE = "example.meters"
written: dict[str, int] = {}  # stands for a table that is cheaper to fill by the dozen


@dataclass(frozen=True)
class Reading:
    """What a meter says."""

    meter: str
    value: int


@handler(QUEUE, batch=50, retry=3)
async def write(readings: list[Reading]) -> None:
    """Write as many readings as there are, at most fifty."""
    for reading in readings:
        if reading.value < 0:
            raise PermanentError(f"meter {reading.meter} runs backwards")
    written.update({reading.meter: reading.value for reading in readings})
    if len(readings) > 1:
        print(f"wrote {len(readings)} readings together")


async def main(url: str) -> None:
    """Fill the queue, drain it, and look at what is left."""
    async with connect(url) as store:
        await forget_earlier_runs(store)
        good = [Reading(f"m{number:02}", number) for number in range(20)]
        await store.enqueue_many(write, good[:10])
        await Worker(store, [write]).drain()

        # The batch with a bad reading fails as a whole. Each message then comes again alone and has lost no attempt.
        await store.enqueue_many(write, [*good[10:], Reading("m99", -1)])
        await Worker(store, [write]).drain()
        print(f"{len(written)} of 20 good readings are written")
        for letter in await store.dead_letters(queue=QUEUE):
            print(f"dead letter {letter.payload['meter']}, attempt {letter.attempt}: {letter.last_error}")

        # A whole day in one call: all messages are written or none.
        day = [Reading(reading.meter, reading.value + hour) for hour in range(24) for reading in good]
        ids = await store.enqueue_many(write, day)
        print(f"{len(ids)} readings of a day are there")
        await Worker(store, [write]).drain()
        print("statuses", await store.counts(QUEUE))


async def forget_earlier_runs(store: Store) -> None:
    """Begin with an empty queue, also on a store that was used before."""
    await store.create_queue(QUEUE)
    await store.purge(QUEUE)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(os.environ.get("STEPWELL_URL") or f"sqlite:///{folder}/meters.db"))
