"""Statements as the embedded databases take them: named parameters, and a row set as JSON of many rows or as one row.

One statement for many rows costs a third of a statement for each. A row crosses as a JSON array, so its values are
what JSON can say of them: text, whole numbers of 64 bits, booleans (1 and 0) and null; JSON columns are text in it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec

from stepwell.base.clock import boot_microseconds, wall_microseconds
from stepwell.store.driver import Call, Row, Value
from stepwell.store.sql import Column, Parameter, RowSet, Statement, Statements

Rows = Sequence[Sequence[Value]]


class Rendered:
    """Every statement in the spelling of one embedded database."""

    def __init__(self, statements: Statements, *, many_rows: bool) -> None:
        self._statements = statements
        self._many_rows = many_rows
        self._texts: dict[tuple[str, bool], str] = {}

    def execute(self, connection: Any, call: Call, rows: Rows | None) -> list[Row]:
        """Run one call and return every row it returned."""
        found: list[Row] = []
        for text, values in self.each(call, rows):
            found.extend(connection.execute(text, values).fetchall())
        return found

    def each(self, call: Call, rows: Rows | None) -> Iterator[tuple[str, Mapping[str, Value]]]:
        """The statements that one call is here, each with its values; none if its row set is empty."""
        statement = self._statements[call.statement]
        values = _with_clock(call.params)
        many = self._many_rows and not statement.singly and rows is not None and len(rows) > 1
        text = self._text(statement, many=many)
        if not statement.columns:
            yield text, values
        elif many:
            values["rows"] = _as_json(statement.columns, list(rows or ()))  # gone through more than once
            yield text, values
        else:
            names = [f"row_{column.name}" for column in statement.columns]
            for row in rows or ():
                values.update(zip(names, row, strict=True))
                yield text, values

    def _text(self, statement: Statement, *, many: bool = False) -> str:
        if (text := self._texts.get((statement.name, many))) is None:
            text = "".join(_piece(token, many=many) for token in statement.tokens)
            self._texts[statement.name, many] = text
        return text


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


def _with_clock(params: Mapping[str, Value]) -> dict[str, Value]:
    """Fill in the clock, unless a test brought its own: wall time for moments, boot time for beats.

    Boot time, so that setting the host's clock neither kills nor spares a session; after a reboot every old beat
    lies in the future or is stale, which is both dead.
    """
    values = dict(params)
    if values.get("now") is None:
        values["now"] = wall_microseconds()
    if values.get("beat_now") is None:
        values["beat_now"] = boot_microseconds()
    return values
