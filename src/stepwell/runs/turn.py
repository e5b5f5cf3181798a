"""One turn of a run, between its claim and its settlement: which branches work, which wait, and when it is given back.

A branch that has to wait parks; its siblings go on. When nothing is under way and every branch waits, the run is
unwound: its tasks are cancelled, whatever they do meanwhile is refused and written nowhere, and the run is given back
with the time at which the first of its waits is over. Until then no branch is disturbed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from stepwell.base.compat import waited_for, waits_for_tasks
from stepwell.base.futures import resolve
from stepwell.errors import LeaseLost, SerializationError, UpcastFailed
from stepwell.records import RunStatus
from stepwell.runs.background_writes import keep, noted
from stepwell.runs.branches import Branch, Made
from stepwell.runs.cleanup import Cleanup
from stepwell.runs.journal import Journal
from stepwell.runs.pause import Pause, Unwinding, first_of, is_stopped, microseconds_since
from stepwell.runs.result_write import acknowledged, with_the_end
from stepwell.store.pending import Operation
from stepwell.store.rows import Claimed, StepRow
from stepwell.values.arguments import Arguments
from stepwell.values.stamp import read_value
from stepwell.work.body import Slot
from stepwell.work.current import HIDDEN, current_branch
from stepwell.work.outcome import Held
from stepwell.work.threads import Threads, in_thread
from stepwell.work.unreadable import Misfit

if TYPE_CHECKING:
    from stepwell.runs.long_steps import LongSteps
    from stepwell.runs.reports import Reporter

T = TypeVar("T")
SOONEST_LOOK: Final = 0.001
LATEST_LOOK: Final = 0.25
CANCEL_AGAIN: Final = 1.0
WITHHELD: Final = 0.04  # seconds until the row of a waiting step is written by itself, if the run is not given back
NONE: Final[frozenset[asyncio.Future[Any]]] = frozenset()


class RunTurn:
    """A run while it is executed. Used on the worker's loop only."""

    is_sync = False
    long_steps: LongSteps  # of its workflow in this worker
    has_new_tasks = False  # which may not have begun
    is_at_work = False  # True while code of the workflow runs in another thread

    def __init__(self, task: Claimed, workflow: str, journal: Journal, slot: Slot, threads: Threads) -> None:
        self.task = task
        self.workflow = workflow
        self.journal = journal
        self.slot = slot
        self.loop = asyncio.get_running_loop()
        self.unwinding = False
        self.overtaken = False  # the database has refused a write of this turn: another worker has the run
        self.pause: Pause | None = None  # what the run waits for, if it is unwinding for that reason
        self.arguments: Arguments | None = None  # of the workflow
        self.cleanup: Cleanup | None = None  # of a workflow that cleans up when it is cancelled
        self.restarts_with: str | None = None  # the input of its next generation
        self.held: Held | Misfit | UpcastFailed | None = None  # the reason why this code must not continue it
        self.reporting: Reporter | None = None  # few runs report anything
        self.notes: list[asyncio.Task[None]] = []  # background writes
        self.open_requests: tuple[str, ...] = ()  # the names of those that it has taken and not answered
        self.made = Made()
        self._threads = threads
        self._clock = slot.database.clock
        self.began = time.monotonic()
        self.home = threading.get_ident()
        self._job = asyncio.current_task()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._bodies = NONE  # in threads, which cannot be stopped
        self._under_way: dict[object, asyncio.Task[Any] | None] = {}  # and the task, for a cleanup
        self._parked: dict[asyncio.Future[bool | None], Pause] = {}
        self._alarms: dict[asyncio.Future[bool | None], asyncio.TimerHandle] = {}
        self._look: asyncio.Handle | None = None
        self._stopped = False  # by the worker, which does not wait for threads
        slot.on_stop = self.stop

    async def execute(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call the workflow and return its result; raises `Unwinding` if it waits, even if it has caught that."""
        assert self._job is not None
        root = Branch(self)  # not an attribute: a reference cycle would wait for the garbage collector
        root.tasks.add(self._job)
        current_branch.set(root)
        try:
            result = await fn(*args, **kwargs)
        except BaseException as error:
            current_branch.set(HIDDEN)
            unwound = await self._end(stopped=(stopped := is_stopped(error)))
            if self.restarts_with is not None:
                await acknowledged(self)
            elif not (unwound or stopped):
                await with_the_end(self)
            if unwound:
                raise self._given_back() from None
            raise
        current_branch.set(HIDDEN)
        forgotten = None if self.unwinding else self.made.forgotten(self._tasks)
        if await self._end():
            raise self._given_back()
        if self.notes:
            await noted(self)
        await with_the_end(self)
        if forgotten is not None:
            raise forgotten
        return result

    def stop(self) -> None:
        """The worker is about to cancel the run: no step begins any more, not even in a `finally`."""
        if not self.unwinding:
            self.unwinding = self._stopped = True

    def restart(self, input: str) -> Unwinding:
        """End this generation and begin the next with this input; nothing more of this one is executed or written."""
        self.check()
        self.restarts_with = input
        return self._unwound()

    def hold(self, held: Held | Misfit | UpcastFailed) -> Unwinding:
        """Hold the run, even if its code catches the exception: nothing more of it is executed or written.

        A sync workflow may call this in its own thread.
        """
        self.held = held
        if threading.get_ident() == self.home:
            return self._unwound()
        self.unwinding = True
        self.loop.call_soon_threadsafe(self._unwind)
        return Unwinding()

    def read(self, text: str | None, type_: Any, what: str) -> Any:
        """What is recorded, as this type; if it does not fit, the run is left to code like that which recorded it."""
        try:
            return read_value(text or "null", type_, what=what)
        except SerializationError as error:
            raise self.hold(Misfit(error, was_read=True)) from None
        except UpcastFailed as error:  # not to be caught by the workflow, as the failure of a step is
            raise self.hold(error) from None

    def _unwound(self) -> Unwinding:
        if asyncio.current_task() is self._job:
            self.unwinding = True  # the caller raises the exception; `_end` ends the other tasks
        else:
            self._unwind()
        return Unwinding()

    def joined(self, task: asyncio.Task[Any], path: str = "") -> None:
        """A task was created in the branch with this path: it is part of the run until it is done."""
        self._tasks.add(task)
        self.has_new_tasks = True
        if self.cleanup is not None:
            self.cleanup.joined(task, path)
        task.add_done_callback(self._left)

    @property
    def is_lost(self) -> bool:
        """True if another worker has the run: nothing of this turn is written any more."""
        session = self.slot.session
        return self.overtaken or session.lost or session.held.get(self.task.id) != self.task.turn

    @property
    def may_go_on(self) -> bool:
        """True if its one branch may go on before a result is written."""
        is_alone = not self._tasks and not self.is_sync and self.cleanup is None
        return is_alone and not self.unwinding and self.slot.late is None

    def check(self) -> None:
        """Raise if nothing of this turn can be written any more."""
        if self.unwinding:
            raise Unwinding
        if self.is_lost:
            raise LeaseLost(self.task.owner, self.task.id)

    def admit_result(self, row: StepRow, begun: Operation | None) -> None:
        """Raise if a result cannot be recorded in this turn any more; it is kept as a late result, for people."""
        if row.status is RunStatus.SUCCESS and self.unwinding:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it cannot be written
                self.on_loop(partial(self.slot.database.steps.keep_late, row, self.task.turn, begun))
        self.check()

    def admit(self, key: str) -> None:
        """Raise if a call without a record must not be made: in a cancelled run, every one outside of a shield."""
        self.check()
        if self.cleanup is not None:
            self.cleanup.admit(key)

    def now(self) -> int:
        """The time of the database, or slightly later: what is due at `now() + span` is never due early."""
        told = self._clock.now()
        return self.task.claimed_at + microseconds_since(self.task.asked_at) if told is None else told

    def is_past(self, moment: int) -> bool:
        """True if the moment has certainly come by the database's clock."""
        told = self._clock.now()
        return moment <= (self.task.claimed_at + microseconds_since(self.began) if told is None else told)

    def enter(self, work: object) -> None:
        """A body or a write of the run begins: the run is not given back until it has ended (`leave`)."""
        self._under_way[work] = None if self.cleanup is None or self.is_sync else asyncio.current_task()

    def leave(self, work: object) -> None:
        """It has ended."""
        self._under_way.pop(work, None)
        if self._parked:
            self.on_loop(self.look_soon)

    async def body_in_thread(
        self, body: Callable[[], T], late: Callable[[T], object] | None = None, limit: asyncio.Timeout | None = None
    ) -> T:
        """Call a sync body in a thread; the run is not given back before it has ended, unless its `limit` has expired.

        A body that has outlived its limit runs beside the next attempt, since it may never end. `late` is called with
        what a body returns after the run was stopped.
        """
        running: set[asyncio.Future[Any]] = set()
        try:
            return await in_thread(body, self._threads, self.slot, running)
        except asyncio.CancelledError:
            for left in () if limit is not None and limit.expired() else tuple(running):
                self._bodies |= {left}
                left.add_done_callback(partial(self._body_ended, late))
            raise

    def _body_ended(self, late: Callable[[Any], object] | None, body: asyncio.Future[Any]) -> None:
        self._bodies -= {body}
        if late is not None and not body.cancelled() and body.exception() is None:
            late(body.result())

    async def park(self, pause: Pause) -> None:
        """Wait until `due`, in memory while another branch works; if none does, the run is given back.

        Returns earlier if what it waits for may have come, or the run was cancelled: the caller checks that.
        """
        self.check()
        spare = None if pause.row is None else self.loop.call_later(WITHHELD, self._spare, pause.row)
        try:
            await self._park(pause)
        finally:
            if pause.row is not None and spare is not None:
                spare.cancel()
                keep(self, pause.row)

    async def _park(self, pause: Pause) -> None:
        while pause.due is None or not self.is_past(pause.due):
            waiting: asyncio.Future[bool | None] = self.loop.create_future()
            self._parked[waiting] = pause
            self._alarms[waiting] = self.loop.call_later(self._until(pause), self._alarm, waiting, pause)
            if pause.is_told:
                self.slot.database.run_waits.watch(self.task.id, self._woken)
            self.look_soon()
            try:
                cancelled = await waiting
            finally:
                del self._parked[waiting]
                self._alarms.pop(waiting).cancel()
            self.check()
            if pause.is_told or pause.hesitates or cancelled:
                return

    def _alarm(self, waiting: asyncio.Future[bool | None], pause: Pause) -> None:
        """Wake the branch if its time has come, or if it is to ask again.

        A look at the clock does not wake it: a branch that is awake, even for a moment, counts as at work.
        """
        if pause.is_told or pause.hesitates or pause.due is None or self.is_past(pause.due):
            resolve(waiting, None)
        else:
            self._alarms[waiting] = self.loop.call_later(self._until(pause), self._alarm, waiting, pause)

    def wake_parked(self) -> None:
        """Wake all waits: the run was cancelled."""
        for waiting in tuple(self._parked):
            resolve(waiting, True)

    def outside(self) -> list[asyncio.Task[Any]]:
        """The tasks that wait for something outside the run: neither for a call of stepwell, nor for each other."""
        calling = set(self._under_way.values())
        return [task for task in self._parts() if task not in calling and waited_for(task) and not self._waits(task)]

    def stuck(self) -> list[asyncio.Task[Any]] | None:
        """The tasks that wait for something outside the run; None while something of it is under way."""
        return None if self.is_sync or self._under_way or self.unwinding else self.outside()

    def _woken(self) -> None:
        for waiting, pause in tuple(self._parked.items()):
            if pause.is_told:
                resolve(waiting, None)

    def on_loop(self, call: Callable[[], object]) -> None:
        """Make the call here, or on the loop if this is another thread."""
        if threading.get_ident() == self.home:
            call()
        else:
            self.loop.call_soon_threadsafe(call)

    async def extend_lease(self) -> bool:
        """Renew the lease of the worker; False if it has lost the run."""
        return await self.slot.session.renew(self.slot.session.lease / 6) and not self.is_lost

    def _spare(self, row: StepRow) -> None:
        """Give the run back if every branch waits, else write the row of the waiting step by itself."""
        if self._look is not None:
            self._look.cancel()
        self._see(SOONEST_LOOK)
        if not self.unwinding:
            keep(self, row)

    def look_soon(self, after: float = 0.0) -> None:
        """Check in a later iteration of the loop whether every branch waits."""
        if self._look is None and self._parked and not self._under_way and not self.unwinding:
            self._look = self.loop.call_later(after, self._see, after)

    def _see(self, after: float) -> None:
        self._look = None
        if self._under_way or not self._parked or self.unwinding:
            return
        if not self.is_at_work and all(map(self._waits, self._parts())):
            if hesitant := [waiting for waiting, pause in self._parked.items() if pause.hesitates]:
                for waiting in hesitant:
                    resolve(waiting, None)
            else:
                self._unwind()
        else:  # a branch is between two calls, or waits for something outside the run: check again later
            self.look_soon(min(LATEST_LOOK, max(SOONEST_LOOK, 2 * after)))

    def _parts(self) -> Iterable[asyncio.Task[Any]]:
        """The tasks of the run."""
        return self._tasks if self._job is None else (self._job, *self._tasks)

    def _waits(self, task: asyncio.Task[Any]) -> bool:
        """True if the task waits for another task of the run, or for one of its waits."""
        waiter = waited_for(task)
        return waiter is not None and (waiter in self._parked or waits_for_tasks(task, waiter))

    def _unwind(self) -> None:
        self.unwinding = True
        self.pause = first_of(self._parked.values())
        if self._job is not None:
            self._job.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        for waiting in tuple(self._parked):
            waiting.cancel()

    def _given_back(self) -> Unwinding:
        assert self._job is not None
        while self._job.cancelling():
            self._job.uncancel()
        return Unwinding()

    async def _end(self, *, stopped: bool = False) -> bool:
        """Refuse every further write of this turn, and wait until its tasks and bodies have ended.

        If it was `stopped` from outside it does not wait for threads, for which the next worker would have to wait.
        Returns whether the run was being given back.
        """
        if self.cleanup is not None:
            await self._cleaned_up()
            self.cleanup.end()
        if self.reporting is not None and not self._stopped:
            await self.reporting.written()
        unwound, self.unwinding = self.unwinding, True
        self.slot.database.run_waits.unwatch(self.task.id)
        if self._look is not None:
            self._look.cancel()
        while self._tasks:
            for task in tuple(self._tasks):
                task.cancel()  # repeatedly: some tasks ignore it
            await asyncio.wait(self._tasks, timeout=CANCEL_AGAIN)
        if self._bodies and not self._stopped and (unwound or not stopped):
            await asyncio.wait(self._bodies)
        return unwound

    async def _cleaned_up(self) -> None:
        """Let each branch of a cancelled run end by itself: it may clean up in a shield."""
        while self.cleanup is not None and self.cleanup.is_under_way and self._tasks and not self.unwinding:
            with contextlib.suppress(asyncio.CancelledError):  # its time is over, or the run is given back
                await asyncio.wait(self._tasks, timeout=CANCEL_AGAIN)

    def _left(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if self.unwinding and not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it
        self.look_soon()

    def _until(self, pause: Pause) -> float:
        if self._clock.now() is not None:
            return pause.seconds_by_test_clock
        return pause.seconds_at(self.task.claimed_at + microseconds_since(self.began))
