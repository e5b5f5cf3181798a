"""Errors of work: queues, tasks, workflows, runs, steps, deciders."""
# ruff: noqa: N818 - the names are the API's words; `LeaseLost` says more than `LeaseLostError`

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepwell.errors.base import StepwellError, shown
from stepwell.errors.values import SerializationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class QueueNotFound(StepwellError):
    """No queue has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no queue is named {shown(name)}; create it with `store.create_queue(name)`")
        self.name = name


class QueueInUse(StepwellError):
    """A queue cannot be deleted while something uses it."""

    def __init__(self, name: str, tasks: int, workers: int, workflows: int) -> None:
        super().__init__(
            f"queue {shown(name)} has {tasks} messages, {workers} living workers and {workflows} workflows; "
            "stop the workers and `purge` it first, and remove a workflow with `store.delete_workflow(name)`"
        )
        self.name = name
        self.tasks = tasks
        self.workers = workers
        self.workflows = workflows


class QueueDraining(StepwellError):
    """A queue takes no new messages while it is being drained."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"queue {shown(name)} is being drained and takes no new messages: nothing was written; enqueue to the "
            "queue that replaces it, or end the draining with `store.reopen_queue(name)`"
        )
        self.name = name


class TaskInUse(StepwellError):
    """A worker is executing the task, so no other program may close it."""

    def __init__(self, task_id: int, worker_id: int) -> None:
        held = f"task {task_id} is being executed by worker session {worker_id}"
        super().__init__(f"{held}; wait until it has ended, or stop that worker, which gives it back")
        self.task_id, self.worker_id = task_id, worker_id


class InlineProjectionFailed(StepwellError):
    """An inline projection raised, or its table is not as its code has it: nothing of the decision was written."""

    def __init__(self, projection: str, why: str) -> None:
        super().__init__(
            f"projection {shown(projection)} is inline, and could not take the events of this decision: nothing was "
            f"written; {why}"
        )
        self.projection = projection


class IdempotencyConflict(StepwellError):
    """A key is taken by a task with another payload."""

    def __init__(self, queue: str, key: str, existing: int) -> None:
        super().__init__(
            f"key {shown(key)} in {shown(queue)} belongs to task {existing}, which has another payload; "
            "use another key, or look at that task"
        )
        self.queue = queue
        self.key = key
        self.existing = existing


class KeyInUse(StepwellError):
    """A key is taken, and the add was to fail then."""

    def __init__(self, queue: str, key: str, existing: int) -> None:
        super().__init__(
            f"key {shown(key)} in {shown(queue)} belongs to task {existing}, so nothing was written; look at that "
            "task, or leave `on_conflict` out to get its id"
        )
        self.queue = queue
        self.key = key
        self.existing = existing


class KeyTaken(StepwellError):
    """A deleted task cannot be restored while another one has its key."""

    def __init__(self, task_id: int, queue: str, key: str, existing: int) -> None:
        super().__init__(
            f"task {task_id} stays deleted: its key {shown(key)} in {shown(queue)} belongs to task {existing} now; "
            "delete that one first, or enqueue the payload anew under another key"
        )
        self.task_id = task_id
        self.queue = queue
        self.key = key
        self.existing = existing


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


class WorkflowNotFound(StepwellError):
    """No workflow has this name."""

    def __init__(self, name: str) -> None:
        if isinstance(name, str) and name.endswith("*"):
            said = f"no workflow's name begins with {shown(name[:-1])}; `store.workflows()` lists those there are"
        else:
            said = (
                f"no workflow is named {shown(name)}; create it with `store.create_workflow(name)` "
                "or start a worker that serves it"
            )
        super().__init__(said)
        self.name = name


class DuplicateWorkflow(StepwellError):
    """Two handlers were given for one name."""

    def __init__(self, name: str, first: str, second: str) -> None:
        super().__init__(f"{shown(name)} is to be served by {first} and by {second}; give one of them another `name=`")
        self.name = name
        self.first = first
        self.second = second


class NoWorkerAvailable(StepwellError):
    """No living worker serves this workflow, and the trigger asked for one."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"no living worker serves {shown(name)}: nothing was written; start one, or trigger with "
            "`require_worker='warn'`, and the run waits for it"
        )
        self.name = name


class RunNotFound(StepwellError):
    """No run has this number or key, or it is not one of the workflow that was asked."""

    def __init__(
        self,
        run_id: int | None,
        workflow: str | None = None,
        *,
        kind: str = "RUN",
        queue: str = "",
        key: str | None = None,
    ) -> None:
        of = "" if workflow is None else f" of workflow {shown(workflow)}"
        number = 0 if run_id is None else int(run_id)
        if kind == "RUN":
            why = "finished ones are kept for 7 days, or as `connect(keep=)` says"
        else:
            why = f"{number} is the {kind.lower()} of that number in {shown(queue)}: `store.get({number})` shows it"
        which = f"run {number}" if key is None else f"run with the key {shown(key)}"
        super().__init__(f"there is no {which}{of}; {why}")
        self.run_id = number  # 0 if it was named by its key
        self.key = key
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


class ValueNotSet(StepwellError):
    """A run has ended and has never set this value."""

    def __init__(self, run_id: int, name: str, status: str, known: Sequence[str]) -> None:
        has = f"it has set {', '.join(map(shown, known))}" if known else "it has set none"
        super().__init__(
            f"run {int(run_id)} ended {status} and never set the value {shown(name)}; {has}. Its workflow sets one "
            f"with `ctx.set_value({shown(name)}, ...)`"
        )
        self.run_id = run_id
        self.name = name
        self.status = status


class RequestRefused(StepwellError):
    """A run has refused a request, for this reason."""

    def __init__(self, run_id: int, name: str, reason: str) -> None:
        super().__init__(f"run {int(run_id)} refused the request {shown(name)}: {reason}")
        self.run_id = run_id
        self.name = name
        self.reason = reason


class RequestUnanswered(StepwellError):
    """A run has ended, or is being cancelled, and has not answered the request."""

    def __init__(self, run_id: int, name: str, status: str) -> None:
        super().__init__(
            f"run {int(run_id)} is {status} and does not answer the request {shown(name)} any more; `store.why(run)` "
            f"says more. Its workflow answers with `async with ctx.request({shown(name)}, ...)`"
        )
        self.run_id = run_id
        self.name = name
        self.status = status


class ChunksRemoved(StepwellError):
    """A reader of a stream is so late that the next chunks are not kept any more."""

    def __init__(self, run_id: int, name: str, after: int, first: int) -> None:
        gone = f"the chunks {after + 1} to {first - 1} of the stream {shown(name)} of run {int(run_id)} are"
        super().__init__(
            f"{gone} not kept any more; go on with `after={first - 1}`, or have more kept with "
            f"`ctx.stream({shown(name)}, keep=...)`"
        )
        self.run_id = run_id
        self.name = name
        self.after = after
        self.first = first


class TooMuchUnwritten(StepwellError):
    """A run reports faster than the database takes it."""

    def __init__(self, run_id: int, what: str, waiting: int) -> None:
        super().__init__(
            f"{waiting:,} characters that run {run_id} has reported wait to be written, so the {what} was not taken: "
            "say `await ctx.stream(...).written()` now and then, so that the code goes no faster than the database"
        )
        self.run_id = run_id
        self.waiting = waiting


class ExecutionFailed(StepwellError):
    """A run, or a message, that was waited for ended without success."""

    def __init__(self, run_id: int, error: Mapping[str, Any] | None = None, *, kind: str = "RUN") -> None:
        told = f"{error.get('type', 'error')}: {error.get('message', '')}" if error else "no error was recorded"
        verb = "retry" if kind == "RUN" else "requeue"
        super().__init__(
            f"{kind.lower()} {int(run_id)} failed with {told[:500]}; `store.{verb}({int(run_id)})` tries it again"
        )
        self.run_id = run_id
        self.error = error


class RunCancelled(ExecutionFailed):
    """A run, or a message, that was waited for was cancelled."""

    def __init__(self, run_id: int, error: Mapping[str, Any] | None = None, *, kind: str = "RUN") -> None:
        verb = "trigger" if kind == "RUN" else "enqueue"
        StepwellError.__init__(
            self, f"{kind.lower()} {int(run_id)} was cancelled; {verb} it again if it is still wanted"
        )
        self.run_id = run_id
        self.error = error


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


class DeciderNotFound(StepwellError):
    """No decider of this type is registered, or has left anything in the store."""

    def __init__(self, type: str, known: tuple[str, ...] = ()) -> None:
        there_are = f"there are {', '.join(known)}" if known else "there is none"
        said = f"no decider of type {shown(type)} is known here, {there_are}"
        super().__init__(f"{said}; register it with `engine.register(...)`")
        self.type = type


UnknownWorkflowType = DeciderNotFound


class DuplicateDecider(StepwellError):
    """Two deciders were registered for one type, or for one class of inputs."""

    def __init__(self, what: str, name: str, first: str, second: str, advice: str) -> None:
        super().__init__(f"{what} {shown(name)} belongs to {first} and is to belong to {second}; {advice}")
        self.name = name
        self.first = first
        self.second = second


class VersionConflict(StepwellError):
    """An instance is not at the version that an input was decided to need; nothing was written."""

    def __init__(self, type: str, id: str, *, expected: int, actual: int) -> None:
        super().__init__(
            f"{type} {shown(id)} is at version {int(actual)}, not at {int(expected)} as expected: nothing was written; "
            "inspect the instance again, decide again, and send the input with the version that it has then"
        )
        self.type = type
        self.id = id
        self.expected = expected
        self.actual = actual


class ProjectionNotFound(StepwellError):
    """No projection of this name was ever served by a worker of this store."""

    def __init__(self, name: str) -> None:
        said = f"no projection is named {shown(name)}; a worker makes it when it serves an engine with the projection"
        super().__init__(f"{said}, and `stepwell projection ls` lists them")
        self.name = name


class ScheduleNotFound(StepwellError):
    """No schedule has this name."""

    def __init__(self, name: str) -> None:
        said = (
            f"no schedule is named {shown(name)}; a worker that serves its workflow makes it, or `store.schedule(...)`"
        )
        super().__init__(f"{said}, and `stepwell schedule ls` lists them")
        self.name = name


class UnknownRecord(SerializationError):
    """A stored value is of a class or version that this code does not have; other code may.

    Or an event does not fit its class any more.
    """

    def __init__(self, what: str, name: str, version: int, known: str) -> None:
        super().__init__(
            f"it was stored as {shown(name)[1:-1]}, version {version}, and {known}; run the code that wrote it, "
            "or declare the class again, with `@upcast` for its older versions",
            what=what,
        )
        self.name = name
        self.version = version


class UnknownCodec(UnknownRecord):
    """A stored value was written by a codec that this process does not have; other code may."""

    def __init__(self, what: str, name: str, known: str) -> None:
        SerializationError.__init__(
            self,
            f"it was written by the codec {shown(name)[1:-1]}, and this process has {known}; "
            "run the code that wrote it, or call `register_codec` with that codec",
            what=what,
        )
        self.name = name
        self.version = 1
