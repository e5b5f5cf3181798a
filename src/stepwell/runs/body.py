"""The body of a workflow's task: read the journal of the run, call the workflow, and return the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from stepwell.base.backoff import Retry
from stepwell.base.events import StepsUnasked
from stepwell.errors import SerializationError, UpcastFailed
from stepwell.runs.cleanup import Cleanup
from stepwell.runs.context import Context, SyncContext
from stepwell.runs.journal import Journal
from stepwell.runs.long_steps import LongSteps
from stepwell.runs.pause import Pause, Unwinding
from stepwell.runs.stalls import Stalls
from stepwell.runs.steps import resumes_at, told_of
from stepwell.runs.sync_turn import SyncTurn
from stepwell.runs.turn import RunTurn
from stepwell.store.rows import Claimed, StepRow
from stepwell.values.arguments import Arguments
from stepwell.values.codec import names_unknown_class
from stepwell.values.own_exceptions import kept_of
from stepwell.values.stamp import write_result
from stepwell.work.body import Body, Slot
from stepwell.work.outcome import KEPT, Cancelled, Done, Ended, Restarted, Suspended, pause_of
from stepwell.work.threads import Threads
from stepwell.work.unreadable import Misfit


class WorkflowDefinition(Protocol):
    """What has to be known of a workflow to execute it."""

    @property
    def name(self) -> str:
        """The name of the workflow."""

    @property
    def fn(self) -> Callable[..., Any]:
        """The function."""

    @property
    def arguments(self) -> Arguments:
        """The parameters of the function."""

    @property
    def is_async(self) -> bool:
        """True if the function runs on the loop, False if it runs in a thread."""

    @property
    def retry(self) -> Retry | None:
        """Its retry policy; None for that of the store."""

    @property
    def raises(self) -> tuple[type[Exception], ...]:
        """The classes of its exceptions that its callers get."""

    @property
    def cleanup(self) -> float | None:
        """Seconds that a cancelled run may clean up; None if it does not clean up."""

    @property
    def strict(self) -> bool:
        """True if a new step is refused while its branch has recorded steps that this turn has not reached."""


def run_body(workflow: WorkflowDefinition) -> Body:
    """The body that a worker calls for a run of this workflow."""
    return partial(_execute, workflow, (LongSteps(), Stalls()))


async def _execute(
    workflow: WorkflowDefinition,
    looks: tuple[LongSteps, Stalls],
    tasks: Sequence[Claimed],
    threads: Threads,
    slot: Slot,
) -> Ended:
    [task], (long_steps, stalls) = tasks, looks
    # Before its first turn a run has recorded nothing. Read after the claim: no other worker records for it then.
    recorded = await slot.database.steps.of(task.id, task.generation) if task.turn > 1 else ()
    arguments = _arguments(workflow, task, recorded)
    journal = Journal(task.id, recorded, strict=workflow.strict)
    run = (RunTurn if workflow.is_async else SyncTurn)(task, workflow.name, journal, slot, threads)
    run.arguments, run.long_steps = workflow.arguments, long_steps
    if workflow.cleanup is not None or task.cleanup_until is not None:
        run.cleanup = Cleanup(run, workflow.cleanup)
    stalls.begin(run)
    try:
        returned = await run.execute(workflow.fn, _context(workflow, run), arguments)
    except Unwinding:
        if (unwound := _unwound(run)) is None:
            raise  # stopped by the worker, which knows the outcome
        return unwound
    except asyncio.CancelledError:
        if run.cleanup is None or not run.cleanup.is_under_way:
            raise  # raised by the workflow itself
        return Cancelled()
    except Exception as error:  # noqa: BLE001 - raised again unless it means a pause
        if kept := kept_of(error, workflow.raises):
            BaseException.__setattr__(error, KEPT, kept)  # also on one that is frozen
        return _set_aside(run, error, workflow.retry or slot.database.options.retry)
    finally:
        stalls.end(run)
        if run.journal.contradiction is not None:
            raise run.journal.contradiction  # even if the workflow has caught it
    return _done(workflow, run, returned)


def _arguments(workflow: WorkflowDefinition, task: Claimed, recorded: Sequence[StepRow]) -> dict[str, Any]:
    """The arguments of the workflow; if the run has recorded a step, other code has read them before."""
    try:
        return workflow.arguments.decode(task.input or "null")
    except SerializationError as error:
        raise Misfit(error, was_read=bool(recorded) or names_unknown_class(error)) from error


def _done(workflow: WorkflowDefinition, run: RunTurn, returned: Any) -> Done:
    """The outcome of a run that returned; raises if the value cannot be stored and read back."""
    database, task = run.slot.database, run.task
    if unasked := run.journal.unasked:
        database.telemetry.emit(StepsUnasked(task.id, workflow.name, unasked))
    what, returns = f"result of {workflow.name}", workflow.arguments.returns
    limit, codec = database.options.payload_limit, database.options.codec
    return Done(write_result(returned, returns, what=what, limit=limit, codec=codec))


def _unwound(run: RunTurn) -> Ended | None:
    """Why the run does not go on in this turn; None if that was not its own doing."""
    if isinstance(run.held, Misfit | UpcastFailed):
        raise run.held
    if run.held is not None:
        return run.held
    if run.restarts_with is not None:
        return Restarted(run.restarts_with)
    return None if run.pause is None else _suspended(run.pause, run.now())


def _suspended(pause: Pause, now: int) -> Suspended:
    delay = 0.0 if pause.due is None else max(0, pause.due - now) / 1_000_000
    return Suspended(pause.due, delay, pause.wakes, pause.needed)


def _set_aside(run: RunTurn, error: Exception, policy: Retry) -> Suspended:
    """The workflow has paused itself outside of its steps: it is called again when an operator unpauses it.

    With `resume_after` it is also called after that time, and with a `resume_condition` at every check: its own code
    then finds out whether it may go on.
    """
    pause = pause_of(error, policy)
    if pause is None:
        raise error
    due = resumes_at(run, pause)
    return Suspended(due, 0.0 if due is None else (due - run.now()) / 1_000_000, said=told_of(pause))


def _context(workflow: WorkflowDefinition, run: RunTurn) -> tuple[Context | SyncContext, ...]:
    if not workflow.arguments.takes_context:
        return ()
    return (SyncContext(run) if run.is_sync else Context(run),)
