"""The rows that the store's verbs take and return: a task as it is written, claimed and settled, and a step of a run.

What users see is in `records`. Rows that are made for every task are msgspec structs: a frozen dataclass takes
four times as long to make.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from stepwell.base.names import LONGEST_NAME
from stepwell.records import RunStatus, TaskKind
from stepwell.store.driver import Value

ROW_BYTES: Final = 200 + LONGEST_NAME  # the size of a row without its JSON
# The due time of a run that is held for its code: the year 9999, by which the index of due tasks finds it.
NEVER: Final = 253_370_764_800_000_000
# Marks among the steps of a run that are no steps, since no step's name can hold this sign: that an operator lets the
# run go on without a name that it has recorded, and for which code, by its fingerprint, the run was held.
MARK: Final = "#"
ACCEPTED: Final = "#accepted/"
HELD: Final = "#held/"
IN_DOUBT: Final = "InDoubt"  # what a wait is that asks whether a step is done: it stands in its error
TOLD: Final = "#told/"  # how often a branch has reported under a name
CHECKPOINT: Final = "#checkpoint/"  # what the body of a step noted last, for its next attempt
OUTSIDE: Final = "#outside"  # what the run waits for in its process, which no record of it ends
ANSWERED: Final = "#answered/"  # a child that was finished when its parent was forked: it may have been removed since


class Wish(StrEnum):
    """What an operator asks of a task that a worker is executing."""

    CANCEL = "cancel"
    PAUSE = "pause"


class Conditions(msgspec.Struct, frozen=True, gc=False):
    """What is said of a task besides how it is queued; of most tasks nothing is."""

    until_begun: bool = False  # its key is free as soon as it has been claimed for the first time
    on_conflict: str = "existing"  # what an add does that finds its key taken; newest: it cancels the one that waits
    latest: int | None = None  # how long after the first add it is due at the latest, however often it is replaced
    period: int | None = None  # its key is taken in this period alone
    expires_after: int | None = None  # from now on, until when it is worth beginning ...
    expires_at: int | None = None  # ... or the moment itself
    keeps_result: bool = False  # what its handler returns
    timeout: int | None = None  # microseconds that it may take, from its first start
    deadline_at: int | None = None  # of the run that asks for it
    on_parent_end: str | None = None  # whether it is cancelled or left alone when that ends

    @property
    def changes_others(self) -> bool:
        """True if the add may change the task that has the key, or first has to ask for the time."""
        return self.period is not None or self.on_conflict in ("replace", "newest")


class NewTask(msgspec.Struct, frozen=True, gc=False):
    """A task to be written: everything about it except its number.

    A bulk makes thousands; it cannot refer back to itself, so the garbage collector need not track it.
    """

    kind: TaskKind
    queue_id: int
    queue: str
    input: str
    priority: int = 0
    delay: int = 0
    run_at: int | None = None
    max_attempts: int = 3
    key: str | None = None
    key_scope: str = "ever"
    payload_hash: str | None = None
    tags: str | None = None
    parent_id: int | None = None
    inside: bool = False  # pending work leads to it: a queue that is being drained accepts it
    group_key: str | None = None  # of its ordered group, if it is executed in order ...
    after_failure: str = "wait"  # ... and whether the others of the group wait for it when it fails, or continue
    limit_key: str | None = None  # of a limited queue, if it is said with the task ...
    cost: int | None = None  # ... and how many units of its rates it costs
    conditions: Conditions | None = None
    headers: str | None = None


def row_of(task: NewTask, task_id: int) -> tuple[Value, ...]:
    """A new task as the row set `new_task` of tasks.sql."""
    return (
        task_id,
        str(task.kind),
        task.queue_id,
        task.priority,
        task.delay,
        task.run_at,
        task.max_attempts,
        task.key,
        task.key_scope,
        task.payload_hash,
        task.input,
        task.tags,
        task.parent_id,
        int(task.inside),
        task.limit_key,
        task.cost,
        task.headers,
    )


def size_of(task: NewTask) -> int:
    """Bytes that a new task takes while it waits to be written."""
    return ROW_BYTES + len(task.input)


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A task that this session may execute now; every write about it must show its (owner, turn)."""

    id: int
    kind: TaskKind
    queue_id: int
    owner: int
    turn: int
    attempt: int
    max_attempts: int
    priority: int
    run_at: int
    key: str | None
    input: str | None
    wakes: int
    suspect: bool  # it was lost or failed together with others: it is executed alone
    created_at: int
    started_at: int = 0  # when it was claimed for the first time, or the first since it was retried
    claimed_at: int = 0  # by the database's clock, ...
    asked_at: float = 0.0  # ... and, by this process's own clock, a moment just before that
    parent_id: int | None = None  # the run that asked for it
    cleanup_until: int | None = None  # it was cancelled, and may clean up until then
    generation: int = 0  # how often it has restarted
    group_key: str | None = None  # of its ordered group, if it stands or stood in one
    keeps_result: bool = False  # what the handler of the message returns
    headers: str | None = None  # as JSON
    timeout: int | None = None  # microseconds that it may take, if its trigger says that
    deadline_at: int | None = None  # when the run that asked for it has to be finished
    ends_children: bool = False  # it has asked for runs that end with it

    @property
    def lasting_key(self) -> str:
        """A text that is the same in every attempt of this task's generation and nowhere else."""
        key = f"{self.id}-{self.created_at:x}"  # the number alone begins anew in every database
        return key if self.generation == 0 else f"{key}.{self.generation}"


class Settlement(msgspec.Struct, frozen=True):
    """The result of one turn, as it is written: the status, and for PENDING the delay until the next attempt."""

    status: RunStatus
    delay: int = 0
    run_at: int | None = None  # for PENDING, the moment itself if it is known; `delay` is then how far off it is
    attempt_back: bool = False
    alone: bool = False
    wakes: int | None = None  # for PAUSED, how many signals it had seen when it looked ...
    needed: int | None = None  # ... and how many children must end, from those counted off then, before it goes on
    output: str | None = None
    error: str | None = None
    last_error: str | None = None
    cleans_up: bool = False  # the turn knew that its task was cancelled, and cleaned up
    ends_run: bool = False  # and perhaps not its steps: those that are being executed are closed
    input: str | None = None  # for PENDING: it restarts with this input, as a new generation
    steps: tuple[StepRow, ...] = ()  # of the run, recorded in the same transaction


class SettleRow(NamedTuple):
    """A settlement as the row set of `settle`."""

    id: int
    worker: int
    turn: int
    status: str
    delay: int
    run_at: int | None
    attempt_back: int
    alone: int
    wakes: int | None
    needed: int | None
    output: str | None
    error: str | None
    last_error: str | None
    cleans_up: int
    input: str | None


class StepRow(msgspec.Struct, frozen=True, gc=False):
    """What a run has recorded of one step, as it is written and read."""

    run_id: int
    generation: int  # of the run
    key: str  # branch, name and number: which call of the run it answers
    place: int  # in the order in which the run first asked for its steps
    status: RunStatus
    attempt: int = 1
    input: str | None = None
    output: str | None = None
    error: str | None = None
    took: int = 0  # how many microseconds before this is written the attempt began
    started_at: int | None = None
    finished_at: int | None = None  # when its last attempt ended
    accepts: str | None = None  # while it waits, which type of data it takes


def held_by(task: Claimed, code: str) -> StepRow:
    """The mark that code with this fingerprint has held a run: a worker with the same code does not release it."""
    return StepRow(task.id, task.generation, HELD + code, 0, RunStatus.SUCCESS)


@dataclass(frozen=True, slots=True)
class Owned:
    """A task that a session executes, according to the database."""

    worker_id: int
    task_id: int
    turn: int


@dataclass(frozen=True, slots=True)
class SeenWorker:
    """A session that has not ended, and its last beat as this process read it."""

    worker_id: int
    beat_at: int
    silent: bool = True  # by the database's clock that beat is older than the session's lease, or in the future
    gone: bool = False  # its helper has seen its process end
    lease: float = 30.0  # seconds that it may be silent, as it declared
