"""The plain values that a store returns to users: statuses, kinds, ids, pages, and its contents, for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, Literal, Self, TypeVar, overload

from stepwell.base.count import NONE, Count
from stepwell.base.program import definition_of
from stepwell.errors import RunCancelled, RunUnfinished
from stepwell.values.codec import decode
from stepwell.values.named_codecs import shown_value
from stepwell.values.own_exceptions import failure_of_run
from stepwell.values.stamp import read_value

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class RunStatus(StrEnum):
    """Where a task stands; stored as this text."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"
    CANCELLED = "CANCELLED"

    @property
    def finished(self) -> bool:
        """True if only an operator can change it now."""
        return self in (RunStatus.SUCCESS, RunStatus.ERROR, RunStatus.CANCELLED)


class CancelAnswer(StrEnum):
    """The answer to a request to cancel a run; true unless it was too late."""

    CANCELLED = "CANCELLED"
    REQUESTED = "REQUESTED"
    TOO_LATE = "TOO_LATE"

    def __bool__(self) -> bool:
        return self is not CancelAnswer.TOO_LATE


class SignalAnswer(StrEnum):
    """The answer to a signal; true unless it was too late."""

    WOKE = "WOKE"
    KEPT = "KEPT"
    TOO_LATE = "TOO_LATE"

    def __bool__(self) -> bool:
        return self is not SignalAnswer.TOO_LATE


class TaskKind(StrEnum):
    """What a task is; stored as this text."""

    MESSAGE = "MESSAGE"
    RUN = "RUN"
    EFFECT = "EFFECT"
    TIMER = "TIMER"
    INPUT = "INPUT"
    OUTBOX = "OUTBOX"


class TaskId(int):
    """A task's number; `created` is False if a task with its key existed before."""

    created: bool = True  # of the class: a bulk makes thousands of them

    @classmethod
    def found(cls, value: int) -> Self:
        """The number of a task that existed before."""
        task_id = cls(value)
        task_id.created = False
        return task_id

    def __repr__(self) -> str:
        return int.__repr__(self)


class RunId(TaskId, Generic[R_co]):
    """A run's number; `returns` and `raises` are the type of its result and what its callers get, as far as known."""

    returns: Any = Any
    raises: tuple[type[Exception], ...] = ()


class Page(list[T], Generic[T]):
    """Part of a longer list; pass `next` as `after` to get the rest; it is None at the end."""

    def __init__(self, items: Iterable[T] = (), next: str | None = None) -> None:
        super().__init__(items)
        self.next = next


@dataclass(frozen=True, slots=True)
class Task:
    """A task as it stands, for people: `owner` is the session that executes it, `last_worker` the one that had it last.

    The last one stays when the task is settled; its name is shown as long as the store keeps ended sessions. None if no
    worker had it, or if a consumer has taken it by hand since.
    """

    id: int
    kind: TaskKind
    queue: str
    status: RunStatus
    ready: bool
    priority: int
    run_at: datetime | None
    owner: int | None
    turn: int
    attempt: int
    max_attempts: int
    key: str | None
    input: Any
    output: Any
    error: Mapping[str, Any] | None
    last_error: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deleted_at: datetime | None = None
    delete_reason: str | None = None
    last_worker: int | None = None
    last_worker_name: str | None = None
    tags: tuple[str, ...] = ()
    progress: Any = None  # what its handler said last
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A task that ended in ERROR, kept until it is requeued or dropped; `last_worker` is the session that had it."""

    id: int
    kind: TaskKind
    queue: str
    key: str | None
    attempt: int
    max_attempts: int
    payload: Any
    error: Mapping[str, Any] | None
    last_error: str | None
    created_at: datetime
    finished_at: datetime
    last_worker: int | None = None
    last_worker_name: str | None = None


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue as it stands."""

    id: int
    name: str
    paused: bool
    draining: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class QueueStats:
    """How much of a queue is ready, waiting, running and dead, and for how many seconds the oldest has been ready.

    Each number is exact up to 10,000; beyond, it is a floor (`Count.is_floor`), unless exact numbers were asked for.
    """

    queue: str
    paused: bool
    draining: bool
    ready: Count
    waiting: Count
    running: Count
    dead: Count
    oldest: float | None
    suspects: Count = NONE  # of those that wait: were lost with a worker, and are executed alone
    scheduled: Count = NONE  # of those that wait: for a moment ...
    set_aside: Count = NONE  # ... and for a signal, a child or an operator: these are PAUSED
    unreadable: Count = NONE  # of those that wait: no worker to which they were offered could read them


@dataclass(frozen=True, slots=True)
class Health:
    """What a database reports of itself: `settings` decide whether a commit survives a power cut.

    `clock` is its own, `took` how many seconds it took to answer, `held` for how many seconds the oldest transaction
    has kept it from cleaning up (None where there is no such thing), `numbered_ahead` how many positions of events a
    session takes at once: with more than 1 readers may miss events.
    """

    backend: str
    version: str
    schema: int
    settings: Mapping[str, str]
    clock: datetime
    took: float
    held: float | None
    numbered_ahead: int = 1


@dataclass(frozen=True, slots=True)
class Aside:
    """Runs that go on only when a person lets them: how many, and for how many seconds the first has waited.

    They need an "unpause", because an operator holds them back; an "accept", because they are held for their code; or
    a "signal", for which they wait without an end.
    """

    needs: Literal["unpause", "accept", "signal"]
    runs: Count
    longest: float


@dataclass(frozen=True, slots=True)
class Unserved:
    """A queue with work that no living worker serves, and how much of it."""

    queue: str
    waiting: Count


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Since when and why nothing is claimed, and how many tasks workers are still executing."""

    began_at: datetime
    reason: str | None
    running: Count


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One session of a worker; `silent` is how long ago it was heard of, None when it has ended.

    One that is silent for longer than its `lease`, or whose process is known to be gone, is not `alive`, though it ends
    only when a living worker takes over: then it has `stopped_at`. `helper` says which process
    beats for it while it cannot: its `supervisor` (`stepwell worker`) or a `child`; else in a word why none does.
    """

    id: int
    name: str
    host: str
    pid: int
    port: int | None
    version: str
    handlers: Sequence[str]
    lease: float
    alive: bool
    silent: float | None
    started_at: datetime
    stopped_at: datetime | None
    stop_reason: str | None
    helper: str | None = None
    zones: str | None = None  # the version of the time zones by which it computes ticks
    reads: Sequence[str] = ()  # versions, `decider/Name@3` or `/Name@3` for the class of a value; none if all are 1


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """How many events of a decider, or unread tasks of a queue, are stored under a name and version."""

    of: str  # the decider's type, or the queue
    kind: Literal["event", "task"]
    name: str
    version: int
    number: int


@dataclass(frozen=True, slots=True)
class WorkflowInfo:
    """A workflow as it is defined in the store."""

    name: str
    created_at: datetime
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StepInfo:
    """What a run has recorded of one step, for people."""

    key: str
    name: str
    status: RunStatus
    attempt: int
    input: Any
    output: Any
    error: Mapping[str, Any] | None
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class AuditInfo:
    """One thing that happened to a run or message; `worker` is the session that did it or was lost, if it was one."""

    what: str
    at: datetime
    worker: int | None
    turn: int | None
    attempt: int | None  # of the task; of the step, where a step failed
    detail: str | None
    actor: str | None = None  # who asked for it, if a person did


@dataclass(frozen=True, slots=True)
class AuditNote:
    """A note of the audit with the task that it is about: None for the store itself, and its queue if it is there."""

    task_id: int | None
    kind: TaskKind | None
    queue: str | None
    key: str | None
    note: AuditInfo


@dataclass(frozen=True, slots=True)
class Run(Generic[R_co]):
    """A run as it stood when it was read; its input and output are decoded when you read them."""

    id: RunId[R_co]
    workflow: str
    status: RunStatus
    key: str | None
    attempt: int
    max_attempts: int
    priority: int
    last_error: str | None
    tags: tuple[str, ...]
    parent_id: int | None
    worker: int | None  # the session that executes it
    run_at: datetime | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    paused_at: datetime | None
    finished_at: datetime | None
    deleted_at: datetime | None
    input_text: str | None = field(repr=False)
    output_text: str | None = field(repr=False)
    error_text: str | None = field(repr=False)
    cause: str | None = None  # the run it was made from, and how
    held_at: datetime | None = None  # since when an operator holds it back
    progress_text: str | None = field(default=None, repr=False)
    cancel_requested_at: datetime | None = None  # since when it is being cancelled, or was
    generation: int = 0  # how often it has restarted
    headers: Mapping[str, str] = field(default_factory=dict)

    @overload
    def output(self) -> R_co: ...
    @overload
    def output(self, as_: type[T]) -> T: ...
    def output(self, as_: Any = None) -> Any:
        """What it returned: as the type given, else as its workflow declares where that is known here, else plain JSON.

        Raises `ExecutionFailed`, or an exception of a class in its workflow's `raises`, or `RunCancelled` if it ended
        so, and `RunUnfinished` if it has not ended.
        """
        match self.status:
            case RunStatus.SUCCESS if self.output_text is None:
                return None  # of an earlier release, which let another run go on for it
            case RunStatus.SUCCESS:
                known = definition_of(self.workflow).returns if self.id.returns is Any else self.id.returns
                type_ = known if as_ is None else as_
                return read_value(self.output_text or "null", type_, what=f"output of run {self.id}")
            case RunStatus.ERROR:
                raise failure_of_run(self.id, self.id.raises or definition_of(self.workflow).raises, self.error)
            case RunStatus.CANCELLED:
                raise RunCancelled(self.id, self.error)
            case _:
                raise RunUnfinished(self.id, self.status)

    def input(self, as_: Any = Any) -> Any:
        """What it was triggered with, as plain JSON or as the type given."""
        text = self.input_text or "null"
        return shown_value(text) if as_ is Any else read_value(text, as_, what=f"input of run {self.id}")

    @property
    def error(self) -> Mapping[str, Any] | None:
        """What went wrong the last time, with its type, message and traceback."""
        error: Mapping[str, Any] | None = decode(self.error_text or "null", what=f"error of run {self.id}")
        return error

    @property
    def progress(self) -> Any:
        """The progress that it last reported, as plain JSON; None if it reported none."""
        return decode(self.progress_text or "null", what=f"progress of run {self.id}")
