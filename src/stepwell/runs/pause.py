"""What a branch waits for, and the exception that ends it when its run is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from time import monotonic
from typing import Final

from stepwell.store.rows import StepRow

# In seconds.
LOOK_AT_TEST_CLOCK: Final = 0.01
ASK_AT_TEST_CLOCK: Final = 0.05
ASK_AGAIN: Final = 0.5  # between two questions of a wait to the database while another branch works
LONGEST_TIMER: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Pause:
    """What a branch, or a whole run, waits for: a moment, signals after those it has seen, children to end."""

    due: int | None = None
    wakes: int | None = None
    needed: int | None = None
    hesitates: bool = False  # ends when every other branch waits too
    row: StepRow | None = None  # of a step that waits, to be written in the transaction that gives the run back

    @property
    def is_told(self) -> bool:
        """True if something other than time may end the wait."""
        return self.wakes is not None or self.needed is not None

    def seconds_at(self, now: int) -> float:
        """Seconds to sleep before the wait is checked again."""
        longest = ASK_AGAIN if self.is_told else LONGEST_TIMER
        return longest if self.due is None else min(longest, max(0.0, (self.due - now) / 1_000_000))

    @property
    def seconds_by_test_clock(self) -> float:
        """The same for a test clock; a check of signals or children costs a transaction."""
        return ASK_AT_TEST_CLOCK if self.is_told else LOOK_AT_TEST_CLOCK


def first_of(pauses: Collection[Pause]) -> Pause:
    """What a run waits for if its branches wait for these: the earliest moment, and the lowest counts."""
    return Pause(
        due=min((one.due for one in pauses if one.due is not None), default=None),
        wakes=min((one.wakes for one in pauses if one.wakes is not None), default=None),
        needed=min((one.needed for one in pauses if one.needed is not None), default=None),
    )


class Unwinding(asyncio.CancelledError):
    """The run is being given back: this call was not made, and nothing of it is written."""


def is_stopped(error: BaseException) -> bool:
    """True if the worker has cancelled this task; a body that raises CancelledError itself has failed."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def microseconds_since(moment: float) -> int:
    """How long ago this was by the monotonic clock."""
    return int((monotonic() - moment) * 1_000_000)
