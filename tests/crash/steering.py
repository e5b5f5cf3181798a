"""The program of runs that are steered from another process: `python -m tests.crash.steering --url ... --role ...`.

Workers execute runs of several branches, each of many short steps; the steerer triggers them, and cancels or pauses
each at some moment of its life.
"""

import argparse
import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stepwell import Retry, Store, Worker, Workflow, connect, current, shield, sleep, step, workflow
from tests.ground.ledger import Ledger

STEERED, UNDOES = "steered", "undoes"
SLEEPS, FAILS = 0, 1  # what is to happen to runs of `undoes`, by their number
BRANCHES = 3
STEPS = 40  # of each branch
AT_ONCE = 50
TOO_LATE = ("TOO_LATE", "False")  # what those hear who steer a run that has ended


def steered(ledger: Ledger) -> Workflow[[int], Any]:
    """Several branches, each of many steps that tell the ledger when they begin."""

    @step
    async def act(n: int, branch: int, place: int) -> int:
        ledger.write(phase="start", n=n, branch=branch, place=place)
        await asyncio.sleep(0.01)
        return place

    async def line(n: int, branch: int) -> int:
        return sum([await act(n, branch, place) for place in range(STEPS)])

    @workflow(name=STEERED, retry=20)
    async def run(n: int) -> int:
        return sum(await asyncio.gather(*(line(n, branch) for branch in range(BRANCHES))))

    return run


def undoes(ledger: Ledger) -> Workflow[[int], Any]:
    """Reserves something, sleeps or works until it is cancelled, and undoes it: in some runs at the second try."""

    @step
    async def reserve(n: int) -> None:
        ledger.write(phase="reserved", n=n)

    @step
    async def work(n: int) -> None:
        await asyncio.sleep(0.2)

    @step(retry=Retry(50, base=0.2, cap=1))
    async def undo(n: int) -> None:
        ledger.write(phase="undo", n=n, attempt=current().attempt)
        if n % 3 == FAILS and current().attempt == 1:
            raise ConnectionError("not now")
        await asyncio.sleep(0.3)
        ledger.write(phase="undone", n=n)

    @step
    async def pay(n: int) -> None:
        ledger.write(phase="paid", n=n)

    @workflow(name=UNDOES, retry=2, cleanup="5m")
    async def run(n: int) -> None:
        await reserve(n)
        try:
            if n % 3 == SLEEPS:
                await sleep("1h")
            while True:
                await work(n)
        finally:
            async with shield():
                await undo(n)
            await pay(n)

    return run


async def steer(options: argparse.Namespace, ledger: Ledger) -> None:
    """Trigger runs, many at a time; cancel even ones and pause odd ones until so many of each were stopped in time."""
    flow, chance = steered(ledger), random.Random(1)
    in_time: Counter[int] = Counter()

    async def one(store: Store, n: int) -> None:
        run_id = await flow.trigger(n).options(key=str(n)).execute(store)
        await asyncio.sleep(chance.uniform(0, options.within))
        answer = str(await store.pause(run_id) if n % 2 else await store.cancel(run_id))
        ledger.write(phase="answer", n=n, run=run_id, answer=answer)
        in_time[n % 2] += answer not in TOO_LATE

    async def each(store: Store, numbers: Iterator[int]) -> None:
        for n in numbers:
            if in_time[n % 2] < options.count / 2:
                await one(store, n)
            elif min(in_time[0], in_time[1]) >= options.count / 2:
                return

    async with connect(options.url) as store:
        numbers = itertools.count()
        await asyncio.gather(*(each(store, numbers) for _ in range(min(AT_ONCE, options.count))))
    ledger.write(phase="steered")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--ledger", required=True, type=Path)
    parser.add_argument("--role", required=True, choices=["work", "steer"])
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--within", type=float, default=1.0)  # seconds after its trigger in which a run is steered
    parser.add_argument("--lease", type=float, default=30.0)
    parser.add_argument("--concurrency", type=int, default=25)
    options = parser.parse_args()
    with Ledger(options.ledger) as ledger:
        if options.role == "work":
            async with connect(options.url, lease=options.lease) as store:
                await Worker(store, [steered(ledger), undoes(ledger)], concurrency=options.concurrency).run(
                    signals=True
                )
        else:
            await steer(options, ledger)


if __name__ == "__main__":
    asyncio.run(main())
