"""Many rows by their columns, and as the text that COPY reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any, Final, overload

from stepwell.store.driver import Value

PIECE: Final = 500  # rows that are sent at once: the database takes them while the next are written


@dataclass(frozen=True, slots=True)
class Same:
    """A column with one value for all rows."""

    value: Value


class Columns(Sequence[tuple[Value, ...]]):
    """Rows by their columns, of which at least the first has a value for each; a row is made when it is asked for."""

    def __init__(self, columns: Sequence[Same | Sequence[Value]]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        first = self.columns[0]
        assert not isinstance(first, Same)
        return len(first)

    def __iter__(self) -> Iterator[tuple[Value, ...]]:
        # Put together where no Python is executed: a tenth of a microsecond for each row, not a half.
        endless = (repeat(column.value) if isinstance(column, Same) else column for column in self.columns)
        return zip(*endless)  # noqa: B905 - what is repeated has no end

    @overload
    def __getitem__(self, place: int) -> tuple[Value, ...]: ...
    @overload
    def __getitem__(self, place: slice) -> list[tuple[Value, ...]]: ...
    def __getitem__(self, place: int | slice) -> tuple[Value, ...] | list[tuple[Value, ...]]:
        return list(self)[place]


async def copied(rows: Columns) -> AsyncIterator[bytes]:
    """The rows as COPY reads them, in pieces.

    As text and not in the driver's binary format: what is the same in all rows is written once, so a row costs this
    process 0.3 us and not 1.1, and the database begins with the first piece and not after half a megabyte.
    """
    cells, varying = [], []
    for column in rows.columns:
        if isinstance(column, Same):
            cells.append(_text(column.value).replace("%", "%%"))
        else:
            cells.append("%s")
            varying.append(_texts(column))
    row = "\t".join(cells) + "\n"
    lines = map(row.__mod__, zip(*varying, strict=True))
    while piece := "".join(islice(lines, PIECE)):
        yield piece.encode()


def _texts(column: Sequence[Value]) -> Sequence[Value]:
    """The cells of a column as their texts, or as what is written as its text by itself."""
    types = set(map(type, column))
    if types == {int}:
        return column
    if types == {str}:
        texts: Any = column
        everything = "".join(texts)
        if not any(special in everything for special in _ESCAPES):
            return column
    return [_text(cell) for cell in column]


def _text(cell: Value) -> str:
    match cell:
        case None:
            return r"\N"
        case str():
            return cell.translate(_TABLE)
        case _:
            return str(cell)


_ESCAPES: Final = {"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"}
_TABLE: Final = str.maketrans(_ESCAPES)
