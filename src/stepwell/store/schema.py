"""Installing, upgrading and checking the tables.

Migrations are numbered files. Each is applied in one transaction together with the note that it was. A process that
migrates holds a lock, so any number of processes may try at once; one that is killed has changed nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from stepwell.errors import SchemaDiffers, SchemaMissing, SchemaNewer
from stepwell.store.driver import Call, Ddl, Driver, Script
from stepwell.store.progress import tell_done
from stepwell.store.sql import Parameter, Statement, Statements

Part = tuple[str, str, str]  # kind; the name of a table, index or view; a column's name or a constraint's text
Catalogue = dict[Part, str]  # the definition of every part, in one spelling
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


def catalogue_of(rows: Iterable[Sequence[str]], prefix: str = "") -> Catalogue:
    """The parts in rows (kind, name, part, definition) of the database's catalogue, without `prefix` in their names."""
    given = [tuple(row) for row in rows]
    # It is a prefix only before one of our names: in a schema called `task`, `task_id` is still a column.
    ours = {f"{prefix}{name}": name for _, name, _, _ in given}
    parts: Catalogue = {}
    for kind, name, part, definition in given:
        tokens = [ours.get(token, token) for token in _tokens(definition)]
        if kind == "table":
            parts[kind, name, ""] = ""
            parts.update(((inner, name, key), text) for inner, key, text in _taken_apart(tokens))
        else:
            parts[kind, name, _text(_tokens(part))] = _text(tokens)
    return parts


def first_difference(expected: Catalogue, found: Catalogue, full_name: Callable[[str], str]) -> str | None:
    """Say in words where the found schema first differs from the expected one; None if it does not.

    Tables, indexes and views that are not expected belong to the user and are ignored.
    """
    for at, definition in expected.items():
        kind, name, part = at
        if at not in found:
            return _missing(kind, full_name(name), part, definition)
        if found[at] != definition:
            return _changed(kind, full_name(name), part, definition, found[at])
    for at, definition in found.items():
        kind, name, part = at
        if at not in expected and ("table", name, "") in expected and kind in {"column", "constraint"}:
            return f"table {full_name(name)} has a {kind} it should not have: {f'{part} {definition}'.strip()}"
    return None


def _missing(kind: str, name: str, part: str, definition: str) -> str:
    match kind:
        case "column":
            return f"table {name} has no column {part} ({definition})"
        case "constraint":
            return f"table {name} lacks {part}"
        case _:
            return f"{kind} {name} is missing"


def _changed(kind: str, name: str, part: str, definition: str, found: str) -> str:
    match kind:
        case "column":
            return f"column {part} of table {name} is {_column(found)}, it should be {_column(definition)}"
        case "index":
            return f"index {name} is `{found}`, it should be `{definition}`"
        case _:
            return f"{kind} {name} is defined otherwise"


def _column(definition: str) -> str:
    return f"`{definition}`" if "not null" in definition else f"`{definition}` (may be null)"


def _taken_apart(tokens: Sequence[str]) -> Iterator[Part]:
    """The columns and constraints in the text of a CREATE TABLE; the checks of a column count as the table's."""
    if "(" not in tokens:
        return
    for item in _split(tokens[tokens.index("(") + 1 : -1]):
        if item[0] in {"check", "unique", "primary", "foreign", "constraint"}:
            yield "constraint", _text(item), ""
            continue
        column = list(item)
        while "check" in column:
            start = column.index("check")
            end = _closing(column, start + 1) + 1
            yield "constraint", _text(column[start:end]), ""
            del column[start:end]
        yield "column", column[0], _text(column[1:])


def _split(tokens: Sequence[str]) -> Iterator[Sequence[str]]:
    """Cut at the commas outside of parentheses."""
    start = depth = 0
    for place, word in enumerate(tokens):
        depth += (word == "(") - (word == ")")
        if word == "," and depth == 0:
            yield tokens[start:place]
            start = place + 1
    yield tokens[start:]


def _closing(tokens: Sequence[str], opening: int) -> int:
    depth = 0
    for place in range(opening, len(tokens)):
        depth += (tokens[place] == "(") - (tokens[place] == ")")
        if depth == 0:
            return place
    return len(tokens) - 1


_TOKEN = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|\w+|[<>=!|]+|[^\s\w]""")


def _tokens(text: str) -> list[str]:
    """The words of a definition; case, spacing and quotes around names are ignored."""
    return [word if word.startswith("'") else word.strip('"').lower() for word in _TOKEN.findall(text)]


def _text(tokens: Sequence[str]) -> str:
    """The words joined again, for people."""
    return re.sub(r"(?<=[(.]) | (?=[),.])", "", " ".join(tokens))
