"""A projection that is built anew beside the one that is read, and swapped with it, and back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import At, Engine, InvalidOption, ProjectionNotFound, Store, Tx, Worker, connect, projection
from stepwell.projections import runner
from stepwell.store.builds import Behind
from stepwell.store.driver import play_async
from tests.ground.waiting import until
from tests.projections.books import Balances, Opened, Paid, Pay, engine_of
from tests.projections.shelves import AccountRow, accounts
from tests.store.seam import begin


class Sums:
    """A class that names its tables; `times` is what its code multiplies by."""

    def __init__(self, times: int = 1) -> None:
        self.times = times

    async def begin(self, tx: Tx) -> None:
        await tx.execute(f"create table if not exists {tx.table('sums')} (account text primary key, cents bigint)")
        await tx.execute(f"delete from {tx.table('sums')}")

    async def handle(self, event: Opened | Paid, at: At, tx: Tx) -> None:
        cents = self.times * (event.cents if isinstance(event, Paid) else 0)
        sums = tx.table("sums")
        await tx.execute(
            f"insert into {sums} (account, cents) values ('{event.account}', {cents})"
            f" on conflict (account) do update set cents = {sums}.cents + {cents}"
        )


swapped: list[str] = []


async def rich_again(tx: Tx) -> None:
    """Make the view of the user again: it followed the table to its other name."""
    swapped.append(tx.table("sums"))
    await tx.execute("drop view rich")
    await tx.execute("create view rich as select account from sums where cents >= 10")


@projection("sums", tables=["sums"], on_swap=rich_again)
class SumsOf(Sums): ...


async def paid(engine: Engine, *sums: tuple[str, int]) -> None:
    for account, cents in sums:
        await engine.execute(Pay(account, cents))


async def rows(store: Store, statement: str) -> list[tuple[Any, ...]]:
    async with store.transaction() as tx:
        return [tuple(row) for row in await tx.execute(statement)]


async def builds(store: Store) -> list[tuple[int, bool, int]]:
    return [(one.build, one.live, one.lag) for one in await store.projections()]


@pytest.mark.proves("PJ-08")
async def test_a_rebuild_goes_on_beside_the_live_one_and_is_swapped_and_back(store: Store) -> None:
    engine = engine_of(store, accounts)
    await paid(engine, ("a", 5), ("b", 7))
    await Worker(store, [engine]).drain()
    async with store.transaction() as tx:
        await tx.execute("update accounts set cents = 0")  # what an older code has made of them
    assert await store.rebuild_projection("accounts") == 2
    assert await store.swap_projection("accounts") is True
    await paid(engine, ("a", 1))
    assert [row.cents for row in await engine.query(AccountRow)] == [0, 0]  # no reader sees a table that fills
    await Worker(store, [engine]).drain()
    assert await builds(store) == [(2, True, 0), (1, False, 0)]
    assert [row.cents for row in await engine.query(AccountRow)] == [6, 7]
    assert [one.tables for one in await store.projections()] == [("accounts",), ("accounts__1",)]
    await paid(engine, ("b", 1))
    await Worker(store, [engine]).drain()  # both go on
    assert sorted(await rows(store, "select cents from accounts__1")) == [(1,), (1,)]
    await store.swap_projection("accounts")
    await Worker(store, [engine]).drain()
    assert await builds(store) == [(1, True, 0), (2, False, 0)]
    assert [row.cents for row in await engine.query(AccountRow)] == [1, 1]
    assert sorted(await rows(store, "select cents from accounts__2")) == [(6,), (8,)]


@pytest.mark.proves("PJ-08")
async def test_a_class_that_names_its_tables_is_rebuilt_too(store: Store) -> None:
    swapped.clear()
    await Worker(store, [engine_of(store, SumsOf())]).drain()
    await rows(store, "create view rich as select account from sums where cents >= 10")
    engine = engine_of(store, SumsOf())
    await paid(engine, ("a", 5), ("b", 7))
    await Worker(store, [engine]).drain()
    assert await rows(store, "select * from rich") == []
    newer = engine_of(store, SumsOf(10))
    await store.rebuild_projection("sums")
    await Worker(store, [newer]).drain()
    assert await builds(store) == [(1, True, 0), (2, False, 0)]
    assert await rows(store, "select cents from sums order by 1") == [(5,), (7,)]
    await store.swap_projection("sums")
    await Worker(store, [newer]).drain()
    assert await rows(store, "select cents from sums order by 1") == [(50,), (70,)]
    assert await rows(store, "select account from rich order by 1") == [("a",), ("b",)]
    assert swapped == ["sums"]


async def test_the_old_build_is_dropped_when_its_time_is_over(store: Store, clock: Any) -> None:
    engine = engine_of(store, accounts)
    await paid(engine, ("a", 5))
    await Worker(store, [engine]).drain()
    await store.rebuild_projection("accounts")
    await store.swap_projection("accounts", keep_old="2h")
    await Worker(store, [engine]).drain()
    clock.advance("1h")
    await Worker(store, [engine]).drain()
    assert len(await builds(store)) == 2
    clock.advance("1h")
    await Worker(store, [engine]).drain()
    assert await builds(store) == [(2, True, 0)]
    with pytest.raises(Exception, match="accounts__1"):
        await rows(store, "select * from accounts__1")
    assert [row.cents for row in await engine.query(AccountRow)] == [5]
    assert await store.rebuild_projection("accounts") == 3


@pytest.mark.backends("postgres", reason="the others drop a table that a view reads")
async def test_a_build_that_a_view_reads_is_not_dropped_and_says_so(store: Store, clock: Any) -> None:
    engine, told = engine_of(store, accounts), list[Any]()
    store.database.telemetry.subscribe(told.append)
    await Worker(store, [engine]).drain()
    await rows(store, "create view rich as select account from accounts where cents > 9")
    await store.rebuild_projection("accounts")
    await store.swap_projection("accounts", keep_old="2h")
    await Worker(store, [engine]).drain()
    clock.advance("3h")
    await paid(engine, ("a", 5))
    await Worker(store, [engine]).drain()
    assert any("build 1 of projection accounts is over" in str(one) for one in told)
    assert [row.cents for row in await engine.query(AccountRow)] == [5]
    await rows(store, "drop view rich")
    await Worker(store, [engine]).drain()
    assert await builds(store) == [(2, True, 0)]


async def test_two_processes_drop_a_build_and_begin_another_once(store_url: str) -> None:
    async with connect(store_url) as one:
        await Worker(one, [engine_of(one, accounts)]).drain()
        begun = await asyncio.gather(*(one.rebuild_projection("accounts") for _ in range(4)))
        assert sorted(begun) == [2, 3, 4, 5]
        await asyncio.gather(*(one.database.builds.drop("accounts", 5) for _ in range(4)))
        assert await builds(one) == [(1, True, 0)]


async def test_another_rebuild_begins_anew(store: Store) -> None:
    engine = engine_of(store, accounts)
    await paid(engine, ("a", 5))
    await Worker(store, [engine]).drain()
    assert await store.rebuild_projection("accounts") == 2
    await Worker(store, [engine]).drain()
    assert await store.rebuild_projection("accounts") == 3  # it takes the place of the second
    await Worker(store, [engine]).drain()
    assert await builds(store) == [(1, True, 0), (3, False, 0)]
    assert await rows(store, "select cents from accounts__3") == [(5,)]
    with pytest.raises(Exception, match="accounts__2"):
        await rows(store, "select * from accounts__2")


async def test_what_cannot_be_rebuilt_is_refused(store: Store) -> None:
    @projection("elsewhere")
    class Elsewhere:
        async def handle(self, event: Paid, at: At) -> None: ...

    await Worker(store, [engine_of(store, Balances(), Elsewhere())]).drain()
    for name in ("balances", "elsewhere"):
        with pytest.raises(InvalidOption, match="does not say which tables it has"):
            await store.rebuild_projection(name)
        assert await store.swap_projection(name) is False
    with pytest.raises(ProjectionNotFound):
        await store.rebuild_projection("nothing")
    with pytest.raises(ProjectionNotFound):
        await store.swap_projection("nothing")
    with pytest.raises(InvalidOption, match="declares none as its `tables`"):
        async with store.transaction() as tx:
            tx.table("balances")


@pytest.mark.proves("PJ-15")
async def test_a_build_that_is_behind_or_was_taken_is_not_swapped(store: Store) -> None:
    await Worker(store, [engine_of(store, accounts)]).drain()
    await store.rebuild_projection("accounts")
    verbs, builds_ = store.database.projections, store.database.builds
    session = await begin(store)
    live, other = await verbs.claim("accounts", session), await verbs.claim("accounts", session, live=False)
    assert live is not None
    assert other is not None
    assert (live.build, other.build) == (1, 2)
    await verbs.move(live, 5, 5)
    await verbs.move(other, 4, 4)
    other = other._replace(position=4)

    async def swap(held: Any) -> None:
        async with store.transaction() as tx:
            await play_async(builds_.swapped(held, 0), tx.answer)

    with pytest.raises(Behind):
        await swap(other)
    for late in (other._replace(turn=0), other._replace(position=9)):
        with pytest.raises(Exception, match="no longer holds"):
            await swap(late)
    await verbs.move(other, 5, 1)
    await swap(other._replace(position=5))
    for late in (live._replace(position=5), other._replace(position=5)):  # a batch under way is not committed
        with pytest.raises(Exception, match="no longer holds"):
            await verbs.move(late, 6, 1)


async def test_a_swap_that_fails_changes_nothing_and_says_why(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "FIRST_PAUSE", 0.001)
    broken = [True]

    async def fails(tx: Tx) -> None:
        if broken:
            broken.pop()
            raise ValueError("no such view")

    @projection("accounts", rows=AccountRow, on_swap=fails)
    def some(row: AccountRow | None, event: Paid) -> AccountRow:
        return AccountRow(event.account, "paid", event.cents)

    engine, told = engine_of(store, some), list[Any]()
    store.database.telemetry.subscribe(told.append)
    await paid(engine, ("a", 5))
    await Worker(store, [engine]).drain()
    await store.rebuild_projection("accounts")
    await store.swap_projection("accounts")
    await Worker(store, [engine]).drain()
    assert any("no such view" in str(one) for one in told)
    assert await builds(store) == [(2, True, 0), (1, False, 0)]
    assert [row.cents for row in await engine.query(AccountRow)] == [5]


@pytest.mark.backends("postgres", reason="elsewhere no reader holds a table, and one writer has the file")
async def test_a_swap_waits_for_a_long_reader_and_other_readers_do_not_wait_for_it(live_store: Store) -> None:
    engine = engine_of(live_store, accounts)
    await paid(engine, ("a", 5))
    await Worker(live_store, [engine]).drain()
    async with Worker(live_store, [engine]):
        async with live_store.transaction() as tx:
            await tx.execute("select * from accounts")  # it holds the table until it ends
            await live_store.rebuild_projection("accounts")
            await live_store.swap_projection("accounts")

            async def tried() -> bool:
                waiting = "select 1 from pg_stat_activity where query like 'alter table%accounts%'"
                return bool(await rows(live_store, waiting))

            await until(tried)
            for number in range(10):
                async with asyncio.timeout(5):
                    assert len(await engine.query(AccountRow)) == 1, number
            assert (await builds(live_store))[0][:2] == (1, True)

        async def done() -> bool:
            return (await builds(live_store))[0][:2] == (2, True)

        await until(done)


@pytest.mark.backends("sqlite", "postgres", reason="two stores of one database")
async def test_readers_see_every_row_while_builds_are_swapped_under_writers(store_url: str) -> None:
    async with connect(store_url) as store, connect(store_url) as other:
        engine = engine_of(store, accounts)
        await paid(engine, *((f"a{number}", 1) for number in range(5)))
        await Worker(store, [engine]).drain()
        seen: list[int] = []
        async with Worker(store, [engine]), Worker(other, [engine_of(other, accounts)]):
            for _ in range(2):
                before = (await builds(store))[0][0]
                await store.rebuild_projection("accounts")
                await store.swap_projection("accounts", keep_old="1d")

                async def swapped_now(before: int = before) -> bool:
                    await paid(engine, ("a1", 1), ("a2", 1))
                    seen.append(len(await engine_of(other, accounts).query(AccountRow)))
                    return (await builds(store))[0][0] > before

                await until(swapped_now, timeout=20)
        await Worker(store, [engine]).drain()
        assert set(seen) == {5}
        found = {row.account: row.cents for row in await engine.query(AccountRow)}
        assert found["a1"] == found["a2"] == len(seen) + 1
        state = {f"a{number}": await engine.state("account", f"a{number}") for number in range(5)}
        assert found == state


def test_a_worker_looks_for_a_build_beside_the_live_one_seldom() -> None:
    assert runner.LOOK_EVERY == 1.0
