"""The write of a step's result: submitted at once, and answered by the flush that has written it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from stepwell.errors import LeaseLost
from stepwell.store.pending import Answer, Operation
from stepwell.store.rows import StepRow

if TYPE_CHECKING:
    from stepwell.runs.turn import RunTurn


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
            return
        assert answer is not None
        if isinstance(answer, LeaseLost):
            run.overtaken = True
        raise answer

    def _heard(self, answer: Answer | BaseException) -> None:
        self._answer = answer
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
