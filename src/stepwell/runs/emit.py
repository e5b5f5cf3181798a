"""Events that a run emits: recorded as an operation of the run, or with the step whose body emits them.

Either way they are written in the transaction of that record, so no replay writes them again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any, Unpack

import msgspec

from stepwell.errors import LeaseLost
from stepwell.records import RunStatus
from stepwell.runs.branches import Branch
from stepwell.runs.call import Attempt, current_attempt
from stepwell.runs.caller import branch_of, made
from stepwell.runs.journal import Replay
from stepwell.runs.rename import cleared
from stepwell.runs.requests import Ask, Course, Noted, Record, Request, asked, followed
from stepwell.runs.turn import RunTurn
from stepwell.store.emission import Emission, EventOptions
from stepwell.store.rows import StepRow
from stepwell.store.wait_query import AddEvents, Answered, Recorded
from stepwell.values.codec import decode, encode


class EmitsAsync:
    """`ctx.emit` of an async workflow."""

    _run: RunTurn

    def emit(self, type: str, data: Any = None, **options: Unpack[EventOptions]) -> Awaitable[str]:
        """Write an event for the outside world, once in the life of the run, and return its id; see `store.emit`.

        In the body of a step it is written with the step's result, in one transaction: an attempt that fails emits
        nothing. There the call returns at once, and need not be awaited.
        """
        if (attempt := current_attempt()) is not None and attempt.call.run is self._run:
            return EventId(_emitted_with(attempt, type, data, **options))
        branch = branch_of(self._run, "emit", is_sync=False)
        return made(branch, _emitted(branch, type, data, **options), "emit")


class EmitsSync:
    """`ctx.emit` of a sync workflow."""

    _run: RunTurn

    def emit(self, type: str, data: Any = None, **options: Unpack[EventOptions]) -> str:
        """Write an event for the outside world, once in the life of the run, and return its id; see `store.emit`.

        In the body of a step it is written with the step's result, in one transaction.
        """
        if (attempt := current_attempt()) is not None and attempt.call.run is self._run:
            return _emitted_with(attempt, type, data, **options)
        branch = branch_of(self._run, "emit", is_sync=True)
        event_id: str = followed(_emitted(branch, type, data, **options))
        return event_id


class EventId:
    """The id of an event that a body has emitted, for code that awaits it."""

    def __init__(self, id: str) -> None:
        self.id = id

    def __await__(self) -> Generator[Any, Any, str]:
        yield from ()
        return self.id


def recording_with(attempt: Attempt, row: StepRow) -> Generator[Request, Any, None]:
    """Write the result of a step and the events that its body has emitted, in one transaction."""
    run = attempt.call.run
    if attempt.shown is not None:  # behind the row that says it is being executed, should that be on its way
        yield Record(run, msgspec.structs.replace(row, status=RunStatus.RUNNING, output=None), attempt, attempt.has_row)
    if run.notes:
        yield Noted(run)
    try:
        yield Ask(run, AddEvents(run.task, row, attempt.emissions, is_result=True))
    except LeaseLost:
        run.overtaken = True
        raise
    run.journal.record(row)


def _emitted(branch: Branch, type: str, data: Any, **options: Unpack[EventOptions]) -> Course:
    """The course of an event that the code of a workflow emits; it returns the event's id."""
    run, key = branch.run, branch.key("emit()")
    emission = run.slot.database.outboxes.emission(type, data, **options)
    run.journal.ask(key)
    place, given = run.journal.place(key), encode([emission.type, emission.subject])
    row = StepRow(run.task.id, run.task.generation, key, place, RunStatus.SUCCESS, input=given)
    return _recorded(run, msgspec.structs.replace(row, output=encode(emission.id)), emission)


def _recorded(run: RunTurn, row: StepRow, emission: Emission) -> Course:
    run.check()
    verdict = run.journal.answer(row.key, row.input)
    if isinstance(verdict, Replay):
        return decode(verdict.output or "null", str)
    yield from cleared(run, row.key, verdict)
    answer: Answered = yield from asked(run, AddEvents(run.task, row, (emission,)))
    assert isinstance(answer, Recorded)
    return decode(answer.row.output or "null", str)


def _emitted_with(attempt: Attempt, type: str, data: Any, **options: Unpack[EventOptions]) -> str:
    """Note an event that the body of a step emits."""
    emission = attempt.call.run.slot.database.outboxes.emission(type, data, **options)
    attempt.emissions = (*attempt.emissions, emission)
    return emission.id
