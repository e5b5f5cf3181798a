"""What happened stays as it was recorded: events are appended and read, and never changed or removed."""

import re
from typing import Any, get_args

import pytest

from stepwell import Engine, Store
from stepwell.base.clock import TestClock
from stepwell.store.sql import Dialect, Statements
from tests.deciders.workbench import Bench, Do, asked, drained
from tests.unit.test_sql import text_of

USE = re.compile(r'\b(delete from|\w+)\s+(?:"s"\.|s_)event\b')


@pytest.mark.proves("U-05")
@pytest.mark.parametrize("dialect", get_args(Dialect))
def test_no_statement_does_more_to_events_than_append_and_read_them(dialect: Dialect) -> None:
    statements = Statements(dialect, "s")
    uses: dict[str, set[str]] = {}
    for name in statements._statements:
        for use in USE.findall(text_of(statements[name])):
            uses.setdefault(use, set()).add(name)
    locks = {"table": {"lock_events"}} if dialect == "postgres" else {}
    assert uses.keys() == {"into", "from", "join"} | locks.keys()
    assert uses.get("table", set()) == locks.get("table", set())
    assert uses["into"] == {"append_events"} | ({"decide_at_once"} if dialect == "postgres" else set())
    assert all("on conflict" not in text_of(statements[name]) for name in uses["into"]), "one that is there stays"


async def recorded(store: Store, until: int) -> list[list[Any]]:
    """The first so many events of a store, with all that the database has of them."""
    rows = await asked(store, f"select * from {{event}} order by position limit {until}")
    return [list(row) for row in rows]


@pytest.mark.proves("U-05")
async def test_whatever_happens_later_an_event_stands_as_it_was_recorded(store: Store, clock: TestClock) -> None:
    engine = Engine(store).register(Bench(), snapshot_every=2)
    for number in range(5):
        await engine.execute(Do("a", str(number), ask="mail", after=60, timer="t"), key=str(number))
    await engine.execute(Do("b", "one"))
    before = await recorded(store, 6)
    assert len(before) == 6
    for number in range(4):
        await engine.execute(Do("a", str(number)), key=str(number))  # decided before
        await engine.execute(Do("a", "more", cancel="t"))
    await drained(store, engine)
    await engine.execute(Do("b", end=True))
    clock.advance("4000d")
    await drained(store, engine)
    await store.database.retention.round()
    await store.prune(0, dead_letters=True)
    assert await recorded(store, 6) == before
