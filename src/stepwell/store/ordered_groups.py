"""Ordered groups: tasks of a queue that are executed one after the other, in the order in which they were committed.

A transaction that adds to a group or ends a task of it locks the group first, and looks at the tasks of the group in a
later statement: so these calls are run one after the other, never as one statement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from stepwell.records import TaskKind
from stepwell.store.bisection import one_by_one
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.pending import GroupKey
from stepwell.store.rows import Conditions, NewTask, row_of

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_TAKEN_ALONG: Final = 49  # of one group, by one decision
MOST_IN_ALL: Final = 500  # by all decisions of one transaction
LONGEST_TAKEN_ALONG: Final = 65_536  # characters of an input: a longer one waits until it is the first
# What a flush says about groups, apart from its operations.
ABOUT_GROUPS: Final = frozenset(("join_groups", "lock_groups", "next_in_group", "note_empty_groups"))
KIND, QUEUE = 1, 2  # the places of the kind and the queue in a row of `new_task`

# A row of `new_task`, then what else is said of the task, the key of its group, and what the others do when it fails.
OrderedRow = tuple[Value, ...]


def conditional_row_of(task: NewTask, task_id: int) -> tuple[Value, ...]:
    """A new task as the row set of `add_with_conditions`."""
    said = task.conditions or Conditions()
    ends = said.expires_after, said.expires_at
    lasts = said.timeout, said.deadline_at, said.on_parent_end
    return *row_of(task, task_id), int(said.until_begun), *ends, int(said.keeps_result), *lasts


def ordered_row_of(task: NewTask, task_id: int) -> OrderedRow:
    """A new task of an ordered group as the row set of `add_in_order`."""
    return *conditional_row_of(task, task_id), task.group_key, task.after_failure


def order_keys(numbered: Iterable[tuple[NewTask, int]]) -> Call:
    """Ask which of these tasks are for queues that keep the order of their keys, and for the key of each."""
    rows = [
        (task_id, task.queue_id, task.input, task.limit_key) for task, task_id in numbered if task.group_key is None
    ]
    return Call("order_keys", {}, rows)


def placed(numbered: Iterable[tuple[NewTask, int]], rows: Iterable[Row]) -> list[tuple[NewTask, int]]:
    """The same tasks; those that have a key in an order are to be written into its group."""
    keys: dict[int, str] = {row["id"]: row["limit_key"] for row in rows}
    return [
        (msgspec.structs.replace(task, group_key=keys[task_id], limit_key=keys[task_id]), task_id)
        if task_id in keys
        else (task, task_id)
        for task, task_id in numbered
    ]


def in_order(numbered: Sequence[tuple[NewTask, int]], closed: Iterable[Row]) -> Script[list[tuple[NewTask, int]]]:
    """The unwritten tasks whose queues keep an order, by what `closed_queues` says of the queues."""
    queues = {row["id"] for row in closed if row["ordered"]}
    asked = [(task, task_id) for task, task_id in numbered if task.queue_id in queues and task.group_key is None]
    found = placed(asked, (yield order_keys(asked))) if asked else []
    return [(task, task_id) for task, task_id in found if task.group_key is not None]


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


def add_each(
    statement: str, params: Mapping[str, Value], tasks: Sequence[NewTask], ids: Sequence[int]
) -> Script[list[int]]:
    """Write those of these tasks whose key is not there, each as its queue asks; return the ids of the written."""
    numbered = list(zip(tasks, ids, strict=True))
    added = {row["id"] for row in (yield Call(statement, params, [row_of(*pair) for pair in numbered]))}
    if missing := [pair for pair in numbered if pair[1] not in added]:
        found = placed(missing, (yield order_keys(missing)))
        if rows := [ordered_row_of(*pair) for pair in found if pair[0].group_key is not None]:
            added |= {row["id"] for row in (yield from add_in_order(params, rows))}
    return sorted(added)


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


def groups_of_tasks(tasks: Iterable[NewTask]) -> set[GroupKey]:
    """The groups in which these new tasks are to stand."""
    return {(task.queue_id, task.group_key) for task in tasks if task.group_key is not None}


def groups_of(rows: Iterable[Row]) -> set[GroupKey]:
    """The groups in which these tasks stood when a statement changed or removed them."""
    return {(row["queue_id"], row["group_key"]) for row in rows if row["group_key"] is not None}


def _group_of(row: OrderedRow) -> GroupKey:
    queue_id, key = row[QUEUE], row[-2]
    assert isinstance(queue_id, int)
    assert isinstance(key, str)
    return queue_id, key
