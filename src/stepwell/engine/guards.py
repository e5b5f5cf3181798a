"""Steps by hand: ask for one, execute it yourself, and say what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stepwell.codec import decode, encode, error_of
from stepwell.durations import Duration, seconds_of
from stepwell.engine.branches import Branch
from stepwell.engine.calls import Definition
from stepwell.engine.giving_up import failure_of
from stepwell.engine.journal import Due, GaveUp, Replay, Waiting
from stepwell.engine.naming import checked_step
from stepwell.engine.outcome import ERROR_LIMIT
from stepwell.engine.rename import cleared
from stepwell.engine.requests import Record, awaited, recording, waited_until
from stepwell.engine.run import RunTurn
from stepwell.engine.steps import retry_at
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

    def __init__(self, run: RunTurn, key: str, place: int, attempt: int, *, has_row: bool) -> None:
        self.key = key
        self.attempt = attempt
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

    async def fail_transient(self, error: BaseException, *, retry_after: Duration | None = None) -> None:
        """Record that this attempt failed, wait for the next as in a sleep, and return: execute the step again.

        After `retry_after`, else what the error says, else the backoff of `connect(retry=...)`, which also says how
        many attempts there are: the last one raises `StepFailed`. A run that was given back meanwhile comes to its
        `acquire` again.
        """
        told = error_of(error)
        if retry_after is not None:
            told["retry_after"] = seconds_of(retry_after, "retry_after")
        text, policy = encode(told, limit=ERROR_LIMIT, what="error"), self._run.slot.store.options.retry
        if self.attempt >= policy.max_attempts:
            await self._record(RunStatus.ERROR, error=text)
            raise _failure(self.key, text) from error
        failed = await self._record(RunStatus.PENDING, error=text)
        await awaited(waited_until(self._run, self.key, retry_at(policy, failed)))
        self.attempt, self._has_row, self._told = self.attempt + 1, True, False
        self._run.enter(self.key)

    async def _record(self, status: RunStatus, *, output: str | None = None, error: str | None = None) -> StepRow:
        if self._told:
            raise InvalidOption("step", self.key, "what came of it was said already; ask for another with `acquire`")
        run = self._run
        run.check()
        # fmt: off
        row = StepRow(run.task.id, run.task.generation, self.key, self._place, status, self.attempt,
                      output=output, error=error, finished_at=run.now())
        # fmt: on
        await awaited(recording(Record(run, row, None, self._has_row)))
        self._told = True
        run.leave(self.key)
        return row


async def acquired(branch: Branch, step_id: str) -> Execute | Skipped[Any]:
    """What a run has recorded of a step, or the right to execute it, once its next attempt is due."""
    run = branch.run
    run.check()
    key = branch.key(checked_step(step_id))
    run.journal.ask(key)
    answer = run.journal.answer(key, None)
    if isinstance(answer, Replay):
        return Skipped(decode(answer.output or "null"))
    if isinstance(answer, GaveUp):
        raise _failure(key, answer.error)
    run.admit(key)
    await awaited(cleared(run, key, answer))
    if isinstance(answer, Due) and answer.failed is not None:
        await awaited(waited_until(run, key, retry_at(run.slot.store.options.retry, answer.failed)))
    await run.noted()
    attempt, has_row = (answer.row.attempt, True) if isinstance(answer, Waiting) else (answer.attempt, answer.has_row)
    return Execute(run, key, run.journal.place(key), attempt, has_row=has_row)


def _failure(key: str, error: str) -> Exception:
    return failure_of(Definition(key, acquired, None, Any), key, error)
