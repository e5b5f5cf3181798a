"""Steps that may have been renamed: the run is held before such a step, until an operator or new code decides."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from stepwell.base.events import RunHeld
from stepwell.base.program import Program, declared_names
from stepwell.base.source_names import CHILD, FUNCTION
from stepwell.runs.journal import Due, Verdict
from stepwell.runs.requests import Read, Request, recorded
from stepwell.runs.turn import RunTurn
from stepwell.store.rows import held_by
from stepwell.work.outcome import Held


def cleared(run: RunTurn, key: str, verdict: Verdict) -> Generator[Request, Any, None]:
    """Return if a call is recorded, or certainly is no new name of a recorded step; else hold the run and raise.

    Costs nothing if all records of the branch have been reached, and reads no file if the others are decorated steps.
    """
    if not run.journal.is_behind or not isinstance(verdict, Due) or verdict.has_row:
        return
    if run.journal.strict:
        yield from in_order(run, key, verdict)
    elif run.journal.gone(key, declared_names()):
        program = yield from _program(run, key)
        if run.journal.gone(key, program):  # again: other branches have gone on meanwhile
            yield from _held(run, key, program)


def in_order(run: RunTurn, key: str, verdict: Verdict) -> Generator[Request, Any, None]:
    """Hold a strict run that makes a new call, of any kind, while its branch has records that it has not reached."""
    if run.journal.strict and isinstance(verdict, Due) and not verdict.has_row and run.journal.skipped(key):
        yield from _held(run, key, (yield from _program(run, key)))


def _program(run: RunTurn, key: str) -> Generator[Request, Any, Program]:
    run.enter(key)
    try:
        program: Program = yield Read(run)
        return program
    finally:
        run.leave(key)


def _held(run: RunTurn, key: str, program: Program) -> Generator[Request, Any, None]:
    """Hold the run, and record the fingerprint of this code, so that only other code releases it."""
    run.check()
    strict = run.journal.strict
    names = run.journal.skipped(key) if strict else run.journal.gone(key, program)
    mark = held_by(run.task, program.code)
    if mark.key not in run.journal.marks:
        yield from recorded(run, mark, has_row=False)
    held = Held({"type": "CodeDiffers", "message": _said(run.task.id, key, names, strict=strict), "names": names})
    run.slot.database.telemetry.emit(RunHeld(run.task.id, run.workflow, names, key))
    raise run.hold(held)


def _said(run_id: int, key: str, names: tuple[str, ...], *, strict: bool) -> str:
    old, new = ", ".join(map(_described, names)), f"step {key}"
    what = "which this turn has not reached" if strict else "which this program does not declare any more"
    return (
        f"{new} was about to be executed, and the run has recorded {old}, {what}: it may be another name for the same, "
        f"which would then be done twice. {_kept(names[0], strict=strict)}; or `stepwell accept {run_id}`, to go on "
        f"and execute {key}; or `stepwell fork {run_id} --at STEP`, for a new run that goes on at a step of this one"
    )


def _kept(name: str, *, strict: bool) -> str:
    """The change of the code that lets the run go on."""
    if strict:
        return "Deploy code that calls it where it was"
    if name.endswith(FUNCTION):
        return f"If it was renamed, give the coroutine function its old name, {_described(name)}, and deploy that"
    if name.endswith(CHILD):
        return f'If it was renamed, keep the name with `@workflow(name="{name.removesuffix(CHILD)}")`, and deploy that'
    return f'If it was renamed, keep the name with `@step(id="{name}")`, and deploy that'


def _described(name: str) -> str:
    return f"the branch {name.removesuffix(FUNCTION)}" if name.endswith(FUNCTION) else name
