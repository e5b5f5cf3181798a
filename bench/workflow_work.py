"""What is measured of workflows. Each run is checked: what it returned, or that all its steps are recorded."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from bench.contestants import BULK, chunks
from bench.contestants.workflows import STEPS, Workflows
from bench.stage import LONGEST_WAIT, WARM_UP, Figures, Stage, latency_of, pauses, rate_of

SETTLED_AFTER: Final = 3.0  # seconds until an idle worker asks as seldom as it ever will
MINUTE: Final = 60
STATEMENTS: Final = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
CONNECTIONS: Final = (
    "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
)


async def many(stage: Stage[Workflows]) -> Figures:
    """Runs of five steps that do nothing, triggered beforehand, as many at once as is best for the contestant."""
    return await _executed(stage, stage.contestant.execute)


async def few(stage: Stage[Workflows]) -> Figures:
    """The same runs, a few at once."""
    return await _executed(stage, stage.contestant.execute_few)


async def _executed(stage: Stage[Workflows], execute: Callable[[int], Awaitable[None]]) -> Figures:
    contestant = stage.contestant
    for numbers in chunks(range(stage.count), BULK):
        await contestant.trigger_many(numbers)
    used = await stage.timed(execute, contestant.unfinished)
    await stage.expect(contestant.finished, stage.count)
    await stage.expect(contestant.steps, stage.count * STEPS)
    return rate_of(stage.count, used)


async def one(stage: Stage[Workflows]) -> Figures:
    """The same runs, the next triggered when the one before has returned its result."""
    contestant = stage.contestant
    async with contestant.serving(here=True):
        for number in range(WARM_UP):
            _check(await contestant.here(number, STEPS), number + STEPS)
        begun = stage.meter.read()
        for number in range(stage.count):
            _check(await contestant.here(number, STEPS), number + STEPS)
        used = stage.meter.read() - begun
    await stage.expect(contestant.steps, (WARM_UP + stage.count) * STEPS)
    return rate_of(stage.count, used)


async def latency(stage: Stage[Workflows]) -> Figures:
    """From the trigger to the result of a run of one step, in this process, which is idle otherwise."""
    async with stage.contestant.serving(here=True):
        begun = stage.meter.read()
        waits = await _ask(stage, lambda number: stage.contestant.here(number, 1))
        return latency_of(waits, stage.meter.read() - begun)


async def latency_two(stage: Stage[Workflows]) -> Figures:
    """The same with the run executed in another process."""
    async with stage.other_process(_ignored):
        return latency_of(await _ask(stage, stage.contestant.elsewhere), None)


async def asleep(stage: Stage[Workflows]) -> Figures:
    """What a worker that has nothing to do asks of the database, and holds: `count` is for how many seconds."""
    async with stage.contestant.serving(here=True):
        await asyncio.sleep(min(SETTLED_AFTER, stage.count))
        gc.collect()
        before, begun = await stage.database.value(STATEMENTS), time.monotonic()
        await asyncio.sleep(stage.count)
        after, spent = await stage.database.value(STATEMENTS), time.monotonic() - begun
        return {
            "count": stage.count,
            "statements": round((after - before) * MINUTE / spent, 1),
            "connections": await stage.database.value(CONNECTIONS),
            "memory_mb": round(_resident() / 1024, 1),
        }


async def _ask(stage: Stage[Workflows], ask: Callable[[int], Awaitable[int]]) -> list[float]:
    waits = []
    for number, pause in zip(range(WARM_UP + stage.count), pauses(), strict=False):
        await asyncio.sleep(pause)
        sent = time.perf_counter()
        async with asyncio.timeout(LONGEST_WAIT):
            answer = await ask(number)
        waits.append(time.perf_counter() - sent)
        _check(answer, number + 1)
    return waits


def _check(answer: int, expected: int) -> None:
    if answer != expected:
        raise RuntimeError(f"a run returned {answer} where {expected} was expected")


def _ignored(number: int, moment: float) -> None:
    """The result comes through the database."""


def _resident() -> int:
    """Kilobytes of memory that this process has."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
