"""A query of the rows of a projection: conditions, an order and a page, checked before anything is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from stepwell.base.names import check_whole
from stepwell.errors import InvalidOption, SerializationError
from stepwell.projections.row_class import RowClass
from stepwell.projections.row_fold import RowFold
from stepwell.records import Page
from stepwell.store.row_table import Cell, Condition, Operator, OrderTerm
from stepwell.values.codec import decode, encode

OPERATORS: Final[Mapping[str, Operator]] = {"": "=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
OrderBy = str | Sequence[str] | None


class RowQuery:
    """Reads the rows of one projection as its live build has them."""

    def __init__(self, name: str, fold: RowFold) -> None:
        self._name = name
        self._rows = fold.rows
        self._table = fold.table

    async def page(self, conditions: Mapping[str, Any], order_by: OrderBy, limit: int, after: str | None) -> Page[Any]:
        """The rows that meet the conditions, in this order, after this place; none if no worker has begun it yet."""
        check_whole("limit", limit, 1, 10_000)
        said = [_condition(self._rows, name, value) for name, value in conditions.items()]
        order = _order(self._rows, order_by)
        place = None if after is None else _place(order, after)
        found = await self._table.page(self._name, said, order, place, limit + 1)
        names = [term.column.name for term in order]
        more = encode(self._rows.place(found[limit - 1], names)) if len(found) > limit else None
        return Page([self._rows.read(row) for row in found[:limit]], more)


def _condition(rows: RowClass, asked: str, value: object) -> Condition:
    name, _, operator = asked.partition("__")
    if operator not in OPERATORS or (asked.endswith("__")):
        known = ", ".join(f"`{name}__{one}=`" for one in OPERATORS if one)
        raise InvalidOption(asked, value, f"a range is one of {known}")
    column = rows.known(name)
    if value is None and operator:
        raise InvalidOption(asked, value, "None is neither more nor less than any value")
    try:
        return Condition(column, OPERATORS[operator], rows.cell(name, value))
    except SerializationError as error:
        raise InvalidOption(asked, value, f"{name} is {column.kind}") from error


def _order(rows: RowClass, order_by: OrderBy) -> list[OrderTerm]:
    """The columns to sort by; the key is the last, so that every row has a place of its own."""
    asked = [order_by] if isinstance(order_by, str) else list(order_by or ())
    terms = [OrderTerm(rows.comparable(one.removeprefix("-")), one.startswith("-")) for one in asked]
    sorted_by = [term.column for term in terms]
    if rows.key in sorted_by:
        return terms[: sorted_by.index(rows.key) + 1]
    return [*terms, OrderTerm(rows.key, descending=False)]


def _place(order: Sequence[OrderTerm], after: str) -> list[Cell]:
    """The place that `Page.next` of the same query has said."""
    why = "pass the `next` of a page of the same query, with the same `order_by`"
    try:
        cells: list[Cell] = decode(after, list[str | int | bool | None], what="after")
    except SerializationError as error:
        raise InvalidOption("after", after, why) from error
    if len(cells) != len(order) or not all(map(_fits, order, cells)):
        raise InvalidOption("after", after, why)
    return cells


def _fits(term: OrderTerm, cell: Cell) -> bool:
    if cell is None:
        return term.column.nullable
    match term.column.kind:
        case "bigint":
            return isinstance(cell, int) and not isinstance(cell, bool)
        case "bool":
            return isinstance(cell, bool)
        case _:
            return isinstance(cell, str)
