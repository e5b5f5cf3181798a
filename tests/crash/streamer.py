"""A run that streams numbers, and who reads them: `python -m tests.crash.streamer --url ... --ledger ... --role ...`.

Its code writes one number after the other and has a step after every few, so that a worker that is killed leaves it in
the middle. A reader begins at its offset, and writes down what it gets.
"""

import argparse
import asyncio
from pathlib import Path
from typing import Any

from stepwell import Context, Worker, connect, step, workflow
from stepwell.base.telemetry import Telemetry
from stepwell.store.run_key import RunKey
from tests.crash.workload import tell
from tests.ground.ledger import Ledger

STREAMER = "streamer"
EACH = 10  # chunks between two steps


def streamer(ledger: Ledger) -> Any:
    """The workflow."""

    @step
    async def note(n: int) -> None:
        ledger.write(phase="streamed", n=n)

    @workflow(name=STREAMER, retry=1000)
    async def run(ctx: Context, count: int) -> int:
        numbers = ctx.stream("numbers")
        for n in range(count):
            numbers.write(n)
            if n % EACH == 0:
                await note(n)
        return count

    return run


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--ledger", required=True, type=Path)
    parser.add_argument("--role", required=True, choices=["work", "read"])
    parser.add_argument("--lease", type=float, default=30.0)
    parser.add_argument("--key", default="")
    parser.add_argument("--after", type=int, default=0)
    options = parser.parse_args()
    telemetry = Telemetry()
    with Ledger(options.ledger) as ledger:
        telemetry.subscribe(lambda event: tell(ledger, event))
        async with connect(options.url, lease=options.lease, telemetry=telemetry) as store:
            if options.role == "work":
                await Worker(store, [streamer(ledger)]).run(signals=True)
                return
            async for chunk in store.stream(RunKey(STREAMER, options.key), "numbers", int, after=options.after):
                ledger.write(phase="read", key=options.key, after=options.after, offset=chunk.offset, n=chunk.data)
            ledger.write(phase="read to the end", key=options.key, after=options.after)


if __name__ == "__main__":
    asyncio.run(main())
