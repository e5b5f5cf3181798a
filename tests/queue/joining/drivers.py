"""Users of the databases' own drivers."""

import json
import sqlite3
from typing import Any

import aiosqlite
import asyncpg
import psycopg
from psycopg.rows import scalar_row
from psycopg.types.json import JsonbDumper
from psycopg.types.string import ByteaLoader

from tests.queue.joining.users import User


class Asyncpg(User):
    is_async = True
    tx: Any = None

    async def open(self) -> None:
        self.pool = await asyncpg.create_pool(self.url, min_size=1, max_size=2)
        self.tx = await self.pool.acquire()

    async def close(self) -> None:
        await self.pool.release(self.tx)
        await self.pool.close()

    async def leave(self) -> None:
        self.pool.terminate()
        await self.open()

    async def begin(self) -> None:
        self._transaction = self.tx.transaction(isolation="repeatable_read")
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()

    async def ask(self, sql: str) -> Any:
        return await self.tx.fetchval(sql)

    def settings(self) -> object:
        return self.tx.get_settings()

    async def in_autocommit(self) -> Any:
        return self.tx


class AsyncpgWithCodecs(Asyncpg):
    """Has said what JSON is to be."""

    async def open(self) -> None:
        self.pool = await asyncpg.create_pool(self.url, min_size=1, max_size=1, init=decoding)
        self.tx = await self.pool.acquire()


async def decoding(connection: Any) -> None:
    """Have JSON read and written as values."""
    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")


class Psycopg(User):
    is_async = False
    tx: Any = None

    async def open(self) -> None:
        self.tx = psycopg.connect(
            self.url, row_factory=scalar_row, cursor_factory=psycopg.ClientCursor, prepare_threshold=0
        )
        self.tx.isolation_level = psycopg.IsolationLevel.SERIALIZABLE

    async def close(self) -> None:
        self.tx.close()

    async def begin(self) -> None:
        """It begins with its first statement."""

    async def commit(self) -> None:
        self.tx.commit()

    async def rollback(self) -> None:
        self.tx.rollback()

    async def ask(self, sql: str) -> Any:
        cursor = self.tx.execute(sql)
        return cursor.fetchone() if cursor.description else None

    def settings(self) -> object:
        return settings_of_psycopg(self.tx), self.tx.execute("select count(*) from pg_prepared_statements").fetchone()

    async def in_autocommit(self) -> Any:
        self.tx.autocommit = True
        return self.tx


class PlainPsycopg(Psycopg):
    """As it comes."""

    async def open(self) -> None:
        self.tx = psycopg.connect(self.url)

    async def ask(self, sql: str) -> Any:
        row = await super().ask(sql)
        return None if row is None else row[0]


class PsycopgWithAdapters(PlainPsycopg):
    """Has said how lists are written, and numbers, text and booleans read."""

    async def open(self) -> None:
        await super().open()
        self.tx.adapters.register_dumper(list, JsonbDumper)
        for name in ("int8", "int4", "text", "bool"):
            self.tx.adapters.register_loader(name, ByteaLoader)


class AsyncPsycopg(Psycopg):
    is_async = True

    async def open(self) -> None:
        self.tx = await psycopg.AsyncConnection.connect(self.url, row_factory=scalar_row, prepare_threshold=0)

    async def close(self) -> None:
        await self.tx.close()

    async def commit(self) -> None:
        await self.tx.commit()

    async def rollback(self) -> None:
        await self.tx.rollback()

    async def ask(self, sql: str) -> Any:
        cursor = await self.tx.execute(sql)
        return await cursor.fetchone() if cursor.description else None

    def settings(self) -> object:
        return settings_of_psycopg(self.tx)

    async def in_autocommit(self) -> Any:
        await self.tx.set_autocommit(True)
        return self.tx


class Sqlite3(User):
    is_async = False
    tx: Any = None

    async def open(self) -> None:
        self.tx = sqlite3.connect(path_of(self.url))
        self.tx.row_factory = lambda _, row: row[0]

    async def close(self) -> None:
        self.tx.close()

    async def begin(self) -> None:
        """It begins with its first statement that writes."""

    async def commit(self) -> None:
        self.tx.commit()

    async def rollback(self) -> None:
        self.tx.rollback()

    async def ask(self, sql: str) -> Any:
        return self.tx.execute(sql).fetchone()

    def settings(self) -> object:
        return settings_of_sqlite(self.tx)

    async def in_autocommit(self) -> Any:
        self.tx.isolation_level = None
        return self.tx


class Sqlite3ByHand(Sqlite3):
    async def open(self) -> None:
        await super().open()
        self.tx.isolation_level = None

    async def begin(self) -> None:
        self.tx.execute("begin")


class Sqlite3OfBytes(Sqlite3):
    async def open(self) -> None:
        await super().open()
        self.tx.text_factory = bytes


class Aiosqlite(Sqlite3):
    is_async = True

    async def open(self) -> None:
        self.tx = await aiosqlite.connect(path_of(self.url))
        self.tx.row_factory = lambda _, row: row[0]

    async def close(self) -> None:
        await self.tx.close()

    async def commit(self) -> None:
        await self.tx.commit()

    async def rollback(self) -> None:
        await self.tx.rollback()

    async def ask(self, sql: str) -> Any:
        async with self.tx.execute(sql) as cursor:
            return await cursor.fetchone()

    async def in_autocommit(self) -> Any:
        await self.tx.close()
        self.tx = await aiosqlite.connect(path_of(self.url), isolation_level=None)
        return self.tx


def settings_of_psycopg(connection: Any) -> tuple[object, ...]:
    names = ("row_factory", "cursor_factory", "isolation_level", "autocommit", "read_only", "prepare_threshold")
    return *(getattr(connection, name) for name in names), connection.info.transaction_status


def settings_of_sqlite(connection: Any) -> tuple[object, ...]:
    names = ("row_factory", "text_factory", "isolation_level", "in_transaction")
    return tuple(getattr(connection, name) for name in names)


def path_of(url: str) -> str:
    return url.removeprefix("sqlite:///")
