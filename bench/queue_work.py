"""What is measured of a queue."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench.contestants import BULK, Batches, Queue, chunks
from bench.stage import LONGEST_WAIT, WARM_UP, Figures, Stage, latency_of, pauses, rate_of


async def enqueue_single(stage: Stage[Queue]) -> Figures:
    """One caller, one message a call, one after the other."""
    for number in range(WARM_UP):
        await stage.contestant.enqueue(number)
    begun = stage.meter.read()
    for number in range(stage.count):
        await stage.contestant.enqueue(number)
    used = stage.meter.read() - begun
    await stage.expect(stage.contestant.unfinished, WARM_UP + stage.count)
    return rate_of(stage.count, used)


async def enqueue_bulk(stage: Stage[Queue]) -> Figures:
    """Many messages a call."""
    await stage.contestant.enqueue_many(range(WARM_UP))
    begun = stage.meter.read()
    for numbers in chunks(range(stage.count), BULK):
        await stage.contestant.enqueue_many(numbers)
    used = stage.meter.read() - begun
    await stage.expect(stage.contestant.unfinished, WARM_UP + stage.count)
    return rate_of(stage.count, used)


async def drain(stage: Stage[Queue]) -> Figures:
    """Handle everything, each message by itself."""
    return await _drain(stage, stage.contestant.drain)


async def drain_batches(stage: Stage[Queue]) -> Figures:
    """Handle everything, many messages a call."""
    assert isinstance(stage.contestant, Batches)
    return await _drain(stage, stage.contestant.drain_batches)


async def _drain(stage: Stage[Queue], draining: Callable[[int], Awaitable[None]]) -> Figures:
    before = await stage.database.value(stage.contestant.finished)
    for numbers in chunks(range(stage.count), BULK):
        await stage.contestant.enqueue_many(numbers)
    used = await stage.timed(draining, stage.contestant.unfinished)
    await stage.expect(stage.contestant.finished, before + stage.count)
    return rate_of(stage.count, used)


async def drain_together(processes: int, stage: Stage[Queue]) -> Figures:
    """Handle everything with so many worker processes; their own start is not part of it."""
    for numbers in chunks(range(stage.count), BULK):
        await stage.contestant.enqueue_many(numbers)
    async with stage.crew(processes) as draining:
        used = await stage.timed(draining, stage.contestant.unfinished)
    await stage.expect(stage.contestant.finished, stage.count)
    return rate_of(stage.count, used) | {"client_us": None}  # it is the others' work


async def latency(stage: Stage[Queue]) -> Figures:
    """From the call of enqueue to the first line of the handler, in this process, which is idle otherwise."""
    arrivals = Arrivals()
    async with stage.contestant.serving(lambda number: arrivals.tell(number, time.perf_counter())):
        begun = stage.meter.read()
        waits = await _send(stage, arrivals)
        return latency_of(waits, stage.meter.read() - begun)


async def latency_two(stage: Stage[Queue]) -> Figures:
    """The same with the handler in another process; both read the same clock."""
    arrivals = Arrivals()
    async with stage.other_process(arrivals.tell):
        return latency_of(await _send(stage, arrivals), None)


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


async def _send(stage: Stage[Queue], arrivals: Arrivals) -> list[float]:
    waits = []
    for number, pause in zip(range(WARM_UP + stage.count), pauses(), strict=False):
        await asyncio.sleep(pause)
        arrival = arrivals.expect(number)
        sent = time.perf_counter()
        await stage.contestant.enqueue(number)
        async with asyncio.timeout(LONGEST_WAIT):
            waits.append(await arrival - sent)
    return waits
