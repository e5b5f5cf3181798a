"""The errors of steps that gave up, recorded so that every replay raises the same exception as the first run."""

from __future__ import annotations

from typing import Any, Final

from stepwell.errors import StepFailed
from stepwell.runs.call import StepDefinition
from stepwell.values.codec import decode
from stepwell.values.own_exceptions import rebuilt
from stepwell.work.outcome import GAVE_UP, RECORDED

PASSED_ON: Final = ("type", "message", "code", "args", "fields", "as")  # to the run that called the step


def failure_of(definition: StepDefinition, key: str, error: str) -> Exception:
    """The exception of a step that gave up, from its record: of a class in `raises`, else `StepFailed`."""
    told: dict[str, Any] = decode(error)
    kind, message = str(told.get("type", "error")), str(told.get("message", ""))
    failure = rebuilt(told, definition.raises) or StepFailed(key, kind, message, told)
    BaseException.__setattr__(failure, GAVE_UP, key)  # also on one that is frozen
    BaseException.__setattr__(failure, RECORDED, {name: told[name] for name in PASSED_ON if name in told})
    return failure
