"""When a worker executes suspects: one at a time, with no other task beside them, for at most half of its time.

A suspect was lost with its worker, and may have killed it. So the worker begins nothing else, waits until the bodies
under way have ended, executes suspects for a second, and then does ordinary work for as long as all that took.
A body or a suspect that does not end could block it for hours. The worker waits for each as long as a lease; after that
it executes other tasks beside it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from stepwell.work.execution import Execution

LOOK_EVERY: Final = 0.5  # seconds between two looks for suspects
TURN: Final = 1.0  # seconds of suspects before ordinary work goes on


class SuspectTurns:
    """The times for suspects of one worker, by its own clock. Pure bookkeeping."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._looked_at = self._rests_until = float("-inf")
        self._since: float | None = None  # when it stopped beginning other tasks
        self._alone_since: float | None = None  # when the first suspect of this turn was begun
        self._begun_at = 0.0  # when the current suspect was begun
        self._under_way: Execution | None = None
        self._long: set[Execution] = set()  # bodies for which the worker has waited a lease
        self._left = False  # whether suspects may be left from the last turn

    @property
    def is_on(self) -> bool:
        """Whether only suspects may be begun now."""
        return self._since is not None

    def may_look(self, now: float, *, idle: bool, drains: bool = False) -> bool:
        """Whether to ask the database for suspects: not too often, and not in the time of ordinary work.

        An idle worker has no ordinary work to wait for; one that drains asks whenever nothing else is left. A worker
        that waits for its bodies asks again: other workers may have executed the suspects meanwhile, or acquitted them.
        """
        if self.is_on:
            return self._alone_since is None and now - self._looked_at >= LOOK_EVERY
        if idle and (self._left or drains):
            return True
        return now - self._looked_at >= LOOK_EVERY and (idle or now >= self._rests_until)

    def looked(self, now: float, *, found: bool) -> None:
        """The database has answered whether there are suspects."""
        self._looked_at = now
        self._left = found
        if self.is_on and not found:
            self.end(now, left=False)
        elif found and not self.is_on:
            self._since, self._alone_since = now, None

    def may_claim(self, now: float, executions: Collection[Execution]) -> bool:
        """Whether the next suspect may be begun: all other bodies have ended, or have had a lease to end."""
        assert self._since is not None
        self._long.intersection_update(executions)
        waited_since = self._since if self._under_way not in executions else self._begun_at
        if not self._long.issuperset(executions) and now - waited_since >= self._lease:
            self._long.update(executions)
            if self._under_way in executions:
                self.end(now, left=True)  # a long suspect: ordinary work goes on beside it
        return self.is_on and self._long.issuperset(executions)

    def is_over(self, now: float) -> bool:
        """Whether suspects have had their time, with none under way."""
        return self._alone_since is not None and now - self._alone_since >= TURN

    def begun(self, now: float, execution: Execution) -> None:
        """A suspect was begun."""
        self._under_way, self._begun_at = execution, now
        if self._alone_since is None:
            self._alone_since = now

    def end(self, now: float, *, left: bool) -> None:
        """Go back to ordinary work, for as long as this turn took; `left` if there may be more suspects."""
        assert self._since is not None
        self._rests_until = now + (now - self._since)
        self._since, self._under_way, self._left = None, None, left
