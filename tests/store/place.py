"""One schema in one database, reached through the driver, below `connect`, and by SQL as a person would."""

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import turso

from stepwell.store import schema
from stepwell.store.driver import Call, Ddl, Driver, Script
from stepwell.store.embedded.sqlite import open_sqlite
from stepwell.store.embedded.turso import open_turso
from stepwell.store.postgres.driver import Postgres
from stepwell.store.sql import Statements


@asynccontextmanager
async def opened(url: str, name: str = "stepwell", *, timeout: float = 10.0) -> "AsyncIterator[Place]":
    """A schema of this name at this address; nothing is installed."""
    parts = urlsplit(url)
    statements = Statements("postgres" if parts.scheme == "postgresql" else "sqlite", name)
    driver: Driver
    match parts.scheme:
        case "sqlite":
            driver = open_sqlite(parts.path, statements, timeout=timeout)
        case "turso":
            driver = open_turso(parts.path, statements, timeout=timeout)
        case _:
            driver = Postgres(url, statements, pool=4, timeout=timeout)
    await driver.open()
    try:
        yield Place(url, driver, statements)
    finally:
        await driver.close()


# A migration as the next release could have one: a new table, columns of tables that are full, an index, a view anew.
LATER = """
create table {later} (id bigint not null primary key);

alter table {audit} add column later text;

alter table {task} add column later text not null default 'then';

create index {task_later} on {task} (later) where later <> 'then';

-- [sqlite]
drop view {instances};

{replace_view} {instances} as
select instance.id, instance.tenant, instance.type, instance.name, instance.version,
       case when instance.completed_at is null then 'open' else 'completed' end as state,
       instance.snapshot, instance.snapshot_version, {moment instance.created_at} as created_at,
       {moment instance.updated_at} as updated_at, {moment instance.completed_at} as completed_at, 'later' as later
  from {instance} as instance;
"""


KNOWN = Statements.migrations


class NextRelease(Statements):
    """This release's schema and one migration more."""

    def migrations(self) -> list[tuple[int, str, list[str]]]:
        known = KNOWN(self)
        return [*known, (len(known) + 1, "later", list(self._schema_statements(LATER)))]


@dataclass(frozen=True)
class Place:
    """A schema in a database, reached through the driver, and by SQL as a person would."""

    url: str
    driver: Driver
    statements: Statements

    def name(self, thing: str) -> str:
        """A table, index or view as it is called in the database."""
        postgres = self.statements.dialect == "postgres"
        return f"{self.statements.schema}.{thing}" if postgres else f"{self.statements.schema}_{thing}"

    def fill(self, text: str) -> str:
        """The text with every `{thing}` called as in the database."""
        return re.sub(r"\{(\w+)\}", lambda found: self.name(found.group(1)), text)

    async def install(self) -> None:
        await schema.install(self.driver, self.statements)

    async def verify(self) -> None:
        await schema.verify(self.driver, self.statements)

    async def do(self, *texts: str) -> None:
        """Run statements in one transaction."""

        def script() -> Script[None]:
            for text in texts:
                yield Ddl(self.fill(text))

        await self.driver.transact(script)

    async def ask(self, text: str) -> list[dict[str, Any]]:
        """Read with a connection of its own, as somebody who knows nothing of stepwell."""
        if self.statements.dialect == "postgres":
            connection = await asyncpg.connect(self.url)
            try:
                return [dict(row) for row in await connection.fetch(self.fill(text))]
            finally:
                await connection.close()
        library: Any = turso if self.driver.name == "turso" else sqlite3
        plain = library.connect(urlsplit(self.url).path)
        try:
            cursor = plain.execute(self.fill(text))
            return [
                dict(zip([column[0] for column in cursor.description], row, strict=True)) for row in cursor.fetchall()
            ]
        finally:
            plain.close()

    async def everything(self) -> list[tuple[Any, ...]]:
        """The whole catalogue of this schema, and the migrations noted with their times."""
        noted = await self.ask("select number, name, applied_at from {migration} order by number")
        found = await self.driver.read(Call("catalogue", {"place": self.statements.schema}))
        return [*(tuple(row.values()) for row in noted), *(tuple(row) for row in found)]

    def statement(self, start: str) -> str:
        """The statement of a migration that begins so, the last if a later one says it anew."""
        texts = [text for _, _, texts in self.statements.migrations() for text in texts]
        wanted = self.statements._macros.fill(start)
        [*_, text] = [text for text in texts if text.startswith(wanted)]
        return text
