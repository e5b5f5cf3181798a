"""Statements as the embedded databases take them: named parameters, and a row set as JSON of many rows or as one row.

One statement for many rows costs a third of a statement for each. A row crosses as a JSON array, so its values are
what JSON can say of them: text, whole numbers of 64 bits, booleans (1 and 0) and null; JSON columns are text in it.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

import msgspec

from stepwell.base.clock import boot_microseconds, wall_microseconds
from stepwell.store.driver import Call, Row, Value
from stepwell.store.sql import Column, Parameter, RowSet, Statements

Rows = Sequence[Sequence[Value]]


@dataclass(frozen=True, slots=True)
class Spelled:
    """A statement as an embedded database takes it."""

    one: str  # with no row set, or for one row of it
    many: str  # for any number of rows
    columns: Sequence[Column]
    names: tuple[str, ...]  # of the parameters that are the columns of one row
    asks: frozenset[str]  # the clocks that it reads
    singly: bool  # it is run for one row at a time


class Rendered:
    """Every statement in the spelling of one embedded database."""

    def __init__(self, statements: Statements, *, many_rows: bool) -> None:
        self._statements = statements
        self._many_rows = many_rows
        self._spelled: dict[str, Spelled] = {}

    def execute(self, connection: Any, call: Call, rows: Rows | None) -> list[Row]:
        """Run one call and return every row it returned."""
        said = self.each(call, rows)
        if len(said) == 1:
            [(text, values)] = said
            only: list[Row] = connection.execute(text, values).fetchall()
            return only
        found: list[Row] = []
        for text, values in said:
            found.extend(connection.execute(text, values).fetchall())
        return found

    def each(self, call: Call, rows: Rows | None) -> list[tuple[str, dict[str, Value]]]:
        """The statements that one call is here, each with its values; none if its row set is empty."""
        spelled = self._spelled.get(call.statement) or self._spell(call.statement)
        values = dict(call.params)
        if spelled.asks:
            _fill_in(values, spelled.asks)
        if not spelled.columns:
            return [(spelled.one, values)]
        if rows is not None and len(rows) > 1 and self._many_rows and not spelled.singly:
            values["rows"] = _as_json(spelled.columns, list(rows))  # gone through more than once
            return [(spelled.many, values)]
        return [(spelled.one, {**values, **dict(zip(spelled.names, row, strict=True))}) for row in rows or ()]

    def _spell(self, name: str) -> Spelled:
        statement = self._statements[name]
        spelled = Spelled(
            "".join(_piece(token, many=False) for token in statement.tokens),
            "".join(_piece(token, many=True) for token in statement.tokens),
            statement.columns,
            tuple(f"row_{column.name}" for column in statement.columns),
            frozenset(token.name for token in statement.tokens if isinstance(token, Parameter)) & CLOCKS.keys(),
            statement.singly,
        )
        self._spelled[name] = spelled
        return spelled


def _piece(token: str | Parameter | RowSet, *, many: bool) -> str:
    match token:
        case Parameter(name):
            return f":{name}"
        case RowSet(columns) if many:
            cells = ", ".join(f"value ->> {place} as {column.name}" for place, column in enumerate(columns))
            # Not a limit but a bar: SQLite 3.51 would merge this into the statement, and read all rows for each task.
            return f"select {cells} from json_each(:rows) limit -1"  # noqa: S608 - columns of our own .sql files
        case RowSet(columns):
            return "select " + ", ".join(f":row_{column.name} as {column.name}" for column in columns)
        case str():
            return token


def _as_json(columns: Sequence[Column], rows: Rows) -> str:
    """The rows as one JSON array; a number beyond 64 bits is an OverflowError, as it is in a parameter."""
    for place, column in enumerate(columns):
        if column.type == "bigint":
            array("q", filter(None, map(itemgetter(place), rows)))  # SQLite would read it as the nearest float
    return _ROWS.encode(rows).decode()


def _plain(value: object) -> Value:
    """A number or text of a class of its own, such as a `TaskId`, as what it is."""
    match value:
        case int():
            return int(value)
        case str():
            return str.__str__(value)
        case _:
            raise TypeError(f"a row holds {value!r}, which no database stores")


_ROWS: Final = msgspec.json.Encoder(enc_hook=_plain)


def _fill_in(values: dict[str, Value], asks: Collection[str]) -> None:
    """Fill in the clock, unless a test brought its own: wall time for moments, boot time for beats.

    Boot time, so that setting the host's clock neither kills nor spares a session; after a reboot every old beat
    lies in the future or is stale, which is both dead.
    """
    for name in asks:
        if values.get(name) is None:
            values[name] = CLOCKS[name]()


CLOCKS: Final = {"now": wall_microseconds, "beat_now": boot_microseconds}
