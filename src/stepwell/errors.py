"""Every error that stepwell raises, in the families a caller can act on.

Each says what happened, to which id, and what to do next; the facts are attributes. Drivers translate into these
once, `from` the original, so nothing above them knows a database's own errors, and no message shows a password.
"""
# ruff: noqa: N818 - the names are the API's words; `LeaseLost` says more than `LeaseLostError`

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepwell.base.redaction import redact, redact_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepwell.base.durations import Duration


class StepwellError(Exception):
    """Something stepwell was asked for could not be done."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(args or (_sentence(type(self)),)))

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the class with the finished message, which most classes here build from other arguments.
        return _rebuilt, (type(self), self.args, dict(self.__dict__))


class PermanentError(StepwellError):
    """This can never succeed: do not try again."""


class TransientError(StepwellError):
    """This failed for now: try again, after `retry_after` seconds if given, else after the policy's backoff."""

    def __init__(self, message: str = "", *, retry_after: Duration | None = None) -> None:
        from stepwell.base.durations import seconds_of  # noqa: PLC0415 - durations refuses with errors of this module

        super().__init__(*([message] if message else []))
        self.retry_after = None if retry_after is None else seconds_of(retry_after, "retry_after")

    @classmethod
    def with_backoff(cls, seconds: Duration, message: str = "") -> TransientError:
        """A transient error that is tried again after `seconds`."""
        return cls(message, retry_after=seconds)


class Paused(StepwellError):
    """Set this work aside until a signal, an operator or `resume_condition` brings it back; no attempt is spent.

    With `resume_after` it is tried again after that time, whatever else comes; it is asked for in place of a condition.
    """

    def __init__(
        self, message: str = "", *, resume_condition: str | None = None, resume_after: Duration | None = None
    ) -> None:
        super().__init__(*([message] if message else []))
        self.resume_condition = resume_condition
        self.resume_after = resume_after


PauseError = Paused


class QueueNotFound(StepwellError):
    """No queue has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no queue is named {_shown(name)}; create it with `store.create_queue(name)`")
        self.name = name


class QueueInUse(StepwellError):
    """A queue cannot be deleted while something uses it."""

    def __init__(self, name: str, tasks: int, workers: int, workflows: int) -> None:
        super().__init__(
            f"queue {_shown(name)} has {tasks} messages, {workers} living workers and {workflows} workflows; "
            "stop the workers and `purge` it first, and remove a workflow with `store.delete_workflow(name)`"
        )
        self.name = name
        self.tasks = tasks
        self.workers = workers
        self.workflows = workflows


class TaskInUse(StepwellError):
    """A worker is executing the task, so no other program may close it."""

    def __init__(self, task_id: int, worker_id: int) -> None:
        held = f"task {task_id} is being executed by worker session {worker_id}"
        super().__init__(f"{held}; wait until it has ended, or stop that worker, which gives it back")
        self.task_id, self.worker_id = task_id, worker_id


class QueueDraining(StepwellError):
    """A queue takes no new messages while it is being drained."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"queue {_shown(name)} is being drained and takes no new messages: nothing was written; enqueue to the "
            "queue that replaces it, or end the draining with `store.reopen_queue(name)`"
        )
        self.name = name


class WorkflowNotFound(StepwellError):
    """No workflow has this name."""

    def __init__(self, name: str) -> None:
        if isinstance(name, str) and name.endswith("*"):
            said = f"no workflow's name begins with {_shown(name[:-1])}; `store.workflows()` lists those there are"
        else:
            said = (
                f"no workflow is named {_shown(name)}; create it with `store.create_workflow(name)` "
                "or start a worker that serves it"
            )
        super().__init__(said)
        self.name = name


class DuplicateWorkflow(StepwellError):
    """Two handlers were given for one name."""

    def __init__(self, name: str, first: str, second: str) -> None:
        super().__init__(f"{_shown(name)} is to be served by {first} and by {second}; give one of them another `name=`")
        self.name = name
        self.first = first
        self.second = second


class DeciderNotFound(StepwellError):
    """No decider of this type is registered, or has left anything in the store."""

    def __init__(self, type: str, known: tuple[str, ...] = ()) -> None:
        there_are = f"there are {', '.join(known)}" if known else "there is none"
        said = f"no decider of type {_shown(type)} is known here, {there_are}"
        super().__init__(f"{said}; register it with `engine.register(...)`")
        self.type = type


UnknownWorkflowType = DeciderNotFound


class DuplicateDecider(StepwellError):
    """Two deciders were registered for one type, or for one class of inputs."""

    def __init__(self, what: str, name: str, first: str, second: str, advice: str) -> None:
        super().__init__(f"{what} {_shown(name)} belongs to {first} and is to belong to {second}; {advice}")
        self.name = name
        self.first = first
        self.second = second


class NoWorkerAvailable(StepwellError):
    """No living worker serves this workflow, and the trigger asked for one."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"no living worker serves {_shown(name)}: nothing was written; start one, or trigger with "
            "`require_worker='warn'`, and the run waits for it"
        )
        self.name = name


class RunNotFound(StepwellError):
    """No run has this number, or it is not one of the workflow that was asked."""

    def __init__(self, run_id: int, workflow: str | None = None, *, kind: str = "RUN", queue: str = "") -> None:
        of = "" if workflow is None else f" of workflow {_shown(workflow)}"
        if kind == "RUN":
            why = "finished ones are kept for 7 days, or as `connect(keep=)` says"
        else:
            number, what = int(run_id), kind.lower()
            why = f"{number} is the {what} of that number in {_shown(queue)}: `store.get({number})` shows it"
        super().__init__(f"there is no run {int(run_id)}{of}; {why}")
        self.run_id = run_id
        self.kind = kind
        self.workflow = workflow


class RunUnfinished(StepwellError):
    """A run has no output before it has succeeded."""

    def __init__(self, run_id: int, status: str) -> None:
        super().__init__(
            f"run {int(run_id)} is {status} and has no output yet; wait for it with `store.result({int(run_id)})`"
        )
        self.run_id = run_id
        self.status = status


class StepNotFound(StepwellError):
    """A run has recorded no such step."""

    def __init__(self, run_id: int, step: str, recorded: Sequence[str]) -> None:
        known = ", ".join(recorded[:20]) + (", ..." if len(recorded) > 20 else "") or "none"
        super().__init__(f"run {int(run_id)} has recorded no step {_shown(step)}; name one of those it has: {known}")
        self.run_id = run_id
        self.step = step
        self.recorded = tuple(recorded)


class InvalidName(StepwellError, ValueError):
    """A name breaks the rule for its kind."""

    def __init__(self, kind: str, name: object, why: str) -> None:
        super().__init__(f"{_shown(name)} cannot name a {kind}: {why}")
        self.kind = kind
        self.name = name
        self.why = why


class InvalidOption(StepwellError, ValueError):
    """An option has a value it cannot have."""

    def __init__(self, option: str, value: object, why: str) -> None:
        super().__init__(f"{option} cannot be {_shown(value)}: {why}")
        self.option = option
        self.value = value
        self.why = why


class SerializationError(StepwellError):
    """A value cannot be stored as JSON, or stored JSON does not fit the type asked for."""

    def __init__(self, source: object, *, path: str = "$", what: str = "payload") -> None:
        super().__init__(f"{what} refused at `{path}`: {source}")
        self.source = source
        self.path = path
        self.what = what


class UnknownRecord(SerializationError):
    """A stored input, event or effect is of a class or version that this code does not have; other code may."""

    def __init__(self, what: str, name: str, version: int, known: str) -> None:
        super().__init__(
            f"it was stored as {_shown(name)[1:-1]}, version {version}, and {known}; run the code that wrote it, "
            "or let the decider declare the class again",
            what=what,
        )
        self.name = name
        self.version = version


class PayloadTooLarge(SerializationError):
    """A value is larger than the store takes."""

    def __init__(self, size: int, limit: int, *, what: str = "payload") -> None:
        super().__init__(
            f"{size} bytes, the limit is {limit}; store it elsewhere and pass a reference, or raise `payload_limit`",
            what=what,
        )
        self.size = size
        self.limit = limit


class IdempotencyConflict(StepwellError):
    """A key is taken by a task with another payload."""

    def __init__(self, queue: str, key: str, existing: int) -> None:
        super().__init__(
            f"key {_shown(key)} in {_shown(queue)} belongs to task {existing}, which has another payload; "
            "use another key, or look at that task"
        )
        self.queue = queue
        self.key = key
        self.existing = existing


class KeyTaken(StepwellError):
    """A deleted task cannot be restored while another one has its key."""

    def __init__(self, task_id: int, queue: str, key: str, existing: int) -> None:
        super().__init__(
            f"task {task_id} stays deleted: its key {_shown(key)} in {_shown(queue)} belongs to task {existing} now; "
            "delete that one first, or enqueue the payload anew under another key"
        )
        self.task_id = task_id
        self.queue = queue
        self.key = key
        self.existing = existing


class UnknownStore(StepwellError):
    """A URL names no kind of store."""

    def __init__(self, url: str) -> None:
        self.url = redact_url(url)
        super().__init__(
            f"no store opens {_shown(self.url)}; use postgresql://..., sqlite:///file.db, turso:///file.db or memory:"
        )


class LeaseLost(StepwellError):
    """This session no longer owns what it wrote to; nothing was written, and someone else does the work."""

    def __init__(self, worker_id: int, task_id: int | None = None) -> None:
        held = "its tasks" if task_id is None else f"task {task_id}"
        super().__init__(
            f"worker session {worker_id} no longer holds {held}: nothing was written. Another session does the work; "
            "if this happens often, raise `lease` or look for what blocks the process"
        )
        self.worker_id = worker_id
        self.task_id = task_id


class StoreUnavailable(StepwellError):
    """The database did not answer; whether it did the work is unknown."""

    def __init__(self, why: object = "no answer") -> None:
        self.why = redact(str(why))
        super().__init__(
            f"the database did not answer ({self.why}); whether it did the work is unknown: repeat what has a "
            "key, look first at what has none"
        )


class CannotOpen(StoreUnavailable):
    """The store could not be opened; nothing was asked of it yet."""

    def __init__(self, url: str, why: object) -> None:
        StepwellError.__init__(self, f"cannot open {redact_url(url)}: {redact(str(why))}")
        self.url = redact_url(url)
        self.why = redact(str(why))


class StoreBusy(StepwellError):
    """The database is locked by other writers; nothing was written, try again."""


class StoreLocked(StoreBusy):
    """A transaction that has not ended holds a row or a key that this needs; nothing was written, try again."""


class Refused(StepwellError):
    """The database refused this row, for its integrity or its data; repeating will not help."""

    def __init__(self, why: object) -> None:
        self.why = redact(str(why))
        super().__init__(f"the database refused the row: {self.why}; repeating will not help")


class StoreUnusable(StepwellError):
    """The database will not do this, now or later: a table, a right or a feature is missing."""

    def __init__(self, why: object) -> None:
        self.why = redact(str(why))
        super().__init__(
            f"the database will not do this: {self.why}; check the rights of the user and, with "
            "`stepwell.admin(store).verify()`, the tables"
        )


class Timeout(StepwellError, TimeoutError):
    """It did not happen in time; whatever was asked for goes on, so ask again."""

    def __init__(self, message: str = "", *, seconds: float | None = None) -> None:
        super().__init__(message or _sentence(Timeout))
        self.seconds = seconds


class ExecutionFailed(StepwellError):
    """A run that was waited for ended without success."""

    def __init__(self, run_id: int, error: Mapping[str, Any] | None = None) -> None:
        told = f"{error.get('type', 'error')}: {error.get('message', '')}" if error else "no error was recorded"
        super().__init__(f"run {run_id} failed with {told[:500]}; `store.retry({int(run_id)})` tries it again")
        self.run_id = run_id
        self.error = error


class RunCancelled(ExecutionFailed):
    """A run that was waited for was cancelled."""

    def __init__(self, run_id: int, error: Mapping[str, Any] | None = None) -> None:
        StepwellError.__init__(self, f"run {int(run_id)} was cancelled; trigger it again if it is still wanted")
        self.run_id = run_id
        self.error = error


class StepFailed(StepwellError):
    """A step of a run gave up; the same on the first run and on every replay."""

    def __init__(self, step: str, type: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"step {step} gave up with {type}: {message[:500]}")
        self.step = step
        self.type = type
        self.message = message
        self.details = details or {}


class NonDeterminismError(StepwellError):
    """A run asked for its steps in a way that contradicts what it has recorded."""

    def __init__(self, run_id: int, *, recorded: str, asked: str) -> None:
        super().__init__(
            f"run {int(run_id)} has recorded {recorded[:300]} and now asks for {asked[:300]}; let the code ask again "
            "for what was recorded (`@step(id=...)` keeps a step's identity over a rename), or trigger a new run"
        )
        self.run_id = run_id
        self.recorded = recorded
        self.asked = asked


class NotInRun(StepwellError):
    """This needs a run, and the calling code is not executed by one."""


class TaskFactoryReplaced(StepwellError):
    """Tasks of a run are made by a factory that does not label them, so their steps could not be found again."""

    def __init__(self, step: str) -> None:
        super().__init__(
            f"step {step} was called in a task that stepwell did not see being made: the loop's task factory was "
            "replaced, or makes eager tasks; set yours before the worker starts, and it will be wrapped"
        )
        self.step = step


class SchemaNewer(StepwellError):
    """The store was written by a later release."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(f"the store has schema {found}, this release knows up to {known}; upgrade stepwell here")
        self.found = found
        self.known = known


class SchemaMissing(StepwellError):
    """The database holds no stepwell tables; connect once with `install=True`."""


class SchemaDiffers(StepwellError):
    """The tables are not the ones this release made."""

    def __init__(self, difference: str) -> None:
        said = f"the tables differ from this release's schema: {difference}"
        super().__init__(f"{said}; restore them, or use another `schema`")
        self.difference = difference


class StoreInUse(StepwellError):
    """Another process has this Turso file open."""

    def __init__(self, pid: int | None = None) -> None:
        holder = "another process" if pid is None else f"process {pid}"
        super().__init__(f"{holder} has this file open and Turso serves one process; stop it, or use sqlite:///")
        self.pid = pid


_DRIVERS = {"postgres": "asyncpg", "turso": "pyturso"}


class DriverMissing(StepwellError):
    """The driver for this kind of store is not installed."""

    def __init__(self, extra: str) -> None:
        package = _DRIVERS.get(extra, extra)
        super().__init__(
            f"the driver for {extra} is not installed: pip install {package}, or install stepwell with its extra "
            f"`{extra}` from where you have it"
        )
        self.extra = extra


class ForkError(StepwellError):
    """This store was opened before the process forked; open one of your own in the child."""


class WrongLoop(StepwellError):
    """This store belongs to another event loop or thread; open one there, or use `stepwell.sync.connect`."""


class StoreClosed(StepwellError):
    """This store is closed; open another with `stepwell.connect`."""


def _sentence(cls: type[BaseException]) -> str:
    """A class without words of its own speaks with its nearest ancestor's docstring."""
    return next((" ".join(base.__doc__.split()) for base in cls.__mro__ if base.__doc__), cls.__name__)


def _shown(value: object) -> str:
    """A short printable form, so that no value can break a log line."""
    try:
        text = ascii(value)
    except Exception:  # noqa: BLE001 - a value whose repr raises must not hide the refusal
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _rebuilt(cls: type[StepwellError], args: tuple[object, ...], attributes: dict[str, Any]) -> StepwellError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error
