"""Steps whose body begins at most once: its beginning is noted, and after a crash a hook or a person decides.

The note is the step's row as RUNNING. A replay that finds it without a result does not know whether the body has done
its work: the step's hook says so, or a person does with `store.resolve`. Only "not done" lets the body begin again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import msgspec

from stepwell.base.events import StepInDoubt
from stepwell.errors import SerializationError, StepFailed
from stepwell.records import RunStatus
from stepwell.runs.call import StepCall, failure_of
from stepwell.runs.journal import Due, GaveUp, Replay, Verdict, Waiting
from stepwell.runs.rename import cleared
from stepwell.runs.requests import Course, Request, recorded
from stepwell.runs.steps import attempted, course_of, resumed, stopped_again, stored_as
from stepwell.runs.wait import NOTHING, WantedSignal, misfit_of, wait_of
from stepwell.store.rows import IN_DOUBT, StepRow
from stepwell.store.signals import Resolution
from stepwell.values.codec import decode, encode
from stepwell.values.named_codecs import json_text


class Reconciliation(msgspec.Struct, frozen=True):
    """What a `reconcile` hook has found out about a body that was interrupted."""

    is_done: bool | None
    value: Any = None

    @classmethod
    def done(cls, value: Any = None) -> Reconciliation:
        """It has done its work, and this is what the step returns."""
        return cls(True, value)

    @classmethod
    def not_done(cls) -> Reconciliation:
        """It has not, and never will: the body begins again."""
        return cls(False)

    @classmethod
    def unknown(cls) -> Reconciliation:
        """Only a person can say: the run waits for `store.resolve`."""
        return cls(None)


def course_at_most_once(call: StepCall) -> Course:
    """As the course of any step, but for a body that was interrupted, which begins again only if it is not done."""
    run = call.run
    run.check()
    run.journal.ask_under(_doubts_of(call))
    verdict = run.journal.answer(call.key, call.input)
    yield from cleared(run, call.key, verdict)
    while True:
        match verdict:
            case Due(attempt, has_row):
                run.admit(call.key)
                if verdict.stopped is not None:
                    yield from stopped_again(run, verdict.stopped)
                verdict = yield from _begun(call, attempt) if not has_row else _doubted(call, verdict)
            case Waiting(row):
                run.admit(call.key)
                verdict = yield from resumed(call, row)
            case Replay(output):
                return run.read(output, call.definition.returns, f"result of {call.key}")
            case GaveUp(error):
                raise failure_of(call.definition, call.key, error)


def _begun(call: StepCall, attempt: int, *, has_row: bool = False) -> Generator[Request, Any, Verdict]:
    """Note that the body begins, then call it; what it raises is final."""
    run = call.run
    yield from recorded(run, call.row(RunStatus.RUNNING, attempt, 0), has_row=has_row)
    run.admit(call.key)
    run.enter(call.key)
    try:
        row, error = yield from attempted(call, attempt, has_row=True)
    finally:
        run.leave(call.key)
    if row.status is RunStatus.ERROR:
        raise failure_of(call.definition, call.key, row.error or "{}") from error
    return Waiting(row) if row.status is RunStatus.PAUSED else Replay(row.output)


def _doubted(call: StepCall, verdict: Due) -> Generator[Request, Any, Verdict]:
    """Find out what became of the body: by the hook, else from a person."""
    run, number = call.run, _number_of(call, verdict)
    decision = yield from _hook(call, number)
    if decision is None:
        decision = yield from _person(call, number)
    if not decision.done:
        return (yield from _begun(call, number + 1, has_row=True))
    row = msgspec.structs.replace(call.row(RunStatus.SUCCESS, number, 0), output=bytes(decision.value).decode())
    yield from recorded(run, row)
    return Replay(row.output)


def _number_of(call: StepCall, verdict: Due) -> int:
    """Which doubt this is. A retry of the run forgets the attempts of a step, and not what was decided about them."""
    if verdict.failed is None:
        return verdict.attempt
    decided = call.run.journal.under(_doubts_of(call))
    numbers = [int(row.key.rpartition("#")[0].rpartition(".")[2]) for row in decided]
    last = max(numbers, default=0)
    is_open = any(row.status is RunStatus.PAUSED for row in decided)
    return last if is_open else last + 1


def _hook(call: StepCall, number: int) -> Generator[Request, Any, Resolution | None]:
    """What the step's hook says, which is recorded as a step; None if it has none, does not know, or gives up."""
    definition = call.definition
    if (hook := definition.reconcile) is None:
        return None
    key = f"{_doubts_of(call)}look.{number}#1"
    asking = replace(
        definition,
        fn=_asking(call, hook),
        is_async=inspect.iscoroutinefunction(hook),
        retry=None,
        timeout=None,
        raises=(),
        returns=Resolution | None,
        at_most_once=False,
        known_as=call.lasting_key,
    )
    call.run.journal.ask(key)
    place = call.run.journal.place(key)
    look = StepCall(call.run, key, place, asking, call.args, call.kwargs, call.input)
    try:
        found: Resolution | None = yield from course_of(look)
    except StepFailed:
        return None
    return found


def _asking(call: StepCall, hook: Callable[..., Any]) -> Callable[..., Any]:
    """The hook, as a function whose result can be recorded."""

    def told(found: Reconciliation) -> Resolution | None:
        if not isinstance(found, Reconciliation):
            raise TypeError(f"`reconcile` of {call.definition.name} returned {found!r}, and no Reconciliation")
        if found.is_done is None:
            return None
        return Resolution(
            found.is_done, msgspec.Raw((stored_as(call, found.value)[0] if found.is_done else "null").encode())
        )

    async def asked(*args: Any, **kwargs: Any) -> Resolution | None:
        return told(await hook(*args, **kwargs))

    def asked_here(*args: Any, **kwargs: Any) -> Resolution | None:
        return told(hook(*args, **kwargs))

    return asked if inspect.iscoroutinefunction(hook) else asked_here


def _person(call: StepCall, number: int) -> Generator[Request, Any, Resolution]:
    """What a person decides; the run holds nothing meanwhile."""
    run, key = call.run, f"{_doubts_of(call)}{number}#1"
    wanted = WantedResolution((key.rpartition("/")[2].removesuffix("#1"),), call.definition.returns, None, NOTHING)
    run.journal.ask(key)
    told = encode({"type": IN_DOUBT, "message": "it began, and is not known to have ended", "step": call.key})
    row = StepRow(run.task.id, run.task.generation, key, run.journal.place(key), RunStatus.PAUSED, error=told)
    if not run.journal.has(key):
        run.slot.database.telemetry.emit(StepInDoubt(run.task.id, run.workflow, call.key))
    decision: Resolution = yield from wait_of(run, row, wanted)
    return decision


def _doubts_of(call: StepCall) -> str:
    """How the keys of all doubts about this call begin. The place is unique in the run, in whichever branch."""
    path, ends, _ = call.key.rpartition("/")
    return f"{path}{ends}{call.definition.name}?{call.place}."


class WantedResolution(WantedSignal):
    """A decision about a step: its value is to fit what the step returns."""

    def misfit(self, name: str, data: str) -> str | None:
        """Why the decision cannot be read; None if it can."""
        try:
            decision = decode(json_text(data), Resolution)
        except SerializationError as error:
            return str(error)
        return misfit_of(self.what, self.type, bytes(decision.value).decode()) if decision.done else None

    def came(self, run: Any, output: str | None, error: str | None) -> Any:
        """The decision, from the record."""
        return decode(json_text(output or "{}"), Resolution)
