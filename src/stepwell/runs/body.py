"""The body of a workflow's task: read what the run has recorded, call the workflow, and say what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from stepwell.base.backoff import Retry
from stepwell.base.events import StepsUnasked
from stepwell.errors import SerializationError
from stepwell.runs.cleanup import Cleanup
from stepwell.runs.context import Context, SyncContext
from stepwell.runs.journal import Journal
from stepwell.runs.pause import Pause, Unwinding
from stepwell.runs.steps import resumes_at, told_of
from stepwell.runs.sync_turn import SyncTurn
from stepwell.runs.turn import RunTurn
from stepwell.store.rows import Claimed, StepRow
from stepwell.values.arguments import Arguments
from stepwell.values.codec import decode, encode, names_unknown_class
from stepwell.values.lossless import refuse_cut, refuse_unnamed
from stepwell.work.body import Body, Slot
from stepwell.work.other_code import Misfit
from stepwell.work.outcome import Cancelled, Done, Ended, Restarted, Suspended, pause_of
from stepwell.work.threads import Threads


class Definition(Protocol):
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


def run_body(workflow: Definition) -> Body:
    """What a worker calls for a run of this workflow."""
    return partial(_execute, workflow)


async def _execute(workflow: Definition, tasks: Sequence[Claimed], threads: Threads, slot: Slot) -> Ended:
    [task] = tasks
    # Nobody has executed a run before its first turn. Read after the claim: nobody else records for it from then on.
    recorded = await slot.store.recorded.of(task.id, task.generation) if task.turn > 1 else ()
    arguments = _arguments(workflow, task, recorded)
    journal = Journal(task.id, recorded, strict=workflow.strict)
    run = (RunTurn if workflow.is_async else SyncTurn)(task, workflow.name, journal, slot, threads)
    run.arguments = workflow.arguments
    if workflow.cleanup is not None or task.cleanup_until is not None:
        run.cleanup = Cleanup(run, workflow.cleanup)
    try:
        returned = await run.execute(workflow.fn, _context(workflow, run), arguments)
    except Unwinding:
        if (unwound := _unwound(run)) is None:
            raise  # stopped by the worker, which knows why
        return unwound
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


def _arguments(workflow: Definition, task: Claimed, recorded: Sequence[StepRow]) -> dict[str, Any]:
    """What the workflow is called with; a run that has recorded something was called with it before, by other code."""
    try:
        return workflow.arguments.decode(task.input or "null")
    except SerializationError as error:
        raise Misfit(error, was_read=bool(recorded) or names_unknown_class(error)) from error


def _done(workflow: Definition, run: RunTurn, returned: Any) -> Done:
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


def _unwound(run: RunTurn) -> Ended | None:
    """Why the run does not go on in this turn; None if that was not its own doing."""
    if isinstance(run.held, Misfit):
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
    """The workflow has paused itself, outside of its steps: it is called again when an operator unpauses it.

    With `resume_after` also after that time; with a `resume_condition` now and then, to see for itself: what it waits
    for is in its own code.
    """
    pause = pause_of(error, policy)
    if pause is None:
        raise error
    due = resumes_at(run, pause)
    return Suspended(due, 0.0 if due is None else (due - run.now()) / 1_000_000, said=told_of(pause))


def _context(workflow: Definition, run: RunTurn) -> tuple[Context | SyncContext, ...]:
    if not workflow.arguments.takes_context:
        return ()
    return (SyncContext(run) if run.is_sync else Context(run),)
