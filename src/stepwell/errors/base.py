"""The base of every error, and the errors by which a body says what happens next."""
# ruff: noqa: N818 - the names are the API's words; `LeaseLost` says more than `LeaseLostError`

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepwell.base.durations import Duration


class StepwellError(Exception):
    """Something stepwell was asked for could not be done."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(args or (sentence_of(type(self)),)))

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the class with the finished message, which most classes here build from other arguments.
        return _rebuilt, (type(self), self.args, dict(self.__dict__))


class PermanentError(StepwellError):
    """This can never succeed: do not try again."""


class TransientError(StepwellError):
    """This failed for now: try again, after `retry_after` seconds if given, else after the policy's backoff."""

    def __init__(self, message: str = "", *, retry_after: Duration | None = None) -> None:
        from stepwell.base.durations import seconds_of  # noqa: PLC0415 - durations refuses with errors of this module

        super().__init__(*([message] if message else []))
        self.retry_after = None if retry_after is None else seconds_of(retry_after, "retry_after")

    @classmethod
    def with_backoff(cls, seconds: Duration, message: str = "") -> TransientError:
        """A transient error that is tried again after `seconds`."""
        return cls(message, retry_after=seconds)


class Paused(StepwellError):
    """Set this work aside until a signal, an operator or `resume_condition` brings it back; no attempt is spent.

    With `resume_after` it is tried again after that time, whatever else comes; it is asked for in place of a condition.
    A message or an effect, which has no conditions, is tried again after that time, else after `pause_check_interval`.
    """

    def __init__(
        self, message: str = "", *, resume_condition: str | None = None, resume_after: Duration | None = None
    ) -> None:
        super().__init__(*([message] if message else []))
        self.resume_condition = resume_condition
        self.resume_after = resume_after


PauseError = Paused


class Timeout(StepwellError, TimeoutError):
    """It did not happen in time; the work goes on, so ask again."""

    def __init__(self, message: str = "", *, seconds: float | None = None) -> None:
        super().__init__(message or sentence_of(Timeout))
        self.seconds = seconds


def sentence_of(cls: type[BaseException]) -> str:
    """The docstring of the class or of its nearest ancestor that has one, for an error without a message."""
    return next((" ".join(base.__doc__.split()) for base in cls.__mro__ if base.__doc__), cls.__name__)


def shown(value: object) -> str:
    """A short printable form, so that no value can break a log line."""
    try:
        text = ascii(value)
    except Exception:  # noqa: BLE001 - a value whose repr raises must not hide the refusal
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _rebuilt(cls: type[StepwellError], args: tuple[object, ...], attributes: dict[str, Any]) -> StepwellError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error
