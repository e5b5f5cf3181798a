"""How long to wait before trying again, as pure arithmetic.

`Retry` is the policy users write on a handler, a workflow or a step; `waits` paces the loops that reconnect.
Randomness comes in from outside, so every delay can be tested.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stepwell.base.durations import Duration, seconds_of
from stepwell.base.names import check_max_attempts
from stepwell.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIRST_WAIT: Final = 0.05
SHORTEST_WAIT: Final = 0.001


@dataclass(frozen=True, slots=True)
class Retry:
    """The number of attempts, the waits between them, and which errors are not subject to them.

    `Retry(5)` is five attempts. Exceptions in `permanent` are not tried again; those in `transient` are. Those in
    `paused` pause a run, a message or an effect as `Paused` does; no attempt is spent.

    `when` is asked about every other exception that the program has raised, and says whether to try again. It is a
    plain function of the exception; if it raises, the exception is tried again, as if there were no `when`.
    """

    max_attempts: int = 3
    base: Duration = field(default=1, kw_only=True)
    cap: Duration = field(default="5m", kw_only=True)
    jitter: float = field(default=0.5, kw_only=True)
    permanent: tuple[type[BaseException], ...] = field(default=(), kw_only=True)
    transient: tuple[type[BaseException], ...] = field(default=(), kw_only=True)
    paused: tuple[type[BaseException], ...] = field(default=(), kw_only=True)
    when: Callable[[BaseException], bool] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_max_attempts(self.max_attempts)
        if self.when is not None and (not callable(self.when) or inspect.iscoroutinefunction(self.when)):
            raise InvalidOption("when", self.when, "it is a plain function of the exception: `when=lambda error: ...`")
        # Kept as seconds, so that Retry(cap="5m") equals Retry(cap=300).
        object.__setattr__(self, "base", seconds_of(self.base, "base"))
        object.__setattr__(self, "cap", seconds_of(self.cap, "cap"))
        _check_share("jitter", self.jitter)
        for option in ("permanent", "transient", "paused"):
            _check_exceptions(option, getattr(self, option))

    @classmethod
    def of(cls, retry: int | Retry) -> Retry:
        """The policy itself, or the default policy with this number of attempts."""
        return retry if isinstance(retry, Retry) else cls(retry)

    def refuses(self, error: BaseException) -> bool:
        """True if `when` says that trying again cannot help; what it raises itself is noted on the error."""
        if self.when is None:
            return False
        try:
            return not self.when(error)
        except Exception as failure:  # noqa: BLE001 - it is the program's own code
            with contextlib.suppress(Exception):  # an exception may be frozen
                error.add_note(f"stepwell: `when` of its Retry raised {type(failure).__name__}: {failure}"[:500])
            return False

    def delay(self, attempt: int, randomness: float) -> float:
        """Seconds between the failed attempt (counted from 1) and the next; `randomness` is from 0 to 1.

        Before jitter: 1 s, 2 s, 4 s ... up to the cap. The delay is never below that, nor above the cap.
        """
        # Two texts, one formula. "base * 2^attempt for attempt 0, 1, ..." counts failures before this one, so with
        # attempts counted from 1 the exponent is attempt - 1. "Within [raw, 1.5 raw]" and "capped last" both hold
        # because raw <= cap: the second cap only cuts jitter off. At the cap delays are equal, but the failures
        # they start from were spread by the jitter of every delay before.
        cap = seconds_of(self.cap)
        # The exponent is bounded because a float ends at 2^1023; no base needs more than 900 doublings to pass a cap.
        raw = min(cap, math.ldexp(seconds_of(self.base), min(attempt - 1, 900)))
        return min(cap, raw + randomness * self.jitter * raw)


def waits(cap: float, random: Callable[[], float]) -> Iterator[float]:
    """Endless pauses for a loop that reconnects: full jitter over 0.05 s, doubling to `cap`, never 0.

    Full jitter, because all clients lose the same database at the same instant.
    """
    longest = min(FIRST_WAIT, cap)
    while True:
        yield max(SHORTEST_WAIT, longest * (1.0 - random()))
        longest = min(cap, longest * 2)


def doubled(first: float, most: float) -> Iterator[float]:
    """Endless pauses, each twice as long as the one before, up to the longest."""
    pause = first
    while True:
        yield pause
        pause = min(most, 2 * pause)


def _check_share(option: str, share: object) -> None:
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise InvalidOption(option, share, "it is a share of the delay, from 0 to 1")


def _check_exceptions(option: str, classes: object) -> None:
    if isinstance(classes, tuple) and all(isinstance(cls, type) and issubclass(cls, BaseException) for cls in classes):
        return
    raise InvalidOption(option, classes, "it is a tuple of exception classes")
