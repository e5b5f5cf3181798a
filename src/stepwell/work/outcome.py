"""What came of one attempt, and what it costs. Pure: the only place that knows what an exception means."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Final, assert_never

from stepwell.base.backoff import Retry
from stepwell.base.compat import was_raised
from stepwell.base.durations import microseconds_of
from stepwell.errors import NonDeterminismError, Paused, PermanentError, SerializationError, TransientError
from stepwell.records import RunStatus
from stepwell.store.rows import NEVER, Settlement
from stepwell.values.codec import encode
from stepwell.values.exceptions import error_of, one_line

STORED_ERROR_LIMIT: Final = 1 << 20  # the codec has cut the texts long before; a limit must not lose the error
DEEPEST_CAUSE: Final = 10  # an error may have been raised from itself
SOONEST_OFFER: Final = 1.0  # seconds until what this code cannot read is offered again, to code that can
LATEST_OFFER: Final = 60.0
GAVE_UP: Final = "__stepwell_step__"  # on an exception: the key of the step that gave up with it, and will so for ever
RECORDED: Final = "__stepwell_error__"  # on such an exception: what is recorded of it


@dataclass(frozen=True, slots=True)
class Done:
    """The body returned; `output` is its value as JSON text, None if nobody will ask for it."""

    output: str | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """The attempt failed and another follows after `delay` seconds."""

    delay: float
    error: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Alone:
    """A batch failed and nobody knows by whose fault: each of it comes again alone, its attempt given back."""

    delay: float
    error: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Failed:
    """No further attempt: the task is a dead letter. `reason` is its word where the error's own line says less."""

    error: dict[str, Any]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """Not finished, by no fault of its own: somebody may go on after `delay` seconds, the attempt is given back."""

    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class NotThisCode:
    """This code cannot read it, other code may: offered again after `delay` seconds, the attempt is given back."""

    delay: float
    error: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Suspended:
    """Not finished and nothing to do until `run_at`, `delay` seconds from now; the attempt is given back.

    Or until a signal comes after the `wakes` it has seen, or as many children as it `needed` have ended; or, if it has
    `said` why it sets itself aside, until somebody lets it go on.
    """

    run_at: int | None
    delay: float
    wakes: int | None = None
    needed: int | None = None
    said: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """Not finished, and not to go on with this code before somebody has looked at it; `said` says why."""

    said: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Restarted:
    """The run goes on as its next generation, with this input, as JSON text."""

    input: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Stopped because somebody asked for it; nothing that it did since counts."""


@dataclass(frozen=True, slots=True)
class Settled:
    """It was settled already, with this status, in a transaction of the body's own; nothing if it was not ours."""

    status: str = ""


# What a body makes of itself, if nothing goes wrong ...
Ended = Cancelled | Done | Failed | Held | NotThisCode | Released | Restarted | Settled | Suspended
# ... and what is left to be written.
Outcome = Done | Held | NotThisCode | Released | Restarted | Suspended | Again | Alone | Cancelled | Failed

DONE: Final = Done()


def is_ctrl_c(error: KeyboardInterrupt) -> bool:
    """True if a person pressed Ctrl-C while this code ran, False if the code has raised it by itself.

    Python tells the main thread alone, and there between two instructions; asyncio raises it in a handler of its own.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or threading.current_thread() is not threading.main_thread():
        return False
    return not was_raised(trace)


def interrupted(error: KeyboardInterrupt) -> RuntimeError:
    """The failure of a body that has raised this; raises it, which ends the process, if a person pressed Ctrl-C."""
    if is_ctrl_c(error):
        raise error
    return RuntimeError("a body raised KeyboardInterrupt")


def judge(error: BaseException, attempt: int, max_attempts: int, policy: Retry, randomness: float) -> Outcome:
    """Judge a failed attempt: tried again while attempts are left, unless the error says otherwise."""
    described = error_of(error)
    if steps := steps_behind(error):
        described["steps"] = steps  # to be opened again if somebody retries the run
    if recorded := getattr(error, RECORDED, None):
        described["step_error"] = recorded  # for the run that asked for this step to be executed here
    if is_permanent(error, policy) or attempt >= max_attempts:
        return Failed(described)
    if isinstance(error, TransientError) and (retry_after := described.get("retry_after")) is not None:
        return Again(retry_after, described)
    return Again(policy.delay(attempt, randomness), described)


def pause_of(error: Exception, policy: Retry) -> Paused | None:
    """The pause that an error of a step or a workflow means; None if it means none.

    Not what a step gave up with: it is recorded, so the run would come to the same error and pause for ever.
    """
    if isinstance(error, Paused):
        return error
    if isinstance(error, policy.paused) and not hasattr(error, GAVE_UP):
        return Paused(one_line(error_of(error)))
    return None


def judge_unreadable(error: Exception, since: int | None, now: int, bound: float) -> NotThisCode | Failed:
    """Judge what this code cannot read: left to other code until it has been unreadable `since` so many seconds ago.

    The moments are microseconds of the database's clock; `since` is None the first time. It is offered again sooner
    while it is new, as in a deploy, and every minute in the end. A run that would be a dead letter is held instead.
    """
    begun = now if since is None else since
    told = {"type": NotThisCode.__name__, "message": error_of(error)["message"], "since": begun}
    unreadable = (now - begun) / 1_000_000
    if unreadable >= bound:
        return Failed(told)
    return NotThisCode(min(LATEST_OFFER, max(SOONEST_OFFER, unreadable)), told)


def judge_batch(error: BaseException) -> Outcome:
    """Judge a failed call with several tasks: no attempt is spent, and each is to show by itself what it is."""
    described = error_of(error)
    retry_after = described.get("retry_after") if isinstance(error, TransientError) else None
    return Alone(retry_after or 0.0, described)


def is_permanent(error: BaseException, policy: Retry) -> bool:
    """True if trying again cannot help. What the user mapped goes before what stepwell knows."""
    if hasattr(error, GAVE_UP):  # it is recorded, and no further attempt will call the step again
        return True
    if isinstance(error, policy.transient):
        return False
    if isinstance(error, policy.permanent):
        return True
    if isinstance(error, BaseExceptionGroup):
        return all(is_permanent(one, policy) for one in error.exceptions)
    # A payload that does not fit the handler's type will not fit it next time either, and a step that gave up stays so.
    certain = isinstance(error, (PermanentError, SerializationError, NonDeterminismError))
    return certain or (not isinstance(error, TransientError) and bool(steps_behind(error)))


def steps_behind(error: BaseException, depth: int = DEEPEST_CAUSE) -> list[str]:
    """The keys of the steps that gave up with this error, or with the one it was raised from; a group may have several.

    What was raised while another error was handled, without `from`, need not be due to that one.
    """
    if (key := getattr(error, GAVE_UP, None)) is not None:
        return [key]
    causes = error.exceptions if isinstance(error, BaseExceptionGroup) else [error.__cause__]
    return [key for one in causes if one is not None and depth > 0 for key in steps_behind(one, depth - 1)]


_SUCCESS = Settlement(RunStatus.SUCCESS)


def settlement_of(outcome: Outcome) -> Settlement:
    """An outcome as it is written."""
    match outcome:
        case Done(None):
            return _SUCCESS
        case Done(output):
            return Settlement(RunStatus.SUCCESS, output=output)
        case Again(delay, error) | Alone(delay, error) | NotThisCode(delay, error):
            return Settlement(
                RunStatus.PENDING,
                delay=microseconds_of(delay, "retry_after"),
                attempt_back=not isinstance(outcome, Again),
                alone=isinstance(outcome, Alone),
                error=encode(error, limit=STORED_ERROR_LIMIT, what="error"),
                last_error=one_line(error),
            )
        case Failed(error, reason):
            return Settlement(
                RunStatus.ERROR,
                error=encode(error, limit=STORED_ERROR_LIMIT, what="error"),
                last_error=reason or one_line(error),
            )
        case Released(delay):
            return Settlement(RunStatus.PENDING, delay=microseconds_of(delay), attempt_back=True)
        case Restarted(input):
            return Settlement(RunStatus.PENDING, attempt_back=True, input=input)
        case Cancelled():
            return Settlement(RunStatus.CANCELLED)
        case Suspended() | Held():
            return _waiting(outcome)
        case _:
            assert_never(outcome)


def _waiting(outcome: Suspended | Held) -> Settlement:
    """PENDING waits for a moment, and is swept; PAUSED for somebody, and at the latest for a moment."""
    said = outcome.said
    error = None if said is None else encode(said, limit=STORED_ERROR_LIMIT, what="error")
    line = None if said is None else one_line(said)
    if isinstance(outcome, Held):
        return Settlement(RunStatus.PAUSED, run_at=NEVER, attempt_back=True, error=error, last_error=line)
    told = outcome.wakes is not None or outcome.needed is not None or said is not None
    return Settlement(
        RunStatus.PAUSED if told else RunStatus.PENDING,
        delay=microseconds_of(outcome.delay),
        run_at=outcome.run_at,
        attempt_back=True,
        wakes=outcome.wakes,
        needed=outcome.needed,
        error=error,
        last_error=line,
    )
