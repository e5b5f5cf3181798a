"""Every statement on SQLite and Turso: none reads all of a table or of an index, unless it says why.

Their planners know nothing of what the tables hold, so the plan on an empty store is the plan on a full one. SQLite
also counts what its machine executes: no more in a fuller store.
"""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwell import Store, connect
from stepwell.store.driver import Call
from stepwell.store.sql import Statement
from tests.store.bounds import bounds
from tests.store.samples import sample
from tests.store.steps import Stepped
from tests.store.world import Size, found, load

OF_MANY = frozenset(("owned", "control_requests", "forget_requests"))  # asked about sessions that own more then
SLACK = 400  # instructions more in a fuller store: a row or two that lie elsewhere


@pytest.mark.proves("PR-15", "protocol-16")
@pytest.mark.backends("sqlite", "turso", reason="Postgres tells its plans in another way: test_bounds.py")
async def test_no_statement_reads_all_of_a_table_or_an_index_unless_it_says_why(store: Store, backend: str) -> None:
    of, stepped, said = await found(store), Stepped(store), bounds("sqlite")
    unexcused = [
        f"{name}: {line}"
        for name, statement in store.database.statements._statements.items()
        for call in calls_of(statement, sample(statement, of))
        for line in await stepped.plan(call)
        if (table := scanned(statement, line)) and table not in said[name].scans
    ]
    assert not unexcused, "say `-- scans TABLE: why` below the statement's name, or let it use an index"


@pytest.mark.proves("PR-15", "promise-18", "R-21", "MM-08")
@pytest.mark.backends("sqlite", reason="SQLite counts its machine's instructions; Turso counts nothing")
async def test_on_sqlite_no_statement_executes_more_in_a_fuller_store(tmp_path: Path, backend: str) -> None:
    few, more = [await counted(tmp_path, tasks) for tasks in (3_000, 6_000)]
    assert min(few.values()) > 1, "the machine's instructions are not counted: void"
    grown = {name: (few[name], steps) for name, steps in more.items() if steps > few[name] + SLACK}
    assert not grown


async def counted(folder: Path, tasks: int) -> dict[str, int]:
    """The instructions of every statement that has a bound, in a store of this size."""
    async with connect(f"sqlite:///{folder}/{tasks}.db") as store:
        of, stepped, said = await found(store), Stepped(store), {**bounds("sqlite"), **bounds("postgres")}
        await load(store, Size(tasks, 2 * tasks, tasks // 10, tasks), of)
        asked = {
            f"{name} of {len(call.rows or ())}": call
            for name, statement in store.database.statements._statements.items()
            if said[name].unbounded is None and not said[name].scans and name not in OF_MANY
            for call in calls_of(statement, sample(statement, of))
        }
        return {name: await stepped.steps([call]) for name, call in asked.items()}


def calls_of(statement: Statement, call: Call) -> Iterator[Call]:
    """The same call, and again with one row; nothing of what has no plan."""
    first = statement.tokens[0]
    if isinstance(first, str) and first.split()[0] in ("savepoint", "rollback", "release"):
        return
    yield call
    if call.rows is not None:
        yield dataclasses.replace(call, rows=call.rows[:1])


def scanned(statement: Statement, line: str) -> str | None:
    """The table of which a line of a plan says that all of it is read, or all of an index."""
    found = re.match(r"SCAN (\w+)", line)
    if found is None:
        return None
    text = "".join(token for token in statement.tokens if isinstance(token, str))
    tables = {
        alias or f"stepwell_{table}": table for table, alias in re.findall(r"\bstepwell_(\w+)(?: as (\w+))?", text)
    }
    name = found[1]
    return tables.get(name) or (name.removeprefix("stepwell_") if name.startswith("stepwell_") else None)
