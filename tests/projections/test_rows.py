"""Projections as pure functions: rows of a dataclass, their table, and what is asked of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import pytest

from stepwell import Engine, InvalidName, InvalidOption, Key, Store, Worker, connect, projection, sync
from stepwell.projections import runner
from stepwell.testing import world
from tests.projections.books import Accounts, Balances, Open, Paid, Pay, engine_of
from tests.projections.shelves import AccountRow, CentsRow, accounts, by_cents


async def paid(engine: Engine, *sums: tuple[str, int]) -> None:
    for account, cents in sums:
        await engine.execute(Pay(account, cents))


@pytest.mark.proves("PJ-01", "PJ-02", "PJ-05", "PJ-14")
async def test_events_are_folded_into_rows(store: Store) -> None:
    engine = engine_of(store, accounts)
    assert await engine.query(AccountRow) == []  # no worker has begun it
    await engine.execute(Open("a"))
    await paid(engine, ("a", 5), ("b", 7), ("a", 6), ("c", 1))
    await Worker(store, [engine]).drain()
    assert await engine.query(AccountRow) == [
        AccountRow("a", "paid", 11, 4),
        AccountRow("b", "paid", 7, 3),
        AccountRow("c", "paid", 1, 5),
    ]
    await engine.execute(Open("d"))
    await paid(engine, ("b", 1), ("c", 99))
    await Worker(store, [engine]).drain()
    assert await engine.query(AccountRow, account="b") == [AccountRow("b", "paid", 8, 7)]
    assert [row.account for row in await engine.query(AccountRow)] == ["a", "b", "d"]  # a row that is None is deleted
    async with store.transaction() as tx:  # your own SQL reads it too
        [row] = await tx.execute("select sum(cents) from accounts")
    assert row[0] == 19
    [info] = await engine.projections()
    assert (info.tables, info.build, info.live, info.handled) == (("accounts",), 1, True, 8)


async def test_a_batch_is_one_read_and_one_write_however_many_events_it_has(store: Store) -> None:
    engine, said = engine_of(store, accounts), list[str]()
    async with store.transaction() as tx:
        for number in range(20):
            await engine.execute(Pay(f"a{number % 4}", 1), tx=tx)
    await Worker(store, [engine_of(store, accounts)]).drain()
    calls = engine._queries[AccountRow]._table._calls

    def noting(name: str) -> Any:
        whole = getattr(calls, name)

        def noted(*given: Any) -> Any:
            said.append(name)
            return whole(*given)

        return noted

    for name in ("look", "keep"):
        setattr(calls, name, noting(name))
    await store.reset_projection("accounts")
    await Worker(store, [engine]).drain()
    assert said == ["look", "keep"] * 2
    assert [row.cents for row in await engine.query(AccountRow)] == [5, 5, 5, 5]


async def test_every_kind_of_value_comes_back_as_it_was_and_is_asked_for(store: Store) -> None:
    engine = engine_of(store, by_cents)
    await paid(engine, ("a", 3), ("b", 4), ("a", 4), ("c", 5), ("d", 0))
    await Worker(store, [engine]).drain()
    three, four, five = await engine.query(CentsRow)
    moment = datetime(2026, 1, 1, 4, tzinfo=UTC)
    assert four == CentsRow(4, 2, 2.0, True, moment, ["b", "a"], UUID(int=4))
    assert (three.note, five.note, five.half) == ("by three: '3'", None, 2.5)
    asked: list[tuple[dict[str, Any], list[CentsRow]]] = [
        ({"cents": 4}, [four]),
        ({"half": 2.5}, [five]),
        ({"half__lt": 2.5}, [three, four]),
        ({"even": True}, [four]),
        ({"even": False, "cents__gt": 3}, [five]),
        ({"at__ge": moment}, [four, five]),
        ({"at": moment}, [four]),
        ({"id": UUID(int=5)}, [five]),
        ({"note": None}, [four, five]),
        ({"note": "by three: '3'"}, [three]),
        ({"count__le": 1, "cents__ge": 4}, [five]),
    ]
    for where, expected in asked:
        assert await engine.query(CentsRow, **where) == expected, where
    assert await engine.query(CentsRow, order_by="-at") == [five, four, three]
    assert await engine.query(CentsRow, order_by=["even", "-cents"]) == [five, three, four]


async def test_pages_follow_one_another_in_every_order(store: Store) -> None:
    engine = engine_of(store, by_cents)
    await paid(engine, *((f"a{number}", number % 7 + 1) for number in range(20)))
    await Worker(store, [engine]).drain()
    for order in (None, "-cents", "count", ["-count", "half"], "note", "-note", ["even", "-note", "at"], "-even"):
        whole = await engine.query(CentsRow, order_by=order)
        assert len(whole) == 7
        assert whole.next is None
        paged, after = list[CentsRow](), None
        while True:
            page = await engine.query(CentsRow, order_by=order, limit=2, after=after)
            paged += page
            if (after := page.next) is None:
                break
        assert paged == whole, order
    first = await engine.query(CentsRow, order_by="note", limit=1)
    assert first[0].note is not None  # null comes last, on every database
    for wrong in ("x", "[]", '["1", 2, 3]', first.next):
        with pytest.raises(InvalidOption, match="next"):
            await engine.query(CentsRow, after=wrong)


async def test_what_cannot_be_asked_is_refused(store: Store) -> None:
    engine = engine_of(store, by_cents)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"colour": 1}, "no such field; it has cents, count, half, even, at, accounts, id, note"),
        ({"cents__like": 1}, "a range is one of"),
        ({"cents__": 1}, "a range is one of"),
        ({"cents": "1"}, "cents is bigint"),
        ({"cents": 2**63}, "cents is bigint"),
        ({"cents__gt": None}, "neither more nor less"),
        ({"accounts": ["a"]}, "stored as JSON"),
        ({"order_by": "accounts"}, "stored as JSON"),
        ({"order_by": "colour"}, "no such field"),
        ({"limit": 0}, "between 1 and"),
    ]
    for where, why in wrong:
        with pytest.raises(InvalidOption, match=why):
            await engine.query(CentsRow, **where)
    with pytest.raises(InvalidOption, match="no projection of this engine has these rows; there are CentsRow"):
        await engine.query(AccountRow)


async def test_a_value_is_a_parameter_and_never_text_of_the_statement(store: Store) -> None:
    engine = engine_of(store, accounts)
    evil = "a'; drop table accounts; --"
    await paid(engine, (evil, 1), ("b", 2))
    await Worker(store, [engine]).drain()
    assert [row.account for row in await engine.query(AccountRow, account=evil)] == [evil]
    assert len(await engine.query(AccountRow)) == 2


@dataclass
class NoKey:
    account: str


@dataclass
class TwoKeys:
    account: Annotated[str, Key]
    other: Annotated[str, Key]


@dataclass
class FloatKey:
    account: Annotated[float, Key]


@dataclass
class NoneKey:
    account: Annotated[str | None, Key]


@dataclass
class Capital:
    Account: Annotated[str, Key]


@dataclass
class Limit:
    account: Annotated[str, Key]
    limit: int


def test_rows_that_no_table_can_hold_are_refused(store_url: str) -> None:
    def function(row: Any, event: Paid) -> Any:
        return row

    async def third(row: Any, event: Paid) -> Any:
        return row

    with sync.connect(store_url) as store:
        engine = sync.Engine(store).register(Accounts())
        for rows in (NoKey, TwoKeys, FloatKey, NoneKey, Limit, str, Paid(account="a", cents=1)):
            with pytest.raises(InvalidOption):
                engine.register(projection("p", rows=rows)(function))  # type: ignore[arg-type]
        with pytest.raises(InvalidName):
            engine.register(projection("p", rows=Capital)(function))
        with pytest.raises(InvalidOption, match="say `key=`"):
            engine.register(projection("p", rows=CentsRow)(function))
        wrong: list[Any] = [third, lambda row: row]
        for one in wrong:
            with pytest.raises(InvalidOption, match="it is `def"):
                engine.register(projection("p", rows=AccountRow, events=[Paid])(one))
        engine.register(accounts)
        with pytest.raises(InvalidOption, match="a dataclass of its own"):
            engine.register(projection("q", rows=AccountRow, events=[Paid])(function))
    for name in ("Orders", "order__rows", "1st", "pg_rows", "a.b", "x" * 41):
        with pytest.raises(InvalidName):
            projection(name, rows=AccountRow)
    with pytest.raises(InvalidOption, match="goes with `rows=`"):
        projection("p", key=len)
    with pytest.raises(InvalidOption, match="function of row and event"):
        projection("p", rows=AccountRow)(Accounts)


@pytest.mark.proves("PJ-12")
async def test_a_row_that_does_not_fit_sets_its_instance_aside(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "FIRST_PAUSE", 0.001)

    @projection("moved", rows=AccountRow, attempts=1)
    def moved(row: AccountRow | None, event: Paid) -> Any:
        match event.cents:
            case 1:
                return AccountRow("other", "paid", 1)
            case 2:
                return AccountRow(event.account, "paid", "2")  # type: ignore[arg-type]
            case 3:
                return "3"
            case 6:
                return AccountRow(event.account, "gone", 6)  # type: ignore[arg-type]
            case _:
                return AccountRow(event.account, "paid", event.cents)

    engine = engine_of(store, moved)
    await paid(engine, ("a", 1), ("b", 2), ("c", 3), ("d", 4), ("a", 5), ("e", 6))
    await Worker(store, [engine]).drain()
    assert [row.account for row in await engine.query(AccountRow)] == ["d"]
    told = [one.error for one in await store.parked("moved")]
    expected = ["changes its own row", "int", "returns AccountRow", "gone"]
    assert [word for word in expected if not any(word in error for error in told)] == []
    assert len(told) == 4


async def test_a_table_that_is_there_already_is_not_taken_over(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "FIRST_PAUSE", 0.001)
    async with store.transaction() as tx:
        await tx.execute("create table accounts (account text primary key)")
        await tx.execute("insert into accounts values ('mine')")
    engine = engine_of(store, accounts)
    await paid(engine, ("a", 1))
    async with Worker(store, [engine]):
        from tests.ground.waiting import until  # noqa: PLC0415 - one test waits

        async def noted() -> bool:
            return any("already exists" in (one.error or "") for one in await store.projections())

        await until(noted)
    async with store.transaction() as tx:
        [row] = await tx.execute("select account from accounts")
    assert row[0] == "mine"


@pytest.mark.proves("PJ-08")
async def test_a_reset_makes_the_table_anew(store: Store) -> None:
    engine = engine_of(store, accounts)
    await paid(engine, ("a", 1), ("b", 2))
    await Worker(store, [engine]).drain()
    before = await engine.query(AccountRow)
    async with store.transaction() as tx:
        await tx.execute("update accounts set cents = 100")
    await store.reset_projection("accounts")
    await Worker(store, [engine]).drain()
    assert await engine.query(AccountRow) == before


async def test_a_table_of_other_columns_is_left_to_other_code(store: Store) -> None:
    @dataclass
    class Renamed:
        account: Annotated[str, Key]
        sum: int

    globals()["Renamed"] = Renamed

    @projection("accounts", rows=Renamed)
    def newer(row: Renamed | None, event: Paid) -> Renamed:
        return Renamed(event.account, event.cents + (row.sum if row else 0))

    await Worker(store, [engine_of(store, accounts)]).drain()
    later = engine_of(store, newer)
    await paid(later, ("a", 1))
    told: list[Any] = []
    store.database.telemetry.subscribe(told.append)
    await Worker(store, [later]).drain()
    assert any("stepwell projection rebuild accounts" in str(one) for one in told)
    [info] = await store.projections()
    assert (info.handled, info.parked, info.failures) == (0, 0, 0)
    await store.rebuild_projection("accounts")
    await store.swap_projection("accounts")
    await Worker(store, [later]).drain()
    assert [(row.account, row.sum) for row in await later.query(Renamed)] == [("a", 1)]


@pytest.mark.backends("sqlite", "postgres", reason="two stores of one database")
async def test_each_tenant_has_a_table_of_its_own(store_url: str) -> None:
    for tenant in ("ann", "bob"):
        async with connect(store_url, tenant=tenant) as store:
            engine = engine_of(store, accounts)
            await paid(engine, (tenant, 1))
            await Worker(store, [engine]).drain()
            assert [row.account for row in await engine.query(AccountRow)] == [tenant]
            assert (await engine.projections())[0].tables == (f"{tenant}__accounts",)
    async with connect(store_url, tenant="Ann Smith") as store:
        with pytest.raises(InvalidName, match="tenant"):
            engine_of(store, accounts)


def test_a_sync_engine_has_rows_too(store_url: str) -> None:
    with sync.connect(store_url) as store:
        engine = sync.Engine(store).register(Accounts()).register(accounts)
        engine.execute(Pay("a", 3))
        engine.execute(Pay("b", 4))
        sync.Worker(store, [engine]).drain()
        assert [row.cents for row in engine.query(AccountRow, cents__gt=3)] == [4]
        assert engine.query(AccountRow, order_by="-cents", limit=1)[0].account == "b"
        assert store.rebuild_projection("accounts") == 2
        assert store.swap_projection("accounts", keep_old="1h")
        sync.Worker(store, [engine]).drain()
        assert [(one.build, one.live) for one in engine.projections()] == [(2, True), (1, False)]
        assert [row.cents for row in engine.query(AccountRow)] == [3, 4]


async def test_a_world_has_the_projections_that_it_serves() -> None:
    async with world(accounts, Accounts(), Balances()) as w:
        await w.engine.execute(Pay("a", 5))
        await w.engine.execute(Pay("b", 7))
        await w.drain()
        assert [row.cents for row in await w.engine.query(AccountRow, order_by="-cents")] == [7, 5]
        await w.store.rebuild_projection("accounts")
        await w.store.swap_projection("accounts", keep_old="2h")
        await w.drain()
        assert len(await w.engine.projections()) == 3
        await w.advance("3h")
        await w.drain()
        assert [(one.name, one.build) for one in await w.engine.projections()] == [("accounts", 2), ("balances", 1)]
        report = await w.crash_everywhere(Pay("c", 1))
        assert report.cases > 2
