"""Ordered groups: tasks of a queue that are executed one after the other, in the order in which they were committed.

A transaction that adds to a group or ends a task of it locks the group first, and looks at the tasks of the group in a
later statement: so these calls are run one after the other, never as one statement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from stepwell.records import TaskKind
from stepwell.store.bisection import one_by_one
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.pending import GroupKey

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_TAKEN_ALONG: Final = 49  # of one group, by one decision
MOST_IN_ALL: Final = 500  # by all decisions of one transaction
LONGEST_TAKEN_ALONG: Final = 65_536  # characters of an input: a longer one waits until it is the first
# What a flush says about groups, apart from its operations.
ABOUT_GROUPS: Final = frozenset(("join_groups", "lock_groups", "next_in_group", "note_empty_groups"))
KIND, QUEUE = 1, 2  # the places of the kind and the queue in a row of `new_task`

OrderedRow = tuple[Value, ...]  # a row of `new_task`, then the key of its group and what the others do when it fails


def joining(params: Mapping[str, Value], rows: Sequence[OrderedRow]) -> list[Call]:
    """The calls that write new tasks at the ends of their groups, those of a group in the order of the rows."""
    added = Counter(_group_of(row) for row in rows)
    policies = {_group_of(row): row[-1] for row in rows}
    left, placed = Counter(added), []
    for row in rows:
        group = _group_of(row)
        is_first = left[group] == added[group]
        left[group] -= 1
        placed.append((*row[:-1], left[group], int(is_first)))
    by_time = {_group_of(row) for row in rows if row[KIND] == TaskKind.OUTBOX}
    joined = [(*group, policies[group], added[group], int(group in by_time)) for group in sorted(added)]
    return [
        Call("join_groups", params, joined),
        Call("add_in_order", params, placed),
        *letting_go(params, added),  # the first may have been there before, under its key: then the second is the first
    ]


def letting_go(params: Mapping[str, Value], groups: Iterable[GroupKey]) -> list[Call]:
    """The calls that let the first task of each group be executed, after others may have left these groups."""
    rows = sorted(groups)
    return [Call("next_in_group", params, rows), Call("note_empty_groups", params, rows)]


def add_in_order(params: Mapping[str, Value], rows: Sequence[OrderedRow]) -> Script[list[Row]]:
    """Write new tasks at the ends of their groups; what does not come back was there before, or its queue is closed."""
    _, added, *_ = yield from one_by_one(joining(params, rows))
    return added


def lock_groups(groups: Iterable[GroupKey]) -> Script[None]:
    """Lock groups, before any of their tasks."""
    if rows := sorted(set(groups)):
        yield Call("lock_groups", {}, rows)


def let_next_go(params: Mapping[str, Value], groups: Iterable[GroupKey]) -> Script[set[int]]:
    """Let the first task of each of these groups be executed; return the queues of those that are ready."""
    waiting = set(groups)
    if not waiting:
        return set()
    woken = yield Call("next_in_group", params, sorted(waiting))
    if rest := waiting - {(row["id"], row["group_key"]) for row in woken}:
        yield Call("note_empty_groups", params, sorted(rest))
    return {row["id"] for row in woken if row["answer"]}


def groups_of(rows: Iterable[Row]) -> set[GroupKey]:
    """The groups in which these tasks stood when a statement changed or removed them."""
    return {(row["queue_id"], row["group_key"]) for row in rows if row["group_key"] is not None}


def _group_of(row: OrderedRow) -> GroupKey:
    queue_id, key = row[QUEUE], row[-2]
    assert isinstance(queue_id, int)
    assert isinstance(key, str)
    return queue_id, key
