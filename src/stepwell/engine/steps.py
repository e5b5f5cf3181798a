"""A step call: answered from the journal, or its body executed and what came of it recorded.

The course of a call is written once, as a script that asks for what takes time: a body, a write, a wait. An async
workflow's loop answers by awaiting, a sync workflow's thread by doing it there or having the loop do it.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, Final, assert_never

import msgspec

from stepwell.backoff import Retry
from stepwell.clock import chance_of
from stepwell.codec import decode, encode
from stepwell.engine.branches import CALLS, current_branch
from stepwell.engine.calls import Attempt, Definition, StepCall
from stepwell.engine.journal import Due, GaveUp, Replay
from stepwell.engine.outcome import ERROR_LIMIT, GAVE_UP, Again, Failed, judge
from stepwell.engine.run import RunTurn, Unwinding
from stepwell.errors import LeaseLost, SerializationError, StepFailed, Timeout
from stepwell.records import RunStatus, StepRow

SWALLOWED: Final = 0.05  # seconds before a call is refused to a run that is unwound: code that asks on and on must rest


class Record(msgspec.Struct, frozen=True, eq=False):
    """Asks for a row to be written."""

    run: RunTurn
    row: StepRow
    attempt: Attempt | None  # what it came of; asked on the loop whether that was shown to be at work
    has_row: bool


class Wait(msgspec.Struct, frozen=True, eq=False):
    """Asks to wait until a moment."""

    run: RunTurn
    due: int


class Noted(msgspec.Struct, frozen=True, eq=False):
    """Asks to wait until what the run has noted is recorded."""

    run: RunTurn


Request = Attempt | Record | Wait | Noted
Course = Generator[Request, Any, Any]


def course_of(call: StepCall) -> Course:
    """A call from its beginning to what it returns or raises, the same on the first run and on every replay."""
    run, definition = call.run, call.definition
    run.check()
    verdict = run.journal.answer(call.key, call.input)
    while True:
        match verdict:
            case Due():
                if verdict.failed is not None:
                    yield Wait(run, _retry_at(_policy(call), verdict.failed))
                run.enter(call.key)
                try:
                    row, value = yield from _attempt(call, verdict.attempt, has_row=verdict.has_row)
                finally:
                    run.leave(call.key)
                if row.status is RunStatus.SUCCESS:
                    return value
                if row.status is RunStatus.ERROR:
                    raise failure_of(definition, call.key, row.error or "{}") from value
                verdict = Due(verdict.attempt + 1, has_row=True, failed=row)
            case Replay(output):
                return decode(output or "null", definition.returns, what=f"result of {call.key}")
            case GaveUp(error):
                raise failure_of(definition, call.key, error)


def _attempt(call: StepCall, number: int, *, has_row: bool) -> Generator[Request, Any, tuple[StepRow, Any]]:
    """Call the body once and record what came of it: the row, and the value or the exception."""
    run = call.run
    if run.notes:
        yield Noted(run)
    attempt = Attempt(call, number, has_row)
    showing = run.slot.showing
    showing.begin(attempt)
    try:
        returned = yield attempt
        output, value = stored_as(call, returned)
        done = _succeeded(attempt, output)
    except Exception as error:  # noqa: BLE001 - whatever a body raises is its outcome
        value = error
        done = _failed(attempt, error)
    finally:
        showing.end(attempt)
    run.check()
    yield from recording(Record(run, done, attempt, has_row))
    return done, value


def recording(record: Record) -> Generator[Request, Any, None]:
    """Have a row written; if that is refused, nothing of this turn is executed any more."""
    try:
        yield record
    except LeaseLost:
        record.run.overtaken = True
        raise
    record.run.journal.record(record.row)


def _succeeded(attempt: Attempt, output: str) -> StepRow:
    call = attempt.call
    # fmt: off
    return StepRow(call.run.task.id, call.key, call.place, RunStatus.SUCCESS, attempt.number, call.input, output, None,
                   attempt.took)
    # fmt: on


def _failed(attempt: Attempt, error: Exception) -> StepRow:
    call, policy = attempt.call, _policy(attempt.call)
    outcome = judge(error, attempt.number, policy.max_attempts, policy, 0.0)
    assert isinstance(outcome, Again | Failed)
    told = outcome.error | {"args": _plain_args(error)} if isinstance(error, call.definition.raises) else outcome.error
    status = RunStatus.ERROR if isinstance(outcome, Failed) else RunStatus.PENDING
    return msgspec.structs.replace(
        call.row(status, attempt.number, attempt.took),
        error=encode(told, limit=ERROR_LIMIT, what="error"),
        finished_at=call.run.now(),
    )


def _policy(call: StepCall) -> Retry:
    return call.definition.retry or call.run.slot.store.options.retry


def _retry_at(policy: Retry, failed: StepRow) -> int:
    """When a failed attempt is followed by the next: from what is recorded, so that it is the same for everybody."""
    retry_after = decode(failed.error or "{}").get("retry_after")
    delay = policy.delay(failed.attempt, chance_of(f"{failed.run_id}/{failed.key}/{failed.attempt}"))
    return (failed.finished_at or 0) + int(1_000_000 * (delay if retry_after is None else retry_after))


def failure_of(definition: Definition, key: str, error: str) -> Exception:
    """The exception of a step that gave up, from what is recorded: a class of `raises`, else `StepFailed`."""
    told: dict[str, Any] = decode(error)
    kind, message = str(told.get("type", "error")), str(told.get("message", ""))
    failure: Exception = StepFailed(key, kind, message, told)
    for cls in definition.raises:
        if cls.__name__ == kind and told.get("args") is not None:
            with contextlib.suppress(Exception):  # its arguments have changed since, so it cannot be built again
                failure = cls(*told["args"])
    BaseException.__setattr__(failure, GAVE_UP, key)  # also on one that is frozen
    return failure


def stored_as(call: StepCall, value: Any) -> tuple[str, Any]:
    """A result as JSON text, and as it will come back from there: the caller gets that on the first run too."""
    declared, kind = call.definition.returns, type(value)
    limit = call.run.slot.store.options.payload_limit
    text = encode(value, limit=limit, what=f"result of {call.key}")
    if kind in _SAME and (declared is kind or declared is Any):
        return text, value
    back = decode(text, declared, what=f"result of {call.key}")
    if declared is Any and not _same(back, value):
        why = f"a {kind.__qualname__} would come back as {type(back).__name__}; annotate what the function returns"
        raise SerializationError(f"{why}, or say `ctx.step(name, fn, returns=...)`", what=f"result of {call.key}")
    return text, back


async def awaited(course: Course) -> Any:
    """Follow a course on the loop."""
    try:
        request = next(course)
        while True:
            try:
                answer = await _answer_to(request)
            except BaseException as error:  # noqa: BLE001 - the course decides what it means
                request = course.throw(error)
            else:
                request = course.send(answer)
    except StopIteration as end:
        return end.value
    except Unwinding:
        await asyncio.sleep(SWALLOWED)
        raise


CALLS.add(awaited.__code__)


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


def _answer_to(request: Request) -> Coroutine[Any, Any, Any]:
    match request:
        case Attempt():
            return _executed(request)
        case Record():
            run, attempt = request.run, request.attempt
            begun = None if attempt is None else attempt.shown
            return run.slot.store.recorded.record(request.row, run.task.owner, begun, has_row=request.has_row)
        case Wait() | Noted():
            return _waited(request)
        case _:
            assert_never(request)


def _answered_here(request: Request) -> Any:
    match request:
        case Attempt(call) if not call.definition.is_async and call.definition.timeout is None:
            token = current_branch.set(request)
            try:
                result = call.definition.fn(*call.args, **call.kwargs)
                return call.run.wait_in_thread(_awaited(result)) if inspect.isawaitable(result) else result
            finally:
                current_branch.reset(token)
        case Attempt(call):
            return call.run.wait_in_thread(_answer_to(request))
        case Record(run):
            return run.wait_in_thread(_recorded(request))
        case Wait(run) | Noted(run):
            return run.wait_in_thread(_answer_to(request))
        case _:
            assert_never(request)


async def _recorded(request: Record) -> None:
    """Write on the loop, where runs are given back: it was before this, and is refused, or comes after it."""
    request.run.check()
    await _answer_to(request)


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def _executed(attempt: Attempt) -> Any:
    call = attempt.call
    definition = call.definition
    token = current_branch.set(attempt)
    try:
        if definition.timeout is not None:
            return await _in_time(call, definition.timeout)
        if definition.is_async:
            return await definition.fn(*call.args, **call.kwargs)
        return await _in_thread(call)
    finally:
        current_branch.reset(token)


async def _waited(request: Wait | Noted) -> None:
    match request:
        case Wait(run, due):
            await run.park(due)
        case Noted(run):
            await run.noted()


async def _in_time(call: StepCall, timeout: float) -> Any:
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            if call.definition.is_async:
                return await call.definition.fn(*call.args, **call.kwargs)
            return await _in_thread(call, limit)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise Timeout(f"step {call.key} ran longer than {timeout:g} s") from error


async def _in_thread(call: StepCall, limit: asyncio.Timeout | None = None) -> Any:
    result = await call.run.body_in_thread(lambda: call.definition.fn(*call.args, **call.kwargs), limit)
    return await result if inspect.isawaitable(result) else result


def _plain_args(error: Exception) -> list[Any] | None:
    try:
        return list(decode(encode(list(error.args))))
    except SerializationError:
        return None


_SAME: Final = frozenset((str, int, bool, type(None)))


def _same(back: Any, value: Any) -> bool:
    try:
        return bool(back == value)
    except Exception:  # noqa: BLE001 - a value that cannot be compared cannot be shown to be the same
        return False
