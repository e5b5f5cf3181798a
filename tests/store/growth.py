"""A store at full size, loaded by sets: millions of finished runs with their steps, of waiting runs and ready messages.

They lie beside the few tasks of `world.py`, under ids of their own, in the same queues.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import asyncpg

from stepwell import Store
from stepwell.base.clock import wall_microseconds
from tests.store.seam import do
from tests.store.world import FAR, Subjects

FIRST = 100_000_000  # of the ids of what is loaded: above the world's, below what is asked about
EVERY = 200  # microseconds between the ends of two runs, up to now: all lie within an hour
CHUNK = 250_000  # rows of one statement
EMBEDDED_CHUNK = 50_000
Write = Callable[[str], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Growth:
    """How much is loaded; each finished run has two steps, each waiting one has one."""

    finished: int
    waiting: int
    ready: int

    @property
    def tasks(self) -> int:
        return self.finished + self.waiting + self.ready

    @property
    def steps(self) -> int:
        return 2 * self.finished + self.waiting


COLUMNS = """id, kind, queue_id, status, ready, priority, run_at, turn, attempt, max_attempts, waiting, key, input,
             output, created_at, updated_at, claimed_at, started_at, finished_at"""
MOMENT = f"%(since)s + {EVERY} * (n - {FIRST})"
# Of a hundred finished runs one was cancelled, and one failed.
FINISHED = f"""
insert into {{task}} ({COLUMNS})
select n, 'RUN', %(flow)s,
       case n %% 100 when 7 then 'CANCELLED' when 8 then 'ERROR' else 'SUCCESS' end, false, 0, n, 1, 1, 3, 0,
       case when n %% 2 = 0 then 'key-' || n end, '"an input"', '2', {MOMENT}, {MOMENT}, {MOMENT}, {MOMENT},
       {MOMENT}
  from %(numbers)s
"""
WAITING = f"""
insert into {{task}} ({COLUMNS})
select n, 'RUN', %(flow)s, 'PAUSED', false, 0, cast(null as bigint), 1, 0, 3, 0, cast(null as text),
       '"an input"', null, n, n, n, n, cast(null as bigint)
  from %(numbers)s
"""
READY = f"""
insert into {{task}} ({COLUMNS})
select n, 'MESSAGE', %(messages)s, 'PENDING', true, 0, {FAR} + n, 0, 0, 3, 0, cast(null as text), '1', null, n, n,
       cast(null as bigint), cast(null as bigint), cast(null as bigint)
  from %(numbers)s
"""
STEP = """
insert into {step} (run_id, key, place, status, attempt, output, started_at, finished_at)
select n, '%(key)s#1', %(place)s, '%(status)s', 1, '1', n, n from %(numbers)s
"""


async def grow_server(store: Store, url: str, growth: Growth, of: Subjects) -> None:
    """Load a Postgres store, through a connection that waits for as long as it takes."""
    connection = await asyncpg.connect(url)

    async def write(text: str) -> None:
        await connection.execute(store.database.statements._macros.fill(text))

    try:
        await write("set synchronous_commit = off")
        series = "generate_series(cast({first} as bigint), {last}) as series (n)"
        await _grow(write, growth, of, series, CHUNK)
    finally:
        await connection.close()


async def grow_file(store: Store, growth: Growth, of: Subjects) -> None:
    """Load an embedded store."""
    numbers = (
        "(with recursive numbers (n) as (select {first} union all select n + 1 from numbers where n < {last})"
        " select n from numbers) as series"
    )
    await _grow(lambda text: do(store, text), growth, of, numbers, EMBEDDED_CHUNK)


async def _grow(write: Write, growth: Growth, of: Subjects, numbers: str, chunk: int) -> None:
    waiting, ready = FIRST + growth.finished, FIRST + growth.finished + growth.waiting
    step = {"place": 1, "status": "SUCCESS"}
    parts: tuple[tuple[str, int, int, dict[str, Any]], ...] = (
        (FINISHED, FIRST, growth.finished, {}),
        (WAITING, waiting, growth.waiting, {}),
        (READY, ready, growth.ready, {}),
        (STEP, FIRST, growth.finished, {"key": "one", **step}),
        (STEP, FIRST, growth.finished, {**step, "key": "two", "place": 2}),
        (STEP, waiting, growth.waiting, {**step, "key": "word", "status": "PAUSED"}),
    )
    since = wall_microseconds() - EVERY * growth.finished
    for text, first, rows, given in parts:
        for start in range(first, first + rows, chunk):
            last = min(start + chunk, first + rows) - 1
            told = {"flow": of.flow, "messages": of.messages, "since": since}
            await write(text % {**told, **given, "numbers": numbers.format(first=start, last=last)})
