"""On Postgres a row by itself is said in other words than many: it does the same."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from stepwell import Store
from stepwell.store.driver import Call, Value
from stepwell.store.postgres import compose
from stepwell.store.postgres.compose import Composer
from stepwell.store.sql import Statements
from tests.store.test_rendered import PARAMS, ROWS, fill_with_all_sorts
from tests.store.test_rendered import TABLES as RENDERED

pytestmark = pytest.mark.backends("postgres", reason="the others have one spelling for a row by itself: test_rendered")
CLAIMS: dict[str, list[tuple[Value, ...]]] = {
    "claim": [(1, 5, -9, 9), (9, 5, 0, 0)],
    "claim_above": [(1, 5, 0, 0, 0), (1, 5, 5, 0, 0)],
}
TABLES = (*RENDERED, "subject_key")
KEPT = {  # without what a transaction numbers: that goes on although it is rolled back
    "event": "instance_id, version, type, data, cause, recorded_at",
    "ordered_group": "queue_id, group_key, last_position, after_failure, emptied_at, repaired",
    "observation": "type, name, input, input_version, data, outcome, from_status, to_status, "
    "first_version, last_version, error, key, cause, recorded_at",
    "broadcast": "tenant, name, task_id, data, published_at",
    "audit": "task_id, what, worker_id, turn, attempt, detail, recorded_at",
}
MORE: dict[str, Value] = {"worker": 1, "slot": 0, "limit": 3}


def with_rows() -> list[str]:
    statements = Statements("postgres", "stepwell")._statements
    return [name for name, statement in statements.items() if statement.columns and name in ROWS | CLAIMS]


@pytest.fixture
async def connection(store: Store, store_url: str) -> AsyncIterator[Any]:
    await fill_with_all_sorts(store)
    opened = await asyncpg.connect(store_url)
    yield opened
    await opened.close()


async def outcome(connection: Any, composer: Composer, call: Call) -> tuple[Any, ...]:
    """What it returned or was refused with, and what the tables held then; rolled back."""
    transaction = connection.transaction()
    await transaction.start()
    # What it returns is a number that the table gives: from here on the same ones, and this is rolled back.
    await connection.execute("alter table stepwell.subject_key alter column id restart with 100")
    try:
        text, values = composer.compose([call])
        found = sorted((tuple(row) for row in await connection.fetch(text, *values)), key=repr)
        tables = [await connection.fetch(f"select {KEPT.get(table, '*')} from stepwell.{table}") for table in TABLES]
        return found, [sorted((tuple(row) for row in table), key=repr) for table in tables]
    except asyncpg.PostgresError as error:
        return error.sqlstate, str(error)
    finally:
        await transaction.rollback()


@pytest.mark.proves("B-03", "protocol-05")
@pytest.mark.parametrize("name", with_rows())
async def test_a_row_by_itself_does_what_it_does_among_many(
    store: Store, connection: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, composer = (ROWS | CLAIMS)[name], Composer(store.database.statements)
    calls = [Call(name, PARAMS | MORE, [row]) for row in rows]
    by_themselves = [await outcome(connection, composer, call) for call in calls]
    texts = {composer.compose([call])[0] for call in calls}
    monkeypatch.setattr(compose, "_one_row", compose._unnest)
    monkeypatch.setattr(compose, "_cells_of", lambda columns, row: compose._columns_of(columns, [row]))
    joined = Composer(store.database.statements)
    assert texts.isdisjoint(joined.compose([call])[0] for call in calls), "it is said in the same words: void"
    assert [await outcome(connection, joined, call) for call in calls] == by_themselves


@pytest.mark.proves("B-03")
async def test_text_that_users_fill_is_kept_as_it_is_and_an_empty_name_is_null(store: Store) -> None:
    text, values = Composer(store.database.statements).compose([Call("find_added", {}, [(1, 9, "")])])
    assert values == ["{1}", 9, ""]
    _, values = Composer(store.database.statements).compose(
        [Call("add_tasks", {"now": 1}, [(1, "MESSAGE", *[None] * 6, "", "", "2", None, None, 0, None, None, None)])]
    )
    assert values[:13] == ["{1}", "MESSAGE", *[None] * 6, None, None, "2", None, None]
    assert "string_to_array" not in text
