"""What the course of a call asks for, and how that is answered.

For an async workflow the loop awaits it; for a sync workflow its thread does it, or lets the loop do it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Generator, Sequence
from contextvars import ContextVar, copy_context
from typing import Any, Final, assert_never

import msgspec

from stepwell.base.names import is_shielded
from stepwell.base.program import program
from stepwell.errors import LeaseLost, Timeout
from stepwell.runs.background_writes import noted
from stepwell.runs.branches import CALLS, Branch
from stepwell.runs.call import Attempt
from stepwell.runs.cleanup import Stopped
from stepwell.runs.conditions import is_met
from stepwell.runs.pause import Pause, Unwinding
from stepwell.runs.result_write import acknowledged, submitted
from stepwell.runs.sync_turn import wait_in_thread
from stepwell.runs.turn import RunTurn
from stepwell.store.draft import Asked
from stepwell.store.pending import Answer
from stepwell.store.rows import StepRow
from stepwell.store.wait_query import Answered, CancelRequested, Question, Recorded, Stake, TakeSignal
from stepwell.values.stamp import read_value, write_value
from stepwell.work.current import current_branch, in_context
from stepwell.work.processes import ProcessCall

SWALLOWED: Final = 0.05  # seconds before a call is refused to a run that is unwound, or code that retries would spin


class Record(msgspec.Struct, frozen=True, eq=False):
    """Asks for a row to be written."""

    run: RunTurn
    row: StepRow
    attempt: Attempt | None  # whose result it is; on the loop it tells whether a RUNNING row was written
    has_row: bool


class Doubt(msgspec.Struct, frozen=True, eq=False):
    """Asks whether a row was written whose write did not return; if not, the row is refused."""

    run: RunTurn
    row: StepRow
    answer: Answer


class Wait(msgspec.Struct, frozen=True, eq=False):
    """Asks to wait until a moment, or until the next check."""

    run: RunTurn
    pause: Pause


class Ask(msgspec.Struct, frozen=True, eq=False):
    """Asks the database, under the run's lock: has a signal come, have children ended."""

    run: RunTurn
    question: Question


class Adding(msgspec.Struct, frozen=True, eq=False):
    """Asks for children to be checked and numbered, before they are added."""

    run: RunTurn
    triggers: Sequence[Asked[Any]]


class Check(msgspec.Struct, frozen=True, eq=False):
    """Asks whether a condition is met; an answer of its own is the result of the step, and of this type."""

    run: RunTurn
    condition: str
    type: Any


class Noted(msgspec.Struct, frozen=True, eq=False):
    """Asks to wait for the background writes of the run."""

    run: RunTurn


class MemoryWait(msgspec.Struct, frozen=True, eq=False):
    """Asks to wait some seconds in memory: the run is not given back meanwhile."""

    run: RunTurn
    seconds: float


class Renewal(msgspec.Struct, frozen=True, eq=False):
    """Asks for the lease to be renewed, which is over by this process's own clock."""

    run: RunTurn


class Read(msgspec.Struct, frozen=True, eq=False):
    """Asks which names this program declares; the sources may have to be read."""

    run: RunTurn


Request = Attempt | Record | Doubt | Wait | Ask | Adding | Check | Noted | MemoryWait | Renewal | Read
Course = Generator[Request, Any, Any]
# The race that a call takes part in, and its place there.
at_stake: Final[ContextVar[tuple[Stake | None, int]]] = ContextVar("stepwell_stake", default=(None, 0))


def asked(run: RunTurn, question: Question) -> Generator[Request, Any, Answered]:
    """Ask the database; a row that it has recorded is added to the journal."""
    run.admit(question.row.key)
    run.enter(question.row.key)
    try:
        if run.notes:
            yield Noted(run)
        answer: Answered = yield Ask(run, question)
    except LeaseLost:
        run.overtaken = True
        raise
    except CancelRequested:
        if run.cleanup is not None:
            run.on_loop(run.cleanup.begin)
        raise Stopped from None
    finally:
        run.leave(question.row.key)
    if isinstance(answer, Recorded):
        run.journal.record(answer.row)
    return answer


def waited_until(run: RunTurn, key: str, due: int, row: StepRow | None = None) -> Generator[Request, Any, None]:
    """Wait until a moment; like a call, the wait is refused if the run is cancelled, also while it lasts.

    The `row` of the waiting step is written when this returns, or in the transaction that gives the run back.
    """
    run.check()
    while not run.is_past(due):
        run.admit(key)
        yield Wait(run, Pause(due, row=unrecorded(run, row)))
    if (left := unrecorded(run, row)) is not None:
        yield from recorded(run, left)


def unrecorded(run: RunTurn, row: StepRow | None) -> StepRow | None:
    """The row, unless it is being written."""
    return None if row is None or run.journal.knows(row) else row


def checked(run: RunTurn, key: str, condition: str, type_: Any) -> Generator[Request, Any, object]:
    """Ask whether a condition is met; the run is not given back meanwhile."""
    run.enter(key)
    try:
        return (yield Check(run, condition, type_))
    finally:
        run.leave(key)


def recorded(run: RunTurn, row: StepRow, *, has_row: bool = True) -> Generator[Request, Any, None]:
    """Write a row that is not the result of a body."""
    run.enter(row.key)
    try:
        yield from recording(Record(run, row, None, has_row))
    finally:
        run.leave(row.key)


def recording(record: Record) -> Generator[Request, Any, None]:
    """Write a row; if that is refused, nothing more of this turn is executed."""
    run = record.run
    try:
        answer: Answer = yield record
        if answer.value is None:
            yield Doubt(run, record.row, answer)
    except LeaseLost:
        run.overtaken = True
        raise
    run.journal.record(record.row)


async def awaited(run: RunTurn, course: Course) -> Any:
    """Follow a course on the loop, once all is written that the run was told before."""
    waited = False
    try:
        if run.slot.late is not None:
            await acknowledged(run)
        request = next(course)
        waited = True
        while True:
            try:
                answer = await _answer_to(request)
            except BaseException as error:  # noqa: BLE001 - the course decides what it means
                request = course.throw(error)
            else:
                request = course.send(answer)
    except StopIteration as end:
        if not waited:
            await _others_begin()
        return end.value
    except (Unwinding, Stopped):
        await asyncio.sleep(SWALLOWED)
        raise


CALLS.add(awaited.__code__)


async def _others_begin() -> None:
    """Let new tasks of the run begin during a call that is answered at once, as they did when it was made first."""
    branch = current_branch.get()
    if isinstance(branch, Branch) and branch.run.has_new_tasks:
        branch.run.has_new_tasks = False
        await asyncio.sleep(0)


def followed(course: Course) -> Any:
    """Follow a course in the thread of a sync workflow."""
    try:
        request = next(course)
        while True:
            try:
                answer = _answered_here(request)
            except BaseException as error:  # noqa: BLE001 - the course decides what it means
                request = course.throw(error)
            else:
                request = course.send(answer)
    except StopIteration as end:
        return end.value


def _answer_to(request: Request) -> Awaitable[Any]:
    match request:
        case Attempt():
            return _executed(request)
        case Record(run):
            return submitted(run, request.row, request.attempt, has_row=request.has_row)
        case Doubt(run, row, answer):
            return run.slot.database.steps.doubted(row, run.task.owner, answer)
        case Ask(run, question):
            return _answered(run, question)
        case Adding(run, triggers):
            return run.slot.database.new_tasks.draft_children(triggers, run.task.id, run.slot.deadline)
        case Check(run, condition, type_):
            return is_met(run, condition, type_)
        case Wait() | Noted() | MemoryWait():
            return _waited(request)
        case Renewal(run):
            return run.slot.session.renew(run.slot.session.lease)
        case Read():
            return program()
        case _:
            assert_never(request)


def _answered_here(request: Request) -> Any:
    match request:
        case Attempt(call) if call.definition.stays_in_thread:
            return copy_context().run(_called_here, request)
        case Attempt(call):
            return wait_in_thread(call.run, _answered_there(request))
        case Record(run):
            return wait_in_thread(run, _recorded(request))
        case _:
            return wait_in_thread(request.run, _answered_there(request))


def _called_here(attempt: Attempt) -> Any:
    call = attempt.call
    current_branch.set(attempt)
    result = call.definition.fn(*call.args, **call.kwargs)
    if not inspect.isawaitable(result):
        return result
    return wait_in_thread(call.run, result if inspect.iscoroutine(result) else _awaited(result))


async def _answered_there(request: Request) -> Any:
    """Created on the loop: a coroutine made in a thread would never be awaited if the run is stopped first."""
    return await _answer_to(request)


async def _answered(run: RunTurn, question: Question) -> Answered:
    """The answer of the database; a signal that was taken is kept even if a cancel comes meanwhile."""
    waiting = run.slot.database.run_waits
    answer = waiting.ask(question)
    try:
        return await asyncio.shield(answer)
    except asyncio.CancelledError:
        if run.unwinding or waiting.withdraw(question) or not isinstance(question, TakeSignal):
            raise
        await asyncio.wait([answer])
        if run.unwinding or answer.exception() is not None or not isinstance(answer.result(), Recorded):
            raise
        task = asyncio.current_task()
        if task is not None and getattr(task.get_coro(), "cr_code", None) not in CALLS:
            task.uncancel()
            task.cancel()  # the caller is cancelled at its next wait
        return answer.result()


async def _recorded(request: Record) -> Answer:
    """Write on the loop, where runs are given back: if that happened before, the write is refused."""
    if request.attempt is None:
        request.run.check()
    else:
        request.run.admit_result(request.row, request.attempt.shown)
    answer: Answer = await _answer_to(request)
    return answer


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _executed(attempt: Attempt) -> Awaitable[Any]:
    """The body, in its own context: a replay does not call it, so the run must not see the variables that it sets."""
    if attempt.rest is not None:
        return attempt.rest()
    call, context = attempt.call, copy_context()
    definition = call.definition
    context.run(current_branch.set, attempt)
    if attempt.transaction is not None:
        running = in_context(context, attempt.transaction())
        if not definition.is_async:
            return running
    elif not definition.is_async:
        in_time = None if definition.timeout is None else _in_time(attempt, definition.timeout)
        return in_context(context, in_time or _in_thread(attempt))
    elif definition.timeout is not None:
        running = in_context(context, _in_time(attempt, definition.timeout))
    else:
        body = context.run(definition.fn, *call.args, **call.kwargs)
        running = in_context(context, body if inspect.iscoroutine(body) else _awaited(body))
    cleanup = call.run.cleanup
    # Wait for a body in a thread: it cannot be stopped, and must not be undone while it works.
    return running if cleanup is None or is_shielded(call.key) else cleanup.stoppable(running)


async def _waited(request: Wait | Noted | MemoryWait) -> None:
    match request:
        case MemoryWait(_, seconds):
            await asyncio.sleep(seconds)
        case Wait(run, pause):
            await run.park(pause)
        case Noted(run):
            await noted(run)


async def _in_time(attempt: Attempt, timeout: float) -> Any:
    call, limit = attempt.call, asyncio.timeout(timeout)
    try:
        async with limit:
            if call.definition.is_async:
                return await call.definition.fn(*call.args, **call.kwargs)
            return await _in_thread(attempt, limit)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise Timeout(f"step {call.key} ran longer than {timeout:g} s") from error


async def _in_thread(attempt: Attempt, limit: asyncio.Timeout | None = None) -> Any:
    call = attempt.call
    if call.definition.in_process:
        return await _in_process(attempt, limit)
    result = await call.run.body_in_thread(lambda: call.definition.fn(*call.args, **call.kwargs), attempt.late, limit)
    return await result if inspect.isawaitable(result) else result


async def _in_process(attempt: Attempt, limit: asyncio.Timeout | None) -> Any:
    """Call the body in another process, and kill that when the attempt is stopped or takes too long."""
    call, definition = attempt.call, attempt.call.definition
    assert definition.arguments is not None
    most = call.run.slot.database.options.payload_limit
    asked = ProcessCall(definition.fn, "step", [definition.arguments.encode(call.args, call.kwargs, most, write_value)])
    try:
        return await call.run.body_in_thread(
            lambda: read_value(asked.run(), definition.returns, what=f"result of {definition.name}"),
            attempt.late,
            limit,
        )
    except asyncio.CancelledError:
        asked.kill()
        raise
