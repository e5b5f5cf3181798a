"""stepwell's workflows, through its public API."""

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from bench.contestants.stepwell import check_writer
from bench.contestants.workflows import AT_ONCE, STEPS
from stepwell import Store, Worker, sleep, step, workflow
from stepwell import connect as open_store

CONCURRENCY: Final = 500


@step
async def add_one(number: int) -> int:
    """Add one."""
    return number + 1


@workflow
async def five(number: int) -> int:
    """Five steps."""
    for _ in range(STEPS):
        number = await add_one(number)
    return number


@workflow
async def once(number: int) -> int:
    """One step."""
    return await add_one(number)


@workflow
async def sleeper(number: int) -> int:
    """One step, and then nothing for a day."""
    number = await add_one(number)
    await sleep("1d")
    return number


async def connect(url: str) -> "StepwellWorkflows":
    """Open the store with its defaults."""
    return StepwellWorkflows(await open_store(url), url)


class StepwellWorkflows:
    """The workflows as stepwell executes them."""

    api = {  # noqa: RUF012 - nobody changes it
        "execute": f"Worker(concurrency={CONCURRENCY}, tune_gc=True).drain() after store.trigger_many, async workflow "
        "and step; everything else at its default",
        "execute_few": f"the same with concurrency={AT_ONCE}",
        "here": "workflow.trigger(...).wait().execute(store) beside `Worker(store, [workflow], tune_gc=True)`",
        "elsewhere": "the same, the worker in another process",
        "sleep": "async with Worker(store, [workflow], tune_gc=True)",
    }

    def __init__(self, store: Store, url: str) -> None:
        self._store = store
        self._embedded = url.startswith("sqlite:")
        prefix = "stepwell_" if self._embedded else "stepwell."
        self.unfinished = f"select count(*) from {prefix}task where kind = 'RUN' and finished_at is null"
        self.finished = f"select count(*) from {prefix}task where kind = 'RUN' and status = 'SUCCESS'"
        self.steps = f"select count(*) from {prefix}step where status = 'SUCCESS'"

    async def install(self) -> None:
        """The tables are there since the store was opened; see that its writer commits durably."""
        if self._embedded:
            check_writer(self._store)

    async def trigger_many(self, numbers: range) -> None:
        """Trigger runs in one call."""
        await self._store.trigger_many([five.trigger(number) for number in numbers])

    async def execute(self, count: int) -> None:
        """Let a worker drain the queue."""
        await Worker(self._store, [five], concurrency=CONCURRENCY, tune_gc=True).drain()

    async def execute_few(self, count: int) -> None:
        """Let a worker with few places drain the queue."""
        await Worker(self._store, [five], concurrency=AT_ONCE, tune_gc=True).drain()

    @contextlib.asynccontextmanager
    async def serving(self, *, here: bool) -> AsyncIterator[None]:
        """Have a worker in the background."""
        async with Worker(self._store, [five, once, sleeper], tune_gc=True):
            yield

    async def here(self, number: int, steps: int) -> int:
        """Trigger and wait."""
        definition = five if steps == STEPS else once
        return await definition.trigger(number).wait().execute(self._store)

    async def elsewhere(self, number: int) -> int:
        """Trigger and wait."""
        return await once.trigger(number).wait().execute(self._store)

    async def put_to_sleep(self, count: int) -> None:
        """Execute runs until each sleeps."""
        await self._store.trigger_many([sleeper.trigger(number) for number in range(count)])
        await Worker(self._store, [sleeper], concurrency=CONCURRENCY, tune_gc=True).drain()

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()
