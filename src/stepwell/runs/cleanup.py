"""The cleanup of a cancelled run: which calls it may still make inside a shield, which are refused, and until when.

The run is stopped at the same place on every replay: recorded calls return, and the first unrecorded call outside of a
shield raises. So a cleanup that was interrupted, by a failure, a lost worker or a wait, continues where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from stepwell.base.names import SHIELD, is_shielded
from stepwell.errors import InvalidOption, NotInRun
from stepwell.runs.branches import Branch
from stepwell.work.current import current_branch
from stepwell.work.deadline import Deadline

if TYPE_CHECKING:
    from stepwell.runs.turn import RunTurn


T = TypeVar("T")
LOOK_AGAIN: Final = 0.1  # seconds between looks for branches that wait for something outside the run
REST: Final = 0.05  # seconds before a shield is refused to a run that is given back, or code that retries would spin

Cancelled = asyncio.CancelledError


class Stopped(asyncio.CancelledError):
    """The run is being cancelled: this call was not made."""


class Cleanup:
    """The cleanup within one turn of a run. Used on the worker's loop only."""

    def __init__(self, run: RunTurn, limit: float | None) -> None:
        self.limit = limit  # seconds; None if its workflow no longer cleans up
        self.is_under_way = run.task.cleanup_until is not None
        self._run = run
        self._shielded: set[asyncio.Task[Any]] = set()
        self._bodies: set[asyncio.Task[Any]] = set()  # the tasks that await a body outside of a shield
        self._stopped: set[asyncio.Task[Any]] = set()  # a second time would cancel its cleanup
        self._look: asyncio.TimerHandle | None = None
        run.slot.on_cancel = self.begin
        if run.task.cleanup_until is not None:
            # However late the run was claimed, its cleanup has its full time.
            self._begin(max(run.task.cleanup_until, run.task.claimed_at + self._span))

    @property
    def _span(self) -> int:
        return int((self.limit or 0) * 1_000_000)

    def begin(self) -> None:
        """The run was cancelled: stop it outside of its shields, once; it ends by itself.

        A run that is being given back is left alone: it is claimed again for its cleanup.
        """
        run = self._run
        if self.is_under_way or run.unwinding:
            return
        self.is_under_way = True
        self._begin(run.now() + self._span)
        for task in tuple(self._bodies):
            self._stop(task)
        run.wake_parked()

    def end(self) -> None:
        """The run has ended. Called by the task that executes it."""
        if self._look is not None:
            self._look.cancel()
        task = asyncio.current_task()
        if self.is_under_way and task is not None and not self._run.unwinding:
            _calm(task)  # or the next body of its place would count as cancelled

    def admit(self, key: str) -> None:
        """Refuse a call outside of a shield, while the run is being cancelled."""
        if self.refuses(key):
            raise Stopped

    def refuses(self, key: str) -> bool:
        """True if a call with this key is refused."""
        return self.is_under_way and not is_shielded(key)

    def joined(self, task: asyncio.Task[Any], path: str) -> None:
        """A task was created in the branch with this path."""
        if is_shielded(path):
            self._shielded.add(task)
            task.add_done_callback(self._shielded.discard)

    async def stoppable(self, body: Awaitable[T]) -> T:
        """Wait for an async body outside of a shield; it is stopped when the run is cancelled."""
        task = asyncio.current_task()
        assert task is not None
        self._bodies.add(task)
        try:
            return await body
        except asyncio.CancelledError as error:
            if task in self._stopped and not self._run.unwinding:
                _calm(task)
                raise Stopped from error
            raise
        finally:
            self._bodies.discard(task)

    def enter(self, task: asyncio.Task[Any] | None) -> bool:
        """The task begins a shield; False if it was in one already."""
        if task is None or task in self._shielded:
            return False
        self._shielded.add(task)
        if self.is_under_way:
            _calm(task)  # or a timeout or a task group inside would count it as cancelled
        return True

    def leave(self, task: asyncio.Task[Any] | None) -> None:
        """The task has left its shield."""
        if task is not None:
            self._shielded.discard(task)

    def _begin(self, until: int) -> None:
        run = self._run
        clock = run.slot.database.clock
        run.slot.clean_up(Deadline.of_cleanup(run.task, until, self.limit, clock, claimed=run.began))
        if not run.is_sync:
            self._look = run.loop.call_soon(self._sweep)  # type: ignore[assignment]  # a handle, too

    def _sweep(self) -> None:
        """Stop the branches that wait for something outside the run, where no call could be refused.

        Not before the run has reached all that it has recorded outside of its shields: the replay is not there yet.
        """
        run = self._run
        if run.unwinding:
            return
        if all(map(is_shielded, run.journal.unasked)):
            for task in run.outside():
                if task not in self._shielded and task not in self._stopped:
                    self._stop(task)
        self._look = run.loop.call_later(LOOK_AGAIN, self._sweep)

    def _stop(self, task: asyncio.Task[Any]) -> None:
        self._stopped.add(task)
        task.cancel()


class Shield:
    """A block whose calls are made even if the run is being cancelled: `async with shield():`."""

    def __init__(self) -> None:
        self._cleanup: Cleanup | None = None
        self._task: asyncio.Task[Any] | None = None
        self._first = False

    def __enter__(self) -> Self:
        branch = current_branch.get()
        if not isinstance(branch, Branch):
            raise NotInRun("shield() was called outside of a workflow; use it in a workflow, around its steps")
        branch.check_caller(SHIELD)
        run = branch.run
        if run.cleanup is None or run.cleanup.limit is None:
            why = "say how long its runs may clean up: `@workflow(cleanup='60s')`"
            raise InvalidOption("shield", run.workflow, why)
        run.check()  # a run that goes to sleep, is paused or was lost is not over, and must not undo its work
        self._cleanup, self._task = run.cleanup, None if run.is_sync else asyncio.current_task()
        self._first = run.cleanup.enter(self._task)
        inner = branch.child(SHIELD)
        if self._task is not None:
            inner.tasks.add(self._task)
        self._token = current_branch.set(inner)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        current_branch.reset(self._token)
        if self._first and self._cleanup is not None:
            self._cleanup.leave(self._task)

    async def __aenter__(self) -> Self:
        try:
            return self.__enter__()
        except asyncio.CancelledError:
            await asyncio.sleep(REST)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def shield() -> Shield:
    """A block in which a cancelled run goes on, around steps that undo what it did.

    Use it in a `finally` or `except Cancelled` of a workflow with `@workflow(cleanup=...)`, which sets the time limit.
    Outside of a shield a cancelled run begins no more steps. If the run only goes to sleep, is paused or was lost,
    entering a shield raises: the run is not over.
    """
    return Shield()


def _calm(task: asyncio.Task[Any]) -> None:
    while task.cancelling():
        task.uncancel()
