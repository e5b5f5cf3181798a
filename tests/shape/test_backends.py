"""Which database there is, is known in the store, and chosen where a URL is read; nobody else asks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shape import sources

PACKAGES = {"asyncpg", "sqlite3", "aiosqlite", "turso", "psycopg", "sqlalchemy", "django"}
DRIVERS = {f"stepwell.store.{name}" for name in ("postgres", "links", "listening", "compose")}
DRIVERS |= {f"stepwell.store.{name}" for name in ("embedded", "rendered", "sqlite", "turso", "watching", "files")}
KINDS = ("postgres", "postgresql", "sqlite", "turso", "memory")
MAY_SAY_THE_KIND = {
    "src/stepwell/connecting.py": "opens the driver that a URL names",
    "src/stepwell/testing/worlds.py": "opens a database for a test, in memory unless told otherwise",
    "src/stepwell/cli/": "reads the URL that a person gives, and says what is wrong with the database itself",
}
BELOW = {
    "records",
    "arguments",
    "definitions",
    "errors",
    "codec",
    "backoff",
    "durations",
    "names",
    "clock",
    "telemetry",
}
ABOVE = [
    path
    for path in sources.MODULES
    if not sources.name(path).startswith("src/stepwell/store/")
    and not (path.parent == sources.PACKAGE and path.stem in BELOW)
]


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


def says(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Where a module has the name of a kind of database, or the beginning of its URL, as a value."""
    documentation = sources.docstrings(module)
    for node in ast.walk(module):
        match node:
            case ast.Constant(str(text)) if node not in documentation and _is_kind(text):
                yield node.lineno, repr(text)


def _is_driver(name: str) -> bool:
    return name in DRIVERS or name.partition(".")[0] in PACKAGES


def _is_kind(text: str) -> bool:
    return text in KINDS or text.startswith(tuple(f"{kind}:" for kind in KINDS))


@pytest.mark.proves("B-02")
@pytest.mark.parametrize("path", ABOVE, ids=sources.name)
def test_nothing_above_the_store_knows_which_database_it_has(path: Path) -> None:
    name, module = sources.name(path), sources.tree(path)
    found = [] if name == "src/stepwell/connecting.py" else list(asks(module))
    if not name.startswith(tuple(MAY_SAY_THE_KIND)):
        found += says(module)
    assert [f"{name}:{line} {what}" for line, what in found] == []


@pytest.mark.parametrize(
    "text",
    [
        "import sqlite3",
        "from asyncpg import connect",
        "from stepwell.store.turso import open_turso",
        "from stepwell.store import postgres",
        "if store.statements.dialect: pass",
        "store.driver.name == here",
        "if url.startswith('sqlite:'): pass",
        "kind = 'postgres'",
    ],
)
def test_what_knows_a_database_is_recognised(text: str) -> None:
    assert [*asks(ast.parse(text)), *says(ast.parse(text))]
