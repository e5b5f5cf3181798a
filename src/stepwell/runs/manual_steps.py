"""Manual steps: ask for a step, execute it yourself, and report its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stepwell.base.durations import Duration, seconds_of
from stepwell.errors import InvalidOption
from stepwell.records import RunStatus
from stepwell.runs.background_writes import noted
from stepwell.runs.branches import Branch
from stepwell.runs.call import StepDefinition, checked_step, failure_of
from stepwell.runs.journal import Due, GaveUp, Replay, Waiting
from stepwell.runs.rename import cleared
from stepwell.runs.requests import Record, awaited, recording, waited_until
from stepwell.runs.result_write import acknowledged
from stepwell.runs.steps import retry_at
from stepwell.runs.sync_turn import wait_in_thread
from stepwell.runs.turn import RunTurn
from stepwell.store.rows import StepRow
from stepwell.values.codec import encode
from stepwell.values.exceptions import error_of
from stepwell.values.lossless import refuse_unnamed
from stepwell.values.stamp import read_value, write_value
from stepwell.work.outcome import STORED_ERROR_LIMIT

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Skipped(Generic[T_co]):
    """The step is recorded; `value` is what it returned."""

    value: T_co


class Execute:
    """The caller executes the step and reports the result here; until then the run is not given back."""

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
        options, what = self._run.slot.database.options, f"result of {self.key}"
        text = write_value(value, limit=options.payload_limit, what=what, codec=options.codec)
        refuse_unnamed(value, what=what, codec=options.codec)
        await self._record(RunStatus.SUCCESS, output=text)

    async def fail(self, error: BaseException) -> None:
        """Record that the step failed for good: every replay raises `StepFailed`."""
        told = encode(error_of(error), limit=STORED_ERROR_LIMIT, what="error")
        await self._record(RunStatus.ERROR, error=told)

    async def fail_transient(self, error: BaseException, *, retry_after: Duration | None = None) -> None:
        """Record that this attempt failed, wait as in a sleep, and return: then execute the step again.

        The wait is `retry_after`, else that of the error, else the backoff of `connect(retry=...)`, which also limits
        the attempts: the last one raises `StepFailed`. A run that was given back meanwhile calls `acquire` again.
        """
        told = error_of(error)
        if retry_after is not None:
            told["retry_after"] = seconds_of(retry_after, "retry_after")
        text, policy = encode(told, limit=STORED_ERROR_LIMIT, what="error"), self._run.slot.database.options.retry
        if self.attempt >= policy.max_attempts:
            await self._record(RunStatus.ERROR, error=text)
            raise _failure(self.key, text) from error
        failed = self._row(RunStatus.PENDING, error=text)
        self._run.leave(self.key)
        self._told = True
        await awaited(self._run, waited_until(self._run, self.key, retry_at(policy, failed), failed))
        self.attempt, self._has_row, self._told = self.attempt + 1, True, False
        self._run.enter(self.key)

    async def _record(self, status: RunStatus, *, output: str | None = None, error: str | None = None) -> None:
        row = self._row(status, output=output, error=error)
        await awaited(self._run, recording(Record(self._run, row, None, self._has_row)))
        self._told = True
        self._run.leave(self.key)

    def _row(self, status: RunStatus, *, output: str | None = None, error: str | None = None) -> StepRow:
        if self._told:
            raise InvalidOption("step", self.key, "its result was reported already; ask for another with `acquire`")
        run = self._run
        run.check()
        # fmt: off
        return StepRow(run.task.id, run.task.generation, self.key, self._place, status, self.attempt,
                       output=output, error=error, finished_at=run.now())
        # fmt: on


class SyncExecute:
    """`Execute` for a sync workflow."""

    def __init__(self, run: RunTurn, guard: Execute) -> None:
        self._run = run
        self._guard = guard

    @property
    def attempt(self) -> int:
        """The number of the attempt that is due; 1 is the first."""
        return self._guard.attempt

    def success(self, value: object) -> None:
        """Record what the step returned."""
        wait_in_thread(self._run, self._guard.success(value))

    def fail(self, error: BaseException) -> None:
        """Record that the step failed, for good."""
        wait_in_thread(self._run, self._guard.fail(error))

    def fail_transient(self, error: BaseException, *, retry_after: Duration | None = None) -> None:
        """Record that this attempt failed, wait as in a sleep, and return: then execute the step again."""
        wait_in_thread(self._run, self._guard.fail_transient(error, retry_after=retry_after))


async def acquired(branch: Branch, step_id: str) -> Execute | Skipped[Any]:
    """The recorded value of a step, or the right to execute it once its next attempt is due."""
    run = branch.run
    await acknowledged(run)
    run.check()
    key = branch.key(checked_step(step_id))
    run.journal.ask(key)
    answer = run.journal.answer(key, None)
    if isinstance(answer, Replay):
        return Skipped(read_value(answer.output or "null"))
    if isinstance(answer, GaveUp):
        raise _failure(key, answer.error)
    run.admit(key)
    await awaited(run, cleared(run, key, answer))
    if isinstance(answer, Due) and answer.failed is not None:
        await awaited(run, waited_until(run, key, retry_at(run.slot.database.options.retry, answer.failed)))
    await noted(run)
    attempt, has_row = (answer.row.attempt, True) if isinstance(answer, Waiting) else (answer.attempt, answer.has_row)
    return Execute(run, key, run.journal.place(key), attempt, has_row=has_row)


def _failure(key: str, error: str) -> Exception:
    return failure_of(StepDefinition(key, acquired, None, Any), key, error)
