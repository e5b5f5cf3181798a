"""A step call: answered from the journal, or its body executed and what came of it recorded.

The course of a call is written once, as a script that asks for what takes time: a body, a write, a wait.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Generator
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from stepwell.base.backoff import Retry
from stepwell.base.clock import chance_of
from stepwell.base.durations import microseconds_of
from stepwell.errors import Paused, SerializationError, StepFailed
from stepwell.records import RunStatus
from stepwell.runs.call import Attempt, Definition, StepCall
from stepwell.runs.journal import Due, GaveUp, Replay, Verdict, Waiting
from stepwell.runs.pause import Pause
from stepwell.runs.rename import cleared
from stepwell.runs.requests import (
    Course,
    Noted,
    Record,
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
from stepwell.runs.turn import RunTurn
from stepwell.runs.wait import accepts, misfit_of, told_misfits
from stepwell.store.questions import Recorded, TakeSignal
from stepwell.store.rows import StepRow
from stepwell.values.codec import decode, encode
from stepwell.values.lossless import refuse_cut
from stepwell.work.outcome import GAVE_UP, RECORDED, STORED_ERROR_LIMIT, Again, Failed, interrupted, judge, pause_of


def course_of(call: StepCall) -> Course:
    """A call from its beginning to what it returns or raises, the same on the first run and on every replay."""
    run, definition = call.run, call.definition
    run.check()
    verdict = run.journal.answer(call.key, call.input)
    yield from cleared(run, call.key, verdict)
    while True:
        match verdict:
            case Due():
                run.admit(call.key)
                if verdict.failed is not None:
                    due = retry_at(_policy(call), verdict.failed)
                    yield from waited_until(run, call.key, due, verdict.failed)
                run.enter(call.key)
                try:
                    row, value = yield from _attempt(call, verdict.attempt, has_row=verdict.has_row)
                finally:
                    run.leave(call.key)
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


def resumed(call: StepCall, row: StepRow) -> Generator[Request, Any, Verdict]:
    """Wait until a step that has paused itself is resumed, its condition is met, or its time has come."""
    run, told = call.run, decode(row.error or "{}")
    condition = told.get("resume_condition")
    races = at_stake.get()[0] is not None
    # A run that had not been signalled when it was claimed has nothing to ask: what came since, its end will find.
    is_unasked = not run.task.wakes and not run.journal.knows(row) and not races
    seen: int | None = 0 if is_unasked else None
    while True:
        check_at = None if row.output is None else decode(row.output, int)
        is_due = check_at is not None and run.is_past(check_at)
        if races and not run.journal.knows(row):  # who wins changes the rows of the others
            yield from recorded(run, row)
        if seen is None or is_due:
            fits = partial(misfit_of, call.definition.name, call.definition.returns)
            question = TakeSignal(run.task, row, call.definition.name, None, False, *at_stake.get(), misfit=fits)
            answer = yield from asked(run, question)
            told_misfits(run, question)
            if isinstance(answer, Recorded):
                return Replay(answer.row.output)
            if question.misfits:  # with which it was recorded
                run.journal.record(row)
            seen = answer.wakes
        if not is_due:
            yield Wait(run, Pause(check_at, wakes=seen, row=unrecorded(run, row)))
            seen = None
            continue
        if condition is None:  # `resume_after`: it is tried again
            return Due(row.attempt, has_row=True)
        met = yield from checked(run, row.key, condition)
        if met is True:
            return Due(row.attempt, has_row=True)
        if met is None or met is False:
            row = msgspec.structs.replace(row, output=str(_next_check(run)))
            continue
        text = encode(met, limit=run.slot.store.options.payload_limit, what=f"result of {call.key}")
        done = msgspec.structs.replace(row, status=RunStatus.SUCCESS, output=text, error=None, accepts=None)
        yield from recorded(run, done)
        return Replay(text)


def _next_check(run: RunTurn) -> int:
    return run.now() + int(1_000_000 * run.slot.store.options.pause_check_interval)


def resumes_at(run: RunTurn, pause: Paused) -> int | None:
    """When a pause is over by time, or its condition is asked; None if only a signal or an operator ends it."""
    if pause.resume_after is not None:
        return run.now() + microseconds_of(pause.resume_after, "resume_after")
    return None if pause.resume_condition is None else _next_check(run)


def _attempt(call: StepCall, number: int, *, has_row: bool) -> Generator[Request, Any, tuple[StepRow, Any]]:
    """Call the body once and record what came of it: the row, and the value or the exception."""
    run = call.run
    if run.notes:
        yield Noted(run)
        run.admit(call.key)
    attempt = Attempt(call, number, has_row)
    attempt.late = partial(_returned_late, attempt)
    showing = run.slot.showing
    showing.begin(attempt)
    try:
        try:
            returned = yield attempt
        except KeyboardInterrupt as error:  # in a branch of its own it would end the loop, and the worker with it
            raise interrupted(error) from None
        output, value = stored_as(call, returned)
        done = _succeeded(attempt, output)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a body raises is its outcome, sys.exit() too
        value = error
        pause = pause_of(error, _policy(call)) if isinstance(error, Exception) else None
        done = _failed(attempt, error) if pause is None else _set_aside(attempt, pause)
    finally:
        showing.end(attempt)
    run.admit_result(done, attempt.shown)
    if done.status.finished:  # before the workflow hears of it
        yield from recording(Record(run, done, attempt, has_row))
    else:  # a step that waits is recorded with its run
        run.on_loop(lambda: run.slot.store.recorded.withdraw(attempt.shown))
    return done, value


def _succeeded(attempt: Attempt, output: str) -> StepRow:
    call, task = attempt.call, attempt.call.run.task
    # fmt: off
    return StepRow(task.id, task.generation, call.key, call.place, RunStatus.SUCCESS, attempt.number, call.input,
                   output, None, attempt.took)
    # fmt: on


def _returned_late(attempt: Attempt, returned: Any) -> None:
    """Keep what a body in a thread returned after its run was stopped; what cannot be stored is not worth an error."""
    run = attempt.call.run
    with contextlib.suppress(Exception):
        done = _succeeded(attempt, stored_as(attempt.call, returned)[0])
        run.slot.store.recorded.keep_late(done, run.task.turn, attempt.shown)


def _set_aside(attempt: Attempt, pause: Paused) -> StepRow:
    """A step that has paused itself: until somebody resumes it, or its condition, asked now and then, is met."""
    run = attempt.call.run
    return msgspec.structs.replace(
        attempt.call.row(RunStatus.PAUSED, attempt.number, attempt.took),
        output=None if (due := resumes_at(run, pause)) is None else str(due),
        error=encode(told_of(pause), limit=STORED_ERROR_LIMIT, what="error"),
        accepts=accepts(attempt.call.definition.returns),
    )


def told_of(pause: Paused) -> dict[str, Any]:
    """What is stored of a pause."""
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
    return call.definition.retry or call.run.slot.store.options.retry


def retry_at(policy: Retry, failed: StepRow) -> int:
    """When a failed attempt is followed by the next: from what is recorded, so that it is the same for everybody."""
    retry_after = decode(failed.error or "{}").get("retry_after")
    delay = policy.delay(failed.attempt, chance_of(f"{failed.run_id}/{failed.key}/{failed.attempt}"))
    return (failed.finished_at or 0) + int(1_000_000 * (delay if retry_after is None else retry_after))


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
    refuse_cut(value, back, what=f"result of {call.key}")
    return text, back


_SAME: Final = frozenset((str, int, bool, type(None)))


def _same(back: Any, value: Any) -> bool:
    try:
        return bool(back == value)
    except Exception:  # noqa: BLE001 - a value that cannot be compared cannot be shown to be the same
        return False


# ---- What a step gave up with, recorded so that its exception can be raised on the first run and on every replay
# alike.


KEPT_LIMIT: Final = 1 << 18  # bytes of what an exception was given, or holds
PASSED_ON: Final = ("type", "message", "code", "args", "fields", "as")  # to the run that asked for the step


def kept_of(error: Exception, raises: tuple[type[Exception], ...]) -> dict[str, Any]:
    """What is recorded of an exception besides its message, if its class is among `raises` or below one of them."""
    named = next((cls for cls in raises if isinstance(error, cls)), None)
    if named is None:
        return {}
    told: dict[str, Any] = {"args": _stored(list(_arguments_of(error))), "fields": _fields_of(error)}
    if type(error) not in raises:
        told["as"] = named.__name__
    return told


def failure_of(definition: Definition, key: str, error: str) -> Exception:
    """The exception of a step that gave up, from what is recorded: of a class of `raises`, else `StepFailed`."""
    told: dict[str, Any] = decode(error)
    kind, message = str(told.get("type", "error")), str(told.get("message", ""))
    named = told.get("as", kind)
    found = [_built(cls, told) for cls in definition.raises if cls.__name__ == named]
    failure = next((one for one in found if one is not None), None) or StepFailed(key, kind, message, told)
    BaseException.__setattr__(failure, GAVE_UP, key)  # also on one that is frozen
    BaseException.__setattr__(failure, RECORDED, {name: told[name] for name in PASSED_ON if name in told})
    return failure


def _built(cls: type[Exception], told: dict[str, Any]) -> Exception | None:
    """The exception once more; None if it cannot be.

    By its class, if that makes the same of what it was given. Many make their message of other arguments, or take them
    by name only: such a one is put together without asking the class.
    """
    args, fields = told.get("args"), told.get("fields") or {}
    if args is None:
        return None
    with suppress(Exception):
        made = cls(*args)
        if str(made) == told.get("message") and all(vars(made).get(name) == fields[name] for name in fields):
            return made
    with suppress(Exception):
        put = cls.__new__(cls, *args)
        BaseException.__setattr__(put, "args", tuple(args))
        vars(put).update(fields)
        return put
    return None


def _arguments_of(error: Exception) -> tuple[Any, ...]:
    made: Any = error.__reduce__() if isinstance(error, OSError) else ()  # it has more than it shows: the file
    arguments: tuple[Any, ...] = made[1] if made and made[0] is type(error) else error.args
    return arguments


def _fields_of(error: Exception) -> dict[str, Any]:
    """What the exception holds by name, as far as it comes back as itself, and all of it fits."""
    kept: dict[str, Any] = {}
    for name, value in vars(error).items():
        with suppress(Exception):  # it cannot be stored, or not be compared
            if not name.startswith("__") and decode(encode(value)) == value:
                kept[name] = value
    return _stored(kept) or {}


def _stored(value: Any) -> Any:
    try:
        return decode(encode(value, limit=KEPT_LIMIT))
    except SerializationError:
        return None


# ---- Steps that take a while are recorded as RUNNING, so that people can see them at work; short ones only when they
# end.


SHOW_AFTER: Final = 0.02


class Showing:
    """The attempts of one worker's steps whose bodies are being executed, oldest first."""

    def __init__(self) -> None:
        self._begun: dict[Attempt, None] = {}
        self._looking = False

    def begin(self, attempt: Attempt) -> None:
        """An attempt begins; any thread may say so."""
        self._begun[attempt] = None
        if not self._looking:
            self._looking = True
            run = attempt.call.run
            run.on_loop(lambda: run.loop.call_later(SHOW_AFTER, self._look))

    def end(self, attempt: Attempt) -> None:
        """The attempt has ended; any thread may say so. On the loop, `attempt.shown` is then as it stays."""
        self._begun.pop(attempt, None)

    def _look(self) -> None:
        old = time.monotonic() - SHOW_AFTER
        for attempt in [*itertools.takewhile(lambda one: one.since <= old, tuple(self._begun))]:
            run = attempt.call.run
            # By one of two: the thread in which the attempt has just ended, or this.
            taken = self._begun.pop(attempt, self) is not self
            if taken and not run.unwinding:
                row = attempt.call.row(RunStatus.RUNNING, attempt.number, attempt.took)
                attempt.shown = run.slot.store.recorded.begin(row, run.task.owner, has_row=attempt.has_row)
        for attempt in tuple(self._begun)[:1]:
            attempt.call.run.loop.call_later(SHOW_AFTER, self._look)
            return
        self._looking = False
