"""Composing calls into one Postgres statement, so that a flush is one round trip; the rows of a bulk into a COPY."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from stepwell.store.driver import NUMBERED, Call, Columns, Row, Same, Value
from stepwell.store.sql import Column, Parameter, RowSet, Statements

# A statement, the part that feeds it, and which rows of its own it has. One row is said in values of its own: a step by
# itself costs the server 105 us so, and 167 where ten joined strings are taken apart.
NO_ROWS, ONE_ROW, MANY_ROWS = range(3)
Shape = tuple[str, int | None, int]
# Where values come from: the call, and its parameter, or the columns of all its rows.
Source = tuple[int, str | tuple[Column, ...]]
PIECE: Final = 64 * 1024  # characters that are sent at once: the database takes them while the next are written
QUOTED: Final = 100  # bytes
_ESCAPES: Final = (("\\", r"\\"), ("\t", r"\t"), ("\n", r"\n"), ("\r", r"\r"))  # the backslash first


class Composer:
    """Turns calls into one statement text and the list of its values."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self._text = lru_cache(maxsize=1024)(self._compose_text)

    def compose(self, calls: Sequence[Call], locks: float | None = None) -> tuple[str, list[Any]]:
        """One text for all the calls; the same combination of calls always gives the same text.

        With `locks` the statement waits only so many seconds for a lock, whatever the connection says: its first rows
        come after that was set, and it is set for this transaction alone.
        """
        # All by themselves, or all joined: of n parts there are then 2 to the n texts to prepare, not 3.
        rows = ONE_ROW
        for call in calls:
            if call.rows is not None and len(call.rows) != 1:
                rows = MANY_ROWS
                break
        shape = tuple([(call.statement, call.fed_by, NO_ROWS if call.rows is None else rows) for call in calls])
        text, sources = self._text(shape, None if locks is None else int(locks * 1000))
        values: list[Any] = []
        for index, source in sources:
            call = calls[index]
            if isinstance(source, str):
                values.append(call.params.get(source))
            elif rows == ONE_ROW and call.rows:
                values.extend(_cells_of(source, call.rows[0]))
            else:
                values.extend(_columns_of(source, call.rows or ()))
        return text, values

    def place(self, call: Call) -> dict[str, Any]:
        """Where the rows of a bulk go: the statement `load_x` says the columns of the table x."""
        columns = [column.name for column in self._statements[call.statement].columns]
        table = call.statement.removeprefix("load_")
        return {"table_name": table, "schema_name": self._statements.schema, "columns": columns}

    def split(self, rows: Sequence[Row], count: int) -> list[list[Row]]:
        """Give each call of a composed statement the rows it returned."""
        if count == 1:
            return [list(rows)]
        parts: list[list[Row]] = [[] for _ in range(count)]
        for row in rows:
            parts[row["part"]].append(row)
        return parts

    def _compose_text(self, shape: tuple[Shape, ...], locks: int | None) -> tuple[str, list[Source]]:
        places: list[Source | None] = []  # of each value; a row set has one for each column, and says so at the first
        parts = [self._render(one, index, places, None if index else locks) for index, one in enumerate(shape)]
        sources = [place for place in places if place is not None]
        if len(parts) == 1:
            return parts[0], sources
        heads = ",\n".join(f"part{index} as (\n{part}\n)" for index, part in enumerate(parts))
        names = [name for name, *_ in shape]
        tails = "\nunion all ".join(
            f"select {index} as part, id, answer{number} from part{index}"
            for index, number in enumerate(_numbers(names))
        )
        return f"with {heads}\n{tails}", sources

    def _render(self, shape: Shape, index: int, places: list[Source | None], locks: int | None) -> str:
        name, fed_by, rows = shape
        seen: dict[str, int] = {}
        text = []
        for token in self._statements[name].tokens:
            match token:
                case Parameter(name):
                    if name not in seen:
                        places.append((index, name))
                        seen[name] = len(places)
                    text.append(f"${seen[name]}")
                case RowSet(columns) if fed_by is not None and rows == NO_ROWS:
                    names = ", ".join(column.name for column in columns)
                    text.append(f"select {names} from part{fed_by}")
                case RowSet(columns):
                    given = (_one_row if rows == ONE_ROW else _unnest)(columns, len(places))
                    if locks is not None:
                        given = f"select given.* from ({_waiting(locks)}) as brief cross join ({given}) as given"
                    text.append(given if fed_by is None else f"{given} {_answered(fed_by)}")
                    places += [(index, columns), *[None] * (len(columns) - 1)]
                case str():
                    text.append(token)
        return "".join(text)


# How a column of a row set travels: one joined string is a quarter of the client's cost of an array. Numbers are
# joined by commas; JSON text and checked names cannot hold the separator (JSON escapes control characters) and are
# never empty, so an empty element is null. Text that users may fill with anything goes as a real array.
_SEPARATOR = "\x1f"
_POSTGRES_TYPES = {"bigint": "bigint", "bool": "boolean", "json": "json", "name": "text", "text": "text"}


async def copied(rows: Columns) -> AsyncIterator[bytes]:
    """The rows as COPY reads them in UTF-8, in pieces; the first column is of numbers, and the last one is hidden.

    As text and not in the driver's binary format: what is the same in all rows is written once, so a row costs this
    process 0.6 us and not 1.1, and the database begins with the first piece and not after half a megabyte.
    """
    same = [_text(column.value) if isinstance(column, Same) else None for column in rows.columns]
    cells = ["%s" if text is None else text.replace("%", "%%") for text in same]
    # Postgres quotes the beginning of a line that it refuses, also in its log. No payload is to stand there: before a
    # number there may be any number of blanks.
    cells[0] = f"%{max(1, QUOTED - len(''.join(filter(None, same))))}s"
    lines = map(("\t".join(cells) + "\n").__mod__, zip(*_varying(rows), strict=True))
    piece: list[str] = []
    size = 0
    for line in lines:
        piece.append(line)
        size += len(line)
        if size >= PIECE:
            yield "".join(piece).encode()
            piece, size = [], 0
    yield "".join(piece).encode()


def _numbers(names: Sequence[str]) -> list[str]:
    """For each part the column beside its answer: none, unless one of them has a number to say."""
    if NUMBERED.isdisjoint(names):
        return [""] * len(names)
    return [", number" if name in NUMBERED else ", cast(null as bigint) as number" for name in names]


def _waiting(locks: int) -> str:
    return f"select set_config('lock_timeout', '{locks}ms', true)"


def _answered(fed_by: int) -> str:
    """Which of the rows given were answered by another part as they need it."""
    return (
        f"where exists (select 1 from part{fed_by} as done where done.id = given.id"
        " and (given.answer is null or done.answer = given.answer))"
    )


def _unnest(columns: Sequence[Column], taken: int) -> str:
    sources = []
    for place, column in enumerate(columns, taken + 1):
        match column.type:
            case "bigint" | "bool":
                sources.append(f"cast(string_to_array(${place}, ',', '') as {_POSTGRES_TYPES[column.type]}[])")
            case "json" | "name":
                sources.append(f"cast(string_to_array(${place}, chr(31), '') as {_POSTGRES_TYPES[column.type]}[])")
            case _:
                sources.append(f"cast(${place} as text[])")
    names = ", ".join(column.name for column in columns)
    return f"select * from unnest({', '.join(sources)}) as given({names})"


def _one_row(columns: Sequence[Column], taken: int) -> str:
    # The first cell in an array, so that the planner does not count on one row: on an empty table it would then go
    # through all the tasks to find those of one row, and keep doing so when the table is full.
    # A number goes as text: what an array of numbers is, the driver would ask the server on every connection, which
    # costs it more than most statements do.
    first, *others = columns
    cells = [f"{_cell(column, place)} as {column.name}" for place, column in enumerate(others, taken + 2)]
    given = f"cast(${taken + 1} as text)" if first.type == "bigint" else f"${taken + 1}"
    source = f"unnest(cast({given} as {_type(first)}[])) as first({first.name})"
    return f"select * from (select {', '.join(['first.*', *cells])} from {source}) as given"


def _cell(column: Column, place: int) -> str:
    # JSON goes as text, as with the macro `json_of`.
    return f"cast(cast(${place} as text) as json)" if column.type == "json" else f"cast(${place} as {_type(column)})"


def _type(column: Column) -> str:
    return _POSTGRES_TYPES[column.type]


def _cells_of(columns: Sequence[Column], row: Sequence[Value]) -> list[Any]:
    pairs = zip(columns, row, strict=True)
    cells = [cell or None if column.type in ("json", "name") else cell for column, cell in pairs]
    if columns[0].type == "bigint":
        return ["{NULL}" if cells[0] is None else f"{{{cells[0]}}}", *cells[1:]]
    return [cells[:1], *cells[1:]]


def _columns_of(columns: Sequence[Column], rows: Sequence[Sequence[Value]]) -> list[Any]:
    values: list[Any] = []
    cells_of: Sequence[Sequence[Value]] = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    for column, cells in zip(columns, cells_of, strict=True):
        match column.type:
            case "bigint" | "bool":
                values.append(_joined(cells, ","))
            case "json" | "name":
                values.append(_joined(cells, _SEPARATOR))
            case _:
                values.append(list(cells))
    return values


def _joined(cells: Sequence[Value], separator: str) -> str:
    if cells and cells.count(cells[0]) == len(cells):  # as most columns are, of a flush of what has succeeded
        return separator.join(["" if cells[0] is None else str(cells[0])] * len(cells))
    return separator.join(["" if cell is None else str(cell) for cell in cells])


def _varying(rows: Columns) -> Iterator[Iterable[object]]:
    """The cells of each column that has a value for each row, as what is written as its text."""
    for column in rows.columns:
        if not isinstance(column, Same):
            # Numbers are written as they are, and there are thousands.
            yield column if set(map(type, column)) == {int} else map(_text, column)


def _text(cell: Value) -> str:
    if cell is None:
        return r"\N"
    text = str(cell)
    for special, escaped in _ESCAPES:  # not `translate`, which takes thirty times as long
        if special in text:
            text = text.replace(special, escaped)
    return text
