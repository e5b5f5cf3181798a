"""Plain deletes keep up with a store that finishes thousands of tasks a second, with autovacuum as it comes.

That is why no table is partitioned: the day this fails at full size, `step` and `audit` have to be, by ranges of ids.
"""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import asyncpg
import pytest

from stepwell import Store, connect
from stepwell.store.retention import PIECE, PIECES
from stepwell.work.upkeep import ROUND_AGAIN
from tests.ground.scale import Scale, measured, scale

__all__ = ["measured", "scale"]

RATE = 5_000  # tasks a second, each with two steps and, one in ten, an audit row
KEPT = 2.0  # seconds
ADD = """
with numbers as (select generate_series(cast($1 as bigint), $1 + $2 - 1) as n),
moment as (select cast(extract(epoch from clock_timestamp()) * 1000000 as bigint) as at),
tasks as (
    insert into stepwell.task (id, kind, queue_id, status, ready, run_at, turn, attempt, max_attempts, input, output,
                               created_at, updated_at, claimed_at, started_at, finished_at)
    select n, 'RUN', $3, 'SUCCESS', false, at, 1, 1, 3, '"input"', '"output"', at, at, at, at, at from numbers, moment
),
audits as (
    insert into stepwell.audit (task_id, place, what, recorded_at)
    select n, n, 'failed', at from numbers, moment where n % 10 = 0
)
insert into stepwell.step (run_id, key, place, status, output, started_at, finished_at)
select n, 'step#' || place, place, 'SUCCESS', '"output"', at, at
  from numbers, moment, generate_series(1, 2) as places (place)
"""
FIRST_ID = 10**12  # far from those that the store gives
PUBLISHED = """
insert into stepwell.task (id, kind, queue_id, status, ready, run_at, turn, attempt, max_attempts, input, created_at,
                           updated_at, claimed_at, started_at, finished_at)
select n, 'OUTBOX', $3, 'SUCCESS', false, 1, 1, 1, 3, '{"type": "order.placed", "data": {"cents": 1900}}', 1, 1, 1, 1, 1
  from generate_series(cast($1 as bigint), $1 + $2 - 1) as numbers (n)
"""
OLDER = "select count(*) from stepwell.task where finished_at < $1"
SIZES = (
    "select sum(pg_total_relation_size(relid)) as bytes, sum(n_dead_tup) as dead, sum(autovacuum_count) as vacuums"
    "  from pg_stat_user_tables where schemaname = 'stepwell' and relname in ('task', 'step', 'audit')"
)


@dataclass(slots=True)
class Pace:
    """What was added and removed, and how the tables stood every so often."""

    added: int = 0
    rounds: int = 0
    sizes: list[int] = field(default_factory=list)
    backlog: list[int] = field(default_factory=list)


@pytest.mark.timeout(1200)
@pytest.mark.proves("SD-10")
@pytest.mark.backends("postgres", reason="an embedded store frees pages at once: there is nothing to fall behind with")
async def test_deletes_keep_up_with_five_thousand_tasks_a_second(
    store_url: str, scale: Scale, measured: Callable[..., None], backend: str
) -> None:
    seconds, rate = scale.of(4.0, 600.0), scale.of(2_000, RATE)
    async with connect(store_url, keep=KEPT) as store:
        await store.create_workflow("flow")
        pace = await kept_up(store, store_url, await store.database.queue_id("flow"), seconds, rate)
    assert pace.added >= 0.9 * seconds * rate, "void: the machine was too slow to add them"
    # A round removes PIECE * PIECES at most, and what is added meanwhile waits for the next.
    assert max(pace.backlog) <= 2 * PIECE * PIECES + rate, pace.backlog
    middle, end = pace.sizes[len(pace.sizes) // 2], pace.sizes[-1]
    assert not scale.is_full or end <= 1.2 * middle, f"the tables grow all the same: {pace.sizes}"
    measured(
        "pace",
        seconds=seconds,
        rate=rate,
        added=pace.added,
        rounds=pace.rounds,
        backlog=max(pace.backlog),
        middle=middle / 2**20,
        end=end / 2**20,
    )


async def kept_up(store: Store, url: str, queue: int, seconds: float, rate: int) -> Pace:
    """Add at this rate and remove what is too old, side by side."""
    pace, until = Pace(), time.monotonic() + seconds
    adding, asking = await asyncpg.connect(url), await asyncpg.connect(url)
    try:
        async with asyncio.TaskGroup() as together:
            together.create_task(_add(adding, pace, queue, until, rate))
            together.create_task(_look(asking, pace, until, seconds))
            while time.monotonic() < until:
                more = await store.database.retention.round()
                pace.rounds += 1
                await asyncio.sleep(ROUND_AGAIN if more else 0.05)
    finally:
        await adding.close()
        await asking.close()
    return pace


async def _add(connection: Any, pace: Pace, queue: int, until: float, rate: int) -> None:
    """Ten times a second a tenth of the rate; what was late is made up for."""
    began = time.monotonic()
    while (now := time.monotonic()) < until:
        behind = round((now - began) * rate) - pace.added
        if behind >= rate // 10:
            await connection.execute(ADD, 1 + pace.added, behind, queue)
            pace.added += behind
        await asyncio.sleep(0.02)


async def _look(connection: Any, pace: Pace, until: float, seconds: float) -> None:
    while time.monotonic() < until:
        await asyncio.sleep(seconds / 20)
        before = await connection.fetchval("select cast(extract(epoch from clock_timestamp()) * 1000000 as bigint)")
        pace.backlog.append(await connection.fetchval(OLDER, before - round(KEPT * 1_000_000)))
        pace.sizes.append(int((await connection.fetchrow(SIZES))["bytes"]))


@pytest.mark.timeout(7200)
@pytest.mark.proves("SD-07", "SD-10")
@pytest.mark.backends("postgres", reason="an embedded store has one writer: others wait for the piece that is removed")
async def test_published_events_are_pruned_without_a_pause_for_others(
    store_url: str, scale: Scale, measured: Callable[..., None]
) -> None:
    """Ten million at full size; `STEPWELL_TEST_PUBLISHED` says another number."""
    published = int(os.environ.get("STEPWELL_TEST_PUBLISHED", scale.of(10_000, 10_000_000)))
    async with connect(store_url) as store, connect(store_url) as other:
        await store.create_queue("mail")
        await store.create_queue("outbox:crm")
        await _publish(store_url, published, await store.database.queue_id("outbox:crm"))
        calm = await _calls_until(other, asyncio.create_task(asyncio.sleep(scale.of(0.5, 20.0))))
        began = time.monotonic()
        pruning = asyncio.create_task(store.prune("1d"))
        beside = await _calls_until(other, pruning)
        seconds = time.monotonic() - began
        assert pruning.result() == published
    worst = {"calm": max(calm), "beside": max(beside)}
    assert len(beside) > 10, "void: it was over before others had asked for anything"
    # A machine that pauses by itself shows nothing of ours: then only what the prune adds is bounded.
    assert worst["beside"] <= 0.1 + (worst["calm"] if worst["calm"] > 0.02 else 0), worst
    measured(
        "pruned events",
        published=published,
        seconds=seconds,
        calls=len(beside),
        worst_calm=1000 * worst["calm"],
        worst_beside=1000 * worst["beside"],
    )


async def _publish(url: str, count: int, queue: int) -> None:
    """Events that were published long ago."""
    connection = await asyncpg.connect(url)
    try:
        for done in range(0, count, 100_000):
            rows = min(100_000, count - done)
            await connection.execute(PUBLISHED, FIRST_ID + done, rows, queue, timeout=600)
        await connection.execute("analyze stepwell.task")
    finally:
        await connection.close()


async def _calls_until(store: Store, over: asyncio.Task[Any]) -> list[float]:
    """The seconds that others' calls take, one after the other: an event, a message, and what takes and ends it."""
    took: list[float] = []
    while not over.done():
        for call in (partial(store.emit, "order.placed", 1), partial(store.enqueue, "mail", 1), partial(_take, store)):
            began = time.monotonic()
            await call()
            took.append(time.monotonic() - began)
        await asyncio.sleep(0.005)
    return took


async def _take(store: Store) -> None:
    for message in await store.dequeue("mail"):
        await message.archive()
