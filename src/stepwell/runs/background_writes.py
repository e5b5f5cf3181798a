"""Rows of its journal that a run does not wait for."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from stepwell.errors import LeaseLost
from stepwell.runs.result_write import acknowledged
from stepwell.store.rows import StepRow
from stepwell.work.current import hidden

if TYPE_CHECKING:
    from stepwell.runs.turn import RunTurn


def note(run: RunTurn, row: StepRow, *, has_row: bool = False) -> None:
    """Write a row in the background; no body begins, and the run does not end, before it is written."""
    run.journal.record(row)
    task = run.loop.create_task(_noting(run, row, has_row=has_row), context=hidden())
    run.enter(task)
    task.add_done_callback(partial(noticed, run))
    run.notes.append(task)


async def _noting(run: RunTurn, row: StepRow, *, has_row: bool) -> None:
    await acknowledged(run)
    await run.slot.database.steps.record(row, run.task.owner, None, has_row=has_row)


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


def noticed(run: RunTurn, task: asyncio.Task[None]) -> None:
    """A write in the background has ended; if it was refused, another worker has the run."""
    if not task.cancelled() and isinstance(task.exception(), LeaseLost):  # retrieved, or asyncio would log it
        run.overtaken = True
    run.leave(task)
