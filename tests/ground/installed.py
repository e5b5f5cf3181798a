"""Places with the schema in them, copied from one that was installed once in a run: a test begins sooner so."""

import contextlib
import importlib
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stepwell import Store, connect
from stepwell.store.embedded.sqlite import SQLite
from tests.ground.databases import create_database, run_apart, run_sql

_DATABASE = pytest.StashKey[str]()
_FILES = pytest.StashKey[dict[str, Path]]()
_MEMORY = pytest.StashKey[sqlite3.Connection]()
LONGEST = 10.0


def installed_file(config: pytest.Config, backend: str, place: Path, factory: pytest.TempPathFactory) -> None:
    """Put a file with the schema at `place`."""
    for file in _template(config, backend, factory).parent.glob("store.db*"):
        if file.is_file() and not file.name.endswith("-stepwell"):
            shutil.copy(file, place.with_name(place.name + file.name.removeprefix("store.db")))


def installed_memory(
    config: pytest.Config,
    patch: pytest.MonkeyPatch,
    factory: pytest.TempPathFactory,
    wanted: Callable[[], object] = lambda: True,
) -> None:
    """Let what is opened in memory begin with the schema, if it is wanted at that moment."""
    empty = SQLite.connect

    def connect_to_copy(engine: SQLite, *, reading: bool) -> sqlite3.Connection:
        connection = empty(engine, reading=reading)
        if wanted() and not connection.execute("pragma database_list").fetchone()["file"]:
            _in_memory(config, factory).backup(connection)
        return connection

    patch.setattr(SQLite, "connect", connect_to_copy)


def installed_worlds(config: pytest.Config, patch: pytest.MonkeyPatch, factory: pytest.TempPathFactory) -> None:
    """Let the worlds of a test that are in memory begin with the schema: a sweep of crashes makes a hundred."""
    worlds = importlib.import_module("stepwell.testing.world")  # `stepwell.testing.world` is its function
    opening, dial = 0, worlds.connect

    @contextlib.asynccontextmanager
    async def opened(url: str, **options: Any) -> AsyncIterator[Store]:
        nonlocal opening
        opening += 1
        try:
            store = await dial(url, **options)
        finally:
            opening -= 1
        async with store:
            yield store

    patch.setattr(worlds, "connect", opened)
    installed_memory(config, patch, factory, lambda: opening)


def _in_memory(config: pytest.Config, factory: pytest.TempPathFactory) -> sqlite3.Connection:
    if _MEMORY not in config.stash:
        with contextlib.closing(sqlite3.connect(_template(config, "sqlite", factory))) as file:
            config.stash[_MEMORY] = sqlite3.connect(":memory:", check_same_thread=False)
            file.backup(config.stash[_MEMORY])
    return config.stash[_MEMORY]


def installed_database(config: pytest.Config, server: str) -> str:
    """Make a database with the schema on `server` and return its address."""
    if _DATABASE not in config.stash:
        url = create_database(server)
        run_apart(_install(url))
        config.stash[_DATABASE] = url.rpartition("/")[2]
    return _copied(server, config.stash[_DATABASE])


def forget_database(config: pytest.Config, server: str) -> None:
    """Drop what the others were copied from."""
    if name := config.stash.get(_DATABASE, None):
        run_sql(server, f'drop database if exists "{name}" with (force)')


def _template(config: pytest.Config, backend: str, factory: pytest.TempPathFactory) -> Path:
    files = config.stash.setdefault(_FILES, {})
    if backend not in files:
        files[backend] = factory.mktemp(f"installed-{backend}") / "store.db"
        run_apart(_install(f"{backend}:///{files[backend]}"))
    return files[backend]


def _copied(server: str, template: str) -> str:
    deadline = time.monotonic() + LONGEST
    while True:
        try:
            return create_database(server, template)
        except psycopg.errors.ObjectInUse:  # a connection that was closed is still on its way out
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


async def _install(url: str) -> None:
    store = await connect(url)
    await store.close()
