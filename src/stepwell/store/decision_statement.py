"""Decisions as one statement, for a database that answers over a network: one round trip, and one commit.

They were made on states at hand. The statement moves on only the instances that are still where they were then; what
depends on that selects from it, so of an instance that was overtaken nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from stepwell.store.driver import Call, Value
from stepwell.store.instances import Change, NewEvent, NewInstanceTask, NewReceipt


def is_plain(change: Change) -> bool:
    """True if the statement can write it: it touches no task that is there already."""
    if change.settled or change.cancelled or change.completed:
        return False
    return all(task.key is None for task in change.tasks)


def decide_at_once(params: dict[str, Value], changes: Sequence[Change], ids: Sequence[int]) -> Call:
    """The statement that writes these changes; `ids` are the numbers of their tasks."""
    tasks = [task for change in changes for task in change.tasks]
    return Call(
        "decide_at_once",
        {
            **params,
            "moves": _text([_move(change) for change in changes]),
            "events": _text([_event(event) for change in changes for event in change.events]),
            "receipts": _text([_receipt(receipt) for change in changes for receipt in change.receipts]),
            "tasks": _text([_task(number, task) for number, task in zip(ids, tasks, strict=True)]),
        },
    )


# The rows as JSON objects: the statement reads their fields by these names.


class JsonMove(msgspec.Struct, frozen=True, gc=False):
    """An instance's move."""

    id: int
    before: int
    after: int
    completed: int
    snapshot: msgspec.Raw | None = None
    snapshot_version: int | None = None
    snapshot_schema: int | None = None


class JsonEvent(msgspec.Struct, frozen=True, gc=False):
    """An event."""

    instance_id: int
    version: int
    type: str
    type_version: int
    data: msgspec.Raw
    cause: str


class JsonReceipt(msgspec.Struct, frozen=True, gc=False):
    """A receipt."""

    instance_id: int
    key: str
    outcome: str
    first_version: int | None
    last_version: int | None


class JsonTask(msgspec.Struct, frozen=True, gc=False):
    """An effect, or a timer without a key."""

    id: int
    kind: str
    queue_id: int
    run_at: int | None
    max_attempts: int
    input: msgspec.Raw
    instance_id: int
    headers: msgspec.Raw | None = None


_ENCODER: Final = msgspec.json.Encoder()


def _text(rows: Sequence[msgspec.Struct]) -> str:
    return _ENCODER.encode(rows).decode() if rows else "[]"


def _move(change: Change) -> JsonMove:
    if change.snapshot is None:
        return JsonMove(change.id, change.before, change.after, int(change.completed))
    snapshot = msgspec.Raw(change.snapshot.encode())
    return JsonMove(change.id, change.before, change.after, 0, snapshot, change.after, change.snapshot_schema)


def _event(event: NewEvent) -> JsonEvent:
    data = msgspec.Raw(event.data.encode())
    return JsonEvent(event.instance_id, event.version, event.type, event.type_version, data, event.cause)


def _receipt(receipt: NewReceipt) -> JsonReceipt:
    return JsonReceipt(*receipt)


def _task(number: int, task: NewInstanceTask) -> JsonTask:
    input_ = msgspec.Raw(task.input.encode())
    headers = None if task.headers is None else msgspec.Raw(task.headers.encode())
    return JsonTask(number, task.kind, task.queue_id, task.run_at, task.max_attempts, input_, task.instance_id, headers)
