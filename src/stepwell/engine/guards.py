"""Steps by hand: ask for one, execute it yourself, and say what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stepwell.codec import decode, encode, error_of
from stepwell.engine.branches import Branch
from stepwell.engine.calls import Definition
from stepwell.engine.giving_up import failure_of
from stepwell.engine.journal import GaveUp, Replay, Waiting
from stepwell.engine.naming import checked_step
from stepwell.engine.outcome import ERROR_LIMIT
from stepwell.engine.rename import cleared
from stepwell.engine.requests import Record, awaited, recording
from stepwell.engine.run import RunTurn
from stepwell.errors import InvalidOption
from stepwell.losses import refuse_unnamed
from stepwell.records import RunStatus, StepRow

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Skipped(Generic[T_co]):
    """The step is recorded: this is what it returned."""

    value: T_co


class Execute:
    """The step is to be executed by whoever asked, who says here what came of it; until then the run stays here."""

    def __init__(self, run: RunTurn, key: str, place: int, *, has_row: bool) -> None:
        self.key = key
        self._run = run
        self._place = place
        self._has_row = has_row
        self._told = False
        run.enter(key)

    async def success(self, value: object) -> None:
        """Record what the step returned."""
        limit = self._run.slot.store.options.payload_limit
        text = encode(value, limit=limit, what=f"result of {self.key}")
        refuse_unnamed(value, what=f"result of {self.key}")
        await self._record(RunStatus.SUCCESS, output=text)

    async def fail(self, error: BaseException) -> None:
        """Record that the step failed, for good: every replay raises `StepFailed` for it."""
        told = encode(error_of(error), limit=ERROR_LIMIT, what="error")
        await self._record(RunStatus.ERROR, error=told)

    async def _record(self, status: RunStatus, *, output: str | None = None, error: str | None = None) -> None:
        if self._told:
            raise InvalidOption("step", self.key, "what came of it was said already; ask for another with `acquire`")
        self._run.check()
        row = StepRow(
            self._run.task.id, self._run.task.generation, self.key, self._place, status, output=output, error=error
        )
        await awaited(recording(Record(self._run, row, None, self._has_row)))
        self._told = True
        self._run.leave(self.key)


async def acquired(branch: Branch, step_id: str) -> Execute | Skipped[Any]:
    """What a run has recorded of a step, or the right to execute it."""
    run = branch.run
    run.check()
    key = branch.key(checked_step(step_id))
    run.journal.ask(key)
    answer = run.journal.answer(key, None)
    if isinstance(answer, Replay):
        return Skipped(decode(answer.output or "null"))
    if isinstance(answer, GaveUp):
        raise failure_of(Definition(step_id, acquired, None, Any), key, answer.error)
    run.admit(key)
    await awaited(cleared(run, key, answer))
    await run.noted()
    has_row = isinstance(answer, Waiting) or answer.has_row
    return Execute(run, key, run.journal.place(key), has_row=has_row)
