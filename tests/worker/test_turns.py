"""A late worker writes nothing through a transaction that its body has begun, and holds nobody up."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiosqlite
import asyncpg
import psycopg
import pytest

from stepwell import Engine, LeaseLost, Store, Worker, connect, handler, step, sync, workflow
from stepwell.errors import StepwellError
from stepwell.store.rows import SeenWorker
from stepwell.store.transaction import executing, turns_here
from tests.deciders.workbench import Bench, Do
from tests.ground.waiting import until, wait_for
from tests.store.seam import ask, count, do, watched
from tests.worker.silence import silence

KINDS = ["message", "batch", "step", "effect"]
ONLY_POSTGRES = pytest.mark.backends("postgres", reason="elsewhere nobody can take a turn while another one writes")


@asynccontextmanager
async def opened(store_url: str, **options: Any) -> AsyncIterator[Store]:
    async with connect(store_url, **options) as store:
        async with store.transaction() as tx:
            await tx.execute("create table own (label text)")
        await store.create_queue("out")
        yield store


async def take_away(store: Store, *, heard: bool = False) -> None:
    """Declare every session dead and give back what it has, as another worker does. The dead do not know yet.

    Nor do they hear of it, unless that is asked for: a beat in between would stop the body before it is refused.
    """
    if not heard:
        await silence(store)
    while living := await store.database.sessions.living():  # again, if one has beaten meanwhile
        for session in living:
            await store.database.sessions.bury(SeenWorker(session.worker_id, session.beat_at))


async def written(store: Store) -> tuple[int, int]:
    [row] = await ask(store, "select count(*) as number from own")
    return row["number"], await count(store, "queue_id = (select id from {queue} where name = 'out')")


class Scene:
    """One body of each kind, which does what the test says, once, and notes what came of it."""

    def __init__(self, store: Store, act: Callable[[], Awaitable[None]]) -> None:
        self.store = store
        self.ended: list[BaseException | None] = []
        self._act = act
        self._begun = False

    async def body(self) -> None:
        if self._begun:  # whoever executes it again has nothing to do
            return
        self._begun = True
        try:
            await self._act()
        except BaseException as error:
            self.ended.append(error)
            raise
        self.ended.append(None)

    async def play(self, kind: str, lease: float | None = None) -> None:
        """Have the body executed, until it has ended."""
        scene = self

        @handler("message", retry=5, lease=lease)
        async def message(_: int) -> None:
            await scene.body()

        @handler("batch", batch=3, retry=5)
        async def batch(_: list[int]) -> None:
            await scene.body()

        @step
        async def stepping() -> None:
            await scene.body()

        @workflow(retry=5)
        async def run() -> None:
            await stepping()

        async def answer(*_: object) -> None:
            await scene.body()

        engine = Engine(self.store).register(Bench(answer))
        async with Worker(self.store, [message, batch, run, engine], poll=0.05):
            match kind:
                case "message":
                    await self.store.enqueue(message, 1)
                case "batch":
                    await self.store.enqueue_many(batch, [1, 2, 3])
                case "step":
                    await run.trigger().execute(self.store)
                case _:
                    await engine.execute(Do("a", ask="act"))
            await until(lambda: bool(scene.ended), 20)


async def insert(store: Store, tx: Any) -> None:
    """A row of one's own and a message."""
    await tx.execute("insert into own (label) values ('mine')")
    await store.enqueue("out", 1, tx=tx)


@pytest.mark.proves("L-09", "promise-04")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_body_whose_turn_was_taken_before_it_began_commits_nothing(store_url: str, kind: str) -> None:
    async with opened(store_url) as store:

        async def act() -> None:
            await take_away(store)
            async with store.transaction() as tx:
                await insert(store, tx)

        scene = Scene(store, act)
        await scene.play(kind)
        assert [type(error) for error in scene.ended] == [LeaseLost]
        assert await written(store) == (0, 0)


@ONLY_POSTGRES
@pytest.mark.proves("L-09", "promise-04")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_body_whose_turn_is_taken_before_its_commit_commits_nothing(store_url: str, kind: str) -> None:
    async with opened(store_url) as store:

        async def act() -> None:
            async with store.transaction() as tx:
                await insert(store, tx)
                await take_away(store)

        scene = Scene(store, act)
        await scene.play(kind)
        assert [type(error) for error in scene.ended] == [LeaseLost]
        assert await written(store) == (0, 0)


@pytest.mark.proves("L-09")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_body_that_has_its_turn_commits(store_url: str, kind: str) -> None:
    async with opened(store_url) as store:

        async def act() -> None:
            async with store.transaction() as tx:
                await insert(store, tx)

        scene = Scene(store, act)
        await scene.play(kind)
        assert scene.ended == [None]
        assert await written(store) == (1, 1)


@pytest.mark.proves("L-09")
async def test_a_body_that_knows_that_its_session_is_dead_begins_nothing(store_url: str) -> None:
    async with opened(store_url, lease=0.6) as store:

        async def act() -> None:
            await take_away(store, heard=True)
            turns = executing.get()
            assert turns is not None
            try:
                await asyncio.wait_for(asyncio.shield(_lost(turns)), 10)
            except asyncio.CancelledError:
                with pytest.raises(LeaseLost):  # cancelled because of it, a body may still go on
                    async with store.transaction():
                        pytest.fail("it was begun")
                raise

        scene = Scene(store, act)
        await scene.play("message")
        assert [type(error) for error in scene.ended] == [asyncio.CancelledError]


async def _lost(turns: Any) -> None:
    await until(lambda: turns.are_lost)
    await asyncio.sleep(5)


async def test_outside_of_bodies_nothing_is_asked(store: Store) -> None:
    store, driver = watched(store)
    async with store.transaction() as tx:
        await tx.execute("select 1")
    assert turns_here() is None
    assert [call.statement for call in driver.said] == []


async def test_what_a_body_leaves_behind_speaks_for_nobody_when_its_end_is_written(store_url: str) -> None:
    left: list[asyncio.Task[None]] = []
    go_on = asyncio.Event()

    async with opened(store_url) as store:

        async def later() -> None:
            await go_on.wait()
            async with store.transaction() as tx:
                await insert(store, tx)

        async def act() -> None:
            left.append(asyncio.create_task(later()))

        scene = Scene(store, act)
        await scene.play("message")
        await until(lambda: _is_settled(store))
        go_on.set()
        await asyncio.wait_for(left[0], 10)
        assert await written(store) == (1, 1)


async def _is_settled(store: Store) -> bool:
    return await count(store, "status = 'SUCCESS'") == 1


# The user's own connection


@asynccontextmanager
async def mine(store_url: str) -> AsyncIterator[Any]:
    """A connection of the user's own, in a transaction that is committed at the end."""
    if store_url.startswith("postgresql"):
        connection = await asyncpg.connect(store_url)
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()
    else:
        async with aiosqlite.connect(urlsplit(store_url).path, timeout=10) as connection:
            await connection.execute("begin")
            yield connection
            await connection.commit()


JOINS = pytest.mark.backends("postgres", "sqlite", reason="a Turso store does not join one's own transaction")


@JOINS
@pytest.mark.proves("L-09")
async def test_a_verb_in_ones_own_transaction_asks_for_the_turn_first_and_leaves_it_as_it_was(store_url: str) -> None:
    async with opened(store_url) as store:

        async def act() -> None:
            await take_away(store)
            async with mine(store_url) as connection:
                with pytest.raises(LeaseLost):
                    await store.enqueue("out", 1, tx=connection)
                await connection.execute("insert into own (label) values ('caught')")

        scene = Scene(store, act)
        await scene.play("message")
        assert scene.ended == [None]
        assert await written(store) == (1, 0), "the transaction is usable, and the verb has written nothing"


@JOINS
@pytest.mark.proves("L-09")
async def test_a_fence_lets_ones_own_transaction_commit_only_in_its_turn(store_url: str) -> None:
    async with opened(store_url) as store:

        async def act() -> None:
            async with mine(store_url) as connection:
                await connection.execute("insert into own (label) values ('in turn')")
                await store.fence(connection)
            await take_away(store)
            async with mine(store_url) as connection:
                await connection.execute("insert into own (label) values ('late')")
                await store.fence(connection)

        scene = Scene(store, act)
        await scene.play("message")
        assert [type(error) for error in scene.ended] == [LeaseLost]
        assert [row["label"] for row in await ask(store, "select label from own")] == ["in turn"]


@ONLY_POSTGRES
@pytest.mark.proves("L-09", "protocol-08")
async def test_nobody_takes_the_turn_between_the_check_and_the_commit(store_url: str) -> None:
    async with opened(store_url) as store:
        held: list[str] = []

        async def act() -> None:
            async with mine(store_url) as connection:
                await store.fence(connection)
                await take_away(store)  # the session is dead, and its task is not given back: it is locked
                [row] = await ask(store, "select status from {task} where owner is not null")
                held.append(row["status"])

        scene = Scene(store, act)
        await scene.play("message")
        assert held == ["RUNNING"]
        await store.database.sessions.return_stranded()
        assert await count(store, "owner is not null") == 0


@JOINS
async def test_the_sync_face_has_the_same_fence(store_url: str) -> None:
    ended: list[object] = []

    def scene() -> None:
        with sync.connect(store_url) as store:
            with store.transaction() as tx:
                tx.execute("create table own (label text)")

            @handler("mail", retry=1)
            def work(_: int) -> None:
                postgres = store_url.startswith("postgresql")
                own: Any = psycopg.connect(store_url) if postgres else sqlite3.connect(urlsplit(store_url).path)
                own.execute("insert into own (label) values ('mine')")
                store.fence(own)
                own.commit()
                own.close()
                with store.transaction() as ours:
                    store.fence(ours)  # as in every other transaction, though this one asks by itself
                store.wait_for(lambda: silence(store.async_store))  # a beat in between, and it is not to be buried
                for session in store.wait_for(store.async_store.database.sessions.living):
                    seen = SeenWorker(session.worker_id, session.beat_at)
                    store.wait_for(lambda seen=seen: store.async_store.database.sessions.bury(seen))  # type: ignore[misc]
                try:
                    with store.transaction() as tx:
                        tx.execute("insert into own (label) values ('late')")
                except LeaseLost as error:
                    ended.append(error)

            with sync.Worker(store, [work]):
                store.enqueue(work, 1)
                wait_for(lambda: bool(ended), 20)

    await asyncio.to_thread(scene)
    assert len(ended) == 1
    async with connect(store_url) as store:
        assert [row["label"] for row in await ask(store, "select label from own")] == ["mine"]


# Nobody is held up


@ONLY_POSTGRES
@pytest.mark.proves("L-09", "protocol-08")
@pytest.mark.parametrize("lease", ["the store's", "its own"])
async def test_the_server_ends_a_transaction_of_a_body_that_is_idle_for_longer_than_the_lease(
    store_url: str, lease: str
) -> None:
    async with opened(store_url, lease=1.0 if lease == "the store's" else 30.0) as store:

        async def act() -> None:
            async with store.transaction() as tx:
                await insert(store, tx)
                await asyncio.sleep(2.5)

        scene = Scene(store, act)
        await scene.play("message", lease=None if lease == "the store's" else 1.0)
        [error] = scene.ended
        assert isinstance(error, StepwellError), error
        assert await written(store) == (0, 0)


@ONLY_POSTGRES
async def test_a_transaction_outside_of_bodies_may_be_idle(store_url: str) -> None:
    async with opened(store_url, lease=0.6) as store:
        async with store.transaction() as tx:
            await insert(store, tx)
            await asyncio.sleep(1.2)
        assert await written(store) == (1, 1)
        await do(store, "select 1")
