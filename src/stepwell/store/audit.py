"""The audit: what happened to tasks. Each note is written in the transaction that it describes, or not at all.

By default it notes failures and what people did: a run that succeeds costs no row and no statement.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from stepwell.base.durations import datetime_of
from stepwell.errors import RunNotFound
from stepwell.records import AuditInfo, RunStatus
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.rows import SettleRow, StepRow
from stepwell.values.codec import decode
from stepwell.values.exceptions import one_line

if TYPE_CHECKING:
    from stepwell.store.database import Database

AuditLevel = Literal["problems", "all", "off"]
UNACKNOWLEDGED: Final = "not acknowledged in time"
MOST_NOTED: Final = 1000  # by one statement
STORE: Final = 0  # the task of notes about the store itself


class What(StrEnum):
    """What the audit can note; docs/control.md shows the same table."""

    ATTEMPT_FAILED = "attempt failed"
    FAILED = "failed"
    STEP_FAILED = "step failed"
    STEP_GAVE_UP = "step gave up"
    LOST = "worker lost"
    PAUSED = "paused"
    UNPAUSED = "unpaused"
    ACCEPTED = "accepted"
    SIGNALLED = "signalled"
    RESUMED = "resumed"
    CANCEL_REQUESTED = "cancel requested"
    CANCELLED = "cancelled"
    FORKED = "forked"
    RETRIED = "retried"
    RESCHEDULED = "rescheduled"
    REQUEUED = "requeued"
    DELETED = "deleted"
    RESTORED = "restored"
    RELEASED = "released"
    ARCHIVED = "archived"
    DROPPED = "dropped"
    PURGED = "purged"
    CREATED = "created"  # these with "all" only
    CLAIMED = "claimed"
    SUCCEEDED = "succeeded"
    SUSPENDED = "suspended"
    GIVEN_BACK = "given back"
    RESTARTED = "restarted"
    QUEUE_PAUSED = "queue paused"  # these are of the store, not of a task
    QUEUE_RESUMED = "queue resumed"
    QUEUE_DRAINED = "queue drained"
    QUEUE_REOPENED = "queue reopened"
    QUEUE_PURGED = "queue purged"
    QUEUE_DELETED = "queue deleted"
    WORKFLOW_DELETED = "workflow deleted"
    PRUNED = "pruned"
    MAINTENANCE_BEGUN = "maintenance begun"
    MAINTENANCE_ENDED = "maintenance ended"
    PROJECTION_CHANGED = "projection changed"
    SCHEDULE_CHANGED = "schedule changed"
    SEAL_DROPPED = "seal dropped"
    KEYS_ROTATED = "keys rotated"
    SUBJECT_FORGOTTEN = "subject forgotten"


class By(NamedTuple):
    """Who asks for something, and why."""

    actor: str | None = None
    reason: str | None = None


UNSAID_BY: Final = By()


class Note(msgspec.Struct, frozen=True, gc=False):
    """A new row of the audit. Turn and attempt are the task's own unless they are given."""

    task_id: int
    what: What
    detail: str | None = None
    worker: int | None = None
    turn: int | None = None
    attempt: int | None = None
    answer: str | None = None  # in a flush: written only if its operation has this answer (None: any), and once a turn
    actor: str | None = None
    tenant: str | None = None
    seal: int | None = None  # 0: it is to be sealed


class Audit:
    """Writes the audit of one store."""

    def __init__(self, level: AuditLevel, *, tenant: str = "", sealed: bool = False) -> None:
        self.problems = level != "off"
        self.everything = level == "all"
        self.sealed = sealed
        self.note = partial(Note, tenant=tenant, seal=0 if sealed else None)

    def noted(self, params: dict[str, Value], notes: Iterable[Note]) -> Script[None]:
        """Write these notes in the current transaction, after the statement that they describe."""
        if self.problems and (rows := rows_of(notes)):
            yield Call("note", params, rows)

    def of_all(
        self,
        params: dict[str, Value],
        done: Iterable[Row],
        what: What,
        detail: str | None = None,
        *,
        by: By = UNSAID_BY,
    ) -> Script[None]:
        """Write the same note for every task that a statement has changed: who asked for that, and why."""
        said = by.reason if detail is None else detail
        yield from self.noted(params, [self.note(row["id"], what, said, actor=by.actor) for row in done])

    def of_removed(self, params: dict[str, Value], gone: Iterable[Row], what: What, by: By) -> Script[None]:
        """Note that tasks were removed for good, where the notes of removed tasks are kept: if they are sealed."""
        if self.sealed:
            yield from self.of_all(params, gone, what, by=by)

    def of_store(self, params: dict[str, Value], what: What, about: str, by: By) -> Script[None]:
        """Note what a person did to the store itself, such as to a queue."""
        said = about if by.reason is None else f"{about}: {by.reason}"
        yield from self.noted(params, [self.note(STORE, what, said, actor=by.actor)])

    def creation(self, task_id: int) -> Note:
        """The note for a new task, whose row may be written by the same statement."""
        return self.note(task_id, What.CREATED, turn=0, attempt=0)

    def created(self, params: Mapping[str, Value], ids: Iterable[int]) -> Script[None]:
        """Note that these tasks were added; only with "all"."""
        if self.everything:
            notes = [self.creation(task_id) for task_id in sorted(ids)]
            for begin in range(0, len(notes), MOST_NOTED):
                yield from self.noted(dict(params), notes[begin : begin + MOST_NOTED])

    def claimed(self, params: dict[str, Value], rows: Iterable[Row]) -> Script[None]:
        """Note which session has claimed these tasks; only with "all"."""
        if self.everything:
            worker = params.get("worker")
            number = None if worker is None else int(worker)
            notes = [self.note(row["id"], What.CLAIMED, None, number, row["turn"], row["attempt"]) for row in rows]
            yield from self.noted(params, notes)

    def settled(self, row: SettleRow, attempt: int | None = None) -> Note | None:
        """The note for a row of `settle`; None for a turn that succeeded, unless the level is "all"."""
        status, error = row.status, row.error
        if not self.everything and (not self.problems or (error is None and status != RunStatus.CANCELLED)):
            return None
        if status == RunStatus.PENDING and row.attempt_back and not row.alone and not self.everything:
            return None  # given back for other code, perhaps every minute for a week: `last_error` says why
        what, detail = _outcome(row)
        what = What.RESTARTED if row.input is not None else what
        answer = status if what in (What.SUCCEEDED, What.RESTARTED) else None  # not if it was cancelled in the meantime
        return self.note(row.id, what, detail, row.worker, row.turn, attempt, answer)

    def closed(self, task_id: int, turn: int, status: RunStatus) -> Note | None:
        """The note for the end of a message taken by hand; only with "all"."""
        if not self.everything:
            return None
        what = What.SUCCEEDED if status is RunStatus.SUCCESS else What.GIVEN_BACK
        return self.note(task_id, what, turn=turn, answer=str(status))

    def told(self, task_id: int, turn: int, what: What, answer: RunStatus, by: By) -> Note | None:
        """The note for a message that a consumer has taken and an operator closes."""
        if not self.problems:
            return None
        return self.note(task_id, what, by.reason, turn=turn, answer=str(answer), actor=by.actor)

    def failed_step(self, row: StepRow, worker: int, *, settled: bool = False) -> Note | None:
        """The note for a step, written alone or with the end of its run's turn; None unless the step failed.

        The attempt is that of the step.
        """
        if row.error is None or not self.problems or row.status not in _FAILED_STEPS:
            return None
        detail = f"{row.key}: {one_line(decode(row.error))}"
        answer = None if settled else row.key
        return self.note(row.run_id, _FAILED_STEPS[row.status], detail, worker, attempt=row.attempt, answer=answer)

    def lost(self, params: dict[str, Value], worker: int, returned: Iterable[Row]) -> Script[None]:
        """Note which worker had these tasks when it was lost, and which status they have now."""
        notes = [self.note(row["id"], What.LOST, _lost(row), worker, row["turn"], row["attempt"]) for row in returned]
        yield from self.noted(params, notes)

    def unacknowledged(self, params: dict[str, Value], due: Iterable[Row]) -> Script[None]:
        """Note which of these messages were taken by hand and not closed in time."""
        notes = [
            self.note(
                row["id"],
                What.FAILED if row["answer"] == RunStatus.ERROR else What.ATTEMPT_FAILED,
                f"VisibilityTimeout: {UNACKNOWLEDGED}",
            )
            for row in due
            if row["unacknowledged"]
        ]
        yield from self.noted(params, notes)


def rows_of(notes: Iterable[Note]) -> list[tuple[Value, ...]]:
    """Notes as the row set `new_note` of audit.sql; the notes of one task keep their order."""
    so_far: Counter[int] = Counter()
    rows: list[tuple[Value, ...]] = []
    for note in notes:
        so_far[note.task_id] += 1
        detail = None if note.detail is None else json.dumps(note.detail)
        which = (note.task_id, note.answer, so_far[note.task_id])
        said = (note.worker, note.turn, note.attempt, detail, note.actor, note.tenant, note.seal)
        rows.append((*which, str(note.what), *said))
    return rows


_FAILED_STEPS: Final = {RunStatus.PENDING: What.STEP_FAILED, RunStatus.ERROR: What.STEP_GAVE_UP}


def _lost(row: Row) -> str | None:
    alone = row["status"] == RunStatus.PENDING and row["losses"] > 0
    return "given back, to be executed alone" if alone else _LOST.get(row["status"])


_LOST: Final = {
    RunStatus.ERROR: "that was its last attempt",
    RunStatus.CANCELLED: "it was to be cancelled, and is",
    RunStatus.PAUSED: "given back, and held back",
    RunStatus.PENDING: "given back",
}


def _outcome(row: SettleRow) -> tuple[What, str | None]:
    said = row.last_error
    match row.status:
        case RunStatus.PENDING if row.error is not None:
            again = "again, alone" if row.alone else f"again in {row.delay / 1e6:.3g} s"
            return What.ATTEMPT_FAILED, f"{said}; {again}"
        case RunStatus.PENDING:
            return What.GIVEN_BACK, None
        case RunStatus.PAUSED:
            return What.SUSPENDED if row.error is None else What.PAUSED, said
        case RunStatus.ERROR:
            return What.FAILED, said
        case RunStatus.CANCELLED:
            return What.CANCELLED, said
        case _:
            return What.SUCCEEDED, None


@dataclass(eq=False)
class History:
    """Reads the audit of one store."""

    _db: Database

    async def of(self, task_id: int) -> list[AuditInfo]:
        """The notes of one task, in the order of events."""
        self._db.check()
        rows = await self._db.driver.read(Call("history", self._db.params(id=task_id)))
        if not rows:
            raise RunNotFound(task_id)
        return [
            AuditInfo(
                what=row["what"],
                actor=row["actor"],
                at=datetime_of(row["recorded_at"]),
                worker=row["worker_id"],
                turn=row["turn"],
                attempt=row["attempt"],
                detail=None if row["detail"] is None else json.loads(row["detail"]),
            )
            for row in rows
            if row["what"] is not None
        ]
