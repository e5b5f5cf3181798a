"""Runs that keep a place while they wait for what no record of theirs ends: a lock, an event, a call outside a step.

That may be right, so they are left alone; what they wait for is noted, so that `why` can name it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from stepwell.base.compat import place_of_wait, waited_for
from stepwell.records import RunStatus
from stepwell.runs.turn import RunTurn
from stepwell.store.rows import OUTSIDE, StepRow
from stepwell.values.codec import encode

LOOK_EVERY: Final = 10.0  # seconds; a wait that two looks see is noted

Waits = dict[asyncio.Task[Any], asyncio.Future[Any] | None]


class Stalls:
    """The turns under way of one workflow in one worker."""

    def __init__(self) -> None:
        self._seen: dict[RunTurn, Waits] = {}
        self._noted: set[RunTurn] = set()
        self._looking = False

    def begin(self, run: RunTurn) -> None:
        """A turn begins."""
        self._seen[run] = {}
        if (mark := run.journal.marks.get(OUTSIDE)) is not None and mark.status is RunStatus.RUNNING:
            self._noted.add(run)  # by a worker that was lost
        if not self._looking:
            self._looking = True
            run.loop.call_later(LOOK_EVERY, self._look, run.loop)

    def end(self, run: RunTurn) -> None:
        """It has ended."""
        del self._seen[run]
        if run in self._noted:
            self._clear(run)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        for run, before in self._seen.items():
            if (stuck := run.stuck()) is None:
                continue
            now: Waits = {task: waited_for(task) for task in stuck}
            lasting = [task for task, waiter in now.items() if before.get(task) is waiter]
            if lasting and run not in self._noted:
                self._noted.add(run)
                told = {"type": "Outside", "message": place_of_wait(lasting[0])}
                _write(run, RunStatus.RUNNING, encode(told))
            elif run in self._noted and not lasting:
                self._clear(run)
            self._seen[run] = now
        self._looking = bool(self._seen)
        if self._looking:
            loop.call_later(LOOK_EVERY, self._look, loop)

    def _clear(self, run: RunTurn) -> None:
        self._noted.discard(run)
        _write(run, RunStatus.CANCELLED, None)


def _write(run: RunTurn, status: RunStatus, error: str | None) -> None:
    row = StepRow(run.task.id, run.task.generation, OUTSIDE, 0, status, 1, error=error)
    run.slot.database.steps.begin(row, run.task.owner, has_row=True)
