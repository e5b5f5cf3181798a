"""A step call: answered from the journal, or its body is executed and the result recorded.

The course of a call is a generator, for async and sync workflows alike: it yields requests for a body, a write, a wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from functools import partial
from time import monotonic
from typing import Any, Final

import msgspec

from stepwell.base.backoff import Retry
from stepwell.base.clock import chance_of
from stepwell.base.durations import microseconds_of
from stepwell.errors import Paused, SerializationError
from stepwell.records import RunStatus
from stepwell.runs.background_writes import note
from stepwell.runs.call import Attempt, StepCall, failure_of
from stepwell.runs.cleanup import Stopped
from stepwell.runs.emit import recording_with
from stepwell.runs.journal import FIRST, Due, GaveUp, Replay, StoppedStep, Verdict, Waiting
from stepwell.runs.log import end_of
from stepwell.runs.pause import Pause, Unwinding, is_stopped
from stepwell.runs.rename import cleared
from stepwell.runs.requests import (
    Course,
    MemoryWait,
    Noted,
    Record,
    Renewal,
    Request,
    Wait,
    asked,
    at_stake,
    checked,
    recorded,
    recording,
    unrecorded,
    waited_until,
)
from stepwell.runs.step_transaction import Committed, StepTransaction
from stepwell.runs.turn import RunTurn
from stepwell.runs.wait import WantedSignal, accepts, told_misfits
from stepwell.store.rows import StepRow
from stepwell.store.wait_query import Recorded, TakeSignal
from stepwell.values.codec import decode, encode
from stepwell.values.lossless import refuse_cut
from stepwell.values.own_exceptions import kept_of
from stepwell.values.stamp import read_value, write_value
from stepwell.work.outcome import STORED_ERROR_LIMIT, Again, Failed, interrupted, judge, pause_of

GRACE: Final = 1.0  # seconds that a replay waits longer for the cancel of a step than it took to come before
LONGEST_REST: Final = 60.0


def course_of(call: StepCall, begun: Attempt | None = None) -> Course:
    """A call from its beginning to what it returns or raises, the same on the first run and on every replay.

    `begun` is its first attempt, if that has a rest.
    """
    run, definition = call.run, call.definition
    verdict: Verdict = FIRST if begun is not None else (yield from _answered(call))
    while True:
        match verdict:
            case Due():
                row, value = yield from _tried(call, verdict, begun)
                begun = None
                if row.status is RunStatus.SUCCESS:
                    return value
                if row.status is RunStatus.ERROR:
                    raise failure_of(definition, call.key, row.error or "{}") from value
                if row.status is RunStatus.PAUSED:
                    verdict = Waiting(row)
                else:
                    verdict = Due(verdict.attempt + 1, has_row=True, failed=row)
            case Waiting(row):
                run.admit(call.key)
                verdict = yield from resumed(call, row)
            case Replay(output):
                return run.read(output, definition.returns, f"result of {call.key}")
            case GaveUp(error):
                raise failure_of(definition, call.key, error)


def _answered(call: StepCall) -> Generator[Request, Any, Verdict]:
    """What the journal says of a call."""
    run = call.run
    run.check()
    verdict = run.journal.answer(call.key, call.input)
    yield from cleared(run, call.key, verdict)
    return verdict


def _tried(call: StepCall, due: Due, begun: Attempt | None) -> Generator[Request, Any, tuple[StepRow, Any]]:
    """Wait until the attempt is due, and make it."""
    run = call.run
    if begun is None:
        run.admit(call.key)
        if due.has_row:
            yield from _waited_until_due(call, due)
    run.enter(call.key)
    try:
        return (yield from attempted(call, due.attempt, has_row=due.has_row, begun=begun))
    finally:
        run.leave(call.key)


def resumed(call: StepCall, row: StepRow) -> Generator[Request, Any, Verdict]:
    """Wait until a step that has paused itself is resumed, its condition is met, or its time has come."""
    run, told = call.run, decode(row.error or "{}")
    condition = told.get("resume_condition")
    races = at_stake.get()[0] is not None
    # If no signal had come when the run was claimed, it does not ask now: the end of the turn finds later ones.
    is_unasked = not run.task.wakes and not run.journal.knows(row) and not races
    seen: int | None = 0 if is_unasked else None
    while True:
        check_at = None if row.output is None else decode(row.output, int)
        is_due = check_at is not None and run.is_past(check_at)
        if races and not run.journal.knows(row):  # the winner of a race changes the rows of the others
            yield from recorded(run, row)
        if seen is None or is_due:
            wanted = WantedSignal((call.definition.name,), call.definition.returns, None, None)
            question = TakeSignal(run.task, row, wanted.names, None, False, *at_stake.get(), misfit=wanted.misfit)
            answer = yield from asked(run, question)
            told_misfits(run, question)
            if isinstance(answer, Recorded):
                return Replay(answer.row.output)
            if question.misfits:  # the question has written the row too
                run.journal.record(row)
            seen = answer.wakes
        if not is_due:
            yield Wait(run, Pause(check_at, wakes=seen, row=unrecorded(run, row)))
            seen = None
            continue
        if condition is None:  # `resume_after`: it is tried again
            return Due(row.attempt, has_row=True)
        met = yield from checked(run, row.key, condition, call.definition.returns)
        if met is True:
            return Due(row.attempt, has_row=True)
        if met is None or met is False:
            row = msgspec.structs.replace(row, output=str(_next_check(run)))
            continue
        text = _written(call, met)
        done = msgspec.structs.replace(row, status=RunStatus.SUCCESS, output=text, error=None, accepts=None)
        yield from recorded(run, done)
        return Replay(text)


def _waited_until_due(call: StepCall, verdict: Due) -> Generator[Request, Any, None]:
    """Wait for the next attempt after a failed one; after a cancel, whether the workflow cancels the step again."""
    if verdict.stopped is not None:
        yield from stopped_again(call.run, verdict.stopped)
    if (failed := verdict.failed) is None:
        return
    try:
        yield from waited_until(call.run, call.key, retry_at(_policy(call), failed), failed)
    except asyncio.CancelledError as error:
        if is_stopped_by_workflow(call.run, call.key, error):
            note_stopped(call, failed.attempt)
        raise


def is_stopped_by_workflow(run: RunTurn, key: str, error: asyncio.CancelledError) -> bool:
    """True if the workflow itself has cancelled the task of a call: not the worker, nor a cancel of the run."""
    if run.is_sync or run.unwinding or run.is_lost or isinstance(error, Stopped | Unwinding):
        return False
    refused = run.cleanup is not None and run.cleanup.refuses(key)
    return is_stopped(error) and not refused


def note_stopped(call: StepCall, number: int, took: int = 0) -> None:
    """Record that the workflow has cancelled a step, so that no replay executes it."""
    run = call.run
    told = StoppedStep(run.task.attempt, round(monotonic() - run.began, 3))
    row = call.row(RunStatus.CANCELLED, number, took)
    note(run, msgspec.structs.replace(row, error=encode(told)), has_row=True)


def stopped_again(run: RunTurn, told: StoppedStep) -> Generator[Request, Any, None]:
    """Wait for the workflow to cancel the step as it did before; if this returns, it does not: the step is due.

    What has cancelled it may have been a timeout of asyncio, which on a replay begins anew.
    """
    if told.attempt == run.task.attempt:
        yield MemoryWait(run, max(0.0, min(told.after + GRACE, LONGEST_REST) - (monotonic() - run.began)))
    yield Wait(run, Pause(hesitates=True))


def _next_check(run: RunTurn) -> int:
    return run.now() + int(1_000_000 * run.slot.database.options.pause_check_interval)


def resumes_at(run: RunTurn, pause: Paused) -> int | None:
    """When a pause ends, or its condition is checked; None if only a signal or an operator ends it."""
    if pause.resume_after is not None:
        return run.now() + microseconds_of(pause.resume_after, "resume_after")
    return None if pause.resume_condition is None else _next_check(run)


def attempted(
    call: StepCall, number: int, *, has_row: bool, begun: Attempt | None = None
) -> Generator[Request, Any, tuple[StepRow, Any]]:
    """Call the body once and record the result: returns the row, and the value or the exception."""
    run = call.run
    if run.notes and begun is None:
        yield Noted(run)
        run.admit(call.key)
    # Frozen, or cut off from the database: the body may be executed elsewhere.
    if monotonic() > run.slot.session.over_at and begun is None:
        yield Renewal(run)
        run.admit(call.key)
    attempt = begun or Attempt(call, number, has_row)
    if call.definition.tx is None:
        attempt.late = partial(_returned_late, attempt)
    else:
        attempt.transaction = StepTransaction(attempt, stored).committed
    if not call.definition.at_most_once:  # whose row says so already
        run.long_steps.begin(attempt)
    done, value = yield from _outcome(attempt)
    if attempt.reports:  # before the step counts as done
        yield Noted(run)
    if isinstance(value, Committed):
        run.journal.record(done)
        return value
    run.admit_result(done, attempt.shown)
    if attempt.emissions and done.status is RunStatus.SUCCESS:
        yield from recording_with(attempt, done)
    elif done.status.finished:  # before the workflow sees the result
        yield from recording(Record(run, done, attempt, has_row))
    else:  # a step that waits is recorded with its run
        run.on_loop(lambda: run.slot.database.steps.withdraw(attempt.shown))
    return done, value


def _outcome(attempt: Attempt) -> Generator[Request, Any, tuple[StepRow, Any]]:
    """Execute the body: what is to be recorded, and the value, the exception, or what was committed with the body."""
    call, run = attempt.call, attempt.call.run
    try:
        try:
            returned = yield attempt
        except KeyboardInterrupt as error:  # raised in another task it would end the loop, and the worker with it
            raise interrupted(error) from None
        return (returned.row, returned) if isinstance(returned, Committed) else stored(attempt, returned)
    except asyncio.CancelledError as error:
        if is_stopped_by_workflow(run, call.key, error) and (at_stake.get()[0] is None or attempt.shown is not None):
            run.slot.database.steps.withdraw(attempt.shown)
            note_stopped(call, attempt.number, attempt.took)
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a body raises is its outcome, sys.exit() too
        pause = pause_of(error, _policy(call)) if isinstance(error, Exception) else None
        return (_failed(attempt, error) if pause is None else _set_aside(attempt, pause)), error
    finally:
        attempt.is_over = True
        if attempt.log is not None:
            end_of(attempt)
        run.long_steps.end(attempt)


def stored(attempt: Attempt, returned: Any) -> tuple[StepRow, Any]:
    """The row of a result, and the result as its caller gets it."""
    output, value = stored_as(attempt.call, returned)
    return _succeeded(attempt, output), value


def _succeeded(attempt: Attempt, output: str) -> StepRow:
    call, task = attempt.call, attempt.call.run.task
    # fmt: off
    return StepRow(task.id, task.generation, call.key, call.place, RunStatus.SUCCESS, attempt.number, call.input,
                   output, None, attempt.took)
    # fmt: on


def _returned_late(attempt: Attempt, returned: Any) -> None:
    """Keep what a body in a thread returned after its run was stopped, if it can be stored."""
    run = attempt.call.run
    with contextlib.suppress(Exception):
        done = _succeeded(attempt, stored_as(attempt.call, returned)[0])
        run.slot.database.steps.keep_late(done, run.task.turn, attempt.shown)


def _set_aside(attempt: Attempt, pause: Paused) -> StepRow:
    """The row of a step that has paused itself, until it is resumed or its condition is met."""
    run = attempt.call.run
    return msgspec.structs.replace(
        attempt.call.row(RunStatus.PAUSED, attempt.number, attempt.took),
        output=None if (due := resumes_at(run, pause)) is None else str(due),
        error=encode(told_of(pause), limit=STORED_ERROR_LIMIT, what="error"),
        accepts=accepts(attempt.call.definition.returns),
    )


def told_of(pause: Paused) -> dict[str, Any]:
    """A pause as it is stored."""
    return {"type": "Paused", "message": str(pause), "resume_condition": pause.resume_condition}


def _failed(attempt: Attempt, error: Exception | SystemExit) -> StepRow:
    call, policy = attempt.call, _policy(attempt.call)
    outcome = judge(error, attempt.number, policy.max_attempts, policy, 0.0)
    assert isinstance(outcome, Again | Failed)
    told = outcome.error | (kept_of(error, call.definition.raises) if isinstance(error, Exception) else {})
    status = RunStatus.ERROR if isinstance(outcome, Failed) else RunStatus.PENDING
    return msgspec.structs.replace(
        call.row(status, attempt.number, attempt.took),
        error=encode(told, limit=STORED_ERROR_LIMIT, what="error"),
        finished_at=call.run.now(),
    )


def _policy(call: StepCall) -> Retry:
    return call.definition.retry or call.run.slot.database.options.retry


def retry_at(policy: Retry, failed: StepRow) -> int:
    """When the next attempt is due after a failed one; computed from the record, so that every worker agrees."""
    retry_after = decode(failed.error or "{}").get("retry_after")
    delay = policy.delay(failed.attempt, chance_of(f"{failed.run_id}/{failed.key}/{failed.attempt}"))
    return (failed.finished_at or 0) + int(1_000_000 * (delay if retry_after is None else retry_after))


def stored_as(call: StepCall, value: Any) -> tuple[str, Any]:
    """A result as JSON text, and as it is read back: the caller gets the latter on the first run too."""
    declared, kind = call.definition.returns, type(value)
    text = _written(call, value)
    if kind in _SAME and (declared is kind or declared is Any):
        return text, value
    back = read_value(text, declared, what=f"result of {call.key}")
    if declared is Any and not _same(back, value):
        why = f"a {kind.__qualname__} would come back as {type(back).__name__}; annotate what the function returns"
        raise SerializationError(f"{why}, or say `ctx.step(name, fn, returns=...)`", what=f"result of {call.key}")
    refuse_cut(value, back, what=f"result of {call.key}")
    return text, back


def _written(call: StepCall, value: Any) -> str:
    options, what = call.run.slot.database.options, f"result of {call.key}"
    return write_value(value, call.definition.returns, limit=options.payload_limit, what=what, codec=options.codec)


_SAME: Final = frozenset((str, int, bool, type(None)))


def _same(back: Any, value: Any) -> bool:
    try:
        return bool(back == value)
    except Exception:  # noqa: BLE001 - a value that cannot be compared cannot be shown to be the same
        return False
