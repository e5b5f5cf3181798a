"""Triggers in the user's own transaction: the run and its definition are there if it commits, and never were if not."""

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from stepwell import (
    IdempotencyConflict,
    InvalidOption,
    NoWorkerAvailable,
    Store,
    Trigger,
    WorkflowNotFound,
    connect,
    workflow,
)
from stepwell.base.events import NoWorker
from tests.ground.databases import run_sql
from tests.queue.joining import drivers
from tests.queue.joining.promises import nothing_of_its_own
from tests.queue.joining.users import User
from tests.runs.kit import Order, fulfil, pack, tick


async def trigger(user: User, asked: Trigger[Any]) -> Any:
    return await user.do("trigger", asked, tx=user.tx)


async def commit_shows_the_run_and_its_definition_and_rollback_leaves_neither(user: User) -> None:
    async with user:
        await user.begin()
        await user.ask("insert into orders values (1)")
        with nothing_of_its_own(user):  # the first call of a fresh process, on a database without the workflow
            lost = await trigger(user, fulfil.trigger(Order("a")).options(key="k"))
        await user.rollback()
        assert (await user.do("workflows"), await user.do("runs")) == ([], [])
        with pytest.raises(WorkflowNotFound):
            await user.do("trigger", workflow("fulfil").trigger({"id": "a"}))
        await user.begin()
        await user.ask("insert into orders values (1)")
        kept = await trigger(user, fulfil.trigger(Order("a")).options(key="k", priority=4, delay="1h"))
        again = await trigger(user, workflow("fulfil").trigger({"id": "a", "cents": 0}).options(key="k"))
        await user.commit()
        assert (kept.created, again.created, kept == again, lost.created) == (True, False, True, True)
        run = await user.do("get_run", kept)
        assert (run.status, run.priority, run.input(Order), run.workflow) == ("PENDING", 4, Order("a"), "fulfil")
        assert [one.name for one in await user.do("workflows")] == ["fulfil"]


async def many_are_one_with_the_users_rows(user: User) -> None:
    async with user:
        before = len(await user.do("runs", limit=1000))
        await user.begin()
        with nothing_of_its_own(user):
            mixed = [tick.trigger(), pack.trigger("b"), tick.trigger().options(key="t")]
            ids = await user.do("trigger_many", mixed, tx=user.tx)
        assert len(set(ids)) == 3
        both = [fulfil.trigger(Order("z")), fulfil.trigger(Order("b")).options(key="k")]
        with pytest.raises(IdempotencyConflict):
            await user.do("trigger_many", both, tx=user.tx)
        assert await user.do("trigger_many", [], tx=user.tx) == []
        await user.commit()
        runs = await user.do("runs", limit=1000)
        assert {run.id for run in runs} >= set(ids)
        assert len(runs) == before + 3  # nothing of what was refused


async def refusals_leave_the_transaction_as_it_was(user: User) -> None:
    async with user:
        await user.begin()
        await user.ask("insert into orders values (1)")
        with nothing_of_its_own(user):
            with pytest.raises(WorkflowNotFound):
                await trigger(user, workflow("nobody").trigger(1))
            with pytest.raises(NoWorkerAvailable):
                await trigger(user, workflow("tick").trigger().options(require_worker="error"))
            with pytest.raises(NoWorkerAvailable):
                await user.do("trigger_many", [unserved.trigger().options(require_worker="error")], tx=user.tx)
            kept = await trigger(user, tick.trigger())
        await user.commit()
        assert (await user.do("get_run", kept)).status == "PENDING"
        assert "unserved" not in {one.name for one in await user.do("workflows")}


async def a_warning_is_told_through_the_users_connection(user: User) -> None:
    async with user:
        told: list[Any] = []
        store = user.store if user.is_async else user.store.async_store
        store.database.telemetry.subscribe(told.append)
        await user.begin()
        with nothing_of_its_own(user):
            for _ in range(3):
                await trigger(user, tick.trigger())
            await trigger(user, tick.trigger().options(require_worker="ignore"))
        await user.rollback()
        assert told == [NoWorker("tick")] * 3


@workflow
def unserved() -> None:
    """Do nothing."""


PROMISES = (
    commit_shows_the_run_and_its_definition_and_rollback_leaves_neither,
    many_are_one_with_the_users_rows,
    refusals_leave_the_transaction_as_it_was,
    a_warning_is_told_through_the_users_connection,
)


@pytest.mark.proves("T-02", "T-10", "protocol-22", "V-01")
@pytest.mark.backends("postgres", reason="these libraries' connections belong to Postgres")
@pytest.mark.parametrize("library", [drivers.Asyncpg, drivers.Psycopg], ids=lambda library: library.__name__)
def test_every_promise_on_postgres(library: type[User], store_url: str) -> None:
    run_sql(store_url, "create table orders (id int)")
    for promise in PROMISES:
        user = library(store_url)
        user.run(promise(user))


@pytest.mark.proves("T-02", "T-10", "protocol-22", "V-01")
@pytest.mark.backends("sqlite", reason="these libraries' connections belong to SQLite")
@pytest.mark.parametrize("library", [drivers.Sqlite3, drivers.Aiosqlite], ids=lambda library: library.__name__)
def test_every_promise_on_sqlite(library: type[User], store_url: str) -> None:
    with closing(sqlite3.connect(drivers.path_of(store_url))) as mine:
        mine.execute("create table orders (id int)")
    for promise in PROMISES:
        user = library(store_url)
        user.run(promise(user))


@pytest.mark.backends("turso", reason="the one that cannot be joined yet")
async def test_turso_says_that_it_does_not_join_yet(store_url: str) -> None:
    async with connect(store_url) as store:
        with pytest.raises(InvalidOption, match="does not join"):
            await tick.trigger().execute(store, tx=object())
        assert await store.workflows() == []


@pytest.mark.backends("postgres", reason="the connection belongs to Postgres")
async def test_a_trigger_itself_takes_the_transaction(store: Store, store_url: str) -> None:
    asyncpg = pytest.importorskip("asyncpg")
    mine = await asyncpg.connect(store_url)
    async with mine.transaction():
        run_id = await fulfil.trigger(Order("a")).execute(store, tx=mine)
        assert await store.runs() == []
    await mine.close()
    assert [run.id for run in await store.runs()] == [run_id]
