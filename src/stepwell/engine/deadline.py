"""The time that a run has in all: from its first start, its waits included, by the database's clock."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import Final

from stepwell.clock import Clock
from stepwell.engine.outcome import Again, Failed, Outcome, Settled, Suspended
from stepwell.records import Claimed

LOOK_AT_TEST_CLOCK: Final = 0.01  # seconds
LONGEST_TIMER: Final = 86_400.0


class Deadline:
    """The moment by which one run has to be finished."""

    def __init__(self, task: Claimed, limit: float, clock: Clock) -> None:
        self.moment = task.started_at + int(limit * 1_000_000)
        message = f"run {task.id} was not finished {limit:g} s after its start; raise its `timeout`, and retry it"
        self.failure = Failed({"type": "Timeout", "message": message, "limit": limit})
        self._claimed_at = task.claimed_at
        self._clock = clock
        self._began = time.monotonic()  # after the claim has answered: what is over by this is over
        self._timer: asyncio.TimerHandle | None = None

    @property
    def left(self) -> float:
        """Seconds until it certainly is over; not more than 0 if it is."""
        told = self._clock.now()
        passed = int((time.monotonic() - self._began) * 1_000_000)
        return (self.moment - (self._claimed_at + passed if told is None else told)) / 1_000_000

    def watch(self, over: Callable[[], object]) -> None:
        """Call `over` when the time is over, unless `end` is called before."""
        rest = min(LONGEST_TIMER, max(0.0, self.left)) if self._clock.now() is None else LOOK_AT_TEST_CLOCK
        self._timer = asyncio.get_running_loop().call_later(rest, self._look, over)

    def end(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, over: Callable[[], object]) -> None:
        if self.left <= 0:
            over()
        else:
            self.watch(over)

    def capped(self, outcome: Outcome | Settled | None) -> Outcome | Settled | None:
        """The same outcome, but what waits is woken when the time is over, to end then."""
        left = max(0.0, self.left)
        match outcome:
            case Suspended() if outcome.run_at is None or outcome.run_at > self.moment:
                return dataclasses.replace(outcome, run_at=self.moment, delay=left)
            case Again() if outcome.delay > left:
                return dataclasses.replace(outcome, delay=left)
            case _:
                return outcome
