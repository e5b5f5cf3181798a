"""What a flush may be composed of: every part alone with all that may ride on it, every pair, all at once.

A part is planned by itself, in sight of nothing but the part that feeds it, so the plan of a part is the same beside
whatever else; `Piece` is what it depends on. That no flush of the whole suite has a piece which is not among these is
watched by a fixture in tests/conftest.py.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from stepwell.base.clock import DatabaseClock
from stepwell.store.audit import Note, What
from stepwell.store.driver import Call, Value
from stepwell.store.flush_calls import ENDING, PARTS, calls_of
from stepwell.store.pending import Operation
from stepwell.store.postgres.compose import Composer, Shape
from stepwell.store.sql import Statements

Piece = tuple[str, str | None, bool]  # a statement, the one that feeds it, and whether it has rows of its own
ADDING = frozenset(("add_tasks", "add_tasks_once", "add_with_conditions", "hand_over"))  # their tasks are not there yet
RECORDING = frozenset(("settle", "add_reports"))  # with steps of their tasks
Rows = dict[str, Sequence[Sequence[Value]]]  # of each part


def composed(rows: Rows, parts: Iterable[str], worker: int, *, parent: bool, noted: bool) -> list[Call]:
    """The calls of a flush of these parts, as the flush itself makes them."""
    batch = [_operation(part, row, worker, parent=parent, noted=noted) for part in parts for row in rows[part]]
    clock = {"now": DatabaseClock().now(), "beat_now": DatabaseClock().beat_now()}
    return calls_of(batch, clock, slot=0, shard=0, locks_tasks=True, beats=False)


def alone() -> Iterator[tuple[tuple[str, ...], bool, bool]]:
    """Every part by itself, with and without a parent to wake and a note to write."""
    for part, parent, noted in itertools.product(PARTS, (False, True), (False, True)):
        yield (part,), parent, noted


def together() -> Iterator[tuple[str, ...]]:
    """Every pair of parts, and all of them."""
    yield from itertools.combinations(PARTS, 2)
    yield PARTS


@cache
def known_pieces() -> frozenset[Piece]:
    """What the plan tests look at."""
    statements = Statements("postgres", "stepwell")
    rows: Rows = {part: [tuple(range(1, 1 + len(statements[part].columns)))] for part in PARTS}
    calls = (composed(rows, parts, 1, parent=parent, noted=noted) for parts, parent, noted in alone())
    return frozenset(piece for flush in calls for piece in _pieces([_shape(call) for call in flush]))


def unknown_pieces(shapes: Iterable[tuple[Shape, ...]]) -> set[Piece]:
    """What of these flushes the plan tests do not look at."""
    return {piece for shape in shapes for piece in _pieces(shape)} - known_pieces()


def noting_shapes(noted: set[tuple[Shape, ...]]) -> Any:
    """A composer's own way to make a text, which notes what it was made of; texts are kept, so that is not often."""
    make = Composer._compose_text

    def noting(self: Composer, shape: tuple[Shape, ...], locks: int | None) -> Any:
        if len(shape) > 1:
            noted.add(shape)
        return make(self, shape, locks)

    return noting


def _shape(call: Call) -> Shape:
    return call.statement, call.fed_by, int(call.rows is not None)


def _pieces(shape: Sequence[Shape]) -> Iterator[Piece]:
    for name, fed_by, rows in shape:
        yield name, None if fed_by is None else shape[fed_by][0], bool(rows)


def _operation(part: str, row: Sequence[Value], worker: int, *, parent: bool, noted: bool) -> Operation:
    task_id = int(str(row[0]))
    return Operation(
        statement=part,
        row=tuple(row),
        row_id=task_id,
        size=1,
        worker=worker,
        order=tuple(row[:1]),
        lane=None if part in ADDING else task_id,
        parent=task_id if parent and part in ENDING else None,
        restarts=parent and part == "settle",
        ends_run=parent and part == "settle",
        steps=[(task_id, None, 0, f"{part}#1", 1, "ERROR", 1, 0, None, None, "{}", None)]
        if parent and part in RECORDING
        else (),
        notes=[Note(task_id, What.FAILED, attempt=2)] if noted else (),
    )
