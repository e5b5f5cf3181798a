"""A worker whose messages may kill it: `python -m tests.crash.deadly --url ... --ledger ... --lease 2`."""

import argparse
import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from stepwell import Worker, connect, handler
from tests.ground.ledger import Ledger

QUEUE = "deadly"


async def work(options: argparse.Namespace, ledger: Ledger) -> None:
    """Serve the queue until SIGTERM, or until a message kills this process."""

    @handler(QUEUE)
    async def deadly(message: dict[str, Any]) -> None:
        ledger.write(phase="start", n=message["n"])
        if message["kills"]:
            os.kill(os.getpid(), signal.SIGKILL)

    async with connect(options.url, lease=options.lease) as store:
        await Worker(store, [deadly], concurrency=5).run(signals=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--ledger", required=True, type=Path)
    parser.add_argument("--lease", type=float, required=True)
    options = parser.parse_args()
    with Ledger(options.ledger) as ledger:
        asyncio.run(work(options, ledger))


if __name__ == "__main__":
    main()
