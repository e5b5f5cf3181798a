"""The turn of a sync workflow: its code runs in its own threads, and the loop executes its calls."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from stepwell.errors import NotInRun
from stepwell.runs.branches import Branch
from stepwell.runs.cleanup import Stopped
from stepwell.runs.journal import Journal
from stepwell.runs.pause import Unwinding, is_stopped
from stepwell.runs.turn import RunTurn
from stepwell.store.rows import Claimed
from stepwell.work.body import Slot
from stepwell.work.current import current_branch, hidden
from stepwell.work.threads import Threads, in_thread

T = TypeVar("T")


def wait_in_thread(run: RunTurn, work: Coroutine[Any, Any, T]) -> T:
    """Let the loop do the work while this thread of a sync workflow waits."""
    assert isinstance(run, SyncTurn)
    return run.wait_in_thread(work)


def extended_in_thread(run: RunTurn) -> bool:
    """Let the loop extend the lease while this thread waits; also for a sync step of an async workflow."""
    if isinstance(run, SyncTurn):
        return run.wait_in_thread(run.extend_lease())
    if threading.get_ident() == run.home:
        raise NotInRun("stepwell.sync's heartbeat() would wait for the loop that calls it: `await ctx.heartbeat()`")
    return asyncio.run_coroutine_threadsafe(run.extend_lease(), run.loop).result()


class SyncTurn(RunTurn):
    """A run of a sync workflow while it is executed. Belongs to the worker's loop; other threads use it too."""

    is_sync = True

    def __init__(self, task: Claimed, workflow: str, journal: Journal, slot: Slot, threads: Threads) -> None:
        super().__init__(task, workflow, journal, slot, threads)
        self._job = None  # it only waits for the thread: to cancel it would not unwind the run
        self._calls: set[asyncio.Task[Any]] = set()  # calls that its threads wait for
        self._at_work: set[int] = set()  # threads that execute code of the workflow

    @property
    def is_at_work(self) -> bool:  # type: ignore[override]  # the loop sees what an async workflow does
        """True while a thread executes code of the workflow."""
        return bool(self._at_work)

    async def execute(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call the workflow in a thread and return what it returns; `Unwinding` if it waits."""
        context = contextvars.copy_context()
        context.run(current_branch.set, Branch(self))
        body = partial(context.run, self._in_own_thread, partial(fn, *args, **kwargs))
        try:
            result = await in_thread(body, self._threads, self.slot)
        except BaseException as error:
            if await self._end(stopped=is_stopped(error)):
                raise Unwinding from None
            raise
        if self._tasks and not self.unwinding:
            await asyncio.wait(self._tasks)  # background steps that the workflow has not awaited
        if await self._end():
            raise Unwinding
        return result

    def stop(self) -> None:
        """The worker is about to cancel the run: no step begins any more, not even in a `finally`."""
        super().stop()
        for call in tuple(self._calls):
            call.cancel()  # or the thread would keep its place until the call has ended

    def wait_in_thread(self, work: Coroutine[Any, Any, T]) -> T:
        """Let the loop do the work, outside of the run's context, while this thread of the workflow waits."""
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()
        self.loop.call_soon_threadsafe(self._begin, work, answer, threading.get_ident(), context=hidden())
        return answer.result()

    def _in_own_thread(self, body: Callable[[], T]) -> T:
        """Call code of the workflow, and count the run as working meanwhile."""
        thread = threading.get_ident()
        self._at_work.add(thread)
        try:
            return body()
        except Unwinding:
            if not self.unwinding:
                raise
            return None  # type: ignore[return-value]  # the run is being given back: the result is not used
        finally:
            self._at_work.discard(thread)
            self.on_loop(self.look_soon)

    def _parts(self) -> Iterable[asyncio.Task[Any]]:
        return (*self._tasks, *self._calls)

    def _begin(self, work: Coroutine[Any, Any, T], answer: concurrent.futures.Future[T], thread: int) -> None:
        task = asyncio.ensure_future(work)
        # Only here, not in the thread: in between the run would not count as working, and would be given back without
        # the wait that this call is about to begin.
        self._calls.add(task)
        self._at_work.discard(thread)
        task.add_done_callback(self._calls.discard)
        if self._stopped:
            task.cancel()
        task.add_done_callback(partial(self._answer, answer, thread))

    def _answer(self, answer: concurrent.futures.Future[T], thread: int, task: asyncio.Task[T]) -> None:
        self._at_work.add(thread)  # before it gets the answer: it does not wait any more
        if task.cancelled():
            answer.set_exception(Unwinding() if self.unwinding else Stopped())
        elif (error := task.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(task.result())
