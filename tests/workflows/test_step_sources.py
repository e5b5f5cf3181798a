"""A step whose transaction is opened by the user's own library: one commit for its rows and its result, with each."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
from sqlalchemy import NullPool, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from stepwell import Context, Store, step, sync, workflow
from stepwell.base.clock import TestClock
from tests.ground.waiting import until
from tests.queue.joining.drivers import path_of
from tests.queue.joining.frameworks import address, django_connection
from tests.queue.raw import ask, change
from tests.workflows.kit import begun, drained, executed, statuses

TOGETHER = pytest.mark.proves("promise-06", "S-28")
JOINS = pytest.mark.backends("sqlite", "postgres", reason="Turso joins no other connection, and nothing reaches memory")
INSERT = "insert into paid (n) values ({})"
Source = tuple[Any, Callable[[Any, int], Any]]  # what is given as `tx`, and how a row is inserted through it


def sync_sources(url: str, backend: str) -> Iterator[Source]:
    """What opens a transaction without a loop."""
    driver = {"sqlite": "pysqlite", "postgres": "psycopg"}[backend]
    engine = create_engine(address(url, driver), poolclass=NullPool)
    plain = lambda tx, n: tx.execute(INSERT.format(n))  # noqa: E731
    worded = lambda tx, n: tx.execute(text(INSERT.format(n)))  # noqa: E731

    @contextlib.contextmanager
    def block() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    yield sessionmaker(engine), worded
    yield engine, worded
    yield engine.begin, worded
    yield block, worded
    wrapper = django_connection(url)
    yield wrapper, lambda tx, n: tx.cursor().execute(INSERT.format(n))
    if backend == "sqlite":
        yield lambda: sqlite3.connect(path_of(url)), plain
        yield lambda: sqlite3.connect(path_of(url), isolation_level=None), plain
    else:
        yield lambda: psycopg.connect(url), plain
        yield lambda: psycopg.connect(url, autocommit=True), plain


def async_sources(url: str, backend: str, pool: Any) -> Iterator[Source]:
    """What opens a transaction on a loop."""
    driver = {"sqlite": "aiosqlite", "postgres": "asyncpg"}[backend]
    engine = create_async_engine(address(url, driver), poolclass=NullPool)
    plain = lambda tx, n: tx.execute(INSERT.format(n))  # noqa: E731
    worded = lambda tx, n: tx.execute(text(INSERT.format(n)))  # noqa: E731

    @contextlib.asynccontextmanager
    async def block() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(engine) as session:
            yield session

    yield async_sessionmaker(engine), worded
    yield engine, worded
    yield block, worded
    if backend == "sqlite":
        yield lambda: aiosqlite.connect(path_of(url)), plain
    else:
        on_psycopg = create_async_engine(address(url, "psycopg"), poolclass=NullPool)
        yield async_sessionmaker(on_psycopg), worded
        yield lambda: asyncpg.connect(url), plain
        yield lambda: pool, plain
        yield pool, plain
        yield lambda: psycopg.AsyncConnection.connect(url), plain


@TOGETHER
@JOINS
async def test_every_library_commits_the_rows_of_a_step_with_its_result_once(
    store: Store, store_url: str, backend: str, clock: TestClock
) -> None:
    """Whatever raises in a body undoes its rows, and the next attempt has a transaction of its own."""
    await change(store, "create table paid (n bigint not null)")
    pool = await asyncpg.create_pool(store_url, min_size=1, max_size=1) if backend == "postgres" else None
    tries: list[int] = []

    def tried(n: int) -> int:
        tries.append(n)
        if tries.count(n) == 1:
            raise RuntimeError("no")
        return 10 * n

    def sync_step(number: int, source: Any, insert: Any) -> Any:
        @step(tx=source, id=f"sync-{number}", timeout=10)
        def pay(tx: Any, n: int) -> int:
            insert(tx, n)
            return tried(n)

        return pay

    def async_step(number: int, source: Any, insert: Any) -> Any:
        @step(tx=source, id=f"async-{number}")
        async def pay(tx: Any, n: int) -> int:
            await insert(tx, n)
            return tried(n)

        return pay

    steps = [sync_step(number, *one) for number, one in enumerate(sync_sources(store_url, backend))]
    steps += [async_step(number, *one) for number, one in enumerate(async_sources(store_url, backend, pool))]

    @workflow
    async def shop(ctx: Context) -> list[int]:
        return [await ctx.step(pay, n) for n, pay in enumerate(steps)]

    run_id = await begun(store, shop)
    for _ in range(len(steps) + 1):
        await drained(store, shop)
        clock.advance(60)
    run = await store.get_run(run_id)
    assert run.status == "SUCCESS", [one.error for one in await store.steps(run_id)]
    assert run.output() == [10 * n for n in range(len(steps))]
    assert sorted(row[0] for row in await ask(store, "select n from paid")) == [*range(len(steps))]
    assert tries == [n for n in range(len(steps)) for _ in range(2)]
    if pool is not None:
        pool.terminate()


async def is_failed(store: Store, run_id: int) -> bool:
    return (await statuses(store, run_id)).get("pay#1") == "PENDING"


@TOGETHER
@pytest.mark.backends("postgres", reason="elsewhere the late one holds the only writer, and the next waits for it")
async def test_a_body_in_a_thread_that_returns_too_late_commits_nothing(
    store: Store, store_url: str, clock: TestClock
) -> None:
    """It cannot be stopped. The next attempt begins beside it, and what the late one wrote is rolled back."""
    await change(store, "create table paid (n bigint not null)")
    engine = create_engine(address(store_url, "psycopg"))
    go, holds, tries = threading.Event(), asyncio.Event(), list[int]()
    ended: list[object] = []
    event.listen(engine, "checkin", lambda *_: ended.append(1))

    @step(tx=sessionmaker(engine), timeout=0.05)
    def pay(tx: Session) -> int:
        tries.append(len(tries))
        if len(tries) > 1:
            return 2
        go.wait(20)
        tx.execute(text(INSERT.format(1)))
        return 1

    @workflow
    async def shop(ctx: Context) -> tuple[int, bool]:
        return await asyncio.gather(ctx.step(pay), ctx.step("beside", holds.wait, returns=bool))  # the turn stands

    run_id = await begun(store, shop)
    working = asyncio.create_task(drained(store, shop))
    await until(lambda: is_failed(store, run_id))
    go.set()
    await until(lambda: ended)
    assert await ask(store, "select n from paid") == []
    holds.set()
    await working
    clock.advance(60)
    await drained(store, shop)
    assert (await store.get_run(run_id)).output(list[Any])[0] == 2
    engine.dispose()


@TOGETHER
@JOINS
async def test_a_session_is_flushed_and_what_a_body_commits_itself_is_not_done_again(
    store: Store, store_url: str, backend: str
) -> None:
    await change(store, "create table paid (n bigint not null)")
    engine = create_engine(address(store_url, {"sqlite": "pysqlite", "postgres": "psycopg"}[backend]))

    @step(tx=sessionmaker(engine))
    def commits(tx: Session) -> None:
        tx.execute(text(INSERT.format(1)))
        tx.commit()

    @step(tx=sessionmaker(engine), retry=1)
    async def blocks(tx: Any) -> None:
        raise AssertionError("not reached")

    @workflow
    async def shop(ctx: Context, first: bool) -> None:
        await ctx.step(commits if first else blocks)

    run = await executed(store, shop, True)
    assert "it was committed or rolled back by the code that was given it" in str(run.error)
    assert await statuses(store, run.id) == {"commits#1": "ERROR"}
    assert [row[0] for row in await ask(store, "select n from paid")] == [1]
    run = await executed(store, shop, False)
    assert "what it opens is not for an `async def`" in str(run.error)
    engine.dispose()


@TOGETHER
@JOINS
def test_a_sync_workflow_has_transactional_steps_too(store_url: str, backend: str) -> None:
    engine = create_engine(address(store_url, {"sqlite": "pysqlite", "postgres": "psycopg"}[backend]))
    mark = {"sqlite": "?", "postgres": "$1"}[backend]

    @step(tx=True)
    def pay(tx: sync.Tx, n: int) -> int:
        tx.execute(f"insert into paid (n) values ({mark})", n)
        return n + 1

    @step(tx=sessionmaker(engine))
    def book(tx: Session, n: int) -> int:
        tx.execute(text(INSERT.format(n)))
        return n + 1

    @workflow
    def shop(n: int) -> int:
        return book(pay(n))

    with sync.connect(store_url) as store:
        with store.transaction() as tx:
            tx.execute("create table paid (n bigint not null)")
        run_id = shop.trigger(1).options(require_worker="ignore").execute(store)
        sync.Worker(store, [shop]).drain()
        assert store.get_run(run_id).output() == 3
        with store.transaction() as tx:
            assert sorted(row[0] for row in tx.execute("select n from paid")) == [1, 2]
    engine.dispose()
