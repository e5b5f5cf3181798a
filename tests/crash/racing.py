"""The program of the races over processes: `python -m tests.crash.racing --url ... --ledger ... --role ...`.

Workers execute runs; racers trigger them, and signal or cancel each about when its wait is over or it completes. A
racer aims earlier after an answer that came late, and later after one that came early, so that it stays at the finish.
"""

import argparse
import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from stepwell import Context, Store, Worker, Workflow, connect, step, workflow
from tests.ground.ledger import Ledger

WAITS, WORKS = "race.waits", "race.works"
SIGNAL = "go"
NOTHING_CAME = -1
BOLDEST, FINEST = 0.1, 0.002  # seconds by which an aim is moved, at first and at last
SPREAD = 0.04
AT_ONCE = 10


def waits(ledger: Ledger) -> Workflow[[int, float], Any]:
    """Waits for a signal for a while, and tells the ledger in every replay what came."""

    @workflow(name=WAITS, retry=20)
    async def run(ctx: Context, n: int, seconds: float) -> int:
        came = await ctx.wait(SIGNAL, int, timeout=seconds, default=NOTHING_CAME)
        ledger.write(phase="saw", n=n, came=came)
        await ctx.sleep(seconds)
        ledger.write(phase="saw", n=n, came=came)
        return came

    return run


def works(ledger: Ledger) -> Workflow[[int, float], Any]:
    """Works, sleeps and works again."""

    @step
    async def work(n: int, place: int, seconds: float) -> int:
        ledger.write(phase="start", n=n, place=place)
        await asyncio.sleep(seconds)
        ledger.write(phase="end", n=n, place=place)
        return place

    @workflow(name=WORKS, retry=20)
    async def run(ctx: Context, n: int, seconds: float) -> int:
        await work(n, 1, seconds)
        await ctx.sleep(2 * seconds)
        return await work(n, 2, seconds)

    return run


class Aim:
    """When to act, in seconds after the trigger: about when the answers change from early to late."""

    def __init__(self, at: float, seed: int) -> None:
        self._at = at
        self._by = BOLDEST
        self._chance = random.Random(seed)

    def taken(self) -> float:
        return max(0.0, self._at + self._chance.uniform(-SPREAD, SPREAD))

    def answered(self, *, early: bool) -> None:
        self._at = max(0.0, self._at + (self._by if early else -self._by))
        self._by = max(FINEST, 0.9 * self._by)


async def signal(store: Store, run_id: int, n: int, aims: Sequence[Aim]) -> str:
    """Send a signal: about when the wait for it is over, or when its run is."""
    aim = aims[n % 2]
    await asyncio.sleep(aim.taken())
    answer = await store.signal(run_id, SIGNAL, n)
    aim.answered(early=answer == "WOKE" if n % 2 == 0 else bool(answer))
    return str(answer)


async def cancel(store: Store, run_id: int, n: int, aims: Sequence[Aim]) -> str:
    """Cancel a run: about when it completes, or before, while it works or sleeps."""
    aim = aims[1]
    await asyncio.sleep(aim.taken() if n % 2 else random.uniform(0, aim.taken()))
    answer = await store.cancel(run_id)
    if n % 2:
        aim.answered(early=bool(answer))
    return str(answer)


Racing = Callable[[Store, int, int, Sequence[Aim]], Awaitable[str]]


async def race(options: argparse.Namespace, ledger: Ledger, racing: Racing, flow: Workflow[[int, float], Any]) -> None:
    """Race for each number that is this process's, several at a time, and write down what was answered."""
    aims = [Aim(options.seconds, options.first), Aim(3 * options.seconds, options.first + 1)]
    room = asyncio.Semaphore(AT_ONCE)

    async def one(n: int) -> None:
        async with room:
            run_id = await flow.trigger(n, options.seconds).options(key=str(n)).execute(store)
            ledger.write(phase="answer", n=n, answer=await racing(store, run_id, n, aims))

    async with connect(options.url) as store:
        await asyncio.gather(*(one(n) for n in range(options.first, options.first + options.count)))
    ledger.write(phase="raced", first=options.first)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--ledger", required=True, type=Path)
    parser.add_argument("--role", required=True, choices=["work", "signal", "cancel"])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.1)
    options = parser.parse_args()
    with Ledger(options.ledger) as ledger:
        if options.role == "work":
            async with connect(options.url) as store:
                await Worker(store, [waits(ledger), works(ledger)], concurrency=25).run(signals=True)
        elif options.role == "signal":
            await race(options, ledger, signal, waits(ledger))
        else:
            await race(options, ledger, cancel, works(ledger))


if __name__ == "__main__":
    asyncio.run(main())
