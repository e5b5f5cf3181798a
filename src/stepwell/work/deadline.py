"""The deadline of a run: of the whole run, its waits included, or of its cleanup. By the database's clock."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import Final

from stepwell.base.clock import Clock
from stepwell.store.rows import Claimed
from stepwell.work.outcome import Again, Failed, NotThisCode, Reached, Suspended

LOOK_AT_TEST_CLOCK: Final = 0.01  # seconds
LONGEST_TIMER: Final = 86_400.0


class Deadline:
    """The moment by which a run has to be finished, and the failure that it ends with otherwise."""

    def __init__(
        self, task: Claimed, moment: int, failure: Failed, clock: Clock, *, claimed: float | None = None
    ) -> None:
        self.moment = moment
        self.failure = failure
        self._claimed_at = task.claimed_at
        self._clock = clock
        # Later than the claim: if this clock says that the time is over, it is over.
        self._began = time.monotonic() if claimed is None else claimed
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def of_run(cls, task: Claimed, limit: float | None, clock: Clock) -> Deadline | None:
        """The deadline of a whole run, of a workflow with this limit; None if it has none. A cleanup has its own."""
        if (limit is None and task.timeout is None and task.deadline_at is None) or task.cleanup_until is not None:
            return None
        limit = limit if task.timeout is None else task.timeout / 1_000_000
        own = None if limit is None else task.started_at + int(limit * 1_000_000)
        if task.deadline_at is not None and (own is None or task.deadline_at < own):
            message = (
                f"run {task.id} was not finished when the time of run {task.parent_id} was over, which asked for it; "
                f"raise the `timeout` of that, or ask with on_parent_end='leave'"
            )
            failure = Failed({"type": "Timeout", "message": message, "parent_id": task.parent_id}, timed_out=True)
            return cls(task, task.deadline_at, failure, clock)
        assert own is not None
        message = f"run {task.id} was not finished {limit:g} s after its start; raise its `timeout`, and retry it"
        failure = Failed({"type": "Timeout", "message": message, "limit": limit}, timed_out=True)
        return cls(task, own, failure, clock)

    @classmethod
    def of_cleanup(cls, task: Claimed, until: int, limit: float | None, clock: Clock, *, claimed: float) -> Deadline:
        """The deadline of the cleanup of a cancelled run; `claimed` is the monotonic time at which it was claimed."""
        allowed = "" if limit is None else f" in {limit:g} s"
        message = f"run {task.id} was not cleaned up{allowed}; raise the `cleanup` of its workflow"
        return cls(task, until, Failed({"type": "Timeout", "message": message}), clock, claimed=claimed)

    @property
    def left(self) -> float:
        """Seconds until the deadline has certainly passed; 0 or less if it has."""
        told = self._clock.now()
        passed = int((time.monotonic() - self._began) * 1_000_000)
        return (self.moment - (self._claimed_at + passed if told is None else told)) / 1_000_000

    def watch(self, over: Callable[[], object]) -> None:
        """Call `over` when the deadline has passed, unless `end` is called before."""
        rest = min(LONGEST_TIMER, max(0.0, self.left)) if self._clock.now() is None else LOOK_AT_TEST_CLOCK
        self._timer = asyncio.get_running_loop().call_later(rest, self._look, over)

    def end(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, over: Callable[[], object]) -> None:
        if self.left <= 0:
            over()
        else:
            self.watch(over)

    def capped(self, outcome: Reached | None) -> Reached | None:
        """The same outcome, except that a wait ends at the deadline at the latest."""
        left = max(0.0, self.left)
        match outcome:
            case Suspended() if outcome.run_at is None or outcome.run_at > self.moment:
                return dataclasses.replace(outcome, run_at=self.moment, delay=left)
            case Again() | NotThisCode() if outcome.delay > left:
                return dataclasses.replace(outcome, delay=left)
            case _:
                return outcome
