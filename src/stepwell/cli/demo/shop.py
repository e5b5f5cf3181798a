"""The shop of the demo: one queue, one handler, one worker process. This is all the stepwell code that it takes."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stepwell.cli.demo.service import Service
from stepwell.connecting import connect
from stepwell.queue import Handler, handler
from stepwell.worker import Worker

QUEUE: Final = "orders"
PACKING: Final = 0.9  # seconds between the charge and the parcel: where the demo strikes


@dataclass(frozen=True, slots=True)
class Order:
    """What is enqueued."""

    key: str
    cents: int


def fulfilment(service: Service) -> Handler[Order]:
    """The handler: charge the card, pack, send the parcel. Killed anywhere, it starts again from its first line."""

    @handler(QUEUE, retry=5, timeout="20s")
    async def fulfil(order: Order) -> None:
        service.charge(order.cents, key=order.key)
        await asyncio.sleep(PACKING)
        service.send_parcel(key=order.key)

    return fulfil


async def work(url: str, service: Service) -> None:
    """One worker process's work."""
    async with connect(url) as store:
        await Worker(store, [fulfilment(service)], concurrency=2).run(signals=True)


def main() -> None:
    """`python -m stepwell.cli.demo.shop URL BOOKS`; ends when its standard input does."""
    url, books = sys.argv[1:]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    asyncio.run(work(url, Service(Path(books))))


def _end_with_parent() -> None:
    # The parent holds the other end of this pipe; whatever ends it, the kernel closes the pipe.
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
