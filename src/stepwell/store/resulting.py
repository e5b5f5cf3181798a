"""The verb of those who wait for what a run returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, overload

from stepwell.codec import decode
from stepwell.definitions import result_type
from stepwell.durations import Duration, seconds_of
from stepwell.errors import ExecutionFailed, RunCancelled, RunNotFound
from stepwell.names import check_id
from stepwell.records import RunId, RunStatus
from stepwell.store.opened import Opened
from stepwell.store.results import Ending

R = TypeVar("R")
T = TypeVar("T")


class Resulting(Opened):
    """Runs as those who wait for them see them."""

    @overload
    async def result(self, run_id: RunId[R], *, timeout: Duration | None = None) -> R: ...
    @overload
    async def result(self, run_id: int, as_: type[T], *, timeout: Duration | None = None) -> T: ...
    @overload
    async def result(self, run_id: int, *, timeout: Duration | None = None) -> object: ...
    async def result(self, run_id: int, as_: Any = None, *, timeout: Duration | None = None) -> Any:
        """What a run returned, as soon as it is finished: as `as_`, else as the workflow says it, else as plain JSON.

        Raises `ExecutionFailed` with the run's error if it failed, `RunCancelled` if it was cancelled, `RunNotFound` if
        there is no such run, and `Timeout` if it is not finished in time (0 looks once); the run itself goes on.
        """
        self.check()
        seconds = None if timeout is None else seconds_of(timeout, "timeout")
        try:
            ending = await self.results.ending(int(check_id(run_id)), seconds)
        except RunNotFound:
            raise await self._no_run(run_id) from None
        return returned(run_id, ending, as_)


def returned(run_id: int, ending: Ending, as_: Any = None) -> Any:
    """What a run that ended so returned; raises if it did not return."""
    match ending.status:
        case RunStatus.SUCCESS if ending.output is None:
            return None  # another run has gone on for it
        case RunStatus.SUCCESS:
            type_ = _type_of(run_id, as_, ending.workflow)
            return decode(ending.output or "null", type_, what=f"result of run {int(run_id)}")
        case RunStatus.CANCELLED:
            raise RunCancelled(run_id, _error_of(ending))
        case _:
            raise ExecutionFailed(run_id, _error_of(ending))


def _type_of(run_id: int, as_: Any, workflow: str) -> Any:
    """What the caller says, else what the trigger knew, else what this process knows of the workflow."""
    if as_ is not None:
        return as_
    returns = run_id.returns if isinstance(run_id, RunId) else Any
    return result_type(workflow) if returns is Any else returns


def _error_of(ending: Ending) -> Mapping[str, Any] | None:
    error: Mapping[str, Any] | None = None if ending.error is None else decode(ending.error)
    return error
