"""Events of the library for logs and subscribers: frozen values, one class for each kind.

Some have their sentence as `str(event)`; the other sentences are in `telemetry.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class StoreLost:
    """The database stopped answering."""

    why: str

    @classmethod
    def by(cls, error: Exception) -> Self:
        """The event for an error, without the advice that the error gives to its caller."""
        return cls(str(getattr(error, "why", error)))


@dataclass(frozen=True, slots=True)
class StoreBack:
    """The database answers again."""

    after_seconds: float


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """A worker registered and may claim."""

    worker_id: int


@dataclass(frozen=True, slots=True)
class SessionLost:
    """A worker's session was declared dead while it held this many tasks."""

    worker_id: int
    held: int


@dataclass(frozen=True, slots=True)
class LateWriteRefused:
    """A write came after its claim had ended, and the fence refused it."""

    worker_id: int
    task_id: int
    turn: int


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """An attempt failed and another follows."""

    task_id: int
    queue: str
    attempt: int
    error: str


@dataclass(frozen=True, slots=True)
class TaskDied:
    """A task ended in ERROR."""

    task_id: int
    queue: str
    error: str


@dataclass(frozen=True, slots=True)
class TaskUnreadable:
    """A task was left to other code, because this code cannot read it."""

    task_id: int
    queue: str
    error: str

    def __str__(self) -> str:
        return f"task {self.task_id} of {self.queue} is left to other code: {self.error}"


@dataclass(frozen=True, slots=True)
class SessionsRecovered:
    """Dead sessions were found and their tasks returned."""

    worker_ids: tuple[int, ...]
    tasks: int


@dataclass(frozen=True, slots=True)
class OrphansReleased:
    """A session owned tasks it did not hold (a claim's reply was lost) and gave them back."""

    worker_id: int
    task_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WorkUnserved:
    """Queues have tasks that no living worker serves: the name of each, and the number of its tasks."""

    queues: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class OrderRepaired:
    """The first task of an ordered group waited for one before it, which is not there; upkeep has woken it."""

    queue_id: int
    group_key: str

    def __str__(self) -> str:
        where = f"of group {self.group_key!r} of queue {self.queue_id}"
        return f"the first task {where} waited for one before it that is not there, and was woken: please report this"


@dataclass(frozen=True, slots=True)
class StepsUnasked:
    """A run ended without reaching steps that it had recorded: its code has changed, or is not deterministic."""

    run_id: int
    workflow: str
    keys: tuple[str, ...]

    def __str__(self) -> str:
        words = f"run {self.run_id} of {self.workflow} ended without asking for steps it had recorded:"
        return f"{words} {listed(self.keys)}; its code has changed since, or is not deterministic"


@dataclass(frozen=True, slots=True)
class RunHeld:
    """A run is held: it was about to execute a step that may be a new name of one that it has recorded."""

    run_id: int
    workflow: str
    recorded: tuple[str, ...]
    asked: str

    def __str__(self) -> str:
        words = f"run {self.run_id} of {self.workflow} is held: it was about to execute {self.asked}, and has"
        return f"{words} {listed(self.recorded)}, perhaps the same; `stepwell why {self.run_id}` says what to do"


@dataclass(frozen=True, slots=True)
class StepInDoubt:
    """A step that begins at most once has begun and is not known to have ended: its run waits for a person."""

    run_id: int
    workflow: str
    step: str

    def __str__(self) -> str:
        words = f"run {self.run_id} of {self.workflow} does not know whether step {self.step} is done"
        return f"{words}: find out, then `stepwell resolve {self.run_id} {self.step} done|not-done`"


@dataclass(frozen=True, slots=True)
class ConditionUnanswered:
    """A step waits for a condition that could not be called, or whose answer does not fit; it is called again later."""

    run_id: int
    workflow: str
    condition: str
    why: str


@dataclass(frozen=True, slots=True)
class SignalSetAside:
    """A signal could not be read as the type of its wait; it is set aside, and the run goes on waiting."""

    run_id: int
    workflow: str
    signal: str
    why: str

    def __str__(self) -> str:
        words = f"run {self.run_id} of {self.workflow} was sent a signal {self.signal} that it cannot read: {self.why}"
        return f"{words}; it is set aside, and the run waits for another: `store.signal({self.run_id}, ...)`"


@dataclass(frozen=True, slots=True)
class NoWorker:
    """A run was triggered for a workflow that no living worker serves; it waits until one does."""

    workflow: str


@dataclass(frozen=True, slots=True)
class InternalTaskFailed:
    """One of the engine's own loops raised; it is started again."""

    name: str
    error: str


@dataclass(frozen=True, slots=True)
class HelperLost:
    """The helper process, which beats while the interpreter is held, has ended; `again` if another is started."""

    again: bool

    def __str__(self) -> str:
        then = "another is started" if self.again else "a body that holds the interpreter may now cost the lease"
        return f"the helper that beats for a held interpreter has ended: {then}"


@dataclass(frozen=True, slots=True)
class NoHelper:
    """There is no helper process to beat while the interpreter is held, or to report at once that this one is gone."""

    why: str

    def __str__(self) -> str:
        return f"no helper ({self.why}): a body that holds the interpreter for longer than the lease is executed again"


@dataclass(frozen=True, slots=True)
class LoopBlocked:
    """The event loop of a worker has been blocked for this long; `stack` tells where."""

    seconds: float
    stack: str

    def __str__(self) -> str:
        return f"the event loop has been blocked for {self.seconds:.0f} s in {self.stack}"


@dataclass(frozen=True, slots=True)
class PoolerFound:
    """A pooler is in front of the database: there are no prepared statements, and a call takes two round trips."""


@dataclass(frozen=True, slots=True)
class ListenerLost:
    """Hints of other processes do not arrive; polling finds their tasks. Emitted once per outage."""

    why: str


@dataclass(frozen=True, slots=True)
class ListenerBack:
    """Hints of other processes arrive again."""

    after_seconds: float


@dataclass(frozen=True, slots=True)
class NotifyFailed:
    """Hints to other processes could not be sent; their polling finds the tasks. Emitted once per outage."""

    why: str


@dataclass(frozen=True, slots=True)
class ProjectionFailed:
    """A projection could not handle the event at a position; nothing of it was written, and it is tried again."""

    projection: str
    position: int
    attempt: int
    error: str

    def __str__(self) -> str:
        return f"projection {self.projection}: event {self.position} failed, attempt {self.attempt}: {self.error}"


@dataclass(frozen=True, slots=True)
class ProjectionSwapped:
    """A build of a projection that was made beside the live one has become the live one."""

    projection: str
    build: int

    def __str__(self) -> str:
        return f"projection {self.projection} is read from build {self.build} now"


@dataclass(frozen=True, slots=True)
class ProjectionInlined:
    """An inline projection has caught up: from now on its rows are written in the commits of the decisions."""

    projection: str
    position: int

    def __str__(self) -> str:
        return f"projection {self.projection} is inline: from event {self.position} on decisions write its rows"


@dataclass(frozen=True, slots=True)
class BuildKept:
    """A build of a projection whose time is over cannot be dropped; it is tried again."""

    projection: str
    build: int
    why: str

    def __str__(self) -> str:
        return f"build {self.build} of projection {self.projection} is over, and cannot be dropped: {self.why}"


@dataclass(frozen=True, slots=True)
class InstanceParked:
    """A projection has set an instance aside, because one of its events failed too often; the others go on."""

    projection: str
    type: str
    id: str
    version: int
    error: str

    def __str__(self) -> str:
        said = f"projection {self.projection} has set {self.type} {self.id} aside, from event {self.version} on"
        return f"{said}: {self.error}; `stepwell projection retry {self.projection} {self.type} {self.id}`"


@dataclass(frozen=True, slots=True)
class ProjectionUnreadable:
    """The next event of a projection is of a class or version that this code does not have; other code may take it."""

    projection: str
    why: str

    def __str__(self) -> str:
        return f"projection {self.projection} is left to other code: {self.why}"


@dataclass(frozen=True, slots=True)
class ScheduleKept:
    """This code declares an older version of a schedule than a living worker: the newer one stays."""

    schedule: str

    def __str__(self) -> str:
        return f"schedule {self.schedule} stays as a living worker with newer code declares it"


Event = (
    StoreLost
    | StoreBack
    | SessionStarted
    | SessionLost
    | LateWriteRefused
    | TaskFailed
    | TaskDied
    | TaskUnreadable
    | SessionsRecovered
    | OrphansReleased
    | OrderRepaired
    | WorkUnserved
    | NoWorker
    | StepsUnasked
    | RunHeld
    | StepInDoubt
    | ConditionUnanswered
    | SignalSetAside
    | InternalTaskFailed
    | HelperLost
    | NoHelper
    | LoopBlocked
    | PoolerFound
    | ListenerLost
    | ListenerBack
    | NotifyFailed
    | ProjectionFailed
    | ProjectionInlined
    | InstanceParked
    | ProjectionSwapped
    | BuildKept
    | ProjectionUnreadable
    | ScheduleKept
)


def listed(ids: tuple[object, ...]) -> str:
    """The first ten of these, and the number of the others."""
    shown = ", ".join(str(each) for each in ids[:10])
    return f"{shown} and {len(ids) - 10} more" if len(ids) > 10 else shown
