"""The programs whose memory is watched: a worker that does nothing with each message, and who sends them.

`python -m tests.crash.steady work --url ...` serves two queues, one with an async and one with a sync body, until
SIGTERM; at SIGUSR1 it counts the objects it has, by type, and writes that to its ledger. `produce` sends messages at a
steady rate until it is killed.
"""

import argparse
import asyncio
import gc
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from stepwell import Worker, connect, handler
from tests.ground.ledger import Ledger

LEASE = 3.0
EVERY = 0.1  # seconds between two lots of messages
LOT = 10  # messages of a lot: half of them for each queue


@handler("steady-async")
async def on_the_loop(number: int) -> None:
    """Do nothing, on the loop."""


@handler("steady-sync")
def in_a_thread(number: int) -> None:
    """Do nothing, in a thread."""


async def work(options: argparse.Namespace) -> None:
    """Serve both queues until SIGTERM."""
    with Ledger(options.ledger) as ledger:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, count_objects, ledger)
        # A small pool, for it opens its connections as they are needed: the last of a large one after minutes.
        async with connect(options.url, lease=LEASE, pool=4) as store:
            await Worker(store, [on_the_loop, in_a_thread], concurrency=4).run(signals=True)


def count_objects(ledger: Ledger) -> None:
    """Tell how many objects of each type there are."""
    gc.collect()
    objects = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
    ledger.write(phase="objects", objects=dict(objects), blocks=sys.getallocatedblocks())


async def produce(options: argparse.Namespace) -> None:
    """Send a lot of messages every so often, whether or not anybody keeps up."""
    async with connect(options.url, lease=LEASE) as store:
        following = time.monotonic()
        while True:
            for queue in (on_the_loop, in_a_thread):
                await store.enqueue_many(queue, range(LOT // 2))
            following += EVERY
            await asyncio.sleep(max(0.0, following - time.monotonic()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("work", "produce"))
    parser.add_argument("--url", required=True)
    parser.add_argument("--ledger", type=Path)
    options = parser.parse_args()
    asyncio.run(work(options) if options.what == "work" else produce(options))


if __name__ == "__main__":
    main()
