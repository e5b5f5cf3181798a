"""What the workload `asleep` measures for a minute, counted: a worker asks the same, however many runs sleep."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bench.contestants.workflows.stepwell import once, sleeper
from stepwell import Store, Worker
from stepwell.store.driver import Call, Ddl, Row, Script
from stepwell.store.hints.wakeups import Alarm
from stepwell.store.poll import Polling
from stepwell.work.upkeep import Tidying
from tests.ground.waiting import until

POLLS = 5
RUNS = 500


@pytest.mark.proves("R-11", "promise-18")
async def test_five_hundred_sleeping_runs_cost_an_idle_worker_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.trigger_many([once.trigger(1)])  # whatever is made only once is made now
    await Worker(store, [once, sleeper]).drain()
    without = await _idling(store, monkeypatch)
    await store.trigger_many([sleeper.trigger(number) for number in range(RUNS)])
    await Worker(store, [sleeper], concurrency=100).drain()
    assert await store.counts("sleeper") == {"PENDING": RUNS}
    beside = await _idling(store, monkeypatch)
    assert beside == without
    assert without.statements["wake_due"] == without.statements["next_due"] == POLLS


class Idle:
    """What a worker that has nothing to do asks of the database, how long it rests between, and what it has."""

    def __init__(self) -> None:
        self.statements: Counter[str] = Counter()
        self.rows = 0  # in the answers, but for what says how long to rest
        self.pauses: set[float] = set()
        self.tasks = 0  # that are not the worker's own

    def note(self, call: Call | Ddl, rows: Sequence[Row]) -> None:
        """A statement was answered."""
        assert isinstance(call, Call)
        self.statements[call.statement] += 1
        self.rows += 0 if call.statement == "next_due" else len(rows)

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Idle({vars(self)})"


class Gate:
    """Where one of the worker's loops rests until the test lets it go on."""

    def __init__(self) -> None:
        self.rests = 0
        self.stays_open = False
        self._open = asyncio.Event()

    async def rest(self) -> None:
        """Wait to be let through."""
        self.rests += 1
        await self._open.wait()
        if not self.stays_open:
            self._open.clear()

    async def let_through(self) -> None:
        """Have the loop do what it does between two rests."""
        rests = self.rests
        self._open.set()
        await until(lambda: self.rests > rests, every=0.001)

    def open(self) -> None:
        """Hold nobody any more."""
        self.stays_open = True
        self._open.set()


async def _idling(store: Store, monkeypatch: pytest.MonkeyPatch) -> Idle:
    """What an idle worker does in `POLLS` rounds of its two loops."""
    idle, claims, upkeep = Idle(), Gate(), Gate()

    async def rest(_: Polling, at_most: float | None = None) -> None:
        await claims.rest()

    async def wait(_: Alarm, at_most: float) -> None:
        idle.pauses.add(at_most)
        await upkeep.rest()

    with monkeypatch.context() as patch:
        patch.setattr(Polling, "rest", rest)
        patch.setattr(Alarm, "wait", wait)
        patch.setattr(Tidying, "forever", _nothing)  # it comes once a minute, at no fixed moment
        async with Worker(store, [sleeper]):
            await until(lambda: claims.rests and upkeep.rests)
            async with _counted(store, idle, patch):
                for _ in range(POLLS):
                    await claims.let_through()
                    await upkeep.let_through()
            idle.tasks = sum(not task.get_name().startswith("stepwell-") for task in asyncio.all_tasks())
            claims.open()
    return idle


@asynccontextmanager
async def _counted(store: Store, idle: Idle, patch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    driver: Any = store.database.driver
    run, read, transact = driver.run, driver.read, driver.transact

    async def counted_run(slot: int, calls: Sequence[Call]) -> list[list[Row]]:
        answers: list[list[Row]] = await run(slot, calls)
        for call, rows in zip(calls, answers, strict=True):
            idle.note(call, rows)
        return answers

    async def counted_read(call: Call) -> list[Row]:
        rows: list[Row] = await read(call)
        idle.note(call, rows)
        return rows

    async def counted_transact(script: Callable[[], Script[Any]], **options: Any) -> Any:
        return await transact(lambda: _noting(script(), idle), **options)

    with patch.context() as counting:
        counting.setattr(driver, "run", counted_run)
        counting.setattr(driver, "read", counted_read)
        counting.setattr(driver, "transact", counted_transact)
        yield


def _noting(script: Script[Any], idle: Idle) -> Script[Any]:
    """The same script, each of its calls noted."""
    try:
        call = next(script)
        while True:
            rows = yield call
            idle.note(call, rows)
            call = script.send(rows)
    except StopIteration as end:
        return end.value


async def _nothing(_: Tidying) -> None:
    await asyncio.Event().wait()
