"""The statements that write a batch of operations, and the database's answer for each row: plain functions."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Final

from stepwell.store.audit import rows_of
from stepwell.store.driver import NUMBERED, Call, Row, Value
from stepwell.store.ordered_groups import ABOUT_GROUPS, joining, letting_go
from stepwell.store.pending import REQUESTS, Operation, RowId
from stepwell.store.settle import ending_rows

# The order of a flush's parts, and the parts that take the rows of another part.
PARTS: Final = (
    "add_tasks",
    "add_tasks_once",
    "add_with_conditions",
    "hand_over",
    "add_steps",
    "change_steps",
    "note_progress",
    "add_reports",
    "settle",
    "close_taken",
    "extend_taken",
    "delete_taken",
)
IN_ORDER: Final = "add_in_order"  # no part: its flush holds nothing else, and is not one statement
PLACE_OF: Final = {part: place for place, part in enumerate((*PARTS, IN_ORDER))}
FED: Final = {"settle": "count_settled", "close_taken": "count_settled", "delete_taken": "forget_steps"}
ENDING: Final = frozenset(("settle", "close_taken", "delete_taken"))  # then a parent may have nothing to wait for
# Their rows are steps: a flush may hold several of one task, so their answer is the key, which names the row.
STEPS: Final = frozenset(("add_steps", "change_steps"))
REPORTS: Final = "add_reports"  # of its rows, too, there may be several for one task: the answer is kind and name
RECORDED: Final = "recorded"
ADDED: Final = "PENDING"  # the answer for a task that was written and may be claimed

Said = tuple[str | None, int | None]  # the answer for a row, and the number that some statements return with it
UNSAID: Final[Said] = (None, None)


def calls_of(
    batch: Sequence[Operation],
    clock: Mapping[str, Value],
    *,
    slot: int,
    shard: int,
    locks_tasks: bool,
    beats: bool,
) -> list[Call]:
    """The statements of a flush, each with the rows it writes, in the order in which every flush locks them.

    If an operation has an ordered group, they are to be run one after the other, each with a snapshot of its own.
    """
    calls: list[Call] = []
    by_part: dict[str, list[Operation]] = {}
    for operation in batch:
        by_part.setdefault(operation.statement, []).append(operation)
    left = sorted({one.group for one in batch if one.group is not None and one.lane is not None})
    if left:
        calls.append(Call("lock_groups", {}, left))
    if locks_tasks and any(operation.parent is not None for operation in batch):
        # With several writers, no flush may hold a task and wait for its parent while another one does the reverse.
        tasks = sorted((one.lane, one.worker) for one in batch if one.lane is not None)
        calls.append(Call("lock_tasks", {"slot": slot}, tasks))
    for part in sorted(by_part, key=PLACE_OF.__getitem__):
        operations = by_part[part]
        operations.sort(key=_order)
        if part == IN_ORDER:
            joined = joining({**clock, "slot": slot}, [operation.row for operation in operations])
            adding = len(calls) + [call.statement for call in joined].index(IN_ORDER)
            calls += [*joined, *_fed(part, operations, clock, shard=shard, closing=adding)]
            continue
        calls.append(Call(part, {**clock, "slot": slot}, [operation.row for operation in operations]))
        calls += _fed(part, operations, clock, shard=shard, closing=len(calls) - 1)
    if left:
        calls += letting_go(clock, left)
    if not STEPS.isdisjoint(by_part):
        writers = sorted({one.worker for part in STEPS for one in by_part.get(part, ()) if one.worker is not None})
        calls.append(Call(REQUESTS, {}, [(worker,) for worker in writers]))
    if beats and (workers := sorted({one.worker for one in batch if one.worker is not None})):
        calls.append(Call("beat", clock, [(worker,) for worker in workers]))
    return calls


def _fed(
    part: str, operations: Sequence[Operation], clock: Mapping[str, Value], *, shard: int, closing: int
) -> list[Call]:
    """The calls that follow from the rows that a part of a flush has changed."""
    calls: list[Call] = []
    if part in FED:
        # A shard for each part: one statement cannot change a row of counts twice.
        calls.append(Call(FED[part], {"shard": shard + PLACE_OF[part]}, fed_by=closing))
    if part in ENDING and any(operation.parent is not None for operation in operations):
        calls.append(Call("wake_parents", clock, fed_by=closing))
    if steps := [row for operation in operations for row in operation.steps]:
        calls.append(Call("settle_steps", clock, steps, fed_by=closing))
    if any(operation.restarts for operation in operations):
        calls.append(Call("forget_generations", fed_by=closing))
    if ended := [row for operation in operations if operation.ends_run for row in ending_rows(operation)]:
        calls.append(Call("end_steps", clock, ended, fed_by=closing))
    if notes := [note for operation in operations for note in operation.notes]:
        calls.append(Call("note", clock, rows_of(notes), fed_by=closing))
    return calls


def answers_of(calls: Sequence[Call], answered: Sequence[Sequence[Row]]) -> dict[RowId, Said]:
    """The database's answer for each row, by the row; rows that only count or beat have none."""
    answers: dict[RowId, Said] = {}
    for call, rows in zip(calls, answered, strict=True):
        if call.fed_by is not None or call.statement == REQUESTS or call.statement in ABOUT_GROUPS:
            continue
        if call.statement in STEPS:
            answers.update({(row["id"], row["answer"]): (RECORDED, None) for row in rows})
        elif call.statement == REPORTS:
            answers.update({(row["id"], row["answer"]): (RECORDED, row["number"]) for row in rows})
        elif call.statement in NUMBERED:
            answers.update({row["id"]: (row["answer"], row["number"]) for row in rows})
        else:
            answers.update({row["id"]: (row["answer"], None) for row in rows if row["answer"]})
    return answers


_order: Final = operator.attrgetter("order")
