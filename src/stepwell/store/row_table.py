"""A table that a projection makes of a dataclass: its columns, and the calls that write and read its rows."""

from __future__ import annotations

import itertools
import json
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from stepwell.errors import StoreUnusable
from stepwell.store.driver import Call, Row, Script, Value, play_async
from stepwell.store.sql import Statements

if TYPE_CHECKING:
    from stepwell.store.database import Database
    from stepwell.store.transaction import Tx

Cell = Value
Kind = Literal["text", "bigint", "bool", "real", "moment", "json"]
Operator = Literal["=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class RowColumn:
    """One column of a table of rows."""

    name: str
    kind: Kind
    nullable: bool = False
    indexed: bool = False


class Condition(NamedTuple):
    """What a row has to meet: a column beside a value; None with `=` means that the column is null."""

    column: RowColumn
    operator: Operator
    value: Value


class Changed(NamedTuple):
    """What becomes of some rows: those that are inserted or replaced, and the keys of those that are deleted."""

    kept: Sequence[Sequence[Cell]]
    removed: Sequence[Cell]


class OrderTerm(NamedTuple):
    """A column by which rows are sorted; null comes last."""

    column: RowColumn
    descending: bool


@dataclass(frozen=True, slots=True)
class RowTable:
    """A table's own name, and its columns; the first is the key.

    Each call names the table that it is about: a build of a projection beside the live one has a table of its own.
    """

    name: str
    columns: tuple[RowColumn, ...]

    @property
    def shape(self) -> str:
        """Its columns as text: two tables of one shape hold the same rows."""
        return ", ".join(
            f"{one.name} {one.kind}{'' if one.nullable else ' not null'}{' indexed' if one.indexed else ''}"
            for one in self.columns
        )


class Rows:
    """The rows of one table: written in the transaction of a batch, and read as they are committed."""

    def __init__(self, database: Database, table: RowTable) -> None:
        self._db = database
        self._calls = RowCalls(database.statements, table)
        self.table = table

    async def make(self, tx: Tx, build: int, had: Iterable[str]) -> None:
        """Make the table of a build, in place of those that it `had` before a reset."""
        for name in had:
            await tx.answer(TableCalls(self._db.statements).drop(name))
        for call in self._calls.make(tx.table(self.table.name), build):
            await tx.answer(call)

    def fold(self, name: str, keys: Sequence[Cell], changed: Callable[[Sequence[Row]], Changed]) -> Script[None]:
        """Write what becomes of the rows of these keys, in the table of this name: one read, and one write."""
        kept, removed = changed((yield self._calls.look(name, keys)))
        if kept:
            yield self._calls.keep(name, kept)
        if removed:
            yield self._calls.remove(name, removed)

    async def write(self, tx: Tx, keys: Sequence[Cell], changed: Callable[[Sequence[Row]], Changed]) -> None:
        """As `fold`, in the transaction of a batch, in the table of its build."""
        await play_async(self.fold(tx.table(self.table.name), keys, changed), tx.answer)

    async def page(
        self,
        name: str,
        where: Sequence[Condition],
        order: Sequence[OrderTerm],
        after: Sequence[Cell] | None,
        limit: int,
    ) -> list[Row]:
        """Rows of the live build of this projection; none if no worker has begun it yet."""
        self._db.check()
        try:
            call = self._calls.query(where, order, after, limit)
            return await self._db.repeat(lambda: self._db.driver.read(call))  # a swap may lock the table for a moment
        except StoreUnusable:
            if any(one.live and one.tables for one in await self._db.projections.infos(name)):
                raise
            return []


class RowCalls:
    """The calls of one database on a table of rows."""

    def __init__(self, statements: Statements, table: RowTable) -> None:
        self._statements = statements
        self._spell = _POSTGRES if statements.dialect == "postgres" else _SQLITE
        self._key = table.columns[0]
        self.table = table
        aliased = list(zip(table.columns, _letters("c_"), strict=False))
        self._words = {
            "key": _quoted(self._key.name),
            "columns": ", ".join(self._defined(one) for one in table.columns),
            "names": ", ".join(_quoted(one.name) for one in table.columns),
            "cells": ", ".join(self._spell[one.kind].cell.format(f"rows.{alias}") for one, alias in aliased),
            "changes": ", ".join(f"{_quoted(one.name)} = excluded.{_quoted(one.name)}" for one in table.columns),
            "row_set": ", ".join(f"{alias} {self._spell[one.kind].travels}" for one, alias in aliased),
            "key_set": f"c_a {self._spell[self._key.kind].travels}",
            "read": ", ".join(f"{self._read(one)} as {_quoted(one.name)}" for one in table.columns),
        }

    def make(self, name: str, build: int) -> list[Call]:
        """Make the table of a build under this name, with its indexes."""
        calls = [self._call("make_rows", name)]
        for one in self.table.columns:
            if one.indexed:
                index = _quoted(f"{self.table.name}__{build}_{one.name}")
                calls.append(self._call("index_rows", name, f"{name} {index}", index=index, column=_quoted(one.name)))
        return calls

    def look(self, name: str, keys: Iterable[Value]) -> Call:
        """The rows of these keys."""
        return self._call("look_at_rows", name, rows=[(key,) for key in keys])

    def keep(self, name: str, rows: Sequence[Sequence[Value]]) -> Call:
        """Insert or replace these rows."""
        return self._call("keep_rows", name, rows=rows)

    def remove(self, name: str, keys: Iterable[Value]) -> Call:
        """Delete the rows of these keys."""
        return self._call("remove_rows", name, rows=[(key,) for key in keys])

    def query(
        self,
        conditions: Sequence[Condition],
        order: Sequence[OrderTerm],
        after: Sequence[Value] | None,
        limit: int,
    ) -> Call:
        """A page of the live build's rows, sorted by these columns, which end with the key; it begins after a place."""
        sayer = _Sayer(self._spell)
        said = ["true", *map(sayer.say, conditions)]
        if after is not None:
            beyond = [sayer.beyond(order[:number], after) for number in range(1, len(order) + 1)]
            said.append(f"({' or '.join(filter(None, beyond))})")
        words = {"conditions": " and ".join(said), "order": ", ".join(_sorted_by(term) for term in order)}
        key = f"{self.table.name} {words['conditions']} order {words['order']}"
        return self._call("query_rows", self.table.name, key, params={**sayer.values, "limit": limit}, **words)

    def _call(
        self,
        template: str,
        name: str,
        key: str = "",
        *,
        rows: Sequence[Sequence[Value]] | None = None,
        params: dict[str, Value] | None = None,
        **words: str,
    ) -> Call:
        known = f"{template} of {key or name}: {self.table.shape}"
        self._statements.add(template, known, {**self._words, "table": _quoted(name), **words})
        return Call(known, params or {}, rows)

    def _defined(self, one: RowColumn) -> str:
        return f"{_quoted(one.name)} {self._spell[one.kind].type}{'' if one.nullable else ' not null'}"

    def _read(self, one: RowColumn) -> str:
        column = f"given.{_quoted(one.name)}"
        return f"{{text_of {column}}}" if one.kind == "json" else column


class TableCalls:
    """The calls on tables of projections that need only their names."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    def drop(self, name: str) -> Call:
        """Drop a table."""
        return Call(self._statements.add("drop_rows", f"drop_rows of {name}", {"table": _quoted(name)}))

    def rename(self, name: str, other: str) -> Call:
        """Rename a table."""
        words = {"table": _quoted(name), "other": _quoted(other)}
        return Call(self._statements.add("rename_rows", f"rename_rows of {name} to {other}", words))


def table_of_build(table: str, build: int, *, live: bool) -> str:
    """The name of a build's table: its own for the live build, `orders__2` for another."""
    return table if live else f"{table}__{build}"


def shapes_of(tables: str | None) -> dict[str, str]:
    """The shape of each table of a build, as its row in `{projection}` says it; '' if the user makes the table."""
    return {} if tables is None else dict(json.loads(tables))


class _Spelling(NamedTuple):
    """How a kind of column is spelled: its type, how its values travel in a row set, and how a value is read there."""

    type: str
    travels: str
    cell: str = "{}"
    given: str = "{}"


_POSTGRES: Final = {
    "text": _Spelling("text", "text", given="cast({} as text)"),
    "bigint": _Spelling("bigint", "bigint", given="cast({} as bigint)"),
    "bool": _Spelling("boolean", "bool", given="cast({} as boolean)"),
    "real": _Spelling(
        "double precision", "text", "cast({} as double precision)", "cast(cast({} as text) as double precision)"
    ),
    "moment": _Spelling("timestamptz", "text", "cast({} as timestamptz)", "cast(cast({} as text) as timestamptz)"),
    "json": _Spelling("json", "text", "cast({} as json)"),
}
_SQLITE: Final = {
    "text": _Spelling("text", "text"),
    "bigint": _Spelling("bigint", "bigint"),
    "bool": _Spelling("boolean", "bool"),
    "real": _Spelling("real", "text", "cast({} as real)", "cast({} as real)"),
    "moment": _Spelling("text", "text"),
    "json": _Spelling("text", "text"),
}


class _Sayer:
    """Says conditions one after the other, and keeps their values under names of their own."""

    def __init__(self, spell: Mapping[str, _Spelling]) -> None:
        self.values: dict[str, Value] = {}
        self._spell = spell
        self._names = _letters("p_")

    def say(self, condition: Condition) -> str:
        """One condition."""
        column = f"given.{_quoted(condition.column.name)}"
        if condition.value is None:
            return f"{column} is null"
        name = next(self._names)
        self.values[name] = condition.value
        return f"{column} {condition.operator} {self._spell[condition.column.kind].given.format(f':{name}')}"

    def beyond(self, order: Sequence[OrderTerm], after: Sequence[Value]) -> str | None:
        """The rows equal to the place in all terms but the last that come after it by that; None if none can."""
        *equal, (column, descending) = order
        if (value := after[len(equal)]) is None:
            return None  # null comes last
        last = self.say(Condition(column, "<" if descending else ">", value))
        if column.nullable:
            last = f"({last} or given.{_quoted(column.name)} is null)"
        same = [self.say(Condition(term.column, "=", cell)) for term, cell in zip(equal, after, strict=False)]
        return f"({' and '.join([*same, last])})"


def _sorted_by(term: OrderTerm) -> str:
    column = f"given.{_quoted(term.column.name)}"
    direction = " desc" if term.descending else ""
    return f"({column} is null), {column}{direction}" if term.column.nullable else f"{column}{direction}"


def _letters(prefix: str) -> Iterator[str]:
    """Names without end, of letters alone, as those of parameters are."""
    for width in itertools.count(1):
        for letters in itertools.product(string.ascii_lowercase, repeat=width):
            yield prefix + "".join(letters)


def _quoted(name: str) -> str:
    return f'"{name}"'
