"""pgqrs's workflows: a compiled core with Python bindings."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import pgqrs  # type: ignore[import-untyped]
import psycopg
from pgqrs.decorators import step, workflow  # type: ignore[import-untyped]

from bench.contestants.workflows import AT_ONCE, STEPS

CONSUMERS: Final = 16
BATCH: Final = 10
POLL: Final = 5  # milliseconds
ASK: Final = 0.001
OUTPUT: Final = "select output from pgqrs_workflow_runs where message_id = %s and status = 'SUCCESS'"


class Executed:
    """How many runs of five steps have ended here."""

    count = 0


def _step(number: int) -> Callable[[Any, int], Awaitable[int]]:
    async def add_one(_: Any, value: int) -> int:
        return value + 1

    add_one.__name__ = f"add_one_{number}"  # a run has one step of a name
    made: Callable[[Any, int], Awaitable[int]] = step(add_one)
    return made


ADD_ONE: Final = [_step(number) for number in range(STEPS)]


@workflow(name="five")  # type: ignore[untyped-decorator]
async def five(context: Any, given: dict[str, int]) -> int:
    """Five steps."""
    number = given["i"]
    for add_one in ADD_ONE:
        number = await add_one(context, number)
    Executed.count += 1
    return number


@workflow(name="once")  # type: ignore[untyped-decorator]
async def once(context: Any, given: dict[str, int]) -> int:
    """One step."""
    return await ADD_ONE[0](context, given["i"])


async def connect(url: str) -> "Pgqrs":
    """Open the store without its limits of enqueues a second, and a connection to ask for results."""
    config = pgqrs.Config(url)
    config.max_enqueue_per_second = config.max_enqueue_burst = None
    config.max_connections = CONSUMERS + 4
    asking = await psycopg.AsyncConnection.connect(url, autocommit=True)
    return Pgqrs(await pgqrs.connect_with(config), asking)


class Pgqrs:
    """The workflows as pgqrs executes them."""

    api = {  # noqa: RUF012 - nobody changes it
        "execute": f"{CONSUMERS} consumers at once: dequeue().batch({BATCH}).poll_interval({POLL}).handle_workflow",
        "execute_few": f"the same with {AT_ONCE} consumers of one run each",
        "here": f"trigger, a consumer that polls every {POLL} ms, a select every {1000 * ASK:g} ms until it is done",
        "elsewhere": "the same, the consumer in another process",
    }
    unfinished = "select count(*) from pgqrs_messages where archived_at is null"
    finished = "select count(*) from pgqrs_workflow_runs where status = 'SUCCESS'"
    steps = "select count(*) from pgqrs_workflow_steps where status = 'SUCCESS'"

    def __init__(self, store: Any, asking: Any) -> None:
        self._store = store
        self._asking = asking
        self._consuming: list[asyncio.Future[Any]] = []

    async def install(self) -> None:
        """Make tables and definitions."""
        await self._store.bootstrap()
        for name in ("five", "once"):
            await pgqrs.workflow().name(name).store(self._store).create()

    async def trigger_many(self, numbers: range) -> None:
        """Trigger one run after the other: there is no call for many."""
        for number in numbers:
            await self._trigger("five", number)

    async def execute(self, count: int) -> None:
        """Let several consumers execute what there is."""
        await self._execute(count, CONSUMERS, BATCH)

    async def execute_few(self, count: int) -> None:
        """The same, each with one run at a time."""
        await self._execute(count, AT_ONCE, 1)

    async def _execute(self, count: int, consumers: int, batch: int) -> None:
        for _ in range(consumers):
            await self._consume(five, batch)
        while Executed.count < count:
            await asyncio.sleep(0.002)

    @contextlib.asynccontextmanager
    async def serving(self, *, here: bool) -> AsyncIterator[None]:
        """Have a consumer for each workflow in the background."""
        for definition in (five, once):
            await self._consume(definition, 1)
        yield

    async def here(self, number: int, steps: int) -> int:
        """Trigger, and ask until it is done."""
        return await self._result("five" if steps == STEPS else "once", number)

    async def elsewhere(self, number: int) -> int:
        """Trigger, and ask until it is done."""
        return await self._result("once", number)

    async def _result(self, name: str, number: int) -> int:
        message = await self._trigger(name, number)
        while (found := await (await self._asking.execute(OUTPUT, (message.id,))).fetchone()) is None:
            await asyncio.sleep(ASK)
        return int(found[0])

    async def _trigger(self, name: str, number: int) -> Any:
        return await pgqrs.workflow().name(name).store(self._store).trigger({"i": number}).execute()

    async def _consume(self, definition: Any, batch: int) -> None:
        consumer = await self._store.consumer(definition.name)
        consuming = pgqrs.dequeue().worker(consumer).batch(batch).poll_interval(POLL).handle_workflow(definition)
        self._consuming.append(asyncio.ensure_future(consuming.poll(self._store)))

    async def close(self) -> None:
        """The process ends anyway."""
