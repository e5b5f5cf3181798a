"""Waiting for a signal: the course of `ctx.wait`."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from stepwell.codec import decode, encode
from stepwell.durations import Duration, microseconds_of
from stepwell.engine.branches import Branch
from stepwell.engine.journal import Due, Replay, Waiting
from stepwell.engine.rename import in_order
from stepwell.engine.requests import Course, Request, Wait, asked, at_stake
from stepwell.engine.run import Pause, RunTurn
from stepwell.errors import InvalidOption, SerializationError
from stepwell.names import check_name
from stepwell.records import RunStatus, StepRow
from stepwell.shapes import schema_of
from stepwell.store.questions import Recorded, TakeSignal
from stepwell.store.signals import ACCEPTS
from stepwell.telemetry import SignalSetAside

NOTHING: Final = object()


def waiting_for(branch: Branch, name: str, type_: Any, timeout: Duration | None, default: Any) -> Course:
    """The course of a wait; its number is taken now, when the call is made."""
    if timeout is None and default is not NOTHING:
        raise InvalidOption("default", default, "it is for a wait that ends: give a `timeout` too")
    limit = None if timeout is None else microseconds_of(timeout, "timeout")
    wanted = Wanted(check_name("signal", name), type_, limit, default)
    run, key = branch.run, branch.key(name)
    run.journal.ask(key)
    row = StepRow(run.task.id, run.task.generation, key, run.journal.place(key), RunStatus.PAUSED)
    row = msgspec.structs.replace(row, error=noted_of(type_))
    return _wait(run, row, wanted)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a wait is for, and what it returns if that does not come in time."""

    name: str
    type: Any
    limit: int | None
    default: Any

    def misfit(self, data: str) -> str | None:
        """Why the data of a signal is not what the wait is for."""
        return misfit_of(self.name, self.type, data)

    def came(self, output: str | None, error: str | None) -> Any:
        """What the wait returns, of what is recorded of it."""
        if error is not None:
            return None if self.default is NOTHING else self.default
        return decode(output or "null", self.type, what=f"signal {self.name}")


def noted_of(type_: Any) -> str | None:
    """What is noted of a wait for those who signal: which type it takes, where that can be said."""
    schema = schema_of(type_)
    return None if schema is None else encode({ACCEPTS: schema, "named": getattr(type_, "__qualname__", str(type_))})


def misfit_of(name: str, type_: Any, data: str) -> str | None:
    """Why the data of a signal cannot be read as the type that is waited for; None if it can."""
    try:
        decode(data, type_, what=f"signal {name}")
    except SerializationError as error:
        return str(error)
    return None


def told_misfits(run: RunTurn, asked: TakeSignal) -> None:
    """Say of each signal that was set aside that it was."""
    for why in asked.misfits:
        run.slot.store.telemetry.emit(SignalSetAside(run.task.id, run.workflow, asked.name, why))


def _wait(run: RunTurn, row: StepRow, wanted: Wanted) -> Course:
    """Take the signal if it has come, else wait: until it does or the moment has passed that was recorded first."""
    run.check()
    verdict = run.journal.answer(row.key, None)
    if isinstance(verdict, Waiting):
        row, is_new = verdict.row, False
    elif isinstance(verdict, Replay):
        return wanted.came(verdict.output, verdict.error)
    else:
        is_new = True
        run.admit(row.key)
        yield from in_order(run, row.key, verdict)
        if isinstance(verdict, Due) and (verdict.failed is not None or verdict.cancelled):
            yield Wait(run, Pause(hesitates=True))  # the workflow cancelled it before: it will do so again
        if wanted.limit is not None:
            row = msgspec.structs.replace(row, output=str(run.now() + wanted.limit))
    try:
        row = yield from _taken(run, row, wanted, is_new=is_new)
    except asyncio.CancelledError:
        # By the workflow itself, a sibling that failed: from now on no signal is told that somebody waits.
        stake, _ = at_stake.get()
        stopped = run.cleanup is not None and run.cleanup.refuses(row.key)
        if not run.unwinding and not stopped and (stake is None or stake.winner is None):
            run.note(msgspec.structs.replace(row, status=RunStatus.CANCELLED), has_row=True)
        raise
    return wanted.came(row.output, row.error)


def _taken(run: RunTurn, row: StepRow, wanted: Wanted, *, is_new: bool) -> Generator[Request, Any, StepRow]:
    """Wait until there is an answer, and it is recorded."""
    due = None if row.output is None else decode(row.output, int)
    while True:
        question = TakeSignal(run.task, row, wanted.name, due, is_new, *at_stake.get(), misfit=wanted.misfit)
        answer = yield from asked(run, question)
        told_misfits(run, question)
        if isinstance(answer, Recorded):
            return answer.row
        if is_new:
            run.journal.record(row)
            is_new = False
        yield Wait(run, Pause(due, wakes=answer.wakes))
