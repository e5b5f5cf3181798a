"""Which database there is, is known in the store, and chosen where a URL is read; nobody else asks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shape import sources

PACKAGES = {"asyncpg", "sqlite3", "aiosqlite", "turso", "psycopg", "sqlalchemy", "django"}
DRIVERS = {"stepwell.store.postgres", "stepwell.store.embedded"}
KINDS = ("postgres", "postgresql", "sqlite", "turso", "memory")
MAY_SAY_THE_KIND = {
    "src/stepwell/connect.py": "opens the driver that a URL names",
    "src/stepwell/testing/world.py": "opens a database for a test, in memory unless told otherwise",
    "src/stepwell/cli/": "reads the URL that a person gives",
    "src/stepwell/operate/doctor.py": "says what is wrong with the database itself",
}
SEAM = {"Call", "Ddl", "Script", "play", "play_async", "SAVEPOINT", "Row", "Value", "Statements", "Columns"}
MAY_CROSS = {
    "src/stepwell/connect.py": "opens the driver with the statements in its spelling",
    "src/stepwell/cli/store.py": "prints the statements that make the tables",
    "src/stepwell/testing/crash_driver.py": "is a driver itself",
    "src/stepwell/testing/crashes.py": "compares all that two lives have written, which no verb tells",
    "src/stepwell/testing/manual_worker.py": "asks when the next task is due",
}
BELOW = ("src/stepwell/store/", "src/stepwell/base/", "src/stepwell/values/", "src/stepwell/errors/")
ABOVE = [path for path in sources.MODULES if not sources.name(path).startswith((*BELOW, "src/stepwell/records.py"))]


def asks(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Where a module names a driver, or asks the store which database it has."""
    for node in ast.walk(module):
        match node:
            case ast.Import(names):
                yield from ((node.lineno, one.name) for one in names if _is_driver(one.name))
            case ast.ImportFrom(module=str(name)) if _is_driver(name):
                yield node.lineno, name
            case ast.ImportFrom(module="stepwell.store", names=names):
                yield from ((node.lineno, one.name) for one in names if _is_driver(f"stepwell.store.{one.name}"))
            case ast.Attribute(attr="dialect"):
                yield node.lineno, ".dialect"
            case ast.Compare():
                if any(ast.unparse(one).endswith("driver.name") for one in (node.left, *node.comparators)):
                    yield node.lineno, "compares driver.name"


def crosses(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Where a module builds what only a driver takes: rows by place, statements by name, scripts that are played."""
    for node in ast.walk(module):
        match node:
            case ast.ImportFrom(module="stepwell.store.driver" | "stepwell.store.sql", names=names):
                yield from ((node.lineno, one.name) for one in names if one.name in SEAM)
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="driver"), attr=verb)):
                if verb in {"read", "write", "run", "transact", "transaction"}:
                    yield node.lineno, f"driver.{verb}"


def says(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Where a module has the name of a kind of database, or the beginning of its URL, as a value."""
    documentation = sources.docstrings(module)
    for node in ast.walk(module):
        match node:
            case ast.Constant(str(text)) if node not in documentation and _is_kind(text):
                yield node.lineno, repr(text)


def _is_driver(name: str) -> bool:
    return name.startswith(tuple(DRIVERS)) or name.partition(".")[0] in PACKAGES


def _is_kind(text: str) -> bool:
    return text in KINDS or text.startswith(tuple(f"{kind}:" for kind in KINDS))


@pytest.mark.proves("B-02")
def test_nothing_above_the_store_knows_which_database_it_has() -> None:
    assert [one for path in ABOVE for one in knows_its_database(path)] == []


def knows_its_database(path: Path) -> Iterator[str]:
    name, module = sources.name(path), sources.tree(path)
    found = [] if name == "src/stepwell/connect.py" else list(asks(module))
    if not name.startswith(tuple(MAY_SAY_THE_KIND)):
        found += says(module)
    yield from (f"{name}:{line} {what}" for line, what in found)


@pytest.mark.proves("B-02")
def test_nothing_above_the_store_names_a_statement_or_plays_a_script() -> None:
    found = {sources.name(path): [f"{line} {what}" for line, what in crosses(sources.tree(path))] for path in ABOVE}
    assert {name: where for name, where in found.items() if where and name not in MAY_CROSS} == {}
    assert [name for name in MAY_CROSS if not found[name]] == []


@pytest.mark.parametrize(
    "text",
    [
        "from stepwell.store.driver import LOCKS, Call",
        "from stepwell.store.sql import Statements",
        "rows = store.driver.read(call)",
        "await self._store.driver.transact(script)",
    ],
)
def test_what_crosses_the_seam_is_recognised(text: str) -> None:
    assert list(crosses(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "import sqlite3",
        "from asyncpg import connect",
        "from stepwell.store.embedded.turso import open_turso",
        "from stepwell.store import postgres",
        "if store.statements.dialect: pass",
        "store.driver.name == here",
        "if url.startswith('sqlite:'): pass",
        "kind = 'postgres'",
    ],
)
def test_what_knows_a_database_is_recognised(text: str) -> None:
    assert [*asks(ast.parse(text)), *says(ast.parse(text))]
