"""Whose code is running here: a branch of a run, an attempt of a step, another body, or no worker's at all."""

from __future__ import annotations

import contextvars
import types
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any, Final

NOTHING: Final = object()
HIDDEN: Final = object()
# The branch of a run whose calls are being made. Something else where a step is a plain call: the attempt whose body is
# being executed, or `HIDDEN` in a handler. None where no worker called.
current_branch: Final[contextvars.ContextVar[Any]] = contextvars.ContextVar("stepwell_branch", default=None)


def hidden() -> contextvars.Context:
    """A copy of this context in which no run is seen: what is done in it is no call of a workflow."""
    context = contextvars.copy_context()
    context.run(current_branch.set, HIDDEN)
    return context


@types.coroutine
def in_context(
    context: Context, coroutine: Coroutine[Any, Any, Any], waits_for: Any = NOTHING
) -> Generator[Any, Any, Any]:
    """Await the coroutine with its context variables in `context`: the caller does not see those that it sets.

    A new task would do that too, at nine times the cost (8 us), and would be another current task. `waits_for` is given
    if the coroutine has begun: what it has yielded.
    """
    go_on, given = coroutine.send, None
    try:
        while True:
            if waits_for is NOTHING:
                waits_for = context.run(go_on, given)
            try:
                go_on, given = coroutine.send, (yield waits_for)
                waits_for = NOTHING
            except GeneratorExit:
                context.run(coroutine.close)
                raise
            except BaseException as error:  # noqa: BLE001 - what is thrown in is for the coroutine
                go_on, given, waits_for = coroutine.throw, error, NOTHING
    except StopIteration as end:
        return end.value
