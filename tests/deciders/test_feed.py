"""The feed of all events: one order, nothing skipped, whatever order the transactions commit in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from stepwell import DeciderNotFound, Engine, InvalidOption, SchemaDiffers, Store, StoreUnusable, UnknownRecord, connect
from stepwell.connect import admin
from stepwell.operate.doctor import findings
from stepwell.operate.facts import facts_of
from stepwell.store.driver import Call
from stepwell.store.horizon import WINDOW
from tests.deciders.shop import Create, Created, Orders
from tests.deciders.workbench import Bench, Do
from tests.ground.postgres import PostgresServer


def engine_of(store: Store) -> Engine:
    return Engine(store).register(Bench())


def labels(feed: Any) -> list[str]:
    return [one.event.label for one in feed.events]


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        connection.terminate()


@pytest.mark.proves("PJ-01", "PJ-02", "PJ-13")
async def test_the_feed_has_all_events_in_one_order_with_their_places(store: Store) -> None:
    engine = engine_of(store).register(Orders())
    await engine.execute(Do("a", "one"))
    await engine.execute(Create("o-1", 12))
    await engine.execute(Do("b", "two", end=True))
    feed = await engine.events_since(0)
    assert [(one.at.type, one.at.id, one.at.version, one.at.event_type) for one in feed.events] == [
        ("bench", "a", 1, "Noted"),
        ("order", "o-1", 1, "Created"),
        ("bench", "b", 1, "Noted"),
        ("bench", "b", 2, "Ended"),
    ]
    assert feed.events[1].event == Created(12)
    positions = [one.at.position for one in feed.events]
    assert positions == sorted(set(positions))
    assert feed.position == feed.horizon == feed.head == positions[-1]
    [info] = await engine.events("order", "o-1")
    place = feed.events[1].at
    assert (place.position, place.cause, place.recorded_at) == (info.position, info.cause, info.recorded_at)
    assert place.event_version == 1


@pytest.mark.proves("PJ-02")
async def test_the_feed_goes_on_from_where_it_was(store: Store) -> None:
    engine = engine_of(store)
    for number in range(7):
        await engine.execute(Do(f"i{number % 3}", str(number)))
    seen: list[str] = []
    position = 0
    while (feed := await engine.events_since(position, 3)).events:
        assert len(feed.events) <= 3
        seen += labels(feed)
        position = feed.position
    assert seen == [str(number) for number in range(7)]
    assert (await engine.events_since(position)).position == position
    for wrong in (-1, "0", True):
        with pytest.raises(InvalidOption, match="position"):
            await engine.events_since(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="limit"):
        await engine.events_since(0, 0)


async def test_a_feed_without_the_decider_gives_plain_json_and_a_newer_event_is_refused(store: Store) -> None:
    await engine_of(store).execute(Do("a", "one"))
    [one] = (await Engine(store).events_since(0)).events
    assert one.event["label"] == "one"
    with pytest.raises(DeciderNotFound):
        await Engine(store).events("bench", "a")
    await _raw(store, "update {event} set type_version = 2")
    with pytest.raises(UnknownRecord, match="version"):
        await engine_of(store).events_since(0)


async def test_a_feed_of_one_tenant_passes_over_the_events_of_others(store_url: str) -> None:
    async with connect(store_url) as ours, connect(store_url, tenant="other") as theirs:
        await engine_of(theirs).execute(Do("a", "theirs"))
        await engine_of(ours).execute(Do("a", "ours"))
        feed = await engine_of(ours).events_since(0)
        assert labels(feed) == ["ours"]
        await engine_of(theirs).execute(Do("a", "more"))
        after = await engine_of(ours).events_since(feed.position)
        assert not after.events
        assert after.position > feed.position


async def test_a_read_looks_at_a_bounded_number_of_positions(store: Store) -> None:
    engine = engine_of(store)
    part = await store.database.feed.between(0, 3 * WINDOW, ["Nothing"], 10)
    assert part == ([], WINDOW)
    await engine.execute(Do("a", "one"))
    assert (await store.database.feed.between(0, 1, ["Nothing"], 10)).events == []
    assert [row.type for row in (await store.database.feed.between(0, 1, ["Noted"], 10)).events] == ["Noted"]


async def _raw(store: Store, text: str) -> None:
    async with store.transaction() as tx:
        name = '"stepwell".event' if store.database.driver.name == "postgres" else "stepwell_event"
        await tx.execute(text.replace("{event}", name))


# On Postgres transactions overlap; the other databases have one writer.


@pytest.fixture
async def open_store(postgres_url: str) -> AsyncIterator[Store]:
    async with connect(postgres_url) as store:
        yield store


@pytest.mark.proves("PJ-03")
async def test_an_event_that_commits_late_is_not_skipped(open_store: Store, postgres_url: str) -> None:
    engine = engine_of(open_store)
    await engine.execute(Do("a", "first"))
    async with raw(postgres_url) as connection:
        late = connection.transaction()
        await late.start()
        await engine.execute(Do("b", "late"), tx=connection)
        await engine.execute(Do("c", "soon"))
        feed = await engine.events_since(0)
        assert labels(feed) == ["first"]
        assert feed.horizon < feed.head
        await late.commit()
    after = await engine.events_since(feed.position)
    assert labels(after) == ["late", "soon"]
    assert after.horizon == after.head


@pytest.mark.proves("PJ-03")
async def test_decisions_in_one_statement_hold_readers_up_too(
    open_store: Store, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fast path, whose transaction is kept open here while another one appends and commits."""
    engine, before_the_commit = engine_of(open_store), list[list[str]]()
    await engine.execute(Do("a", "first"))
    driver: Any = open_store.database.driver
    async with raw(postgres_url) as connection, connect(postgres_url) as other:

        async def slowly(call: Call) -> list[Any]:
            assert call.statement == "decide_at_once"
            async with connection.transaction():
                rows: list[Any] = await driver._answer(connection, call)
                await engine_of(other).execute(Do("b", "soon"))
                before_the_commit.append(labels(await engine.events_since(0)))
            return rows

        monkeypatch.setattr(open_store.database.driver, "write", slowly)
        await engine.execute(Do("a", "held"))
    assert before_the_commit == [["first"]]
    assert labels(await engine.events_since(0)) == ["first", "held", "soon"]


@pytest.mark.proves("PJ-03")
async def test_what_is_rolled_back_holds_nobody_up_and_leaves_a_gap(open_store: Store, postgres_url: str) -> None:
    engine = engine_of(open_store)
    async with raw(postgres_url) as connection:
        lost = connection.transaction()
        await lost.start()
        await engine.execute(Do("b", "lost"), tx=connection)
        await engine.execute(Do("c", "kept"))
        assert labels(await engine.events_since(0)) == []
        await lost.rollback()
        assert labels(await engine.events_since(0)) == ["kept"]


@pytest.mark.proves("PJ-03")
async def test_a_transaction_takes_one_lock_for_all_its_appends_and_a_savepoint_its_own(
    open_store: Store, postgres_url: str
) -> None:
    engine = engine_of(open_store)
    async with raw(postgres_url) as connection, raw(postgres_url) as other:
        for _ in range(2):
            async with connection.transaction():
                await _undone(connection, engine)
                await engine.execute(Do("other", "soon"))  # its positions lie in between
                for number in range(20):
                    await engine.execute(Do("a", str(number)), tx=connection)
                assert await _locks(other, connection) == 1
                assert not any(label.isdigit() for label in labels(await engine.events_since(0))[21:])
    feed = await engine.events_since(0)
    assert len(feed.events) == 42
    assert feed.horizon == feed.head


async def _undone(connection: Any, engine: Engine) -> None:
    part = connection.transaction()  # a savepoint: it is in a transaction already
    await part.start()
    await engine.execute(Do("a", "undone"), tx=connection)
    await part.rollback()


async def _locks(connection: Any, of: Any) -> int:
    held = "select count(*) from pg_locks where locktype = 'advisory' and pid = $1"
    count: int = await connection.fetchval(held, of.get_server_pid())
    return count


@pytest.mark.proves("PJ-03")
async def test_a_lock_of_a_savepoint_that_is_rolled_back_is_taken_again(open_store: Store, postgres_url: str) -> None:
    engine = engine_of(open_store)
    async with raw(postgres_url) as connection:
        late = connection.transaction()
        await late.start()
        await _undone(connection, engine)
        await engine.execute(Do("c", "soon"))
        assert labels(await engine.events_since(0)) == ["soon"]
        await engine.execute(Do("b", "late"), tx=connection)
        await engine.execute(Do("c", "later"))
        feed = await engine.events_since(0)
        assert labels(feed) == ["soon"]
        await late.commit()
    assert labels(await engine.events_since(feed.position)) == ["late", "later"]


@pytest.mark.proves("PJ-03")
async def test_two_schemas_of_one_transaction_each_hold_their_readers_up(postgres_url: str) -> None:
    async with connect(postgres_url) as one, connect(postgres_url, schema="second") as two:
        engines = [engine_of(one), engine_of(two)]
        async with raw(postgres_url) as connection:
            late = connection.transaction()
            await late.start()
            for engine in engines:
                await engine.execute(Do("b", "late"), tx=connection)
                await engine.execute(Do("c", "soon"))
                assert labels(await engine.events_since(0)) == []
            await late.commit()
        for engine in engines:
            assert labels(await engine.events_since(0)) == ["late", "soon"]


@pytest.mark.proves("PJ-03")
@pytest.mark.parametrize("after", ["horizon", "events_between"])
async def test_an_event_that_is_committed_during_a_read_is_read_by_the_next(
    store_url: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each of the two statements of a read, another event is committed."""
    async with connect(store_url) as store, connect(store_url) as writer:
        await engine_of(writer).execute(Do("a", "first"))
        read = store.database.driver.read

        async def then_written(call: Call) -> list[Any]:
            rows = await read(call)
            if call.statement == after:
                await engine_of(writer).execute(Do("c", "soon"))
            return rows

        monkeypatch.setattr(store.database.driver, "read", then_written)
        feed = await engine_of(store).events_since(0)
        monkeypatch.undo()
        after_that = await engine_of(store).events_since(feed.position)
    assert labels(feed) + labels(after_that) == ["first", "soon"]


@pytest.mark.proves("PJ-03")
async def test_a_head_that_moves_while_the_locks_are_read_is_not_followed(open_store: Store, postgres_url: str) -> None:
    """Events are committed all the time, in transactions that overlap, while a reader goes on behind them."""
    engine, seen, position = engine_of(open_store), list[str](), 0
    async with raw(postgres_url) as one, raw(postgres_url) as two:
        for number in range(3):
            early, late = one.transaction(), two.transaction()
            reading = asyncio.create_task(engine.events_since(position))
            await asyncio.wait([reading], timeout=0.1)  # it is done, unless it dawdles between locks and head
            await early.start()
            await engine.execute(Do("a", f"{number} early"), tx=one)
            await late.start()
            await engine.execute(Do("b", f"{number} late"), tx=two)
            await late.commit()
            feed = await reading
            seen, position = seen + labels(feed), feed.position
            await early.commit()
    seen += labels(await engine.events_since(position))
    assert sorted(seen) == sorted(f"{number} {which}" for number in range(3) for which in ("early", "late"))


@pytest.mark.proves("PJ-03")
async def test_a_database_that_repeats_its_reads_by_default_skips_nothing(postgres_url: str) -> None:
    name = postgres_url.rpartition("/")[2]
    async with raw(postgres_url) as connection:
        await connection.execute(f"alter database \"{name}\" set default_transaction_isolation = 'repeatable read'")
    async with connect(postgres_url) as store:
        engine = engine_of(store)
        async with raw(postgres_url) as connection:
            late = connection.transaction(isolation="read_committed")
            await late.start()
            await engine.execute(Do("b", "late"), tx=connection)
            horizon = store.database.feed.horizon

            async def then_commits() -> Any:
                found = await horizon()
                await late.commit()
                return found

            await engine.execute(Do("c", "soon"))
            store.database.feed.horizon = then_commits  # type: ignore[method-assign]
            feed = await engine.events_since(0)
            assert labels(feed) == []
            store.database.feed.horizon = horizon  # type: ignore[method-assign]
        assert labels(await engine.events_since(feed.position)) == ["late", "soon"]


@pytest.mark.proves("PJ-03")
async def test_positions_that_are_taken_ahead_are_found(open_store: Store, postgres_url: str) -> None:
    await admin(open_store).verify()
    async with raw(postgres_url) as connection:
        await connection.execute("alter table stepwell.event alter column position set cache 32")
    with pytest.raises(SchemaDiffers, match="event"):
        await admin(open_store).verify()
    said = [one for one in findings(await facts_of(open_store, "here")) if one.about == "events"]
    assert [(one.level, "32 positions" in one.said) for one in said] == [("problem", True)]


@pytest.mark.proves("PJ-03")
async def test_doctor_names_who_holds_readers_up(
    open_store: Store, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.operate.doctor.LONG_HELD", 0.0)
    engine = engine_of(open_store)
    assert not [one for one in findings(await facts_of(open_store, "here")) if one.about == "events"]
    async with raw(postgres_url) as connection:
        await connection.execute("set application_name = 'the shop'")
        async with connection.transaction():
            await engine.execute(Do("b", "late"), tx=connection)
            [one] = await open_store.appenders()
            assert (one.position, one.pid, one.application) == (0, connection.get_server_pid(), "the shop")
            [found] = [one for one in findings(await facts_of(open_store, "here")) if one.about == "events"]
            assert "the shop" in found.said
            assert str(connection.get_server_pid()) in (found.next or "")
    assert await open_store.appenders() == []


@pytest.mark.proves("PJ-03")
@pytest.mark.timeout(60)
async def test_a_prepared_transaction_holds_readers_up_through_a_crash_and_a_standby_is_refused() -> None:
    with PostgresServer(max_prepared_transactions="5", wal_level="replica") as server:
        async with connect(server.url()) as store:
            engine = engine_of(store)
            await engine.execute(Do("a", "first"))
            async with raw(server.url()) as connection:
                await connection.execute("begin")
                await engine.execute(Do("b", "late"), tx=connection)
                await connection.execute("prepare transaction 'two'")
            await engine.execute(Do("c", "soon"))
            assert labels(await engine.events_since(0)) == ["first"]
            [one] = await store.appenders()
            assert (one.pid, one.prepared) == (None, "two")
        server.kill()
        server.start()
        async with connect(server.url()) as store:
            engine = engine_of(store)
            feed = await engine.events_since(0)
            assert labels(feed) == ["first"]
            async with raw(server.url()) as connection:
                await connection.execute("commit prepared 'two'")
            assert labels(await engine.events_since(feed.position)) == ["late", "soon"]
        server.stop()
        (server.folder / "data" / "standby.signal").touch()
        server.start()
        async with connect(server.url(), install=False) as store:
            with pytest.raises(StoreUnusable, match="standby"):
                await engine_of(store).events_since(0)
