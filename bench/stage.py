"""What every workload plays on, and the figures they all end with."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from bench.asking import Database
from bench.meter import Meter, Reading

Figures = dict[str, Any]
Draining = Callable[[int], Awaitable[None]]  # returns when every process has found nothing more
C_co = TypeVar("C_co", covariant=True)
WARM_UP: Final = 4
LONGEST_WAIT: Final = 30.0
PAUSE: Final = (0.01, 0.03)  # seconds between two messages of a latency workload, drawn anew each time


@dataclass(frozen=True, slots=True)
class Stage(Generic[C_co]):
    """What a workload plays on: a contestant, its database, and how much of it."""

    contestant: C_co
    database: Database
    meter: Meter
    count: int
    other_process: Callable[[Callable[[int, float], None]], AbstractAsyncContextManager[None]]
    crew: Callable[[int], AbstractAsyncContextManager[Draining]]  # so many processes, ready to drain

    async def expect(self, question: str, expected: int) -> None:
        """Raise unless the database answers with this number."""
        if (found := await self.database.value(question)) != expected:
            raise RuntimeError(f"the database says {found} where {expected} were expected: {question}")

    async def timed(self, work: Callable[[int], Awaitable[None]], unfinished: str) -> Reading:
        """What the work takes; it is over when the database says that nothing is unfinished.

        The end is the moment before that question was asked, so that no contestant pays for the answer.
        """
        begun = self.meter.read()
        await work(self.count)
        deadline = time.monotonic() + LONGEST_WAIT
        while True:
            ended = self.meter.read()
            if await self.database.value(unfinished) == 0:
                return ended - begun
            if time.monotonic() > deadline:
                raise RuntimeError("it stopped before everything was finished")
            await asyncio.sleep(0.002)


def pauses() -> Iterator[float]:
    """The same seconds for everybody, to be idle before each message of a latency workload."""
    drawn = random.Random(1)
    while True:
        yield drawn.uniform(*PAUSE)


def rate_of(count: int, used: Reading) -> Figures:
    """So many in that time."""
    return {
        "count": count,
        "seconds": round(used.seconds, 4),
        "rate": round(count / used.seconds, 1),
        "client_us": round(used.client / count, 1),
        "server_us": None if used.server is None else round(used.server / count, 1),
    }


def latency_of(waits: list[float], used: Reading | None) -> Figures:
    """How long they took, the first few left out."""
    ordered = sorted(waits[WARM_UP:])
    count, sent = len(ordered), len(waits)
    server = None if used is None else used.server
    return {
        "count": count,
        "p50_ms": round(1000 * ordered[count // 2], 3),
        "p99_ms": round(1000 * ordered[min(count - 1, int(count * 0.99))], 3),
        "client_us": None if used is None else round(used.client / sent, 1),
        "server_us": None if server is None else round(server / sent, 1),
    }
