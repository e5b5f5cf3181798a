"""The shop of the demo: one workflow, five steps, one worker process. This is all the stepwell code that it takes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from stepwell.cli.demo.service import OutsideService
from stepwell.connect import connect
from stepwell.step import step
from stepwell.worker import Worker
from stepwell.workflow import workflow

ACTS: Final = ("reserve stock", "charge card", "pack lamp", "pack desk", "send receipt")
STEPS: Final = ("reserve_stock", "charge_card", "pack", "send_receipt")


@workflow(retry=10)
async def fulfil(order: str) -> str:
    await reserve_stock(order)
    receipt = await charge_card(order)
    await asyncio.gather(pack(order, "lamp"), pack(order, "desk"))
    await send_receipt(order, receipt)
    return receipt


@step
async def reserve_stock(order: str) -> None:
    await outside(order, "reserve stock")


@step
async def charge_card(order: str) -> str:
    await outside(order, "charge card")
    return f"receipt of {order}"


@step
async def pack(order: str, item: str) -> None:
    await outside(order, f"pack {item}")


@step
async def send_receipt(order: str, receipt: str) -> str:
    await outside(order, "send receipt")
    return f"sent: {receipt}"


class Surroundings:
    """The address of the service, how slowly it answers, and the point at which this process is killed."""

    service: OutsideService
    pace: float = 0.0
    dies: str | None = None


async def outside(order: str, act: str) -> None:
    """Call the service, which acts at once and answers slowly.

    Its idempotency key is the order and the act, the same in every attempt; `current().key` would do as well.
    """
    die_if(f"before {act}")
    Surroundings.service.do(order, act)
    die_if(f"after {act}")
    await asyncio.sleep(Surroundings.pace)


def die_if(point: str) -> None:
    """`kill -9`, exactly here, if this is the point."""
    if point == Surroundings.dies:
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)  # the signal may take a moment to arrive


async def work(urls: list[str]) -> None:
    """Run a worker for each store, until the process is told to end."""
    async with contextlib.AsyncExitStack() as stack:
        workers = [Worker(await stack.enter_async_context(connect(url)), [fulfil], concurrency=1) for url in urls]
        ends = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ends.set)
        await asyncio.gather(*(worker.run(ends.wait()) for worker in workers))


def main() -> None:
    """`python -m stepwell.cli.demo.shop SETTINGS`; ends when its standard input does."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    Surroundings.service = OutsideService(Path(settings["books"]))
    Surroundings.pace, Surroundings.dies = settings["pace"], settings["dies"]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    asyncio.run(work(settings["urls"]))


def _end_with_parent() -> None:
    # The parent holds the other end of this pipe; whatever ends it, the kernel closes the pipe.
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
