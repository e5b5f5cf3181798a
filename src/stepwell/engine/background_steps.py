"""Steps of a sync workflow that run beside it, each in a thread of its own."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, TypeVar

from stepwell.engine.calling import course
from stepwell.engine.calls import StepCall
from stepwell.engine.requests import awaited
from stepwell.engine.run import RunTurn
from stepwell.engine.sync_turn import wait_in_thread

R_co = TypeVar("R_co", covariant=True)


class BackgroundStep(Generic[R_co]):
    """A step under way."""

    def __init__(self, run: RunTurn, task: asyncio.Task[Any]) -> None:
        self._run = run
        self._task = task

    def result(self) -> R_co:
        """Wait for the step and return what it returned, or raise as the step itself would."""
        result: R_co = wait_in_thread(self._run, _result_of(self._task))
        return result


def begun_in_background(call: StepCall) -> BackgroundStep[Any]:
    """Begin the step; it belongs to the run, which does not end before it."""
    return BackgroundStep(call.run, wait_in_thread(call.run, _begin(call)))


async def _begin(call: StepCall) -> asyncio.Task[Any]:
    task = asyncio.ensure_future(awaited(course(call)))
    call.run.joined(task, call.key)
    return task


async def _result_of(task: asyncio.Task[Any]) -> Any:
    await asyncio.wait([task])
    return task.result()
