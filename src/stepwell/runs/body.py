"""The body of a workflow's task: read what the run has recorded, call the workflow, and say what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from stepwell.base.backoff import Retry
from stepwell.base.events import StepsUnasked
from stepwell.runs.cleanup import Cleanup
from stepwell.runs.context import Context, SyncContext
from stepwell.runs.journal import Journal
from stepwell.runs.long_steps import LongSteps
from stepwell.runs.pause import Pause, Unwinding
from stepwell.runs.steps import resumes_at, told_of
from stepwell.runs.sync_turn import SyncTurn
from stepwell.runs.turn import RunTurn
from stepwell.store.rows import Claimed
from stepwell.values.arguments import Arguments
from stepwell.values.codec import decode, encode
from stepwell.values.lossless import refuse_cut, refuse_unnamed
from stepwell.work.body import Body, Slot
from stepwell.work.outcome import Cancelled, Done, Ended, Restarted, Suspended, pause_of
from stepwell.work.threads import Threads


class WorkflowDefinition(Protocol):
    """A workflow, as far as executing it goes."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def fn(self) -> Callable[..., Any]:
        """What to call."""

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""

    @property
    def is_async(self) -> bool:
        """Whether its code runs on the loop, or in a thread."""

    @property
    def retry(self) -> Retry | None:
        """What its errors mean; None if the store decides."""

    @property
    def cleanup(self) -> float | None:
        """How many seconds a run has to clean up when it is cancelled; None if it does not."""

    @property
    def strict(self) -> bool:
        """Whether a new step is refused while recorded ones of its branch have not been asked for."""


def run_body(workflow: WorkflowDefinition) -> Body:
    """What a worker calls for a run of this workflow."""
    return partial(_execute, workflow, LongSteps())


async def _execute(
    workflow: WorkflowDefinition, long_steps: LongSteps, tasks: Sequence[Claimed], threads: Threads, slot: Slot
) -> Ended:
    [task] = tasks
    arguments = workflow.arguments.decode(task.input or "null")
    # Nobody has executed a run before its first turn. Read after the claim: nobody else records for it from then on.
    recorded = await slot.store.recorded.of(task.id, task.generation) if task.turn > 1 else ()
    journal = Journal(task.id, recorded, strict=workflow.strict)
    run = (RunTurn if workflow.is_async else SyncTurn)(task, workflow.name, journal, slot, threads)
    run.arguments, run.long_steps = workflow.arguments, long_steps
    if workflow.cleanup is not None or task.cleanup_until is not None:
        run.cleanup = Cleanup(run, workflow.cleanup)
    try:
        returned = await run.execute(workflow.fn, _context(workflow, run), arguments)
    except Unwinding:
        if run.held is not None:
            return run.held
        if run.restarts_with is not None:
            return Restarted(run.restarts_with)
        if run.pause is None:
            raise  # stopped by the worker, which knows why
        return _suspended(run.pause, run.now())
    except asyncio.CancelledError:
        if run.cleanup is None or not run.cleanup.is_under_way:
            raise  # of its own making
        return Cancelled()
    except Exception as error:  # noqa: BLE001 - raised again unless it means a pause
        return _set_aside(run, error, workflow.retry or slot.store.options.retry)
    finally:
        if run.journal.contradiction is not None:
            raise run.journal.contradiction  # whatever the workflow has made of it
    return _done(workflow, run, returned)


def _done(workflow: WorkflowDefinition, run: RunTurn, returned: Any) -> Done:
    """The end of a run, if what it returned can be stored and read back."""
    store, task = run.slot.store, run.task
    if unasked := run.journal.unasked:
        store.telemetry.emit(StepsUnasked(task.id, workflow.name, unasked))
    what, returns = f"result of {workflow.name}", workflow.arguments.returns
    output = encode(returned, limit=store.options.payload_limit, what=what)
    refuse_unnamed(returned, returns, what=what)
    if returns is not Any and type(returned) is not returns:
        refuse_cut(returned, decode(output, returns, what=what), what=what)  # nobody could read it: that is no success
    return Done(output)


def _suspended(pause: Pause, now: int) -> Suspended:
    delay = 0.0 if pause.due is None else max(0, pause.due - now) / 1_000_000
    return Suspended(pause.due, delay, pause.wakes, pause.needed)


def _set_aside(run: RunTurn, error: Exception, policy: Retry) -> Suspended:
    """The workflow has paused itself, outside of its steps: it is called again when an operator unpauses it.

    With `resume_after` also after that time; with a `resume_condition` now and then, to see for itself: what it waits
    for is in its own code.
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
