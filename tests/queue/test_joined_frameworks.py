"""What is particular about SQLAlchemy and Django when they are passed as `tx`."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from django.db import ConnectionProxy, connections, transaction
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import stepwell
from stepwell import InvalidOption, Store, connect
from tests.queue.joining.frameworks import address, django_connection

JOINS = pytest.mark.proves("Q-25", "protocol-22")
JOINABLE = pytest.mark.backends("sqlite", "postgres", reason="Turso does not join yet")
ONLY_POSTGRES = pytest.mark.backends("postgres", reason="there a transaction can fail and stay open")
SYNC = {"sqlite": "pysqlite", "postgres": "psycopg"}
ASYNC = {"sqlite": "aiosqlite", "postgres": "asyncpg"}


@pytest.fixture
def sync_store(store_url: str) -> Iterator[stepwell.sync.Store]:
    with stepwell.sync.connect(store_url) as store:
        store.create_queue("q")
        yield store


@pytest.fixture
async def async_store(store_url: str) -> AsyncIterator[Store]:
    async with connect(store_url) as store:
        await store.create_queue("q")
        yield store


@pytest.fixture
def engine(store_url: str, backend: str) -> Any:
    return create_engine(address(store_url, SYNC[backend]), poolclass=NullPool)


@pytest.fixture
def async_engine(store_url: str, backend: str) -> Any:
    return create_async_engine(address(store_url, ASYNC[backend]), poolclass=NullPool)


@JOINS
@JOINABLE
def test_the_first_thing_a_sqlalchemy_session_does_may_be_a_joined_call(
    sync_store: stepwell.sync.Store, engine: Any
) -> None:
    with Session(engine) as session:
        sync_store.enqueue("q", 1, tx=session)
        session.commit()
    with Session(engine) as session:
        sync_store.enqueue("q", 2, tx=session)  # left without a commit
    with engine.connect() as connection:
        sync_store.enqueue("q", 3, tx=connection)
        assert connection.in_transaction()
        connection.commit()
    assert sync_store.counts("q") == {"PENDING": 2}


@JOINS
@JOINABLE
async def test_the_first_thing_an_async_sqlalchemy_session_does_may_be_a_joined_call(
    async_store: Store, async_engine: Any
) -> None:
    async with AsyncSession(async_engine) as session:
        await async_store.enqueue("q", 1, tx=session)
        await session.commit()
    async with AsyncSession(async_engine) as session:
        await async_store.enqueue("q", 2, tx=session)  # left without a commit
    async with async_engine.connect() as connection:
        await async_store.enqueue("q", 3, tx=connection)
        assert connection.in_transaction()
        await connection.commit()
    assert await async_store.counts("q") == {"PENDING": 2}


@JOINS
@JOINABLE
async def test_scoped_sessions_are_the_sessions_they_stand_for(
    async_store: Store, async_engine: Any, engine: Any, store_url: str
) -> None:
    session = async_scoped_session(async_sessionmaker(async_engine), scopefunc=asyncio.current_task)
    await async_store.enqueue("q", 1, tx=session)
    await session.commit()
    await session.remove()

    def sync() -> None:
        session = scoped_session(sessionmaker(engine))
        with stepwell.sync.connect(store_url) as store:
            store.enqueue("q", 2, tx=session)
            session.commit()
            session.remove()

    await asyncio.to_thread(sync)
    assert await async_store.counts("q") == {"PENDING": 2}


@JOINS
@JOINABLE
def test_a_session_without_a_transaction_or_an_engine_is_refused_with_what_sqlalchemy_says(
    sync_store: stepwell.sync.Store, engine: Any
) -> None:
    with Session(engine, autobegin=False) as session, pytest.raises(InvalidOption, match="Autobegin is disabled"):
        sync_store.enqueue("q", 1, tx=session)
    with Session() as session, pytest.raises(InvalidOption, match="no connection to join"):
        sync_store.enqueue("q", 1, tx=session)
    connection = engine.connect()
    connection.close()
    with pytest.raises(InvalidOption, match="closed"):
        sync_store.enqueue("q", 1, tx=connection)
    with pytest.raises(InvalidOption, match="pass the connection"):
        sync_store.enqueue("q", 1, tx=engine)
    assert sync_store.counts("q") == {}


@JOINS
@ONLY_POSTGRES
def test_a_savepoint_of_sqlalchemy_undoes_the_message_and_a_failed_transaction_is_refused(
    sync_store: stepwell.sync.Store, engine: Any
) -> None:
    with Session(engine) as session:
        savepoint = session.begin_nested()
        sync_store.enqueue("q", 1, tx=session)
        savepoint.rollback()
        sync_store.enqueue("q", 2, tx=session)
        session.commit()
        with pytest.raises(Exception, match="division by zero"):
            session.execute(text("select 1/0"))
        with pytest.raises(InvalidOption, match="has failed: roll it back"):
            sync_store.enqueue("q", 3, tx=session)
        session.rollback()
        assert session.scalar(text("select 1")) == 1
    assert sync_store.counts("q") == {"PENDING": 1}


@JOINS
@ONLY_POSTGRES
async def test_the_session_inside_run_sync_is_sent_to_the_async_face(async_engine: Any, store_url: str) -> None:
    store = await asyncio.to_thread(stepwell.sync.connect, store_url)

    def inside(session: Session) -> None:
        with pytest.raises(InvalidOption, match="belongs to an event loop"):
            store.enqueue("q", 1, tx=session)

    async with AsyncSession(async_engine) as session:
        await session.run_sync(inside)
    await asyncio.to_thread(store.close)


@JOINS
@JOINABLE
def test_djangos_default_connection_is_joined_by_its_proxy_and_savepoints_count(
    sync_store: stepwell.sync.Store, store_url: str
) -> None:
    django_connection(store_url, "shop")
    mine = ConnectionProxy(connections, "shop")  # what `django.db.connection` is for the alias `default`
    for _ in range(2):  # not connected yet, and connected
        with pytest.raises(InvalidOption, match=r"with transaction\.atomic\(using='shop'\)"):
            sync_store.enqueue("q", 1, tx=mine)
        connections["shop"].ensure_connection()
    with transaction.atomic(using="shop"):
        sync_store.enqueue("q", 1, tx=mine)
        with transaction.atomic(using="shop"):
            sync_store.enqueue("q", 2, tx=mine)
            transaction.set_rollback(True, using="shop")
            with pytest.raises(InvalidOption, match="leave the `atomic` block"):
                sync_store.enqueue("q", 3, tx=mine)
        sync_store.enqueue("q", 4, tx=connections["shop"])
    assert sync_store.counts("q") == {"PENDING": 2}
    connections["shop"].close()


@JOINS
@JOINABLE
def test_a_django_connection_of_another_thread_is_refused(sync_store: stepwell.sync.Store, store_url: str) -> None:
    mine = django_connection(store_url, "shop")
    refused: list[BaseException] = []

    def elsewhere() -> None:
        try:
            sync_store.enqueue("q", 1, tx=mine)
        except InvalidOption as error:
            refused.append(error)

    with transaction.atomic(using="shop"):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert "use `connections['shop']` here" in str(refused[0])
    mine.close()
