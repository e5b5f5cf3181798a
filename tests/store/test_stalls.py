"""A transaction that stays open holds up what needs its rows and keys, and nothing else."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import asyncpg
import pytest

from stepwell import Context, Engine, Store, Worker, connect, step, workflow
from stepwell.errors import StoreLocked
from stepwell.store.driver import Call, Row
from tests.deciders.workbench import Bench, Do
from tests.ground.waiting import until

T = TypeVar("T")


@step
async def plus(number: int) -> int:
    """A step."""
    return number + 1


@workflow
async def sums(number: int) -> int:
    """Two steps, each recorded."""
    return await plus(await plus(number))


@workflow
async def patient(ctx: Context) -> int:
    """Wait for a signal."""
    return await ctx.wait("go", int)


@workflow
async def child(ctx: Context, number: int) -> int:
    """Wait until it is let go."""
    return number + await ctx.wait("go", int)


@workflow
async def parent(ctx: Context, count: int) -> int:
    """Wait for children."""
    ids = await ctx.trigger_many([child.trigger(number) for number in range(count)])
    return sum(await ctx.results(ids))


@dataclass
class Scene:
    """Somebody whose transaction stays open, and a store beside it, with a worker, in which others work."""

    holder: Store
    theirs: Engine
    store: Store
    engine: Engine
    waits: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    locked: Counter[int] = field(default_factory=Counter)  # flushes that waited in vain for a lock, by their slot
    mixed: list[str] = field(default_factory=list)  # adds that may wait for a key, among those that never do
    count: Any = field(default_factory=itertools.count)
    pause: float = 0.03  # seconds between two calls of a verb
    url: str = ""
    blocked: set[int] = field(default_factory=set)  # connections that were seen to wait for the open transaction

    async def meanwhile(self, over: asyncio.Event) -> None:
        """Call each verb that needs nothing of what is held again and again, and note how long each call takes."""

        async def again(verb: Callable[[int], Awaitable[Any]]) -> None:
            while not over.is_set():
                await verb(next(self.count))
                await asyncio.sleep(self.pause)

        await asyncio.gather(*map(again, self.verbs()))

    async def timed(self, name: str, call: Awaitable[T]) -> T:
        """The answer of a call; how long it took is noted."""
        began = time.monotonic()
        answer = await call
        self.waits[name].append(time.monotonic() - began)
        return answer

    def verbs(self) -> tuple[Callable[[int], Awaitable[Any]], ...]:
        """Calls that need nothing of what is held."""
        store, engine, timed = self.store, self.engine, self.timed

        async def run(number: int) -> None:
            options = sums.trigger(number).options(key=f"run {number}") if number % 2 else sums.trigger(number)
            run_id = await timed("trigger with a key" if number % 2 else "trigger", store.trigger(options))
            assert await timed("a run", store.result(run_id)) == number + 2

        async def signalled(number: int) -> None:
            run_id = await timed("trigger", store.trigger(patient.trigger()))
            await timed("signal", store.signal(run_id, "go", number))
            assert await timed("a signalled run", store.result(run_id)) == number

        return (
            run,
            signalled,
            lambda number: timed("enqueue", store.enqueue("q", number)),
            lambda number: timed("enqueue with a key", store.enqueue("q", number, key=f"own {number}")),
            lambda number: timed("execute", engine.execute(Do(f"other {number % 7}", "x"))),
            lambda number: timed("execute for a new instance", engine.execute(Do(f"new {number}", "x"))),
        )

    async def look(self, holder: int, over: asyncio.Event) -> None:
        """Note which connections of the server wait for the one whose transaction stays open."""
        waiting = "select pid from pg_stat_activity where $1 = any(pg_blocking_pids(pid)) and wait_event_type = 'Lock'"
        looker = await asyncpg.connect(self.url)
        try:
            while not over.is_set():
                self.blocked |= {row["pid"] for row in await looker.fetch(waiting, holder)}
                await asyncio.sleep(0.01)
        finally:
            await looker.close()

    def without_keys(self) -> set[int]:
        """The connections of flushes and claims in which nothing has a key."""
        driver: Any = self.store.database.driver
        slots = [link for slot, link in enumerate(driver._slots) if slot != driver.key_slot]
        return {link._connection.get_server_pid() for link in slots if link._connection is not None}

    def came_back(self, times: int) -> bool:
        """True if each of the verbs came back so often."""
        last = ("a run", "a signalled run", "enqueue", "enqueue with a key", "execute", "execute for a new instance")
        return all(len(self.waits[name]) >= times for name in last)

    def watch(self) -> None:
        """Count the flushes that wait in vain for a lock."""
        real = self.store.database.driver.run

        async def run(slot: int, calls: Sequence[Call]) -> list[list[Row]]:
            if slot != self.store.database.driver.key_slot:
                self.mixed += [call.statement for call in calls if call.statement == "add_tasks_once"]
            try:
                return await real(slot, calls)
            except StoreLocked:
                self.locked[slot] += 1
                raise

        self.store.database.driver.run = run  # type: ignore[method-assign]


@asynccontextmanager
async def scene(url: str, *, timeout: float = 10, pause: float = 0.03) -> AsyncIterator[Scene]:
    async with connect(url, listen=False) as holder, connect(url, lease=5, timeout=timeout) as store:
        theirs, engine = Engine(holder).register(Bench()), Engine(store).register(Bench())
        await store.create_queue("q")
        async with Worker(store, [sums, patient, child, parent], concurrency=50):
            of = Scene(holder, theirs, store, engine, pause=pause, url=url)
            of.watch()
            yield of


Hold = Callable[[Scene, Any], Awaitable[Callable[[], Awaitable[Any]]]]


async def key(of: Scene, tx: Any) -> Callable[[], Awaitable[Any]]:
    await of.holder.enqueue("q", 1, key="K", tx=tx)
    return lambda: of.store.enqueue("q", 1, key="K")


async def ten_keys(of: Scene, tx: Any) -> Callable[[], Awaitable[Any]]:
    for number in range(10):
        await of.holder.enqueue("q", 1, key=f"K{number}", tx=tx)
    return lambda: asyncio.gather(*(of.store.enqueue("q", 1, key=f"K{number}") for number in range(10)))


async def run_under_way(of: Scene, tx: Any) -> Callable[[], Awaitable[Any]]:
    """The rows of runs that are being executed are held: what they ask, record and come to waits."""
    begun = asyncio.Event()
    let_go = asyncio.Event()
    turns = itertools.count(1)

    @workflow(name="slow")
    async def slow(ctx: Context) -> int:
        next(turns)
        begun.set()
        await let_go.wait()
        return await ctx.wait("go", int)

    async def ended() -> int:
        let_go.set()
        value = await of.store.result(run_id)
        await worker.__aexit__(None, None, None)
        assert next(turns) == 2, "what it asked has waited, and was no failure of its turn"
        return value

    worker = Worker(of.store, [slow])
    await worker.__aenter__()
    run_id = await of.store.trigger(slow.trigger())
    await begun.wait()
    await of.holder.signal(run_id, "go", 1, tx=tx)
    return ended


async def parent_of_children(of: Scene, tx: Any) -> Callable[[], Awaitable[Any]]:
    """The row of a parent is held: its children cannot end, since that changes its parent's row too."""
    run_id = await of.store.trigger(parent.trigger(8))
    await paused(of.store, run_id)
    children = [one.id for one in await of.store.runs("child", parent=run_id)]
    for one in children:
        await paused(of.store, one)
    await of.holder.signal(run_id, "nothing", 1, tx=tx)

    async def ended() -> Any:
        for number, one in enumerate(children, 1):  # one after the other: each would hold up another flush
            await of.store.signal(one, "go", 1)
            if number < len(children):  # when all wait aside, the transaction ends, and they come back
                await until(lambda: len(of.store.database.lock_queue) >= number)  # noqa: B023 - asked at once
        return await asyncio.gather(*(of.store.result(one, int) for one in children))

    return ended


async def instance(of: Scene, tx: Any) -> Callable[[], Awaitable[Any]]:
    await of.engine.execute(Do("held", "before"))
    await of.theirs.execute(Do("held", "first"), tx=tx)
    return lambda: of.engine.execute(Do("held", "second"))


async def new_instance(of: Scene, tx: Any) -> Callable[[], Awaitable[Any]]:
    """The first input of all: whoever decides it makes what every instance of its type shares."""
    await of.theirs.execute(Do("new and held", "first"), tx=tx)
    return lambda: of.engine.execute(Do("new and held", "second"))


async def paused(store: Store, run_id: int) -> None:
    async def is_paused() -> bool:
        return (await store.get_run(run_id)).status == "PAUSED"

    await until(is_paused)


HOLDS: Final[dict[Hold, int]] = {  # and how many wait aside because of it
    ten_keys: 10,
    run_under_way: 1,
    parent_of_children: 8,
    new_instance: 1,
}


@pytest.mark.timeout(120)
@pytest.mark.proves("promise-20", "rule-23", "rule-28")
@pytest.mark.backends("postgres", reason="an embedded database has one writer: the others wait, and are told why")
@pytest.mark.parametrize("hold", HOLDS, ids=lambda hold: hold.__name__)
async def test_an_open_transaction_holds_up_nobody_but_those_who_need_what_it_holds(store_url: str, hold: Hold) -> None:
    """By counts; `test_open_transactions.py` has every verb and library, and the seconds."""
    async with scene(store_url) as of:
        over = asyncio.Event()
        async with of.holder.transaction() as tx:
            asked = await hold(of, tx)
            held = asyncio.ensure_future(asked())
            others = asyncio.gather(of.meanwhile(over), of.look(tx.connection.get_server_pid(), over))
            await until(
                lambda: len(of.store.database.lock_queue) >= HOLDS[hold], 20, message="what is held waits aside"
            )
            await until(lambda: of.came_back(5), 20, message=f"others come back beside {hold.__name__}")
            assert not held.done(), "nothing was held: void"
            locked, without_keys = of.locked.copy(), of.without_keys()
        await asyncio.wait_for(held, 10)
        over.set()
        await asyncio.wait_for(others, 10)
    assert of.mixed == [], "who has no key shares no flush with one who has"
    if hold is ten_keys:
        assert of.blocked.isdisjoint(without_keys), "who has no key never waits for one who holds a key"
    # On a busy machine a flush may wait in vain for a row that a call beside it has: for a signal, or a question.
    assert sum(locked.values()) <= 4, "what is known to be held is not tried with others"


@pytest.mark.timeout(60)
@pytest.mark.proves("rule-22", "rule-23")
@pytest.mark.backends("postgres", reason="an embedded database has no poolers")
@pytest.mark.parametrize("hold", [key, instance], ids=lambda hold: hold.__name__)
async def test_so_it_is_where_connections_keep_no_settings(store_url: str, hold: Hold) -> None:
    async with connect(store_url, listen=False) as holder, connect(store_url, listen=False) as store:
        driver: Any = store.database.driver
        driver._dialer.pooled = True  # as if a pooler had been found: what is opened from now on has no settings
        theirs, engine = Engine(holder).register(Bench()), Engine(store).register(Bench())
        await store.create_queue("q")
        of = Scene(holder, theirs, store, engine)
        async with holder.transaction() as tx:
            asked = await hold(of, tx)
            held = asyncio.ensure_future(asked())
            await until(lambda: len(store.database.lock_queue) == 1)
            for number in range(20):
                await store.enqueue("q", number, key=f"own {number}")
                await store.enqueue("q", number)
                await engine.execute(Do(f"other {number}", "x"))
            assert not held.done(), "nothing was held: void"
        await asyncio.wait_for(held, 10)
