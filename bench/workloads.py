"""The workloads: one registry, the same for every contestant. A later kind of work adds a function and an entry."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal

from bench.asking import Database
from bench.contestants import BULK, Batches, Queue, State, chunks
from bench.meter import Meter, Reading

Figures = dict[str, Any]
WARM_UP: Final = 4
LONGEST_WAIT: Final = 30.0
PAUSE: Final = (0.01, 0.03)  # seconds between two messages of a latency workload, drawn anew each time


@dataclass(frozen=True, slots=True)
class Stage:
    """What a workload plays on."""

    queue: Queue
    database: Database
    meter: Meter
    count: int
    other_process: Callable[[Callable[[int, float], None]], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class Workload:
    """One thing that is measured, in a fresh database for each of its states."""

    name: str
    words: str
    unit: Literal["rate", "latency"]
    verb: str  # of `Queue.api`, the call that is measured
    size: int
    least: int
    play: Callable[[Stage], Awaitable[Figures]]
    state: State = "empty"  # what else is in the database; anything but empty is compared with empty
    present: int = 0
    in_batches: bool = False  # only for those that have them

    def count(self, scale: float) -> int:
        """How many messages a run of this scale takes."""
        return max(self.least, round(self.size * scale))


async def enqueue_single(stage: Stage) -> Figures:
    """One caller, one message a call, one after the other."""
    for number in range(WARM_UP):
        await stage.queue.enqueue(number)
    begun = stage.meter.read()
    for number in range(stage.count):
        await stage.queue.enqueue(number)
    used = stage.meter.read() - begun
    await _expect(stage, stage.queue.unfinished, WARM_UP + stage.count)
    return _rate(stage.count, used)


async def enqueue_bulk(stage: Stage) -> Figures:
    """Many messages a call."""
    await stage.queue.enqueue_many(range(WARM_UP))
    begun = stage.meter.read()
    for numbers in chunks(range(stage.count), BULK):
        await stage.queue.enqueue_many(numbers)
    used = stage.meter.read() - begun
    await _expect(stage, stage.queue.unfinished, WARM_UP + stage.count)
    return _rate(stage.count, used)


async def drain(stage: Stage) -> Figures:
    """Handle everything, each message by itself."""
    return await _drain(stage, stage.queue.drain)


async def drain_batches(stage: Stage) -> Figures:
    """Handle everything, many messages a call."""
    assert isinstance(stage.queue, Batches)
    return await _drain(stage, stage.queue.drain_batches)


async def _drain(stage: Stage, draining: Callable[[int], Awaitable[None]]) -> Figures:
    """Over when the database says that nothing is unfinished.

    The end is the moment before that question was asked, so that no contestant pays for the answer.
    """
    before = await stage.database.value(stage.queue.finished)
    for numbers in chunks(range(stage.count), BULK):
        await stage.queue.enqueue_many(numbers)
    begun = stage.meter.read()
    await draining(stage.count)
    deadline = time.monotonic() + LONGEST_WAIT
    while True:
        ended = stage.meter.read()
        if await stage.database.value(stage.queue.unfinished) == 0:
            break
        if time.monotonic() > deadline:
            raise RuntimeError("it stopped draining before everything was finished")
        await asyncio.sleep(0.002)
    await _expect(stage, stage.queue.finished, before + stage.count)
    return _rate(stage.count, ended - begun)


async def latency(stage: Stage) -> Figures:
    """From the call of enqueue to the first line of the handler, in this process, which is idle otherwise."""
    arrivals = Arrivals()
    async with stage.queue.serving(lambda number: arrivals.tell(number, time.perf_counter())):
        begun = stage.meter.read()
        waits = await _send(stage, arrivals)
        return _latency(waits, stage.meter.read() - begun)


async def latency_two(stage: Stage) -> Figures:
    """The same with the handler in another process; both read the same clock."""
    arrivals = Arrivals()
    async with stage.other_process(arrivals.tell):
        return _latency(await _send(stage, arrivals), None)


class Arrivals:
    """The messages whose handler has begun, and when."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[float]] = {}

    def expect(self, number: int) -> asyncio.Future[float]:
        """The moment at which this message will arrive."""
        self._waiting[number] = asyncio.get_running_loop().create_future()
        return self._waiting[number]

    def tell(self, number: int, moment: float) -> None:
        """It has arrived."""
        if (waiting := self._waiting.pop(number, None)) is not None:
            waiting.set_result(moment)


async def _send(stage: Stage, arrivals: Arrivals) -> list[float]:
    pauses = random.Random(1)
    waits = []
    for number in range(WARM_UP + stage.count):
        await asyncio.sleep(pauses.uniform(*PAUSE))
        arrival = arrivals.expect(number)
        sent = time.perf_counter()
        await stage.queue.enqueue(number)
        async with asyncio.timeout(LONGEST_WAIT):
            waits.append(await arrival - sent)
    return waits


async def _expect(stage: Stage, question: str, expected: int) -> None:
    if (found := await stage.database.value(question)) != expected:
        raise RuntimeError(f"the database says {found} where {expected} were expected: {question}")


def _rate(count: int, used: Reading) -> Figures:
    return {
        "count": count,
        "seconds": round(used.seconds, 4),
        "rate": round(count / used.seconds, 1),
        "client_us": round(used.client / count, 1),
        "server_us": None if used.server is None else round(used.server / count, 1),
    }


def _latency(waits: list[float], used: Reading | None) -> Figures:
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


WORKLOADS: Final = {
    one.name: one
    for one in (
        Workload("enqueue.single", "one caller, one message a call", "rate", "enqueue", 2_000, 50, enqueue_single),
        Workload("enqueue.bulk", "many messages a call", "rate", "enqueue_many", 40_000, 50, enqueue_bulk),
        Workload("drain", "no-op handlers, one process", "rate", "drain", 20_000, 50, drain),
        Workload(
            "drain.batch", "the same, many a call", "rate", "drain_batches", 20_000, 50, drain_batches, in_batches=True
        ),
        Workload("latency", "enqueue to handler, idle, one process", "latency", "serving", 50, 5, latency),
        Workload("latency.two", "enqueue to handler, idle, two processes", "latency", "serving", 50, 5, latency_two),
        Workload(
            "growth", "drain beside a million finished", "rate", "drain", 20_000, 50, drain, "finished", 1_000_000
        ),
        Workload(
            "scheduled", "latency beside 100,000 scheduled", "latency", "serving", 50, 5, latency, "scheduled", 100_000
        ),
    )
}
