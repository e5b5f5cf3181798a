"""A run that restarts for ever, and who signals it: `python -m tests.crash.entity --url ... --ledger ... --role ...`.

It takes numbers by signal, notes each in the ledger by a step, and restarts after every few of them with the count of
what it took. Senders look up who has the key, send it their numbers, and write down those that were acknowledged.
"""

import argparse
import asyncio
import random
from pathlib import Path
from typing import Any

from stepwell import Context, Store, Worker, connect, current, step, workflow
from stepwell.base.telemetry import Telemetry
from tests.crash.workload import tell
from tests.ground.ledger import Ledger

ENTITY = "entity"
NUMBER = "number"
LAST = -1  # the number after which it returns
MOST = 5  # signals a generation


def entity(ledger: Ledger) -> Any:
    """The workflow; the key that each of its steps is told tells two receipts of one number from two tries of one."""

    @step
    async def note(n: int) -> None:
        ledger.write(phase="noted", n=n, key=current().key, run=int(current().run_id))

    @workflow(name=ENTITY, retry=1000)
    async def run(ctx: Context, taken: int) -> int:
        for _ in range(1 + taken % MOST):
            n = await ctx.wait(NUMBER, int)
            if n == LAST:
                return taken
            await note(n)
            taken += 1
        return ctx.restart(taken)

    return run


async def send(store: Store, options: argparse.Namespace, ledger: Ledger) -> None:
    """Send each number until somebody acknowledges it."""
    chance = random.Random(options.first)
    for n in range(options.first, options.first + options.count):
        await asyncio.sleep(chance.uniform(0, 2 * options.seconds))
        while True:
            found = await store.find_run(ENTITY, options.key)
            if found is not None and (answer := await store.signal(found.id, NUMBER, n)):
                break
        ledger.write(phase="acknowledged", n=n, answer=str(answer))
    ledger.write(phase="sent", key=options.key)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--ledger", required=True, type=Path)
    parser.add_argument("--role", required=True, choices=["work", "send"])
    parser.add_argument("--lease", type=float, default=30.0)
    parser.add_argument("--key", default="")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0)
    options = parser.parse_args()
    telemetry = Telemetry()
    with Ledger(options.ledger) as ledger:
        telemetry.subscribe(lambda event: tell(ledger, event))
        async with connect(options.url, lease=options.lease, telemetry=telemetry) as store:
            if options.role == "work":
                await Worker(store, [entity(ledger)]).run(signals=True)
            else:
                await send(store, options, ledger)


if __name__ == "__main__":
    asyncio.run(main())
