"""Bursts of debounced messages, and who handles them: `python -m tests.crash.burst --url ... --ledger ... --role ...`.

Each key has one producer, which counts up and goes on where the ledger says that its predecessor was killed.
"""

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from stepwell import Handler, Worker, connect, current, handler
from stepwell.base.telemetry import Telemetry
from tests.crash.workload import tell
from tests.ground.ledger import Ledger

QUEUE = "bursts"
DEBOUNCE, MOST = "30ms", "120ms"


def bursts(ledger: Ledger) -> Handler[Any]:
    """The handler."""

    @handler(QUEUE, retry=1000)
    async def handle(asked: dict[str, Any]) -> None:
        ledger.write(phase="handled", who=asked["who"], n=asked["n"], task=current().id)

    return handle


def begun(ledger: Path, who: str) -> int:
    """How many messages the producers of a key have begun to send."""
    lines = [json.loads(line) for line in ledger.read_text().splitlines() if line.endswith("}")]
    return 1 + max((line["n"] for line in lines if line["phase"] == "sending" and line["who"] == who), default=-1)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--ledger", required=True, type=Path)
    parser.add_argument("--role", required=True, choices=["work", "produce"])
    parser.add_argument("--lease", type=float, default=30.0)
    parser.add_argument("--who", default="")
    parser.add_argument("--count", type=int, default=0)
    options = parser.parse_args()
    telemetry = Telemetry()
    with Ledger(options.ledger) as ledger:
        telemetry.subscribe(lambda event: tell(ledger, event))
        async with connect(options.url, lease=options.lease, telemetry=telemetry) as store:
            if options.role == "work":
                await Worker(store, [bursts(ledger)]).run(signals=True)
                return
            for n in range(begun(options.ledger, options.who), options.count):
                ledger.write(phase="sending", who=options.who, n=n)
                asked = {"who": options.who, "n": n}
                await store.enqueue(bursts(ledger), asked, key=options.who, debounce=DEBOUNCE, debounce_max=MOST)
                ledger.write(phase="sent", who=options.who, n=n)
            ledger.write(phase="sent all", who=options.who)


if __name__ == "__main__":
    asyncio.run(main())
