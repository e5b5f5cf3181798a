"""What the tests of waiting have in common: runs that are finished by hand, and reads that are counted or held up."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from stepwell import Store
from stepwell.records import RunId, RunStatus, TaskKind
from stepwell.store.driver import Call, Row
from stepwell.store.rows import Claimed, NewTask, Settlement
from tests.store.seam import begin, claim

NEVER = 600.0  # seconds: no test lives as long as this
WORKFLOW = "w"
DONE = Settlement(RunStatus.SUCCESS, output='{"answer":42}')
FAILED = Settlement(RunStatus.ERROR, error='{"type":"Broken","message":"it broke"}', last_error="Broken: it broke")
CANCELLED = Settlement(RunStatus.CANCELLED)
Hook = Callable[[], Awaitable[object]]


async def trigger(store: Store) -> RunId[Any]:
    """A run that waits to be claimed."""
    await store.create_queue(WORKFLOW)
    queue_id = await store.database.queue_id(WORKFLOW)
    task = NewTask(kind=TaskKind.RUN, queue_id=queue_id, queue=WORKFLOW, input="null")
    return RunId(await store.database.new_tasks.add_one(task))


async def trigger_many(store: Store, count: int) -> list[int]:
    """That many runs at once."""
    await store.create_queue(WORKFLOW)
    queue_id = await store.database.queue_id(WORKFLOW)
    task = NewTask(kind=TaskKind.RUN, queue_id=queue_id, queue=WORKFLOW, input="null")
    return [int(run_id) for run_id in await store.database.new_tasks.add_many(queue_id, [task] * count)]


async def take(store: Store, count: int = 1) -> list[Claimed]:
    """Claim runs for a session of their own."""
    claimed: list[Claimed] = []
    worker = await begin(store)
    while len(claimed) < count:
        claimed += await claim(store, worker, WORKFLOW, count - len(claimed))
    return claimed


async def settle(store: Store, run: Claimed, settlement: Settlement = DONE) -> None:
    """Finish a claimed run, telling nobody."""
    assert await store.database.tasks.settle(run.id, run.owner, run.turn, settlement) == settlement.status


async def settle_and_tell(store: Store, run: Claimed, settlement: Settlement = DONE) -> None:
    """Finish a claimed run as the engine does."""
    await settle(store, run, settlement)
    store.database.results.settled(run.id, settlement.status, settlement.output, settlement.error, WORKFLOW)


class Reads:
    """The reads that a store's waiting costs: the ids of each; `before` and `after` may hold one up or fail it."""

    def __init__(self, store: Store) -> None:
        self.ids: list[list[int]] = []
        self.answered = 0
        self.before: Hook | None = None
        self.after: Hook | None = None
        driver: Any = store.database.driver
        read = driver.read

        async def counted(call: Call) -> list[Row]:
            if call.statement != "endings":
                return list(await read(call))
            self.ids.append([int(run_id) for run_id in str(call.params["ids"]).split(",")])
            if self.before is not None:
                await self.before()
            rows = await read(call)
            if self.after is not None:
                await self.after()
            self.answered += 1
            return list(rows)

        driver.read = counted

    @property
    def count(self) -> int:
        """How many there were."""
        return len(self.ids)


class Gate:
    """Holds up whoever comes until it is opened."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self._open = asyncio.Event()

    async def __call__(self) -> None:
        self.arrived.set()
        await self._open.wait()

    def open(self) -> None:
        self._open.set()


def nobody_waits(store: Store) -> bool:
    """Whether nothing is left of those who waited."""
    inside = store.database.results
    return not inside._waiting and inside._job is None and store.database.wakeups._waiters == []
