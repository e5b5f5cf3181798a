"""Clients that submit inputs, and workers that decide them: `python -m tests.crash.inbox --url ... --role ...`.

A client submits one after the other, to instances by chance, and writes down when it began and when that was said.
"""

import argparse
import asyncio
import random
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Never

from stepwell import Decider, Decision, Engine, Store, Worker, connect
from stepwell.base.telemetry import Telemetry
from stepwell.errors import StoreBusy, StoreUnavailable
from tests.crash.workload import tell
from tests.ground.ledger import Ledger


@dataclass(frozen=True)
class Put:
    """An input, by who sent it and the number that it has there."""

    id: str
    who: int
    n: int


@dataclass(frozen=True)
class Came:
    """It was decided."""

    who: int
    n: int


class Lists(Decider[int, Put, Came, Never]):
    """Notes what comes."""

    type = "list"
    route = "id"

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Came) -> int:
        return state + 1

    def decide(self, state: int, input: Put, now: datetime) -> Decision[Came, Never, Put]:
        return Decision.event(Came(input.who, input.n))


async def submit(store: Store, options: argparse.Namespace, ledger: Ledger) -> None:
    """Submit each input until it is acknowledged; its key makes it one, however often that is tried."""
    engine, chance = Engine(store).register(Lists()), random.Random(options.who)
    for n in range(options.count):
        place = str(chance.randrange(options.instances))
        ledger.write(phase="begun", who=options.who, n=n, place=place)
        while True:
            try:
                await engine.submit(Put(place, options.who, n), key=f"{options.who}-{n}")
            except (StoreBusy, StoreUnavailable):
                continue
            break
        ledger.write(phase="acknowledged", who=options.who, n=n, place=place)
    ledger.write(phase="sent", who=options.who)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--ledger", required=True, type=Path)
    parser.add_argument("--role", required=True, choices=["work", "submit"])
    parser.add_argument("--lease", type=float, default=30.0)
    parser.add_argument("--who", type=int, default=0)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--together", type=int, default=1)
    options = parser.parse_args()
    telemetry = Telemetry()
    with Ledger(options.ledger) as ledger:
        telemetry.subscribe(lambda event: tell(ledger, event))
        async with connect(options.url, lease=options.lease, telemetry=telemetry) as store:
            if options.role == "submit":
                await submit(store, options, ledger)
                return
            engine: Any = Engine(store, together=bool(options.together)).register(Lists())
            await Worker(store, [engine]).run(signals=True)


if __name__ == "__main__":
    asyncio.run(main())
