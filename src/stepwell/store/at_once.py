"""Decisions as one statement, for a database that answers over a network: one round trip, and one commit.

They were made on states at hand. The statement moves on only the instances that are still where they were then; what
depends on that selects from it, so of an instance that was overtaken nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from stepwell.store.decisions import Change
from stepwell.store.driver import Call, Value


class Moved(msgspec.Struct, frozen=True, gc=False):
    """An instance's move."""

    id: int
    before: int
    after: int
    completed: int
    snapshot: msgspec.Raw | None = None
    snapshot_version: int | None = None
    snapshot_schema: int | None = None


class Appended(msgspec.Struct, frozen=True, gc=False):
    """An event."""

    instance_id: int
    version: int
    type: str
    type_version: int
    data: msgspec.Raw
    cause: str


class Noted(msgspec.Struct, frozen=True, gc=False):
    """A receipt."""

    instance_id: int
    key: str
    outcome: str
    first_version: int | None
    last_version: int | None


class Added(msgspec.Struct, frozen=True, gc=False):
    """An effect, or a timer without a key."""

    id: int
    kind: str
    queue_id: int
    run_at: int | None
    max_attempts: int
    input: msgspec.Raw
    instance_id: int


def is_plain(change: Change) -> bool:
    """True if the statement can write it: it touches no task that is there already."""
    return not (change.settled or change.cancelled or change.completed) and all(row[4] is None for row in change.tasks)


def deciding(params: dict[str, Value], changes: Sequence[Change], ids: Sequence[int]) -> Call:
    """The statement that writes these changes; `ids` are the numbers of their tasks."""
    tasks = [row for change in changes for row in change.tasks]
    return Call(
        "decide_at_once",
        {
            **params,
            "moves": _text([_moved(change) for change in changes]),
            "events": _text([_appended(row) for change in changes for row in change.events]),
            "receipts": _text([Noted(*row) for change in changes for row in change.receipts]),  # type: ignore[arg-type]
            "tasks": _text([_added(number, row) for number, row in zip(ids, tasks, strict=True)]),
        },
    )


_ENCODER: Final = msgspec.json.Encoder()


def _text(rows: Sequence[msgspec.Struct]) -> str:
    return _ENCODER.encode(rows).decode() if rows else "[]"


def _moved(change: Change) -> Moved:
    if change.snapshot is None:
        return Moved(change.id, change.before, change.after, int(change.completed))
    snapshot = msgspec.Raw(change.snapshot.encode())
    return Moved(change.id, change.before, change.after, 0, snapshot, change.after, change.snapshot_schema)


def _appended(row: Sequence[Value]) -> Appended:
    instance_id, version, type_, type_version, data, cause = row
    raw = msgspec.Raw(str(data).encode())
    return Appended(instance_id, version, type_, type_version, raw, cause)  # type: ignore[arg-type]


def _added(number: int, row: Sequence[Value]) -> Added:
    kind, queue_id, run_at, attempts, _, text, instance_id, _ = row
    raw = msgspec.Raw(str(text).encode())
    return Added(number, kind, queue_id, run_at, attempts, raw, instance_id)  # type: ignore[arg-type]
