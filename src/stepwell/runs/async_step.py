"""The usual way of an async step, from the call of its body to the write of its result.

A body that returns without suspending is called by this function itself. One that suspends or fails goes on as the
course of any call does (`steps.py`), and so does a call that a record answers, that is refused, or that has to wait.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Coroutine
from contextvars import copy_context
from functools import partial
from time import monotonic
from types import CoroutineType
from typing import Any, NoReturn

from stepwell.runs.branches import CALLS
from stepwell.runs.call import Attempt, StepCall
from stepwell.runs.children import course
from stepwell.runs.requests import awaited
from stepwell.runs.result_write import ResultWrite, acknowledged, kept
from stepwell.runs.steps import course_of, is_stopped_by_workflow, note_stopped, stored
from stepwell.runs.turn import RunTurn
from stepwell.store.rows import StepRow
from stepwell.work.current import current_branch, in_context


def calling(call: StepCall) -> Coroutine[Any, Any, Any]:
    """The call of a step in an async workflow, to be awaited."""
    definition = call.definition
    is_plain = definition.is_async and definition.timeout is None and definition.tx is None
    if is_plain and definition.queue is None and not definition.at_most_once:
        return stepped(call)
    return awaited(call.run, course(call))


async def stepped(call: StepCall) -> Any:
    """Execute a step whose body is async and has nothing around it; its result is recorded when this returns it."""
    run = call.run
    if run.slot.late is not None:
        await _acknowledged(call)
    if _is_hindered(run, call.key):
        return await awaited(run, course_of(call))
    run.enter(call.key)
    try:
        attempt = Attempt(call, 1, has_row=False)
        if (done := _begun(attempt)) is None:
            return await awaited(run, course_of(call, attempt))
        row, value = done
        write = ResultWrite(run, row)
        if not write.submit():  # too much is waiting to be written
            attempt.rest = partial(_returned, value)
            return await awaited(run, course_of(call, attempt))
        if run.may_go_on:
            run.slot.late = write
        else:
            await kept(run, write.written)
        run.journal.record(row)
        return value
    finally:
        run.leave(call.key)


CALLS.add(stepped.__code__)


async def _acknowledged(call: StepCall) -> None:
    """Wait for the result before this call; a workflow that cancels the call meanwhile has cancelled this step."""
    try:
        await acknowledged(call.run)
    except CancelledError as error:
        if is_stopped_by_workflow(call.run, call.key, error):
            note_stopped(call, 1)
        raise


def _is_hindered(run: RunTurn, key: str) -> bool:
    """True if the body of this call does not begin at once, or not before the run has reached what it has recorded."""
    journal, session = run.journal, run.slot.session
    is_stopped = run.unwinding or run.is_lost or run.cleanup is not None or journal.contradiction is not None
    return is_stopped or journal.is_behind or journal.has(key) or bool(run.notes) or monotonic() > session.over_at


def _begun(attempt: Attempt) -> tuple[StepRow, Any] | None:
    """Call the body: its row and its result, or None if there is a rest for the course of the call."""
    context = copy_context()
    try:
        body = context.run(_called, attempt)
        try:
            attempt.rest = partial(in_context, context, body, context.run(body.send, None))
        except StopIteration as end:
            if _is_simple(attempt):
                attempt.is_over = True
                return stored(attempt, end.value)
            attempt.rest = partial(_returned, end.value)
    except BaseException as error:  # noqa: BLE001 - the course decides what it means
        attempt.rest = partial(_raised, error)
    return None


def _is_simple(attempt: Attempt) -> bool:
    """True if nothing goes with the result of the attempt, and its run may still record it."""
    run = attempt.call.run
    is_alone = not (attempt.reports or attempt.emissions or attempt.log is not None)
    return is_alone and not run.unwinding and not run.is_lost


def _called(attempt: Attempt) -> Coroutine[Any, Any, Any]:
    """The body in its own context: a replay does not call it, so the run must not see the variables that it sets."""
    current_branch.set(attempt)
    body: Awaitable[Any] = attempt.call.definition.fn(*attempt.call.args, **attempt.call.kwargs)
    return body if isinstance(body, CoroutineType) else _awaited(body)


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def _returned(value: Any) -> Any:
    return value


def _raised(error: BaseException) -> NoReturn:
    raise error
