"""Long steps: they are recorded as RUNNING, so that people can see them; short steps only when they end."""

from __future__ import annotations

import itertools
import time
from typing import Final

from stepwell.records import RunStatus
from stepwell.runs.call import Attempt

SHOW_AFTER: Final = 0.02


class LongSteps:
    """The attempts under way of one workflow in one worker, oldest first."""

    def __init__(self) -> None:
        self._begun: dict[Attempt, None] = {}
        self._looking = False

    def begin(self, attempt: Attempt) -> None:
        """An attempt begins. Any thread may call this."""
        self._begun[attempt] = None
        if not self._looking:
            self._looking = True
            run = attempt.call.run
            run.on_loop(lambda: run.loop.call_later(SHOW_AFTER, self._look))

    def end(self, attempt: Attempt) -> None:
        """The attempt has ended. Any thread may call this; on the loop, `attempt.shown` does not change afterwards."""
        self._begun.pop(attempt, None)

    def _look(self) -> None:
        old = time.monotonic() - SHOW_AFTER
        for attempt in [*itertools.takewhile(lambda one: one.since <= old, tuple(self._begun))]:
            run = attempt.call.run
            # Only one removes it: the thread in which the attempt has just ended, or this.
            taken = self._begun.pop(attempt, self) is not self
            if taken and not run.unwinding:
                row = attempt.call.row(RunStatus.RUNNING, attempt.number, attempt.took)
                # A body's own transaction may have recorded its result before this is written.
                has_row = attempt.has_row or attempt.call.definition.tx is not None
                attempt.shown = run.slot.database.steps.begin(row, run.task.owner, has_row=has_row)
        for attempt in tuple(self._begun)[:1]:
            attempt.call.run.loop.call_later(SHOW_AFTER, self._look)
            return
        self._looking = False
