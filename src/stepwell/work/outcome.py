"""The outcome of an attempt, and what it costs. Pure: the only place that knows what an exception means."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Final, assert_never

from stepwell.base.backoff import Retry
from stepwell.base.compat import was_raised
from stepwell.base.durations import microseconds_of, seconds_of
from stepwell.errors import NonDeterminismError, Paused, PermanentError, Refused, SerializationError, TransientError
from stepwell.records import RunStatus
from stepwell.store.rows import NEVER, Settlement
from stepwell.store.settle import Following
from stepwell.values.codec import encode
from stepwell.values.exceptions import error_of, one_line

STORED_ERROR_LIMIT: Final = 1 << 20  # bytes; the codec has cut the texts before, so this never loses an error
DEEPEST_CAUSE: Final = 10  # an error may have itself as its cause
SOONEST_OFFER: Final = 1.0  # seconds until a task that this code cannot read is offered to other code
LATEST_OFFER: Final = 60.0
GAVE_UP: Final = "__stepwell_step__"  # on an exception: the key of the step that gave up with it
KEPT: Final = "__stepwell_kept__"  # on an exception that callers of its workflow get: what is needed to build it again
RECORDED: Final = "__stepwell_error__"  # on such an exception: what is recorded of it


@dataclass(frozen=True, slots=True)
class Done:
    """The body returned; `output` is its value as JSON text, None if it is not stored."""

    output: str | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """The attempt failed and another follows after `delay` seconds."""

    delay: float
    error: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Alone:
    """A batch failed, by the fault of an unknown task: each task comes again alone, and keeps its attempt."""

    delay: float
    error: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Failed:
    """No further attempt: the task is a dead letter. `reason` replaces the error's own line, if it is given."""

    error: dict[str, Any]
    reason: str | None = None
    timed_out: bool = False  # the time for the whole run is over, and with it that of the runs that it asked for


@dataclass(frozen=True, slots=True)
class Released:
    """Not finished, by no fault of its own: a worker may continue after `delay` seconds; the attempt is given back."""

    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class NotThisCode:
    """This code cannot read the task, other code may: it is offered again after `delay` seconds, with its attempt."""

    delay: float
    error: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Suspended:
    """Not finished and nothing to do until `run_at`, `delay` seconds from now; the attempt is given back.

    Or until a signal comes after the `wakes` it has seen, or as many children as it `needed` have ended; or, if it has
    paused itself (`said` is the reason), until an operator resumes it.
    """

    run_at: int | None
    delay: float
    wakes: int | None = None
    needed: int | None = None
    said: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """Not finished, and held until an operator accepts this code or other code is deployed; `said` is the reason."""

    said: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Restarted:
    """The run goes on as its next generation, with this input, as JSON text."""

    input: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Stopped by a cancel; nothing that it did since then counts."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The body has settled the task itself, with this status; the status is empty if the turn was lost.

    `along` is how many other tasks it took with it and has ended too.
    """

    status: str = ""
    along: int = 0


@dataclass(frozen=True, slots=True)
class Each:
    """Several tasks were executed together, and each has an outcome of its own, in their order."""

    outcomes: tuple[Outcome, ...]


# The outcomes that a body returns ...
Ended = Cancelled | Done | Each | Failed | Held | NotThisCode | Released | Restarted | Settled | Suspended
# ... and those that the worker has to write.
Outcome = Done | Held | NotThisCode | Released | Restarted | Suspended | Again | Alone | Cancelled | Failed

Reached = Outcome | Each | Settled

DONE: Final = Done()


def is_ctrl_c(error: KeyboardInterrupt) -> bool:
    """True if a person pressed Ctrl-C while this code ran, False if the code itself raised the exception.

    Python raises it in the main thread only, between two instructions; asyncio raises it in its own handler.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or threading.current_thread() is not threading.main_thread():
        return False
    return not was_raised(trace)


def interrupted(error: KeyboardInterrupt) -> RuntimeError:
    """The failure of a body that raised this; if a person pressed Ctrl-C, raises it again, which ends the process."""
    if is_ctrl_c(error):
        raise error
    return RuntimeError("a body raised KeyboardInterrupt")


def judge(
    error: BaseException,
    attempt: int,
    max_attempts: int,
    policy: Retry,
    randomness: float,
    *,
    pause: float | None = None,
) -> Outcome:
    """Judge a failed attempt: it is tried again while attempts are left, unless the error is permanent.

    If the error is a pause, the task is set aside for as long as that says, else for `pause` seconds.
    """
    if pause is not None and isinstance(error, Exception) and (paused := pause_of(error, policy)) is not None:
        after = pause if paused.resume_after is None else seconds_of(paused.resume_after, "resume_after")
        return Suspended(None, after, said=error_of(paused))
    is_final = is_permanent(error, policy)  # first: `when` may leave a note on the error
    described = error_of(error)
    if steps := steps_behind(error):
        described["steps"] = steps  # a retry of the run executes them again
    if kept := getattr(error, KEPT, None):
        described |= kept  # for those who wait for the run
    if recorded := getattr(error, RECORDED, None):
        described["step_error"] = recorded  # for the run that asked for this step to be executed here
    if is_final or attempt >= max_attempts:
        return Failed(described)
    if isinstance(error, TransientError) and (retry_after := described.get("retry_after")) is not None:
        return Again(retry_after, described)
    return Again(policy.delay(attempt, randomness), described)


def pause_of(error: Exception, policy: Retry) -> Paused | None:
    """The pause that an error of a step, a workflow or a handler means; None if it means none.

    Not the error of a step that gave up: it is recorded, so the run would reach it again and pause for ever.
    """
    if isinstance(error, Paused):
        return error
    if isinstance(error, policy.paused) and not hasattr(error, GAVE_UP):
        return Paused(one_line(error_of(error)))
    return None


def no_handler(queue: str) -> Failed:
    """The failure of a task that was claimed by the prefix of its queue, and has no handler in this worker."""
    message = f"no_handler_registered: a worker claimed {queue} by its prefix and has no handler for it"
    return Failed({"type": "NoHandler", "message": message}, reason="no_handler_registered")


def is_refusal(outcome: Outcome) -> bool:
    """True if the outcome is that the database has refused an earlier one."""
    return (getattr(outcome, "error", None) or {}).get("type") == Refused.__name__


def judge_unreadable(error: Exception, since: int | None, now: int, bound: float) -> NotThisCode | Failed:
    """Judge a task that this code cannot read: other code gets it, until it has been unreadable for `bound` seconds.

    `since`, when it was first unreadable, and `now` are microseconds of the database's clock; `since` is None the first
    time. It is offered again soon while that is recent, as in a deploy, and every minute later. A run that would become
    a dead letter is held instead.
    """
    begun = now if since is None else since
    told = {"type": NotThisCode.__name__, "message": error_of(error)["message"], "since": begun}
    unreadable = (now - begun) / 1_000_000
    if unreadable >= bound:
        return Failed(told)
    return NotThisCode(min(LATEST_OFFER, max(SOONEST_OFFER, unreadable)), told)


def judge_batch(error: BaseException) -> Outcome:
    """Judge a failed call with several tasks: no attempt is spent, and each task is tried alone."""
    described = error_of(error)
    retry_after = described.get("retry_after") if isinstance(error, TransientError) else None
    return Alone(retry_after or 0.0, described)


def is_permanent(error: BaseException, policy: Retry) -> bool:
    """True if trying again cannot help. The classes that the user named take precedence."""
    if hasattr(error, GAVE_UP):  # it is recorded: no further attempt calls the step again
        return True
    if isinstance(error, policy.transient):
        return False
    if isinstance(error, policy.permanent):
        return True
    if isinstance(error, BaseExceptionGroup):
        return all(is_permanent(one, policy) for one in error.exceptions)
    # A payload that does not fit the handler's type will not fit it next time, and a step that gave up is recorded.
    certain = isinstance(error, (PermanentError, SerializationError, NonDeterminismError))
    if certain or isinstance(error, TransientError):
        return certain
    return bool(steps_behind(error)) or policy.refuses(error)


def steps_behind(error: BaseException, depth: int = DEEPEST_CAUSE) -> list[str]:
    """The keys of the steps that gave up with this error, or with the one it was raised from; a group may have several.

    An error that was raised without `from` while another was handled need not be caused by it.
    """
    if (key := getattr(error, GAVE_UP, None)) is not None:
        return [key]
    causes = error.exceptions if isinstance(error, BaseExceptionGroup) else [error.__cause__]
    return [key for one in causes if one is not None and depth > 0 for key in steps_behind(one, depth - 1)]


_SUCCESS = Settlement(RunStatus.SUCCESS)


def following(outcome: Outcome, *, tells: bool, ends_children: bool) -> Following | None:
    """What follows from the outcome besides what is written of the task itself; None for next to all."""
    timed_out = isinstance(outcome, Failed) and outcome.timed_out
    ends = timed_out or (ends_children and isinstance(outcome, Done | Failed | Cancelled))
    return Following(tells, ends, timed_out) if tells or ends else None


def settlement_of(outcome: Outcome) -> Settlement:
    """The outcome as the store writes it."""
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
    """PENDING waits for a moment; PAUSED waits for a signal, children or an operator, at the latest for a moment."""
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
