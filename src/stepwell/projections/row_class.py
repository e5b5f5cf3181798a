"""The dataclass of a projection's rows, and how its values stand in the columns of a table."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime
from enum import Enum
from functools import cached_property
from typing import Annotated, Any, Final, Literal, get_args, get_origin
from uuid import UUID

import msgspec

from stepwell.base.names import check_sql_name
from stepwell.errors import InvalidOption, SerializationError
from stepwell.store.row_table import Cell, Kind, RowColumn, RowTable
from stepwell.values.codec import check_type, decode, encode
from stepwell.values.fields import alternatives

RESERVED: Final = ("order_by", "limit", "after")
BIGGEST: Final = 2**63


class Key:
    """Marks the field by which a row is found: `order: Annotated[str, Key]`."""


class Indexed:
    """Marks a field that gets an index: `status: Annotated[str, Indexed]`."""


class RowClass:
    """A dataclass whose instances are the rows of a table."""

    def __init__(self, cls: Any) -> None:
        if not (isinstance(cls, type) and is_dataclass(cls)):
            raise InvalidOption("rows", cls, "it is a dataclass, with one field that is `Annotated[str, Key]`")
        check_type(cls, what=f"row {cls.__name__}")
        self.cls: type[Any] = cls
        hints = typing.get_type_hints(cls, include_extras=True)
        columns = {one.name: _column(one.name, hints[one.name]) for one in fields(cls)}
        keys = [name for name in columns if _marked(hints[name], Key)]
        if len(keys) != 1 or columns[keys[0]].kind not in ("text", "bigint") or columns[keys[0]].nullable:
            why = "one of its fields is the key, a text or a whole number: `order: Annotated[str, Key]`"
            raise InvalidOption("rows", cls, f"{why}; it has {', '.join(keys) or 'none'}")
        self.key = columns.pop(keys[0])
        self.columns = (self.key, *columns.values())

    @cached_property
    def by_name(self) -> Mapping[str, RowColumn]:
        """The columns by their names."""
        return {one.name: one for one in self.columns}

    def table(self, name: str) -> RowTable:
        """A table of these rows."""
        return RowTable(name, self.columns)

    def known(self, name: str) -> RowColumn:
        """The column of this name; InvalidOption names those that there are."""
        if name not in self.by_name:
            raise InvalidOption(name, name, f"{self.cls.__name__} has no such field; it has {', '.join(self.by_name)}")
        return self.by_name[name]

    def comparable(self, name: str) -> RowColumn:
        """The column of this name, if the database can compare its values."""
        column = self.known(name)
        if column.kind == "json":
            raise InvalidOption(
                name, name, "it is stored as JSON, which is not compared; read the table with your own SQL"
            )
        return column

    def cells(self, row: object) -> list[Cell]:
        """A row as cells, the key first; refused if it could not be read back as it is."""
        if type(row) is not self.cls:
            raise InvalidOption("row", row, f"the function of a projection returns {self.cls.__name__} or None")
        what = f"row of {self.cls.__name__}"
        text = encode(row, what=what)
        decode(text, self.cls, what=what)
        said = decode(text, what=what)
        return [_cell(one, said[one.name]) for one in self.columns]

    def cell(self, name: str, value: object) -> Cell:
        """A value that a column is compared with, as its cells are."""
        return _cell(self.comparable(name), decode(encode(value, what=name), what=name))

    def read(self, row: Mapping[str, Any]) -> Any:
        """A row of the table as an instance of the class."""
        said = {one.name: _said(one.kind, row[one.name]) for one in self.columns}
        return decode(encode(said), self.cls, what=f"row of {self.cls.__name__}")

    def place(self, row: Mapping[str, Any], names: Sequence[str]) -> list[Cell]:
        """The cells of some columns of a row that was read."""
        return [_cell_again(self.by_name[name].kind, row[name]) for name in names]


def _column(name: str, hint: Any) -> RowColumn:
    check_sql_name("column", name)
    if name in RESERVED:
        raise InvalidOption(
            "rows", name, f"a field has another name: {', '.join(RESERVED)} are arguments of `engine.query`"
        )
    kinds = [one for one in alternatives(hint) if one is not type(None)]
    return RowColumn(name, _kind(kinds), len(kinds) < len(list(alternatives(hint))), _marked(hint, Indexed))


def _marked(hint: Any, mark: type) -> bool:
    return get_origin(hint) is Annotated and any(one is mark or isinstance(one, mark) for one in get_args(hint)[1:])


def _kind(kinds: Sequence[Any]) -> Kind:
    """The kind of column for a type: JSON for what no column of SQL holds as it is."""
    match kinds:
        case [only] if get_origin(only) is Literal:
            return "text" if all(isinstance(one, str) for one in get_args(only)) else "json"
        case [type() as only] if issubclass(only, Enum):
            return "text" if all(isinstance(one.value, str) for one in only) else "json"
        case [type() as only]:
            return _KINDS.get(only, "json")
        case _:
            return "json"


_KINDS: Final[Mapping[type, Kind]] = {
    str: "text",
    UUID: "text",
    date: "text",
    int: "bigint",
    bool: "bool",
    float: "real",
    datetime: "moment",
}


def _cell(column: RowColumn, said: Any) -> Cell:
    """A value that was said in JSON, as the cell of its column."""
    if said is None:
        return None
    match column.kind, said:
        case ("text", str()) | ("bool", bool()):
            return said  # type: ignore[no-any-return]
        case "bigint", int() if not isinstance(said, bool) and -BIGGEST <= said < BIGGEST:
            return said
        case "real", int() | float() if not isinstance(said, bool):
            return repr(float(said))
        case "moment", str():
            return _moment(column.name, said)
        case "json", _:
            return encode(said)
    raise SerializationError(f"{said!r} does not fit its column, which is {column.kind}", path=f"$.{column.name}")


def _moment(name: str, said: str) -> str:
    """A moment as text whose order is that of time."""
    moment = datetime.fromisoformat(said)
    if moment.tzinfo is None:
        raise SerializationError("a moment without a time zone; use `datetime.now(UTC)`", path=f"$.{name}")
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _cell_again(kind: Kind, found: Any) -> Cell:
    """A cell that was read, as it was written."""
    match kind, found:
        case "moment", datetime():
            return found.astimezone(UTC).isoformat(timespec="microseconds")
        case "real", int() | float():
            return repr(float(found))
        case "bool", int():
            return bool(found)
        case _:
            return found  # type: ignore[no-any-return]


def _said(kind: Kind, found: Any) -> Any:
    """A cell that was read, as JSON says it."""
    match kind:
        case "bool":
            return None if found is None else bool(found)
        case "json":
            return None if found is None else msgspec.Raw(found.encode())
        case _:
            return found
