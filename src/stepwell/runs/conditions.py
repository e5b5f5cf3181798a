"""Conditions: functions that tell whether a step that has paused itself may go on; a worker calls them at intervals."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from stepwell.base.events import ConditionUnanswered
from stepwell.base.names import check_name
from stepwell.errors import InvalidOption
from stepwell.records import Run
from stepwell.runs.turn import RunTurn
from stepwell.values.stamp import read_value, write_value

Asked = Callable[[Run[Any]], object]
C = TypeVar("C", bound=Asked)
_conditions: Final[dict[str, Asked]] = {}


def condition(name: str) -> Callable[[C], C]:
    """Decorate a function that decides whether steps that paused with `resume_condition=name` may go on.

    It is called with the run, and returns None or False to keep waiting, True to execute the step again, or the value
    that the step shall return. A worker that has imported it calls it every `pause_check_interval` (an option of
    `connect`, one hour).
    """
    check_name("condition", name)

    def known(fn: C) -> C:
        before = _conditions.get(name)
        if before is not None and getattr(before, "__qualname__", None) != getattr(fn, "__qualname__", None):
            raise InvalidOption("condition", name, f"{before.__qualname__} has this name already; choose another")
        _conditions[name] = fn
        return fn

    return known


async def is_met(run: RunTurn, name: str, type_: Any) -> object:
    """The answer of the condition for the run; None, with an event, if this process cannot call or record it.

    `type_` is what the step returns: an answer that did not fit would be recorded, and no code could ever read it.
    """
    database, asked = run.slot.database, _conditions.get(name)
    if asked is None:
        why = "no function of this process has this name; import the module with its `@condition`"
    else:
        try:
            answer = await _answer(run, asked, await database.runs.get(run.task.id))
            what = f"answer of condition {name}"
            options = database.options
            text = write_value(answer, type_, limit=options.payload_limit, what=what, codec=options.codec)
            if answer is not None and not isinstance(answer, bool):
                read_value(text, type_, what=what)
        except Exception as error:  # noqa: BLE001 - a condition that fails is not the step's failure: asked again
            why = repr(error)
        else:
            return answer
    database.telemetry.emit(ConditionUnanswered(run.task.id, run.workflow, name, why))
    return None


async def _answer(run: RunTurn, asked: Asked, found: Run[Any]) -> object:
    if inspect.iscoroutinefunction(asked):
        return await asked(found)
    answer = await run.body_in_thread(partial(asked, found))
    return await answer if inspect.isawaitable(answer) else answer
