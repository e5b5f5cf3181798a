"""A projection as a pure function: its events are folded into rows, and what has changed is written at once."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from stepwell.base.names import check_sql_name
from stepwell.deciders.global_order import At
from stepwell.deciders.registry import Registry
from stepwell.errors import InvalidOption
from stepwell.projections.projection import Parts, Projection, events_of, options_of, wanted_of
from stepwell.projections.row_class import RowClass
from stepwell.store.database import Database
from stepwell.store.projections import HeldProjection
from stepwell.store.row_table import Cell, Changed, Rows, shapes_of
from stepwell.store.transaction import Tx

FUNCTION: Final = (
    "`def orders(row: OrderRow | None, event: Placed | Paid) -> OrderRow | None`, and `at: At` if it wants"
)
KEY: Final = "`key=lambda event: ...`, or of event and at"


class RowFold:
    """The rows of one projection: a row belongs to a key, and each event to one row, or to none."""

    def __init__(self, function: Callable[..., Any], rows: RowClass, table: Rows) -> None:
        options = options_of(function)
        if options.key is None and rows.key.kind != "text":
            why = f"say `key=`: the id of an event's instance is text, and {rows.key.name} is a number"
            raise InvalidOption("rows", rows.cls, why)
        self.rows = rows
        self.table = table
        self._function = _with_place(function, 2, FUNCTION)
        self._key = _instance_id if options.key is None else _with_place(options.key, 1, KEY)

    @classmethod
    def of(cls, function: Any, database: Database) -> RowFold:
        """The rows of a function with `@projection(rows=...)`; each tenant has a table of its own."""
        options, tenant = options_of(function), database.options.tenant
        rows = RowClass(options.rows)
        name = f"{check_sql_name('tenant', tenant)}__{options.name}" if tenant else options.name
        return cls(function, rows, Rows(database, rows.table(name)))

    def projection(self, function: Callable[..., Any], registry: Registry) -> Projection:
        """The projection that keeps these rows."""
        options = options_of(function)
        event = list(inspect.signature(function).parameters)[1]
        classes = events_of(options, function, event)
        return Projection(
            name=options.name,
            options=options,
            classes=classes,
            wanted=wanted_of(classes, registry),
            handle=self.handle,
            begin=self.begin,
            takes_tx=True,
            tables=json.dumps({self.table.table.name: self.table.table.shape}),
            makes_tables=True,
        )

    async def begin(self, tx: Tx, held: HeldProjection) -> None:
        """Make the table of a build, in place of those that it had before a reset."""
        await self.table.make(tx, held.build, held.names_of(shapes_of(held.tables)).values())

    async def handle(self, parts: Parts, tx: Tx | None) -> None:
        """Fold events into their rows, in their order: one read, and one write of what has changed."""
        assert tx is not None
        if (folding := self.folding(parts)) is not None:
            await self.table.write(tx, folding.keys, folding.changed)

    def folding(self, parts: Parts) -> RowFolding | None:
        """What these events do to their rows; None if they concern none."""
        keyed = [(self._cell_of(key), at, event) for at, event in parts if (key := self._key(event, at)) is not None]
        return RowFolding(self.rows, self._function, keyed) if keyed else None

    def _cell_of(self, key: object) -> Cell:
        return self.rows.cell(self.rows.key.name, key)


class RowFolding:
    """Events and their keys, ready to be folded into the rows of these keys."""

    def __init__(self, rows: RowClass, function: Callable[..., Any], keyed: Sequence[tuple[Cell, At, Any]]) -> None:
        self.keys = list(dict.fromkeys(cell for cell, _, _ in keyed))
        self._rows = rows
        self._function = function
        self._keyed = keyed

    def changed(self, found: Sequence[Mapping[str, Any]]) -> Changed:
        """What becomes of the rows; a function that is pure may be asked again."""
        before = {row[self._rows.key.name]: self._rows.read(row) for row in found}
        after: dict[Cell, Any] = dict(before)
        for cell, at, event in self._keyed:
            after[cell] = self._function(after.get(cell), event, at)
        kept = [self._cells(after[cell], cell) for cell in self.keys if after[cell] is not None]
        return Changed(kept, [cell for cell in self.keys if after[cell] is None and cell in before])

    def _cells(self, row: Any, cell: Cell) -> list[Cell]:
        cells = self._rows.cells(row)
        if cells[0] != cell:
            why = f"its {self._rows.key.name} is not the key of the event, {cell!r}: an event changes its own row only"
            raise InvalidOption("row", row, why)
        return cells


def _with_place(function: Callable[..., Any], least: int, shape: str) -> Callable[..., Any]:
    """A function that takes the event's place too, whether the given one does or not."""
    takes = len(inspect.signature(function).parameters)
    if inspect.iscoroutinefunction(function) or takes not in (least, least + 1):
        raise InvalidOption("projection", getattr(function, "__name__", function), f"it is {shape}")
    return function if takes > least else lambda *given: function(*given[:-1])


def _instance_id(_: object, at: At) -> str:
    return at.id
