"""The write of a step's result: submitted at once, and answered by the flush that has written it.

A run of one branch goes on when it is submitted; whatever acts on it waits for the answer. So no body, no wait and
no other program ever knows of a result that a crash can undo. The end of a run takes in a write that no flush has yet:
they are one operation, and neither is written without the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from stepwell.errors import LeaseLost
from stepwell.records import RunStatus
from stepwell.runs.branches import CALLS
from stepwell.store.pending import Answer, Operation
from stepwell.store.rows import StepRow

if TYPE_CHECKING:
    from stepwell.runs.call import Attempt
    from stepwell.runs.turn import RunTurn


T = TypeVar("T")
TOLD: Final = Answer("", repeated=False)


class ResultWrite:
    """One row on its way to the database. Used on the worker's loop only."""

    __slots__ = ("_answer", "_operation", "_run", "_waiting", "row")

    def __init__(self, run: RunTurn, row: StepRow) -> None:
        self.row = row
        self._run = run
        self._operation: Operation | None = None
        self._answer: Answer | BaseException | None = None
        self._waiting: tuple[asyncio.Future[None], ...] = ()

    def submit(self) -> bool:
        """Write the row with the next flush; False if there is no room for it."""
        self._operation = self._run.slot.database.steps.offer(self.row, self._run.task.owner, self._heard)
        return self._operation is not None

    async def written(self) -> None:
        """Return when the row is written; raises if it is not, however often that is asked."""
        run = self._run
        if self._answer is None:
            waiting = run.loop.create_future()
            self._waiting += (waiting,)
            await waiting
        answer = self._answer
        if isinstance(answer, Answer):
            if answer.value is not None:
                return
            try:
                await run.slot.database.steps.doubted(self.row, run.task.owner, answer)
            except LeaseLost:
                run.overtaken = True
                raise
            self._forget()
            return
        assert answer is not None
        if isinstance(answer, LeaseLost):
            run.overtaken = True
        raise answer

    async def told(self) -> Answer:
        """The answer for a run that goes on before the database has given it."""
        self._run.slot.late = self
        return TOLD

    def taken_in(self) -> StepRow | None:
        """The row, to be written with the end of its run; None if a flush may have it already."""
        assert self._operation is not None
        return self.row if self._run.slot.database.flusher.withdraw(self._operation) else None

    def _heard(self, answer: Answer | BaseException) -> None:
        self._answer = answer
        if isinstance(answer, Answer) and answer.value is not None:
            self._forget()
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def _forget(self) -> None:
        if self._run.slot.late is self:
            self._run.slot.late = None


async def acknowledged(run: RunTurn) -> None:
    """Wait until what the run was told is in the database; raises if it is not, however often that is asked."""
    if (late := run.slot.late) is None:
        return
    run.enter(late)  # it waits for the database, and not for something outside
    try:
        await late.written()
    finally:
        run.leave(late)


async def with_the_end(run: RunTurn) -> None:
    """Let the end of the run, which comes next, write what is not written yet."""
    if (late := run.slot.late) is None:
        return
    if (row := late.taken_in()) is None:
        await late.written()
    else:
        run.slot.late = None
        run.slot.withheld += (row,)


def submitted(run: RunTurn, row: StepRow, attempt: Attempt | None, *, has_row: bool) -> Awaitable[Answer]:
    """Write a row of the journal: the result of an attempt, or another one; a cancel does not cut off a result."""
    steps, worker = run.slot.database.steps, run.task.owner
    if attempt is None:
        return steps.submitted(row, worker, None, has_row=has_row)
    # Nothing has shown yet that the step is being executed, or the run would seem to be at work after its end.
    is_new = not has_row and attempt.shown is None and row.status is RunStatus.SUCCESS
    if is_new and run.may_go_on and (late := ResultWrite(run, row)).submit():
        return late.told()
    writing = steps.submitted(row, worker, attempt.shown, has_row=has_row)
    return writing if run.is_sync else kept(run, partial(asyncio.shield, asyncio.ensure_future(writing)))


async def kept(run: RunTurn, written: Callable[[], Awaitable[T]]) -> T:
    """Wait until a result is written; a cancel of the step that comes meanwhile is too late, also for a replay."""
    try:
        return await written()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if run.unwinding or task is None or getattr(task.get_coro(), "cr_code", None) not in CALLS:
            raise
        answer = await written()
        if run.unwinding:
            raise
        return answer
