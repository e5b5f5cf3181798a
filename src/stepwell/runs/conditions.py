"""Conditions: what a step that has paused itself waits for, asked again and again by whoever executes its run."""

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
from stepwell.values.codec import encode

Asked = Callable[[Run[Any]], object]
C = TypeVar("C", bound=Asked)
_conditions: Final[dict[str, Asked]] = {}


def condition(name: str) -> Callable[[C], C]:
    """Say whether steps that paused themselves with `resume_condition=name` may go on; called with their run.

    It returns None or False while they may not, True if the step is to be executed again, or what the step is to
    return. Asked every `pause_check_interval` (an option of `connect`, one hour) by a worker that knows it.
    """
    check_name("condition", name)

    def known(fn: C) -> C:
        before = _conditions.get(name)
        if before is not None and getattr(before, "__qualname__", None) != getattr(fn, "__qualname__", None):
            raise InvalidOption("condition", name, f"{before.__qualname__} has this name already; choose another")
        _conditions[name] = fn
        return fn

    return known


async def is_met(run: RunTurn, name: str) -> object:
    """What the condition says of the run; None, and somebody is told, if it cannot be asked here."""
    store, asked = run.slot.store, _conditions.get(name)
    if asked is None:
        why = "no function of this process has this name; import the module with its `@condition`"
    else:
        try:
            answer = await _answer(run, asked, await store.get_run(run.task.id))
            encode(answer, limit=store.options.payload_limit, what=f"answer of condition {name}")
        except Exception as error:  # noqa: BLE001 - a condition that fails is not the step's failure: asked again
            why = repr(error)
        else:
            return answer
    store.telemetry.emit(ConditionUnanswered(run.task.id, run.workflow, name, why))
    return None


async def _answer(run: RunTurn, asked: Asked, found: Run[Any]) -> object:
    if inspect.iscoroutinefunction(asked):
        return await asked(found)
    answer = await run.body_in_thread(partial(asked, found))
    return await answer if inspect.isawaitable(answer) else answer
