"""Users of SQLAlchemy and Django, on one of the drivers."""

from typing import Any, ClassVar
from urllib.parse import urlsplit

import django
import django.conf
from django.db import connections, transaction
from django.db.utils import ConnectionHandler
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.queue.joining.drivers import path_of
from tests.queue.joining.users import User


class SqlalchemySession(User):
    is_async = False
    driver: ClassVar[str] = "psycopg"
    tx: Any = None

    async def open(self) -> None:
        self.engine = create_engine(address(self.url, self.driver), poolclass=NullPool)
        self.tx = Session(self.engine)

    async def close(self) -> None:
        self.tx.close()
        self.engine.dispose()

    async def begin(self) -> None:
        """It begins when it is first used."""

    async def commit(self) -> None:
        self.tx.commit()

    async def rollback(self) -> None:
        self.tx.rollback()

    async def ask(self, sql: str) -> Any:
        result = self.tx.execute(text(sql))
        return result.scalar() if result.returns_rows else None

    def settings(self) -> object:
        return self.tx.in_transaction(), self.tx.connection().get_isolation_level()

    async def in_autocommit(self) -> Any:
        return Session(self.engine.execution_options(isolation_level="AUTOCOMMIT"))


class SqlalchemyConnection(SqlalchemySession):
    async def open(self) -> None:
        await super().open()
        self.tx = self.engine.connect()

    def settings(self) -> object:
        return self.tx.in_transaction(), self.tx.get_isolation_level()


class AsyncSqlalchemySession(User):
    is_async = True
    driver: ClassVar[str] = "asyncpg"
    tx: Any = None

    async def open(self) -> None:
        self.engine = create_async_engine(address(self.url, self.driver), poolclass=NullPool)
        self.tx = AsyncSession(self.engine)

    async def close(self) -> None:
        await self.tx.close()
        await self.engine.dispose()

    async def begin(self) -> None:
        """It begins when it is first used."""

    async def commit(self) -> None:
        await self.tx.commit()

    async def rollback(self) -> None:
        await self.tx.rollback()

    async def ask(self, sql: str) -> Any:
        result = await self.tx.execute(text(sql))
        return result.scalar() if result.returns_rows else None

    def settings(self) -> object:
        return self.tx.in_transaction()

    async def in_autocommit(self) -> Any:
        await self.tx.close()
        self.tx = AsyncSession(self.engine.execution_options(isolation_level="AUTOCOMMIT"))
        return self.tx


class AsyncSqlalchemyConnection(AsyncSqlalchemySession):
    async def open(self) -> None:
        await super().open()
        self.tx = await self.engine.connect()


class Django(User):
    is_async = False
    tx: Any = None

    async def open(self) -> None:
        self.tx = django_connection(self.url)

    async def close(self) -> None:
        self.tx.close()

    async def begin(self) -> None:
        self._atomic = transaction.atomic(using=self.tx.alias)
        self._atomic.__enter__()

    async def commit(self) -> None:
        self._atomic.__exit__(None, None, None)

    async def rollback(self) -> None:
        transaction.set_rollback(True, using=self.tx.alias)
        self._atomic.__exit__(None, None, None)

    async def ask(self, sql: str) -> Any:
        with self.tx.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchone()[0] if cursor.description else None

    def settings(self) -> object:
        return self.tx.in_atomic_block, self.tx.get_autocommit(), self.tx.connection.row_factory

    async def in_autocommit(self) -> Any:
        return self.tx


def on(driver: str, user: type[Any]) -> type[User]:
    """The same user on another driver."""
    return type(f"{user.__name__}On{driver.title()}", (user,), {"driver": driver})


def address(url: str, driver: str) -> str:
    scheme, _, rest = url.partition(":")
    return f"{scheme}+{driver}:{rest}"


def django_connection(url: str, alias: str = "shop") -> Any:
    """A new connection of Django's under this alias."""
    if not django.conf.settings.configured:
        django.conf.settings.configure(USE_TZ=True)
        django.setup()
    place = urlsplit(url)
    postgres = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": place.path[1:],
        "USER": place.username or "",
        "PASSWORD": place.password or "",
        "HOST": place.hostname or "",
        "PORT": place.port or "",
    }
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": path_of(url)}
    wanted = sqlite if place.scheme == "sqlite" else postgres
    connections.settings[alias] = ConnectionHandler({"default": {}, alias: wanted}).settings[alias]
    if hasattr(connections._connections, alias):
        del connections[alias]
    return connections[alias]
