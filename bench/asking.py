"""A connection beside the contestant's own, to prepare its database and to ask it what is finished."""

import importlib
import sqlite3
from typing import Any, Protocol


class Database(Protocol):
    """Runs one statement at a time, each in a transaction of its own."""

    async def run(self, sql: str) -> None:
        """Execute a statement."""

    async def value(self, sql: str) -> Any:
        """The first value of the first row."""

    async def close(self) -> None:
        """Let go of the connection."""


async def database(url: str) -> Database:
    """Connect with whatever driver this environment has."""
    if url.startswith("sqlite:"):
        return Sqlite(path_of(url))
    try:
        asyncpg = importlib.import_module("asyncpg")
    except ImportError:
        psycopg = importlib.import_module("psycopg")
        return Psycopg(await psycopg.AsyncConnection.connect(url, autocommit=True))
    return Asyncpg(await asyncpg.connect(url))


def path_of(url: str) -> str:
    """The file of a URL like sqlite:////folder/file.db."""
    return url.removeprefix("sqlite:///")


class Sqlite:
    """The standard library's own."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=60)

    async def run(self, sql: str) -> None:
        """Execute a statement."""
        self._connection.execute(sql)

    async def value(self, sql: str) -> Any:
        """The first value of the first row."""
        return self._connection.execute(sql).fetchone()[0]

    async def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()


class Asyncpg:
    """Postgres through asyncpg."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def run(self, sql: str) -> None:
        """Execute a statement."""
        await self._connection.execute(sql)

    async def value(self, sql: str) -> Any:
        """The first value of the first row."""
        return await self._connection.fetchval(sql)

    async def close(self) -> None:
        """Let go of the connection."""
        await self._connection.close()


class Psycopg:
    """Postgres through psycopg."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def run(self, sql: str) -> None:
        """Execute a statement."""
        await self._connection.execute(sql)

    async def value(self, sql: str) -> Any:
        """The first value of the first row."""
        row = await (await self._connection.execute(sql)).fetchone()
        return row[0]

    async def close(self) -> None:
        """Let go of the connection."""
        await self._connection.close()
