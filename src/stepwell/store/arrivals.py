"""Work that comes from another store: tasks and steps, written with the lives that they have had there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from stepwell.errors import DriverMissing, InvalidOption, Refused
from stepwell.records import RunStatus, TaskKind
from stepwell.store.driver import Call, Script, Value
from stepwell.values.versions import UNKNOWN

if TYPE_CHECKING:
    from stepwell.store.database import Database
    from stepwell.store.postgres.pgqrs import Pgqrs


class ArrivedStep(msgspec.Struct, frozen=True):
    """A step as it was recorded elsewhere; times are microseconds since 1970."""

    key: str
    status: RunStatus
    attempt: int
    started_at: int | None
    finished_at: int | None
    output: str | None = None
    error: str | None = None


class Arrival(msgspec.Struct, frozen=True):
    """A task as it stands elsewhere; its key names it here, so that it arrives once."""

    queue: str
    kind: TaskKind
    status: RunStatus
    key: str
    run_at: int
    turn: int
    attempt: int
    max_attempts: int
    created_at: int
    updated_at: int
    claimed_at: int | None = None
    started_at: int | None = None
    paused_at: int | None = None
    finished_at: int | None = None
    last_error: str | None = None
    error: str | None = None
    input: str | None = None
    output: str | None = None
    steps: Sequence[ArrivedStep] = ()


def pgqrs_at(url: str, schema: str) -> Pgqrs:
    """The database of pgqrs at this address, to be entered."""
    if not url.startswith(("postgresql://", "postgres://")):
        raise InvalidOption("source", "this address", "pgqrs is moved from Postgres: postgresql://...")
    try:
        from stepwell.store.postgres.pgqrs import Pgqrs  # noqa: PLC0415 - its driver may not be installed
    except ImportError as error:
        raise DriverMissing("postgres") from error
    return Pgqrs(url, schema)


@dataclass(eq=False)
class Arrivals:
    """Writes what comes from another store."""

    _db: Database

    async def add(self, arrivals: Sequence[Arrival], queues: Mapping[str, int]) -> None:
        """Write these with their steps, all or none; one that has come before is left as it is."""
        ids = await self._db.ids.take(len(arrivals))
        placed = dict(zip(ids, arrivals, strict=True))
        await self._db.transact(partial(self._adding, placed, queues))
        self._db.wakeups.hint({queues[one.queue] for one in arrivals})

    def _adding(self, placed: Mapping[int, Arrival], queues: Mapping[str, int]) -> Script[None]:
        keys = [(queues[one.queue], one.key) for one in placed.values()]
        found = yield Call("moved_before", {}, keys)
        before = {row["key"]: row["created_at"] for row in found if row["created_at"] is not None}
        _refuse_others(placed.values(), before)
        rows = [_row(task_id, queues[one.queue], one) for task_id, one in placed.items() if one.key not in before]
        if not rows:
            return
        written = {row["id"] for row in (yield Call("move_tasks", self._db.params(), rows))}
        if len(written) < len(rows):
            raise Refused("a queue was deleted meanwhile, or two moves run at once; move again")
        steps = [row for task_id in written for row in _steps(task_id, placed[task_id])]
        if steps:
            yield Call("move_steps", {}, steps)


def _refuse_others(arrivals: Iterable[Arrival], before: Mapping[str, int]) -> None:
    """Raise if a key belongs to a task that did not come from here."""
    for one in arrivals:
        if before.get(one.key, one.created_at) != one.created_at:
            why = f"{one.queue} has another task with the key {one.key}; give this database another name"
            raise InvalidOption("name", one.key.rpartition("/")[0], why)


def _row(task_id: int, queue_id: int, one: Arrival) -> tuple[Value, ...]:
    # fmt: off
    return (task_id, str(one.kind), queue_id, str(one.status), one.run_at, one.turn, one.attempt, one.max_attempts,
            one.key, one.created_at, one.updated_at, one.claimed_at, one.started_at, one.paused_at, one.finished_at,
            one.last_error, one.error, one.input, one.output)
    # fmt: on


def _steps(run_id: int, one: Arrival) -> list[tuple[Value, ...]]:
    # fmt: off
    return [
        (run_id, step.key, place, str(step.status), step.attempt, step.started_at, step.finished_at, UNKNOWN,
         step.output, step.error)
        for place, step in enumerate(one.steps, 1)
    ]
    # fmt: on
