"""Fresh Postgres databases on a running server, made and dropped by a test that may or may not run a loop."""

import asyncio
import atexit
import os
import uuid
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import psycopg

T = TypeVar("T")
_kept: dict[tuple[int, str], psycopg.Connection[Any]] = {}  # by process, since a fork must not use its parent's


def create_database(server: str, template: str = "template1") -> str:
    """Make an empty database on `server` and return its address; copied file by file, which is less work."""
    name = f"t_{uuid.uuid4().hex}"
    _execute(server, f'create database "{name}" template "{template}" strategy file_copy')
    return with_database(server, name)


def drop_database(url: str, server: str) -> None:
    """Drop the database at `url`, throwing out whoever is still connected."""
    _execute(server, f'drop database if exists "{urlsplit(url).path[1:]}" with (force)')


def _execute(server: str, statement: str) -> None:
    """Execute a statement through a connection that is kept: to open one takes as long as to drop a database."""
    place = (os.getpid(), server)
    if place not in _kept or _kept[place].closed:
        _kept[place] = psycopg.connect(server, autocommit=True)
    _kept[place].execute(statement.encode())


@atexit.register
def _let_go() -> None:
    for (process, _), connection in _kept.items():
        if process == os.getpid():
            connection.close()


def with_database(url: str, database: str) -> str:
    """Return the address of another database on the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


def with_port(url: str, host: str, port: int) -> str:
    """Return the same address behind another host and port, such as a proxy's."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}{at}{host}:{port}"))


def host_and_port(url: str) -> tuple[str, int]:
    """Return where the server of this address listens."""
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 5432


def run_sql(url: str, *statements: str) -> list[Any]:
    """Run each statement on its own and return the first value of each answer."""

    async def run() -> list[Any]:
        connection = await asyncpg.connect(url)
        try:
            return [await connection.fetchval(statement) for statement in statements]
        finally:
            await connection.close()

    return run_apart(run())


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a loop of its own, whether or not this thread's loop is running."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="run-apart") as apart:
        return apart.submit(asyncio.run, work).result()
