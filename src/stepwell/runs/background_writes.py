"""Writes that a run does not wait for: rows of its journal, and its progress."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from stepwell.errors import LeaseLost
from stepwell.store.pending import Operation
from stepwell.store.rows import StepRow
from stepwell.store.tasks import PROGRESS_LIMIT
from stepwell.values.codec import encode
from stepwell.work.current import hidden

if TYPE_CHECKING:
    from stepwell.runs.turn import RunTurn

ROOM_AFTER: Final = 0.1  # seconds until a progress that found no room is tried again, if it is still the latest


def note(run: RunTurn, row: StepRow, *, has_row: bool = False) -> None:
    """Write a row in the background; no body begins, and the run does not end, before it is written."""
    run.journal.record(row)
    writing = run.slot.store.recorded.record(row, run.task.owner, None, has_row=has_row)
    task = run.loop.create_task(writing, context=hidden())
    run.enter(task)
    task.add_done_callback(partial(_written, run))
    run.notes.append(task)


async def noted(run: RunTurn) -> None:
    """Wait until the rows that `note` has begun to write are written."""
    for task in tuple(run.notes):
        await asyncio.shield(task)
    run.notes = [task for task in run.notes if not task.done()]


def keep(run: RunTurn, row: StepRow) -> None:
    """Record that a step waits: with the end of the turn, if the run is being given back, else by itself."""
    if run.journal.knows(row):
        return
    if not run.unwinding:
        note(run, row, has_row=True)
    elif run.restarts_with is None:  # else nothing of this generation is kept
        run.journal.record(row)
        run.slot.withheld += (row,)


def tell(run: RunTurn, value: object) -> None:
    """Write the progress of a run, from any thread; a value that is replaced before its write is never written."""
    text = encode(value, limit=PROGRESS_LIMIT, what="progress")
    run.on_loop(lambda: run.progress.tell(text))


class Progress:
    """The progress that one turn of a run reports. Used on the worker's loop only.

    The latest value is written with the next flush.
    """

    def __init__(self, run: RunTurn) -> None:
        self._run = run
        self._latest: str | None = None
        self._writing: Operation | None = None

    def tell(self, text: str) -> None:
        """Write this value, unless another one replaces it first."""
        self._latest = text
        self._write(text)

    def _write(self, text: str) -> None:
        run = self._run
        if text is not self._latest or run.unwinding or run.is_lost:
            return
        task = run.task
        self._writing = run.slot.store.tasks.note_progress(task.id, task.owner, task.turn, text, self._writing)
        if self._writing is None:
            run.loop.call_later(ROOM_AFTER, self._write, text)


def _written(run: RunTurn, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and isinstance(task.exception(), LeaseLost):  # retrieved, or asyncio would log it
        run.overtaken = True
    run.leave(task)
