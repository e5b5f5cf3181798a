"""DBOS, sync, as its own threads execute it fastest."""

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import AsyncIterator
from typing import Any, Final

from dbos import DBOS  # type: ignore[import-not-found]

from bench.asking import path_of
from bench.contestants import QUEUE
from bench.contestants.workflows import AT_ONCE, STEPS
from bench.durability import check_sqlite

CONCURRENCY: Final = 20
POLL: Final = 0.005
ASK: Final = 0.002
FOUND_AFTER: Final = 2.5  # seconds: a new queue is looked for every second


class Executed:
    """How many runs of five steps have ended here."""

    count = 0


@DBOS.step()  # type: ignore[untyped-decorator]
def add_one(number: int) -> int:
    """Add one."""
    return number + 1


@DBOS.workflow()  # type: ignore[untyped-decorator]
def five(number: int) -> int:
    """Five steps."""
    for _ in range(STEPS):
        number = add_one(number)
    Executed.count += 1
    return number


@DBOS.workflow()  # type: ignore[untyped-decorator]
def once(number: int) -> int:
    """One step."""
    result: int = add_one(number)
    return result


async def connect(url: str) -> "Dbos":
    """Configure it; what it listens to has to be known before it is launched."""
    if url.startswith("sqlite:"):
        with contextlib.closing(sqlite3.connect(path_of(url))) as connection:
            connection.execute("pragma journal_mode = wal")
    logging.getLogger("dbos").setLevel(logging.CRITICAL)
    system = url.replace("postgresql://", "postgresql+psycopg://")
    config = {"name": "bench", "system_database_url": system, "log_level": "CRITICAL", "sys_db_pool_size": 20}
    return Dbos(DBOS(config={**config, "run_admin_server": False}), url)


class Dbos:
    """The workflows as DBOS executes them."""

    api = {  # noqa: RUF012 - nobody changes it
        "execute": f"a queue with worker_concurrency={CONCURRENCY}, polled every {1000 * POLL:g} ms (default 1 s), "
        "after queue.enqueue for each",
        "execute_few": f"the same with worker_concurrency={AT_ONCE}",
        "here": "the workflow called directly, without a queue",
        "elsewhere": f"DBOS.enqueue_workflow, the queue polled every {1000 * POLL:g} ms (default 1 s), get_result "
        f"every {1000 * ASK:g} ms (default 1 s)",
    }

    def __init__(self, dbos: Any, url: str) -> None:
        self._dbos = dbos
        self._embedded = url.startswith("sqlite:")
        self._launched = False
        self._queue: Any = None
        prefix = "" if self._embedded else "dbos."
        self.unfinished = f"select count(*) from {prefix}workflow_status where status <> 'SUCCESS'"
        self.finished = f"select count(*) from {prefix}workflow_status where status = 'SUCCESS'"
        self.steps = f"select count(*) from {prefix}operation_outputs where output is not null"

    async def install(self) -> None:
        """Its tables are made when it is launched."""

    async def _launch(self, *, listens: bool, concurrency: int | None) -> None:
        if not self._launched:
            self._launched = True
            await asyncio.to_thread(self._launch_here, listens, concurrency)
            await asyncio.sleep(FOUND_AFTER if listens else 0)

    def _launch_here(self, listens: bool, concurrency: int | None) -> None:
        DBOS.listen_queues([QUEUE] if listens else [])
        DBOS.launch()
        if self._embedded:
            with self._dbos._sys_db.engine.connect() as connection:
                names = ("journal_mode", "synchronous")
                check_sqlite(*[connection.exec_driver_sql(f"pragma {name}").scalar() for name in names])
        if listens:
            self._queue = DBOS.register_queue(QUEUE, polling_interval_sec=POLL, worker_concurrency=concurrency)

    async def trigger_many(self, numbers: range) -> None:
        """Enqueue one run after the other: there is no call for many."""
        await self._launch(listens=True, concurrency=0)
        await asyncio.to_thread(lambda: [self._queue.enqueue(five, number) for number in numbers])

    async def execute(self, count: int) -> None:
        """Let the queue go, whose runs are executed in threads."""
        await self._execute(count, CONCURRENCY)

    async def execute_few(self, count: int) -> None:
        """The same in fewer threads."""
        await self._execute(count, AT_ONCE)

    async def _execute(self, count: int, concurrency: int) -> None:
        await asyncio.to_thread(self._queue.set_worker_concurrency, concurrency)
        while Executed.count < count:
            await asyncio.sleep(0.002)

    @contextlib.asynccontextmanager
    async def serving(self, *, here: bool) -> AsyncIterator[None]:
        """Be launched; with a queue if others ask."""
        await self._launch(listens=not here, concurrency=CONCURRENCY)
        yield

    async def here(self, number: int, steps: int) -> int:
        """Call the workflow."""
        result: int = await asyncio.to_thread(five if steps == STEPS else once, number)
        return result

    async def elsewhere(self, number: int) -> int:
        """Enqueue, and ask for the result again and again."""
        await self._launch(listens=False, concurrency=None)
        result: int = await asyncio.to_thread(self._ask, number)
        return result

    def _ask(self, number: int) -> Any:
        return DBOS.enqueue_workflow(QUEUE, once, number).get_result(polling_interval_sec=ASK)

    async def close(self) -> None:
        """The process ends anyway."""
