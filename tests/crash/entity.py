"""A run that restarts for ever, and who signals it: `python -m tests.crash.entity --url ... --ledger ... --role ...`.

It takes numbers by signal, notes each in the ledger by a step, and restarts after every few of them with the count of
what it took; beside that it answers requests with twice their number. Senders look up who has the key, send it their
numbers, and write down those that were acknowledged; askers write down the answers.
"""

import argparse
import asyncio
import random
from pathlib import Path
from typing import Any

from stepwell import Context, Store, Timeout, Worker, connect, current, step, workflow
from stepwell.base.telemetry import Telemetry
from tests.crash.workload import tell
from tests.ground.ledger import Ledger

ENTITY = "entity"
NUMBER = "number"
QUESTION = "question"
LAST = -1  # the number after which it returns
MOST = 5  # signals a generation


def entity(ledger: Ledger) -> Any:
    """The workflow; the key that each of its steps is told tells two receipts of one number from two tries of one."""

    @step
    async def note(n: int) -> None:
        ledger.write(phase="noted", n=n, key=current().key, run=int(current().run_id))

    @step
    async def heard(n: int) -> None:
        ledger.write(phase="asked", n=n, key=current().key, run=int(current().run_id))

    @workflow(name=ENTITY, retry=1000)
    async def run(ctx: Context, taken: int) -> int:
        for _ in range(1 + taken % MOST):
            n = await ctx.wait(NUMBER, int, timeout=0.5)
            if n == LAST:
                return taken
            if n is not None:
                await note(n)
                taken += 1
            async with ctx.request(QUESTION, int, timeout=0.01) as request:
                if request is not None:
                    await heard(request.data)
                    request.reply(2 * request.data)
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


async def ask(store: Store, options: argparse.Namespace, ledger: Ledger) -> None:
    """Ask each number until there is an answer: a repetition has the same key."""
    chance = random.Random(options.first)
    entity = workflow(ENTITY).with_key(options.key)
    for n in range(options.first, options.first + options.count):
        await asyncio.sleep(chance.uniform(0, 2 * options.seconds))
        while True:
            try:
                reply = await store.ask(entity, QUESTION, n, int, timeout=5, key=f"question-{n}")
                break
            except Timeout:
                continue
        ledger.write(phase="replied", n=n, reply=reply)
    ledger.write(phase="sent", key=options.key)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--ledger", required=True, type=Path)
    parser.add_argument("--role", required=True, choices=["work", "send", "ask"])
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
                await (send if options.role == "send" else ask)(store, options, ledger)


if __name__ == "__main__":
    asyncio.run(main())
