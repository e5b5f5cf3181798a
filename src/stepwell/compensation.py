"""Sagas: what the steps of a block have done is undone, last first, if the block fails or its run is cancelled."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, ParamSpec, Self

from stepwell.errors import InvalidOption, NotInRun, UndoFailed
from stepwell.runs.branches import Branch
from stepwell.runs.cleanup import shield
from stepwell.runs.context import Context, SyncContext
from stepwell.step import Step
from stepwell.work.current import current_branch

P = ParamSpec("P")
HOW: Final = "say how long its runs may clean up: `@workflow(cleanup='60s')`"


class Saga:
    """The block, and the undos that were noted in it: `async with saga() as s:`, or `with` in a sync workflow."""

    def __init__(self) -> None:
        self._branch: Branch | None = None
        self._undos: list[tuple[Step[..., Any], tuple[Any, ...], dict[str, Any]]] = []

    def undo(self, step: Step[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """From here on, call this step with these arguments if the block fails or its run is cancelled.

        Say it before the step that it undoes: then nothing stays half done whenever the run is stopped, and the undo
        finds, now and then, that there is nothing to do. Say it after that step if the undo needs its result; a body
        that is stopped by a cancel is then not undone.
        """
        if not isinstance(step, Step):
            raise InvalidOption("undo", step, "it is a step, so that each undo is recorded and tried again: `@step`")
        if self._branch is None or current_branch.get() is not self._branch:
            raise NotInRun("undo() is called where its saga was begun, so that every replay finds the same order")
        self._undos.append((step, args, kwargs))

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (branch := self._to_undo(error)) is None:
            return
        failed: list[Exception] = []
        async with shield():  # raises if the run is only given back: then it is not over
            ctx = Context(branch.run)
            for step, args, kwargs in reversed(self._undos):
                try:
                    await ctx.step(step, *args, **kwargs)
                except Exception as gave_up:  # noqa: BLE001 - it is told when the others are done
                    failed.append(gave_up)
        self._tell(failed, error)

    def __enter__(self) -> Self:
        branch = current_branch.get()
        if not isinstance(branch, Branch):
            raise NotInRun("saga() was called outside of a workflow; use it in a workflow, around its steps")
        if branch.run.cleanup is None or branch.run.cleanup.limit is None:
            raise InvalidOption("saga", branch.run.workflow, HOW)
        self._branch = branch
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (branch := self._to_undo(error)) is None:
            return
        failed: list[Exception] = []
        with shield():
            ctx = SyncContext(branch.run)
            for step, args, kwargs in reversed(self._undos):
                try:
                    ctx.step(step, *args, **kwargs)
                except Exception as gave_up:  # noqa: BLE001 - it is told when the others are done
                    failed.append(gave_up)
        self._tell(failed, error)

    def _to_undo(self, error: BaseException | None) -> Branch | None:
        """The branch whose saga has failed, or was stopped, and has something to undo."""
        branch, self._branch = self._branch, None
        return branch if error is not None and self._undos else None

    def _tell(self, failed: list[Exception], error: BaseException | None) -> None:
        if failed:
            raise UndoFailed(f"{len(failed)} of {len(self._undos)} undos gave up", failed) from error


def saga() -> Saga:
    """A block whose steps are undone, last first, if it fails or its run is cancelled.

    Its workflow says how long a cancelled run may take for that: `@workflow(cleanup=...)`. Each undo is a step,
    recorded and tried again by its own policy. If one gives up, the others are carried out, and `UndoFailed` is raised:
    a retry of the run tries those again that gave up.
    """
    return Saga()
