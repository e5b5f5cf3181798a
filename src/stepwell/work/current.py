"""Whose code is running here: a branch of a run, an attempt of a step, another body, or no worker's at all."""

from __future__ import annotations

import contextvars
from typing import Any, Final

HIDDEN: Final = object()
# The branch of a run whose calls are being made. Something else where a step is a plain call: the attempt whose body is
# being executed, or `HIDDEN` in a handler. None where no worker called.
current_branch: Final[contextvars.ContextVar[Any]] = contextvars.ContextVar("stepwell_branch", default=None)


def hidden() -> contextvars.Context:
    """A copy of this context in which no run is seen: what is done in it is no call of a workflow."""
    context = contextvars.copy_context()
    context.run(current_branch.set, HIDDEN)
    return context
