"""Raw SQL on Postgres: the rows of a workflow's life with nothing around them, through asyncpg."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import asyncpg

from bench.contestants import chunks
from bench.contestants.workflows import AT_ONCE, STEPS

BATCH: Final = 500
CHUNK: Final = 1000
TABLES: Final = """
create table if not exists raw_run (
    id bigint generated always as identity primary key, ready boolean not null default true, input json not null,
    output json, finished_at timestamptz);
create index if not exists raw_run_ready on raw_run (id) where ready;
create table if not exists raw_step (
    run_id bigint not null, key text not null, place bigint not null, status text not null, attempt bigint not null,
    input json, output json, error json, started_at timestamptz not null, finished_at timestamptz,
    primary key (run_id, key));
"""
ADD: Final = "insert into raw_run (input) values ($1) returning id"
ADD_MANY: Final = "insert into raw_run (input) select unnest(cast(string_to_array($1, ',') as json[]))"
CLAIM: Final = """
update raw_run set ready = false
 where id = any(array(select id from raw_run where ready order by id limit $1 for update skip locked))
returning id, input
"""
RECORD: Final = """
insert into raw_step (run_id, key, place, status, attempt, input, output, started_at, finished_at)
select given.run_id, concat('add_one#', cast($2 as bigint)), $2, 'SUCCESS', 1, given.input, given.output, now(), now()
  from unnest(cast(string_to_array($1, ',') as bigint[]), cast(string_to_array($3, ',') as json[]),
              cast(string_to_array($4, ',') as json[])) as given (run_id, input, output)
"""
FINISH: Final = """
update raw_run set output = given.output, finished_at = now()
  from unnest(cast(string_to_array($1, ',') as bigint[]), cast(string_to_array($2, ',') as json[]))
       as given (id, output)
 where raw_run.id = given.id
"""
OUTPUT: Final = "select output from raw_run where id = $1 and finished_at is not null"


async def connect(url: str) -> "RawPostgres":
    """Open one connection to trigger and wait, and one to execute."""
    return RawPostgres(await asyncpg.connect(url), await asyncpg.connect(url))


class RawPostgres:
    """Workflows of four statements."""

    api = {  # noqa: RUF012 - nobody changes it
        "execute": f"{BATCH} runs a commit: claim, five times an awaited no-op and an insert of the steps, update",
        "execute_few": f"the same, {AT_ONCE} runs a commit",
        "here": "insert, claim, an awaited no-op and an insert for each step, update: a commit each, one connection",
        "elsewhere": "insert and pg_notify; a listener claims one, records the step, updates, pg_notify; select",
    }
    unfinished = "select count(*) from raw_run where finished_at is null"
    finished = "select count(*) from raw_run where finished_at is not null"
    steps = "select count(*) from raw_step"

    def __init__(self, asking: Any, executing: Any) -> None:
        self._asking = asking
        self._executing = executing
        self._triggered = asyncio.Event()
        self._ended = asyncio.Event()
        self._hears = False

    async def install(self) -> None:
        """Make the tables."""
        await self._asking.execute(TABLES)

    async def trigger_many(self, numbers: range) -> None:
        """Add many rows."""
        for chunk in chunks(numbers, CHUNK):
            await self._asking.fetch(ADD_MANY, _joined(chunk))

    async def execute(self, count: int) -> None:
        """Claim, record step after step, finish."""
        while rows := await self._executing.fetch(CLAIM, BATCH):
            await self._executed(rows, STEPS)

    async def execute_few(self, count: int) -> None:
        """The same in smaller batches."""
        while rows := await self._executing.fetch(CLAIM, AT_ONCE):
            await self._executed(rows, STEPS)

    async def _executed(self, rows: Sequence[Any], steps: int) -> list[int]:
        ids = _joined([row["id"] for row in rows])
        numbers = [int(row["input"]) for row in rows]
        for step in range(steps):
            done = [await _add_one(number) for number in numbers]
            await self._executing.fetch(RECORD, ids, step + 1, _joined(numbers), _joined(done))
            numbers = done
        await self._executing.fetch(FINISH, ids, _joined(numbers))
        return numbers

    @contextlib.asynccontextmanager
    async def serving(self, *, here: bool) -> AsyncIterator[None]:
        """Claim whenever told; callers in this process do it themselves."""
        if here:
            yield
            return
        await self._executing.add_listener("raw_triggered", lambda *_: self._triggered.set())
        task = asyncio.create_task(self._serve())
        try:
            yield
        finally:
            task.cancel()

    async def _serve(self) -> None:
        while True:
            await self._triggered.wait()
            self._triggered.clear()
            for row in await self._executing.fetch(CLAIM, 1):
                await self._executed([row], 1)
                await self._executing.fetch("select pg_notify('raw_ended', '')")

    async def here(self, number: int, steps: int) -> int:
        """Every statement of a run, one after the other."""
        await self._executing.fetch(ADD, str(number))
        [output] = await self._executed(await self._executing.fetch(CLAIM, 1), steps)
        return output

    async def elsewhere(self, number: int) -> int:
        """Add a row, tell, and read the output when told."""
        if not self._hears:
            await self._asking.add_listener("raw_ended", lambda *_: self._ended.set())
            self._hears = True
        self._ended.clear()
        run_id = await self._asking.fetchval(ADD, str(number))
        await self._asking.fetch("select pg_notify('raw_triggered', '')")
        await self._ended.wait()
        return int(await self._asking.fetchval(OUTPUT, run_id))

    async def close(self) -> None:
        """Close both."""
        await self._asking.close()
        await self._executing.close()


def _joined(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


async def _add_one(number: int) -> int:
    return number + 1
