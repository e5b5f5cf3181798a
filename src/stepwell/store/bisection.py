"""Bisection of a transaction that failed: halve it to find the rows that cannot be written, and write the others."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from stepwell.errors import Refused, StoreLocked
from stepwell.store.driver import Call, Row, Script
from stepwell.store.pending import Need, Operation
from stepwell.store.sql import fed_rows

SEEKING: Final = 0.003  # seconds that each part waits for a lock: the whole transaction has waited longer already
MOST_IN_VAIN: Final = 24  # parts that may wait in vain; then all parts that are not tried yet count as locked

T = TypeVar("T")


async def seek(
    units: Sequence[T],
    attempt: Callable[[Sequence[T]], Awaitable[bool]],
    held: Callable[[T], object],
    in_vain: Iterator[int] | None = None,
) -> None:
    """Do together what is not locked: halve what waited in vain for a lock until each locked item stands alone.

    `attempt` does some items together. It returns False, and does nothing, if one of them is locked.
    """
    in_vain = itertools.count() if in_vain is None else in_vain
    if len(units) == 1 or next(in_vain) >= MOST_IN_VAIN:
        for unit in units:
            held(unit)
        return
    for part in (units[: len(units) // 2], units[len(units) // 2 :]):
        if not await attempt(part):
            await seek(part, attempt, held, in_vain)


@dataclass(slots=True)
class Isolated:
    """The result of a bisected flush: the operations in `written` are written, the others are not."""

    written: list[tuple[Sequence[Call], list[list[Row]]]] = field(default_factory=list)
    refused: dict[Operation, Refused] = field(default_factory=dict)
    held: dict[Operation, frozenset[Need]] = field(default_factory=dict)  # and by which rows, if that is known
    _taken: set[Need] = field(default_factory=set)

    def hold(self, operation: Operation, rows: frozenset[Need] = frozenset()) -> None:
        """The operation has to wait, and so do all later operations on its task, its key or its group."""
        self.held[operation] = rows
        self._taken |= rows | operation.own

    def free_of(self, part: Sequence[Operation]) -> list[Operation]:
        """The operations that need no locked row; the others have to wait too."""
        for operation in part:
            if not self._taken.isdisjoint(operation.needs):
                self.hold(operation, operation.needs & self._taken)
        return [operation for operation in part if operation not in self.held]


def isolated(
    batch: Sequence[Operation], calls_of: Callable[[Sequence[Operation]], list[Call]], *, is_locked: bool
) -> Script[Isolated]:
    """Write what can be written, in one transaction; halve what cannot until each row stands alone.

    The left half comes first, because every flush locks rows in that order. Each try has a savepoint.
    """
    found, in_vain = Isolated(), 0
    untried = (yield from _apart(found, list(batch))) if is_locked else [list(batch)]
    while untried:
        part = found.free_of(untried.pop())
        if in_vain > MOST_IN_VAIN:
            for operation in part:
                found.hold(operation)
        if not found.free_of(part):
            continue
        yield Call("savepoint")
        try:
            calls = calls_of(part)
            found.written.append((calls, (yield from one_by_one(calls))))
        except (Refused, StoreLocked) as error:
            yield Call("rollback_to_savepoint")
            in_vain += isinstance(error, StoreLocked)
            if len(part) > 1:
                untried += [part[len(part) // 2 :], part[: len(part) // 2]]
            elif isinstance(error, Refused):
                found.refused[part[0]] = error
            else:
                found.hold(part[0])
        yield Call("release_savepoint")
    return found


def _apart(found: Isolated, batch: list[Operation]) -> Script[list[list[Operation]]]:
    """The parts of a flush that waited in vain for a lock, without the operations whose rows others have locked.

    Raises `StoreLocked` if a table is locked: then no single operation is the cause.
    """
    yield Call("use_tables")
    tasks = sorted({need for one in batch for need in one.needs if isinstance(need, int)})
    rows = (yield Call("held_tasks", {}, [(task,) for task in tasks])) if tasks else []
    held = frozenset(row["id"] for row in rows)
    for operation in batch:
        if not held.isdisjoint(operation.needs):
            found.hold(operation, held & operation.needs)
    free = found.free_of(batch)
    if held:
        return [free]
    if len(free) > 1:
        return [free[len(free) // 2 :], free[: len(free) // 2]]
    for operation in free:
        found.hold(operation)
    return []


def one_by_one(calls: Sequence[Call]) -> Script[list[list[Row]]]:
    """Run the calls of a flush as separate statements, and give each one the rows that another call returned."""
    answers: list[list[Row]] = []
    for call in calls:
        rows = call.rows if call.fed_by is None else fed_rows(call, answers[call.fed_by])
        answers.append((yield Call(call.statement, call.params, rows)) if rows else [])
    return answers
