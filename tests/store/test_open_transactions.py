"""Through every library, with a call of every verb: a transaction that stays open is nothing to others."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pytest

from stepwell import Engine, Store, StoreUnavailable, connect, sync
from tests.deciders.workbench import Bench, Do, double, post
from tests.ground.scale import Scale
from tests.ground.waiting import until
from tests.queue.joining import drivers, own
from tests.queue.joining.users import User
from tests.queue.joining.verbs import VERBS, Desk, Verb, paid
from tests.queue.test_joined_table import LIBRARIES
from tests.store.seam import DONE
from tests.store.test_stalls import HOLDS, Scene, scene

LIMIT: Final = 0.25  # seconds that an unrelated call may wait: judged in a soak, `make test` sees that it comes back
AT_ONCE: Final = 5  # libraries, each with an open transaction for every verb: the server has 200 connections


@dataclass(frozen=True)
class Rival:
    """Somebody in the store beside who needs the row or the key that a cell holds."""

    store: Store
    engine: Engine
    subject: Any
    label: str

    async def execute(self) -> None:
        """Another input for the same instance."""
        await self.engine.execute(Do(self.label, "second"))

    async def settle(self) -> None:
        """The end of the task whose body holds its turn."""
        body = self.subject
        await self.store.database.tasks.settle(body.task.id, body.id, body.task.turn, DONE)


RIVALS: Final[dict[str, Callable[[Rival], Awaitable[Any]]]] = {
    "enqueue": lambda one: one.store.enqueue(post, one.label, key=one.label),
    "enqueue_many": lambda one: one.store.enqueue_many(post, [one.label], keys=[f"{one.label} 2"]),
    "trigger": lambda one: one.store.trigger(double.trigger(4).options(key=one.label)),
    "trigger_many": lambda one: one.store.trigger_many([double.trigger(2).options(key=one.label)]),
    "signal": lambda one: one.store.signal(one.subject, "paid", 5),
    "execute": Rival.execute,
    "execute again": Rival.execute,
    "execute to the end": Rival.execute,
    "execute_dynamic": Rival.execute,
    "submit": lambda one: one.engine.submit(Do(one.label, "later"), key=one.label),
    "fence": Rival.settle,
}


class Cell:
    """A transaction of one user, open with a call of one verb in it until it is let go."""

    def __init__(self, user: User, verb: Verb) -> None:
        self.user, self.verb = user, verb
        self.label = f"{type(user).__name__} {verb.name}"
        self.desk: Desk  # made where the user lives
        self.is_open = threading.Event()
        self.let_go = threading.Event()

    async def life(self) -> None:
        """All of it: in the thread of a sync user nothing here waits for a loop."""
        user, self.desk = self.user, Desk(self.user)
        await user.open()
        try:
            await self.verb.before(self.desk, self.label)
            await user.begin()
            await self.verb.call(self.desk, self.label)
            self.is_open.set()
            if user.is_async:
                await until(self.let_go.is_set, 120)
            else:
                self.let_go.wait(120)
            await user.commit()
        finally:
            await user.close()


@asynccontextmanager
async def opened(url: str, cells: Callable[[Store, sync.Store], list[Cell]]) -> AsyncIterator[list[Cell]]:
    """These cells, each open with its call made; all are let go at the end and commit."""
    loop = asyncio.get_running_loop()
    async with connect(url, listen=False) as ours, connect_sync(url) as theirs:
        these = cells(ours, theirs)
        with concurrent.futures.ThreadPoolExecutor(len(these)) as threads:
            lives = [
                asyncio.ensure_future(one.life())
                if one.user.is_async
                else loop.run_in_executor(threads, one.user.run, one.life())
                for one in these
            ]
            try:
                await until(lambda: all(map(is_settled, these, lives)), 60)
                yield [one for one, life in zip(these, lives, strict=True) if not life.done()]
            finally:
                for one in these:
                    one.let_go.set()
                ended = await asyncio.wait_for(asyncio.gather(*lives, return_exceptions=True), 60)
    wrong = [f"{one.label}: {error!r}" for one, error in zip(these, ended, strict=True) if error is not None]
    assert not wrong, wrong


def is_settled(cell: Cell, life: asyncio.Future[Any]) -> bool:
    """Whether its call was made, or failed."""
    return cell.is_open.is_set() or life.done()


@asynccontextmanager
async def connect_sync(url: str) -> AsyncIterator[sync.Store]:
    """A store of the sync face, opened and closed in a thread, where it may wait."""
    store = await asyncio.to_thread(sync.connect, url, listen=False)
    try:
        yield store
    finally:
        await asyncio.to_thread(store.close)


def cells_of(
    libraries: Sequence[type[User]], verbs: Sequence[Verb], url: str
) -> Callable[[Store, sync.Store], list[Cell]]:
    """A cell for every library and verb, through one store of each face."""

    def made(ours: Store, theirs: sync.Store) -> list[Cell]:
        cells = []
        for library, verb in itertools.product(libraries, verbs):
            user = library(url)
            user.store = ours if user.is_async else theirs
            cells.append(Cell(user, verb))
        return cells

    return made


@pytest.mark.timeout(600)
@pytest.mark.proves("promise-20", "rule-23", "rule-28")
@pytest.mark.backends("postgres", reason="an embedded database has one writer: the others wait, and are told why")
async def test_whatever_library_and_verb_keeps_a_transaction_open_others_do_not_notice(
    store_url: str, scale: Scale, measured: Callable[..., None]
) -> None:
    """All that is held at a time is held at once; small, two libraries for half a second."""
    libraries = scale.of((drivers.PlainPsycopg, own.StoreTransaction), LIBRARIES["postgres"])
    worst, calls, held = (0.0, ""), 0, 0
    for first in range(0, len(libraries), AT_ONCE):
        some = libraries[first : first + AT_ONCE]
        async with scene(store_url, timeout=120, pause=scale.of(0.02, 0.05)) as of:
            await what_all_share(of)
            over = asyncio.Event()
            async with opened(store_url, cells_of(some, VERBS, store_url)) as cells, AsyncExitStack() as kept:
                wanted: dict[str, Callable[[], Awaitable[Any]]] = {}
                for one in cells:
                    beside = Rival(of.store, of.engine, one.desk.subject, one.label)
                    wanted[one.label] = partial(RIVALS[one.verb.name], beside)
                for hold in scale.of([], list(HOLDS) if first == 0 else []):
                    wanted[hold.__name__] = await hold(of, await kept.enter_async_context(of.holder.transaction()))
                others = asyncio.ensure_future(of.meanwhile(over))
                rivals = {}
                for name, call in wanted.items():
                    rivals[name] = asyncio.ensure_future(call())
                    await asyncio.sleep(scale.of(0.02, 0.05))
                await asyncio.sleep(scale.of(0.3, 30))
                await until(partial(of.came_back, 5), 20)
                assert not [name for name, one in rivals.items() if one.done()], "answered before the commit: void"
                worst = max(worst, *((max(waits), name) for name, waits in of.waits.items()))
                calls, held = calls + sum(map(len, of.waits.values())), held + len(rivals)
            await asyncio.wait_for(asyncio.gather(*rivals.values()), 60)
            over.set()
            await asyncio.wait_for(others, 20)
    told = {"libraries": len(libraries), "verbs": len(VERBS), "held": held, "seconds": scale.of(0.3, 30)}
    measured("stalls", **told, calls=calls, worst=worst[0], verb=worst[1])
    assert worst[0] < scale.of(10, LIMIT), worst


async def what_all_share(of: Scene) -> None:
    """Queues and workflows that the first call of a verb makes, and that those who see an old snapshot cannot make."""
    for asked in (double.trigger(1), paid.trigger()):
        await of.store.trigger(asked.options(require_worker="ignore"))
    await of.store.enqueue(post, "first")
    await of.engine.submit(Do("first"))
    await of.engine.execute(Do("first"))


@pytest.mark.timeout(600)
@pytest.mark.proves("promise-20", "rule-28")
@pytest.mark.backends("sqlite", "turso", reason="Postgres has many writers")
async def test_where_there_is_one_writer_the_others_are_told_who_writes(
    backend: str, store_url: str, scale: Scale, measured: Callable[..., None]
) -> None:
    libraries, verbs = scale.of(LIBRARIES[backend][:1], LIBRARIES[backend]), scale.of(VERBS[:1], VERBS)
    told = 0
    async with connect(store_url, timeout=scale.of(1, 0.3)) as store:
        engine = Engine(store).register(Bench())
        await what_all_share(Scene(store, engine, store, engine))
        for library, verb in itertools.product(libraries, verbs):
            async with opened(store_url, cells_of([library], [verb], store_url)):
                with pytest.raises(StoreUnavailable, match=r"another (connection|process) has been writing this file"):
                    await store.enqueue(post, "beside")
                told += 1
            await store.enqueue(post, "afterwards")
    cells = len(libraries) * len(verbs)
    measured("writers", libraries=len(libraries), verbs=len(verbs), cells=cells, told=told)
    assert told == cells
