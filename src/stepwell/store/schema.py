"""Installing, upgrading and checking the tables.

Migrations are numbered files. Each is applied in one transaction together with the note that it was. A process that
migrates holds a lock, so any number of processes may try at once; one that is killed has changed nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

from stepwell.errors import SchemaDiffers, SchemaMissing, SchemaNewer
from stepwell.store.catalogue import Catalogue, catalogue_of, first_difference
from stepwell.store.driver import Call, Ddl, Driver, Script
from stepwell.store.progress import tell_done
from stepwell.store.sql import Parameter, Statement, Statements

LONGEST_MIGRATION = 600.0
_SCRATCH = {"postgres": "pg_temp", "sqlite": "_scratch_of_stepwell"}


async def install(driver: Driver, statements: Statements) -> None:
    """Bring the schema up to this release; does nothing if it is, and refuses the schema of a later release."""
    known = latest(statements)
    found = await version(driver)
    if found == known:
        return
    if found == 0:
        await driver.transact(partial(_bootstrap, statements), timeout=LONGEST_MIGRATION)
    for number, name, texts in statements.migrations():
        if found < number:
            found = await driver.transact(partial(_apply, number, name, texts), timeout=LONGEST_MIGRATION)
            tell_done(1)
    if found > known:
        raise SchemaNewer(found, known)


async def verify(driver: Driver, statements: Statements) -> None:
    """Refuse a store whose tables are not exactly those that this release creates, and name the first difference.

    The schema is created once more under a temporary name, both are read from the database's catalogue, and the
    temporary one is rolled back. Nothing changes, but it needs the right to create (on Postgres: temporary) tables.
    """
    await check_version(driver, statements)
    found, expected = await driver.transact(partial(_compare, statements))
    if difference := first_difference(expected, found, partial(_full_name, statements)):
        raise SchemaDiffers(difference)


async def check_version(driver: Driver, statements: Statements) -> None:
    """Refuse a store that has no schema, an older one, or one that this release does not know."""
    known = latest(statements)
    found = await version(driver)
    if found > known:
        raise SchemaNewer(found, known)
    if found == 0:
        raise SchemaMissing
    if found < known:
        raise SchemaMissing(
            f"the store has schema {found}, this release needs {known}; connect once with `install=True`"
        )


async def version(driver: Driver) -> int:
    """The number of the last migration applied; 0 if there is none."""
    if not (await driver.read(Call("has_schema")))[0]["found"]:
        return 0
    return (await driver.read(Call("schema_version")))[0]["number"] or 0


def latest(statements: Statements) -> int:
    """The number of this release's last migration."""
    return max(number for number, _, _ in statements.migrations())


def script(statements: Statements) -> list[str]:
    """The statements that create the tables in an empty database, for those who change their schema themselves."""
    texts = statements.bootstrap()
    for number, name, each in statements.migrations():
        texts += [*each, _spelled(statements["note_migration"], {"number": number, "name": name})]
    return texts


def _spelled(statement: Statement, values: Mapping[str, int | str]) -> str:
    """A statement with its values as literals; they are numbers and names from our own files, never user data."""
    now = {"now": time.time_ns() // 1000, **values}
    spelled = {name: str(value) if isinstance(value, int) else f"'{value}'" for name, value in now.items()}
    return "".join(spelled[one.name] if isinstance(one, Parameter) else str(one) for one in statement.tokens)


def _bootstrap(statements: Statements) -> Script[None]:
    yield from _alone()
    for text in statements.bootstrap():
        yield Ddl(text)


def _apply(number: int, name: str, texts: list[str]) -> Script[int]:
    """Apply one migration unless that or a later one was applied while we waited; return the number that stands."""
    yield from _alone()
    found: int = (yield Call("schema_version"))[0]["number"] or 0
    if found >= number:
        return found
    for text in texts:
        yield Ddl(text)
    yield Call("note_migration", {"number": number, "name": name})
    return number


def _alone() -> Script[None]:
    # Another migrator may take minutes, and we wait for it. We do not wait for a table in use: every statement behind
    # a migrator that waits for a table would wait with it.
    yield Call("take_time", {"locks": f"{LONGEST_MIGRATION:g}s"})
    yield Call("lock_schema")
    yield Call("take_time", {"locks": "5s"})


def _compare(statements: Statements) -> Script[tuple[Catalogue, Catalogue]]:
    """Read the existing schema and the one that this release creates; every change is rolled back."""
    yield Call("savepoint")
    found = yield from _read(statements)
    scratch = type(statements)(statements.dialect, _SCRATCH[statements.dialect])
    for text in (*scratch.bootstrap(), *(text for _, _, texts in scratch.migrations() for text in texts)):
        if not text.startswith("create schema"):  # the schema of temporary tables exists already
            yield Ddl(text)
    expected = yield from _read(scratch)
    yield Call("rollback_to_savepoint")
    yield Call("release_savepoint")
    return found, expected


def _read(statements: Statements) -> Script[Catalogue]:
    place = {"place": statements.schema}
    yield Call("look_in", place)
    rows = yield Call("catalogue", place)
    prefix = "" if statements.dialect == "postgres" else f"{statements.schema}_"
    return catalogue_of(([row["kind"], row["name"], row["part"], row["definition"]] for row in rows), prefix)


def _full_name(statements: Statements, name: str) -> str:
    return f"{statements.schema}{'.' if statements.dialect == 'postgres' else '_'}{name}"
