"""What the tests of the store's seam have in common: a driver that is watched, raw SQL, short sessions and claims."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from stepwell import Store
from stepwell.errors import Refused, StoreLocked
from stepwell.records import RunStatus
from stepwell.store.driver import Call, Ddl, Driver, Row, Script
from stepwell.store.rows import Claimed, SeenWorker, Settlement
from stepwell.store.sessions import Identity
from stepwell.store.sql import Statement
from stepwell.work.demand import Demand

T = TypeVar("T")
Hook = Callable[[Sequence[Call]], Awaitable[None]]

IDENTITY = Identity("seam", "host", 1, None, "0", ["q"])
LEASE = 30_000_000
DONE = Settlement(RunStatus.SUCCESS, output="1")
FAILED = Settlement(RunStatus.ERROR, error='{"type":"E","message":"m"}', last_error="E: m")
RELEASED = Settlement(RunStatus.PENDING, attempt_back=True)
AGAIN = Settlement(RunStatus.PENDING, delay=5_000_000, error='{"type":"E","message":"m"}', last_error="E: m")

_number = itertools.count()


class Watched:
    """A driver whose transactions are counted and can be held up, refused or robbed of their reply.

    `before` and `after` see the calls of each flush; what `before` raises happened instead of it, what `after`
    raises happened to its reply. Scripts (`transact`) are counted, and go through `after` too, without calls: until it
    waits, it finds the statements of its own script in `script`. Other scripts may add to `said` in between.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.flushes: list[list[Call]] = []
        self.scripts = 0
        self.said: list[Call] = []
        self.script: list[str] = []
        self.reads: list[Call] = []
        self.before: Hook | None = None
        self.after: Hook | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    @property
    def transactions(self) -> int:
        return len(self.flushes) + self.scripts

    def ids(self, *statements: str) -> list[list[Any]]:
        """The ids of the rows of each flush: of all its parts, or of those named."""
        wanted = [[call for call in calls if not statements or call.statement in statements] for calls in self.flushes]
        return [[row[0] for call in calls for row in call.rows or ()] for calls in wanted]

    def forget(self) -> None:
        self.flushes.clear()
        self.scripts = 0
        self.said.clear()

    async def run(self, slot: int, calls: Sequence[Call]) -> list[list[Row]]:
        self.flushes.append(list(calls))
        if self.before is not None:
            await asyncio.ensure_future(self.before(calls))  # a hook may need a task; a flush is in none
        answer = await self._driver.run(slot, calls)
        if self.after is not None:
            await asyncio.ensure_future(self.after(calls))
        return answer

    async def read(self, call: Call) -> list[Row]:
        self.reads.append(call)
        return await self._driver.read(call)

    async def write(self, call: Call) -> list[Row]:
        self.scripts += 1
        self.said.append(call)
        answer = await self._driver.write(call)
        if self.after is not None:
            await self.after([call])
        return answer

    async def transact(
        self, script: Callable[[], Script[T]], *, timeout: float | None = None, patience: float | None = None
    ) -> T:
        self.scripts += 1
        heard: list[str] = []

        def overheard() -> Script[T]:
            heard.clear()
            return self._overheard(script(), heard)

        answer = await self._driver.transact(overheard, timeout=timeout, patience=patience)
        if self.after is not None:
            self.script = heard
            await self.after([])
        return answer

    def _overheard(self, talk: Script[T], heard: list[str]) -> Script[T]:
        """The same conversation, its calls noted in `said` and their names in `heard`."""
        call = next(talk)
        try:
            while True:
                if isinstance(call, Call):
                    self.said.append(call)
                    heard.append(call.statement)
                try:
                    rows = yield call
                except (Refused, StoreLocked) as refusal:
                    call = talk.throw(refusal)
                else:
                    call = talk.send(rows)
        except StopIteration as end:
            value: T = end.value
            return value


class Gate:
    """Holds up flushes until it is opened, so that what is submitted meanwhile gathers."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self.arrived = 0

    async def __call__(self, _: Sequence[Call]) -> None:
        self.arrived += 1
        await self._open.wait()

    def open(self) -> None:
        self._open.set()


def once(error: Exception) -> Hook:
    """Raise this the first time."""
    raised = iter([error])

    async def hook(_: Sequence[Call]) -> None:
        if (one := next(raised, None)) is not None:
            raise one

    return hook


def watched(store: Store) -> tuple[Store, Watched]:
    """A second store over the same connections, whose driver is watched; the first one closes them."""
    driver = Watched(store.database.driver)
    over: Any = driver
    return Store(
        over, store.database.statements, store.database.options, store.database.clock, store.database.telemetry
    ), driver


async def do(store: Store, *texts: str) -> None:
    """Write behind the store's back, in one transaction; `{task}` and the like are called as in this database."""

    def script() -> Script[None]:
        for text in texts:
            yield Ddl(store.database.statements._macros.fill(text))

    await store.database.driver.transact(script)


async def ask(store: Store, text: str) -> list[Any]:
    """Read behind the store's back."""
    name = f"asked_{next(_number)}"
    store.database.statements._statements[name] = Statement(name, (store.database.statements._macros.fill(text),))
    return await store.database.driver.read(Call(name))


async def row_of(store: Store, task_id: int) -> dict[str, Any]:
    """Everything the database has of a task."""
    [row] = await ask(store, f"select * from {{task}} where id = {task_id}")
    return {name: row[name] for name in row.keys()}  # noqa: SIM118 - a row of sqlite3 iterates over its values


async def count(store: Store, where: str = "true") -> int:
    [row] = await ask(store, f"select count(*) as number from {{task}} where {where}")
    number: int = row["number"]
    return number


async def begin(store: Store, lease: int = LEASE) -> int:
    """A new session."""
    return await store.database.sessions.begin(IDENTITY, lease)


async def claim(store: Store, worker: int, queue: str, limit: int = 1) -> list[Claimed]:
    """Claim of one queue."""
    return await store.database.tasks.claim(worker, [(await store.database.queue_id(queue), limit)], limit)


async def claim_again(store: Store, worker: int, queue: str, limit: int) -> list[Claimed]:
    """Claim, and again when the lock is not let go soon, as a worker does."""
    while True:
        with suppress(StoreLocked):
            return await claim(store, worker, queue, limit)


async def claim_alone(store: Store, worker: int, queue: str, *, beside: bool = False) -> list[Claimed]:
    """Claim what was lost with a worker."""
    return await store.database.suspects.claim(worker, [await store.database.queue_id(queue)], beside=beside)


async def one(store: Store, worker: int, queue: str = "q", **options: Any) -> Claimed:
    """A message, written and claimed."""
    await store.create_queue(queue)
    await store.enqueue(queue, "work", **options)
    [task] = await claim(store, worker, queue)
    return task


async def beat(store: Store, *workers: int) -> set[int]:
    """Beat once, as the heartbeat's thread does; the sessions that still live."""

    def work() -> set[int]:
        pulse = store.database.sessions.pulse()
        try:
            return store.database.sessions.beat(pulse, workers, 5.0)[0]
        finally:
            pulse.close()

    return await asyncio.to_thread(work)


async def owned(store: Store, worker: int) -> list[Any]:
    """What a beat says that the session owns."""

    def work() -> list[Any]:
        pulse = store.database.sessions.pulse()
        try:
            return store.database.sessions.beat(pulse, [worker], 5.0)[1]
        finally:
            pulse.close()

    return await asyncio.to_thread(work)


async def waiting_for_locks(store: Store) -> int:
    """How many connections to this Postgres database wait for a lock."""
    [row] = await ask(
        store,
        "select count(*) as number from pg_stat_activity"
        " where wait_event_type = 'Lock' and datname = current_database()",
    )
    number: int = row["number"]
    return number


async def silent(store: Store) -> list[SeenWorker]:
    """The sessions whose beat is late by the database's clock."""
    return [worker for worker in await store.database.sessions.living() if worker.silent]


async def proven_dead(store: Store) -> list[SeenWorker]:
    """The sessions whose process is certainly gone."""
    return [
        worker for worker in await store.database.sessions.living() if store.database.sessions.is_proven_dead(worker)
    ]


def asked(demand: Demand) -> list[tuple[int, int]]:
    """What the next claim of a worker without batches asks for."""
    return [wanted for queues in demand.turns() for wanted in demand.wanted(queues)]
