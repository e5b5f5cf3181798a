"""Inline projections: their rows are written in the commit of the decision, and never behind it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg
import pytest

from stepwell import (
    At,
    Engine,
    InlineProjectionFailed,
    InvalidOption,
    Store,
    Worker,
    connect,
    projection,
    sync,
)
from stepwell.projections import beside, inline, runner
from stepwell.projections.projection import RowFunction
from tests.ground.waiting import until
from tests.projections.books import Accounts, Balances, Open, Opened, Paid, Pay, engine_of
from tests.projections.shelves import AccountRow, CentsRow, accounts, by_cents
from tests.store.seam import watched


def inline_of(store: Store, *projections: RowFunction) -> Engine:
    engine = Engine(store).register(Accounts())
    for one in projections:
        engine.register(one, inline=True)
    return engine


async def cents(engine: Engine) -> dict[str, int]:
    return {row.account: row.cents for row in await engine.query(AccountRow)}


async def state(engine: Engine, *names: str) -> dict[str, int]:
    return {name: await engine.state("account", name) for name in names}


async def is_inline(store: Store, name: str = "accounts") -> bool:
    return [one.inline for one in await store.projections() if one.name == name and one.live] == [True]


async def until_inline(store: Store, engine: Engine, name: str = "accounts") -> None:
    """Let a worker catch up until decisions write the rows; on a busy machine it may have to ask for the lock again."""
    async with asyncio.timeout(30):
        while not await is_inline(store, name):
            await Worker(store, [engine]).drain()


@pytest.mark.proves("PJ-05")
async def test_the_rows_are_there_when_the_decision_is(store: Store) -> None:
    engine = inline_of(store, accounts, by_cents)
    await engine.execute(Open("a"))
    await engine.execute(Pay("a", 5))
    assert await engine.query(AccountRow) == [AccountRow("a", "paid", 5, 2)]
    await asyncio.gather(*(engine.execute(Pay(f"b{number}", 5)) for number in range(30)))
    [row] = await engine.query(CentsRow)
    assert (row.cents, row.count, len(set(row.accounts))) == (5, 31, 31)
    await engine.execute(Pay("a", 99))  # its row is deleted
    assert sorted(await cents(engine)) == sorted(f"b{number}" for number in range(30))
    [info, _] = await engine.projections()
    assert (info.inline, info.lag, info.owner, info.state, info.age) == (True, 0, None, "running", 0.0)
    await Worker(store, [engine]).drain()  # a worker finds nothing to do
    assert (await engine.query(CentsRow))[0].count == 31


@pytest.mark.proves("PJ-05")
async def test_rows_are_committed_and_rolled_back_with_the_decision(store: Store) -> None:
    engine = inline_of(store, accounts)
    await engine.execute(Pay("a", 5))

    async def rolled_back() -> None:
        async with store.transaction() as tx:
            await engine.execute(Pay("a", 1), tx=tx)
            await engine.execute(Pay("b", 1), tx=tx)
            [row] = await tx.execute("select sum(cents) from accounts")
            assert row[0] == 7  # the transaction sees them
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await rolled_back()
    assert await cents(engine) == {"a": 5}
    async with store.transaction() as tx:
        for _ in range(3):
            await engine.execute(Pay("b", 2), tx=tx)
    assert await cents(engine) == {"a": 5, "b": 6} == await state(engine, "a", "b")


def test_the_sync_face_has_them_too(store_url: str) -> None:
    with sync.connect(store_url) as store:
        engine = sync.Engine(store).register(Accounts()).register(accounts, inline=True)
        engine.execute(Pay("a", 5))
        assert engine.query(AccountRow) == [AccountRow("a", "paid", 5, 1)]
        with pytest.raises(InvalidOption, match="`rows=`"):
            engine.register(Balances(), inline=True)
        with pytest.raises(InvalidOption, match="`rows=`"):
            sync.Engine(store).register(Accounts(), inline=True)


@pytest.mark.proves("PJ-05")
async def test_where_something_was_decided_before_people_say_when(store: Store) -> None:
    """Processes of older code may decide without it, until all of them are gone."""
    plain = engine_of(store)
    for number in range(12):
        await plain.execute(Pay(f"a{number % 3}", 1))
    engine = inline_of(store, accounts)
    await engine.execute(Pay("a0", 1))
    worker = Worker(store, [engine])
    await worker.drain()
    assert await cents(engine) == {"a0": 5, "a1": 4, "a2": 4}  # it follows the events
    assert not await is_inline(store)
    await plain.execute(Pay("a0", 1))
    assert [await store.inline_projection("accounts") for _ in range(2)] == [True, False]
    await until_inline(store, engine)
    assert await cents(engine) == {"a0": 6, "a1": 4, "a2": 4}
    await engine.execute(Pay("a1", 1))
    assert await cents(engine) == {"a0": 6, "a1": 5, "a2": 4}
    assert [await store.inline_projection("accounts", inline=False) for _ in range(2)] == [True, False]
    await plain.execute(Pay("a1", 1))
    await engine.execute(Pay("a2", 1))
    assert await cents(engine) == {"a0": 6, "a1": 5, "a2": 4}
    await worker.drain()
    assert not await is_inline(store)
    assert await cents(engine) == {"a0": 6, "a1": 6, "a2": 5}


@pytest.mark.proves("PJ-05")
async def test_the_last_events_before_it_is_inline_are_in_its_rows(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, engine = engine_of(store), inline_of(store, accounts)
    await engine_of(store).execute(Pay("a", 1))
    await Worker(store, [engine]).drain()
    near = inline.InlineRunner._is_near

    async def and_then(self: Any, held: Any) -> bool:
        found = await near(self, held)
        await plain.execute(Pay("a", 2))  # after it has caught up, and before it locks
        return found

    monkeypatch.setattr(inline.InlineRunner, "_is_near", and_then)
    await store.inline_projection("accounts")
    await until_inline(store, engine)
    await engine.execute(Pay("a", 4))
    assert await cents(engine) == await state(engine, "a")


@pytest.mark.proves("PJ-05")
async def test_code_that_does_not_know_it_takes_back_that_it_may_be_inline(store: Store) -> None:
    plain, engine = engine_of(store, accounts), inline_of(store, accounts)
    await plain.execute(Pay("a", 1))
    await Worker(store, [plain]).drain()
    assert await store.inline_projection("accounts") is True
    await Worker(store, [plain]).drain()  # it is still there, and decides without
    await Worker(store, [engine]).drain()
    assert not await is_inline(store)
    assert await store.inline_projection("accounts") is True
    await until_inline(store, engine)


@pytest.mark.proves("PJ-05")
async def test_a_drain_waits_for_the_round_that_lets_decisions_write_the_rows(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drain begins while a round has taken the projection, and has nothing to handle."""
    plain, engine = engine_of(store), inline_of(store, accounts)
    await plain.execute(Pay("a", 1))
    await Worker(store, [engine]).drain()
    await store.inline_projection("accounts")
    caught_up, check_tables = runner.Runner.caught_up, runner.Runner._check_tables
    taken = asyncio.Event()

    async def drains(self: Any) -> None:
        await taken.wait()
        await caught_up(self)

    async def checks(self: Any, held: Any) -> None:
        taken.set()
        await self._rounds._woken.wait()  # by the drain that waits for this round, or by the stop after it
        await check_tables(self, held)

    monkeypatch.setattr(runner.Runner, "caught_up", drains)
    monkeypatch.setattr(runner.Runner, "_check_tables", checks)
    await Worker(store, [engine]).drain()
    assert await is_inline(store)


@pytest.mark.proves("PJ-05")
async def test_a_worker_catches_up_with_a_long_history(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "BEHIND", 2)  # batches that are handled under the lock
    async with store.transaction() as tx:
        plain = engine_of(store)
        for number in range(50):
            await plain.execute(Pay(f"a{number % 5}", 1), tx=tx)
    engine = inline_of(store, accounts)
    await engine.execute(Pay("a0", 1))
    await store.inline_projection("accounts")
    assert await engine.query(AccountRow) == []
    await until_inline(store, engine)
    await engine.execute(Pay("a0", 1))
    assert await cents(engine) == await state(engine, *(f"a{number}" for number in range(5)))


@projection("choosy", rows=AccountRow, batch=10, attempts=2)
def choosy(row: AccountRow | None, event: Opened | Paid, at: At) -> AccountRow | None:
    """As `accounts`, but it cannot handle 13 cents."""
    if isinstance(event, Paid) and event.cents == 13:
        raise ValueError("bad luck")
    return accounts(row, event, at)


@pytest.mark.proves("PJ-05", "PJ-07")
async def test_one_that_raises_fails_its_decision_and_no_other(store: Store) -> None:
    engine = inline_of(store, choosy)
    await engine.execute(Pay("a", 1))
    said = await asyncio.gather(
        *(engine.execute(Pay(*one)) for one in (("a", 2), ("b", 13), ("c", 3), ("a", 13), ("a", 4))),
        return_exceptions=True,
    )
    failed = [one for one in said if isinstance(one, InlineProjectionFailed)]
    assert [said.index(one) for one in failed] == [1, 3]
    assert "projection 'choosy' is inline" in str(failed[0])
    assert "nothing was written; ValueError: bad luck" in str(failed[0])
    assert failed[0].projection == "choosy"
    assert await cents(engine) == {"a": 7, "c": 3} == await state(engine, "a", "c")
    assert (await engine.inspect("account", "b")).version == 0

    async def undone() -> None:
        async with store.transaction() as tx:
            await engine.execute(Pay("c", 1), tx=tx)
            await engine.execute(Pay("c", 13), tx=tx)

    with pytest.raises(InlineProjectionFailed):
        await undone()
    async with store.transaction() as tx:
        with suppress(InlineProjectionFailed):
            await engine.execute(Pay("c", 13), tx=tx)
        await engine.execute(Pay("c", 1), tx=tx)  # the call alone was undone
    assert await cents(engine) == {"a": 7, "c": 4} == await state(engine, "a", "c")


@pytest.mark.proves("PJ-05")
async def test_one_that_raises_makes_a_submitted_input_a_dead_letter(store: Store, clock: Any) -> None:
    engine = inline_of(store, choosy)
    await engine.execute(Pay("a", 1))
    for number in (2, 13, 3):
        await engine.submit(Pay("a", number))
    worker = Worker(store, [engine])
    for _ in range(10):
        await worker.drain()
        clock.advance("1h")
    [dead] = (await engine.inspect("account", "a")).dead_letters
    assert dead.error is not None
    assert dead.error["type"] == "InlineProjectionFailed"
    assert await cents(engine) == {"a": 3} == await state(engine, "a")
    await store.drop(dead.id)  # what stands behind it goes on
    await worker.drain()
    assert await cents(engine) == {"a": 6} == await state(engine, "a")


@pytest.mark.proves("PJ-05")
async def test_an_event_of_the_past_that_it_cannot_handle_keeps_it_from_being_inline(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "FIRST_PAUSE", 0.001)
    plain = engine_of(store)
    for one in (("a", 1), ("a", 13), ("b", 2)):
        await plain.execute(Pay(*one))
    engine = inline_of(store, choosy)
    await engine.execute(Pay("a", 2))
    await store.inline_projection("choosy")
    for _ in range(4):
        await engine.execute(Pay("b", 1))
        await Worker(store, [engine]).drain()
    [info] = await store.projections()
    assert (info.inline, info.parked) == (False, 1)
    assert await cents(engine) == {"a": 1, "b": 6}
    await engine.execute(Pay("b", 13))  # it follows the events, and fails no decision
    await store.skip_in_projection("choosy", ("account", "a"))
    await Worker(store, [engine]).drain()
    await store.skip_in_projection("choosy", ("account", "b"))
    await until_inline(store, engine, "choosy")
    assert await cents(engine) == {"a": 3, "b": 6}


@pytest.mark.proves("PJ-05")
@pytest.mark.backends("sqlite", "postgres", reason="two stores of one database")
async def test_deciders_that_share_rows_do_not_wait_for_each_other_in_a_circle(store_url: str) -> None:
    """Each transaction writes many shared rows, in an order of its own; some of them begin a row."""
    async with connect(store_url) as one, connect(store_url) as two:
        engines = [inline_of(one, by_cents, accounts), inline_of(two, by_cents, accounts)]
        sums = [number % 9 + 1 for number in range(120)]

        async def pays(engine: Engine, side: int) -> None:
            amounts = sums if side else list(reversed(sums))
            for place in range(0, len(amounts), 30):
                some = amounts[place : place + 30]
                await asyncio.gather(
                    *(engine.execute(Pay(f"{side}-{place + at}", each)) for at, each in enumerate(some))
                )

        await asyncio.gather(*(pays(engine, side) for side, engine in enumerate(engines)))
        found = {row.cents: row.count for row in await engines[0].query(CentsRow)}
        assert found == {each: 2 * sums.count(each) for each in set(sums)}
        assert len(await engines[1].query(AccountRow, limit=1000)) == 240


@pytest.mark.proves("PJ-05")
@pytest.mark.backends("postgres", reason="elsewhere there is one writer")
async def test_two_that_begin_the_same_row_wait_for_each_other(store_url: str) -> None:
    async with connect(store_url) as one, connect(store_url) as two:
        first, second = inline_of(one, by_cents), inline_of(two, by_cents)
        for engine in (first, second):
            await engine.execute(Pay("x", 1))

        async def adds(name: str) -> None:
            async with two.transaction() as tx:
                await second.execute(Pay(name, 4), tx=tx)

        async def waits() -> bool:
            async with one.transaction() as tx:
                return bool(await tx.execute("select 1 from pg_locks where not granted"))

        async with one.transaction() as tx:
            await first.execute(Pay("a", 4), tx=tx)
            adding = asyncio.create_task(adds("b"))
            await until(waits)
            await second.execute(Pay("c", 7))  # another row: it does not wait
        await adding
        assert {row.cents: row.count for row in await first.query(CentsRow)} == {1: 2, 4: 2, 7: 1}


@pytest.mark.proves("PJ-05")
@pytest.mark.backends("postgres", reason="elsewhere there is one writer")
async def test_a_transaction_that_has_appended_keeps_it_from_becoming_inline(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inline, "LOCK_PAUSES", (0.2, 0.2))
    async with connect(store_url) as one, connect(store_url) as two:
        plain, engine = engine_of(one), inline_of(two, accounts)
        await plain.execute(Pay("a", 1))
        await Worker(two, [engine]).drain()
        async with one.transaction() as tx:
            await plain.execute(Pay("a", 2), tx=tx)  # before it is inline, so nobody folds it now
            await two.inline_projection("accounts")
            await Worker(two, [engine]).drain()
            assert not await is_inline(two)
        async with Worker(two, [engine]):
            await until(lambda: is_inline(two))
        await engine.execute(Pay("a", 4))
        assert await cents(engine) == {"a": 7}


@pytest.mark.proves("PJ-05")
@pytest.mark.backends("postgres", reason="elsewhere there is one writer")
async def test_a_decision_asks_who_writes_the_rows_after_it_has_appended(store_url: str) -> None:
    """It becomes inline between the lock of the instance and the append: the decision has to write the row itself."""
    async with connect(store_url) as one, connect(store_url) as two:
        engine, other = inline_of(one, accounts), inline_of(two, accounts)
        async with one.transaction() as tx:
            answer = tx.answer

            async def answered(call: Any) -> Any:
                if getattr(call, "statement", "") == "append_events" and not await two.projections():
                    await other.execute(Pay("b", 1))
                    assert await is_inline(two)
                return await answer(call)

            tx.answer = answered
            await engine.execute(Pay("a", 2), tx=tx)
        assert await cents(engine) == {"a": 2, "b": 1}


@pytest.mark.proves("PJ-05")
@pytest.mark.backends("postgres", reason="only there a transaction may see less")
async def test_a_transaction_that_repeats_its_reads_is_refused(postgres_url: str) -> None:
    async with connect(postgres_url) as store:
        engine = inline_of(store, accounts)
        await engine.execute(Pay("a", 1))
        connection = await asyncpg.connect(postgres_url)
        async with connection.transaction(isolation="repeatable_read"):
            with pytest.raises(InvalidOption, match="begin it with READ COMMITTED"):
                await engine.execute(Pay("a", 2), tx=connection)
        name = postgres_url.rpartition("/")[2]
        await connection.execute(f"alter database \"{name}\" set default_transaction_isolation = 'repeatable read'")
        await connection.close()
    async with connect(postgres_url) as store:  # the store's own transactions do not inherit it
        engine = inline_of(store, accounts)
        await engine.execute(Pay("a", 4))
        assert await cents(engine) == {"a": 5}


@pytest.mark.proves("PJ-05", "PJ-08")
@pytest.mark.backends("sqlite", "postgres", reason="two stores of one database")
async def test_it_is_rebuilt_and_swapped_under_writers_and_back(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "LOCK_PAUSE", 0.01)
    async with connect(store_url) as one, connect(store_url) as two:
        engine, writer = inline_of(one, accounts), inline_of(two, accounts)
        names = [f"a{number}" for number in range(4)]
        await engine.execute(Pay("a0", 1))
        over = asyncio.Event()

        async def writes() -> None:
            number = 0
            while not over.is_set():
                await writer.execute(Pay(names[number % 4], 1))
                number += 1

        writing = asyncio.create_task(writes())
        async with Worker(one, [engine]):
            for expected in (2, 1):
                if expected == 2:
                    await one.rebuild_projection("accounts")
                await one.swap_projection("accounts", keep_old="1d")

                async def swapped(expected: int = expected) -> bool:
                    return [each.build for each in await one.projections() if each.live] == [expected]

                await until(swapped, timeout=20)
                assert await is_inline(one)
        over.set()
        await writing
        assert await cents(engine) == await state(engine, *names)
        await Worker(one, [engine]).drain()  # the other build follows the events
        [live, other] = await one.projections()
        assert (live.build, live.inline, other.inline, other.lag) == (1, True, False, 0)
        both = [await _sums(one, table) for table in ("accounts", "accounts__2")]
        assert both[0] == both[1]


async def _sums(store: Store, table: str) -> list[tuple[Any, ...]]:
    async with store.transaction() as tx:
        return [tuple(row) for row in await tx.execute(f"select account, cents, last from {table} order by account")]


@pytest.mark.proves("PJ-05")
async def test_one_that_is_reset_follows_the_events_until_it_is_inline_again(store: Store) -> None:
    engine = inline_of(store, accounts)
    await engine.execute(Pay("a", 1))
    with pytest.raises(InvalidOption, match="it cannot stay behind"):
        await store.pause_projection("accounts")
    await store.reset_projection("accounts")
    assert not await is_inline(store)
    await engine.execute(Pay("a", 2))
    assert await cents(engine) == {"a": 1}
    await until_inline(store, engine)
    await engine.execute(Pay("a", 4))
    assert await cents(engine) == {"a": 7}


@pytest.mark.proves("PJ-05")
async def test_code_that_does_not_say_inline_leaves_it_alone_and_says_so(store: Store) -> None:
    told: list[str] = []
    store.database.telemetry.subscribe(lambda event: told.append(str(event)))
    await inline_of(store, accounts).execute(Pay("a", 1))
    assert any("projection accounts is inline: from event" in one for one in told)
    plain = engine_of(store, accounts)
    await Worker(store, [plain]).drain()
    assert any("this code does not say `inline=True`" in one for one in told)
    assert await is_inline(store)
    await store.inline_projection("accounts", inline=False)
    await Worker(store, [plain]).drain()
    await plain.execute(Pay("a", 2))
    await Worker(store, [plain]).drain()
    assert await cents(plain) == {"a": 3}
    assert not await is_inline(store)


@pytest.mark.proves("PJ-05")
async def test_other_columns_are_refused_before_anything_is_written(store: Store) -> None:
    await inline_of(store, accounts).execute(Pay("a", 1))

    @projection("accounts", rows=CentsRow, key=lambda event: event.cents)
    def other(row: CentsRow | None, event: Paid) -> CentsRow | None:
        return None

    engine = inline_of(store, other)
    with pytest.raises(InlineProjectionFailed, match="other columns need a projection of another name"):
        await engine.execute(Pay("a", 2))
    assert await state(engine, "a") == {"a": 1}


@pytest.mark.proves("G-06", "PJ-05")
async def test_without_one_no_statement_is_added(store: Store) -> None:
    store, driver = watched(store)
    engine = engine_of(store, accounts)
    await engine.execute(Pay("a", 1))
    await engine.execute(Pay("b", 1))
    async with store.transaction() as tx:
        await engine.execute(Pay("c", 1), tx=tx)
    said = [call.statement for call in (*driver.said, *driver.reads)]
    assert "append_events" in said
    assert not {"inline_builds", "lock_rows_of_keys", "lock_events", "take_projection", "events_after"} & set(said)


@pytest.mark.proves("PJ-05")
async def test_a_flush_reads_and_writes_each_table_once(store: Store) -> None:
    await inline_of(store, accounts, by_cents).execute(Pay("a", 1))
    store, driver = watched(store)
    engine = inline_of(store, accounts, by_cents)
    await asyncio.gather(*(engine.execute(Pay(f"a{number}", 1 + number % 3)) for number in range(60)))
    said = [call.statement.partition(":")[0] for call in driver.said]
    flushes = said.count("append_events")
    assert flushes <= 3
    for one in ("look_at_rows of accounts", "keep_rows of accounts", "look_at_rows of by_cents", "inline_builds"):
        assert said.count(one) == flushes, one
    for call in driver.said:
        if call.statement == "lock_rows_of_keys":  # everybody takes them in one order
            rows: list[Any] = list(call.rows or ())
            assert rows == sorted(set(rows))
