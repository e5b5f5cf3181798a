"""Errors of steps: one that gave up, is not there or is in doubt, undos of a saga, and what is still being stopped."""
# ruff: noqa: N818 - the names are the API's words; `LeaseLost` says more than `LeaseLostError`

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stepwell.errors.base import StepwellError, shown


class StepNotFound(StepwellError):
    """A run has recorded no such step."""

    def __init__(self, run_id: int, step: str, recorded: Sequence[str]) -> None:
        known = ", ".join(recorded[:20]) + (", ..." if len(recorded) > 20 else "") or "none"
        super().__init__(f"run {int(run_id)} has recorded no step {shown(step)}; name one of those it has: {known}")
        self.run_id = run_id
        self.step = step
        self.recorded = tuple(recorded)


class NotInDoubt(StepwellError):
    """A run has no such step of which it is unknown whether it is done, or several of that name."""

    def __init__(self, run_id: int, step: str, doubts: Sequence[str]) -> None:
        known = ", ".join(doubts) or "none"
        super().__init__(f"run {int(run_id)} has no one step {shown(step)} that is in doubt; in doubt are: {known}")
        self.run_id = run_id
        self.step = step
        self.doubts = tuple(doubts)


class StepFailed(StepwellError):
    """A step of a run gave up; the same on the first run and on every replay."""

    def __init__(self, step: str, type: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"step {step} gave up with {type}: {message[:500]}")
        self.step = step
        self.type = type
        self.message = message
        self.details = details or {}


class UndoFailed(ExceptionGroup[Exception]):
    """Undos of a saga gave up, after all others were carried out; the cause is why the saga failed."""


class StillStopping(StepwellError):
    """A cancelled run cannot go on while workers still stop what it asked for."""

    def __init__(self, run_id: int, children: Sequence[int]) -> None:
        said = f"run {run_id} was cancelled with runs that are still being stopped"
        named = ", ".join(map(str, children[:10]))
        super().__init__(f"{said} ({named}): nothing was changed; retry it when they have ended")
        self.run_id, self.children = run_id, tuple(children)
