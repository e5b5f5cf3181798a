"""One place of a worker at work: call the body, judge its outcome, settle."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context
from functools import partial
from time import monotonic
from typing import Any, Final, Protocol

import msgspec

from stepwell.base.events import InternalTaskFailed, LateWriteRefused, TaskDied, TaskFailed, TaskUnreadable
from stepwell.base.program import program
from stepwell.errors import LeaseLost, Refused, Timeout
from stepwell.records import RunStatus, TaskKind
from stepwell.store.database import Database
from stepwell.store.pending import Answer, LateWrite
from stepwell.store.poll import SWEEP_EVERY
from stepwell.store.rows import Claimed, Settlement, StepRow, Wish, held_by
from stepwell.store.settle import Following
from stepwell.store.transaction import Turns, executing
from stepwell.work.body import Served
from stepwell.work.deadline import Deadline
from stepwell.work.demand import Demand
from stepwell.work.outcome import (
    Cancelled,
    Each,
    Ended,
    Failed,
    Held,
    NotThisCode,
    Outcome,
    Reached,
    Released,
    Settled,
    following,
    interrupted,
    is_refusal,
    judge,
    judge_batch,
    no_handler,
    settlement_of,
)
from stepwell.work.session import Session
from stepwell.work.threads import NoThread, Threads
from stepwell.work.unreadable import Misfit, each_alone, left_to_other_code, may_be_read

NONE: Final[frozenset[asyncio.Task[None]]] = frozenset()


class Home(Protocol):
    """The worker that has the place. It is passed whole: a bound method would be one more object for every task."""

    context: Context  # of the callbacks at the end of a task: one for all, so that it is not copied for each

    def freed(self) -> None:
        """The place may be given to another task."""

    def ended(self, execution: Execution) -> None:
        """Every turn of the execution is closed."""


class Execution:
    """The turns of the tasks of one place: one task, or one batch."""

    # fmt: off
    __slots__ = (
        "_calls", "_cleanup", "_demand", "_given_up", "_held", "_home", "_in_body", "_open", "_served", "_stopped",
        "_waiting", "database", "deadline", "ends_children", "gave_back", "job", "late", "on_cancel", "on_stop",
        "session", "settled", "withheld"
    )
    # fmt: on

    def __init__(
        self,
        database: Database,
        served: Served,
        session: Session,
        calls: Sequence[Sequence[Claimed]],
        demand: Demand,
        *,
        home: Home,
    ) -> None:
        self.session = session
        self.settled = 0
        self.gave_back = False  # a task that is not finished, and may be claimed again at once
        self.job: asyncio.Task[None] | None = None
        self.database = database
        self._served = served
        self._calls = calls
        self._demand = demand
        self._home = home
        self._waiting = NONE  # for settlements whose answer is not known yet
        self._held = 1
        self._open = sum(map(len, calls))  # turns that are not closed yet
        self._in_body: int | None = None  # the task whose body is being executed, the first of a batch
        self._given_up = False
        self._stopped: Outcome | None = None  # the outcome with which the current body was stopped
        self.withheld: tuple[StepRow, ...] = ()
        self.deadline: int | None = None
        self.ends_children = False
        self.late: LateWrite | None = None
        self.on_stop: Callable[[], None] = _no_callback
        self.on_cancel: Callable[[], None] | None = None
        self._cleanup: Deadline | None = None  # of the current body, if its task was cancelled

    def __repr__(self) -> str:
        return f"<tasks {', '.join(str(task.id) for task in itertools.chain(*self._calls))} of {self._served.queue}>"

    async def run(self, threads: Threads) -> None:
        """Make each call and submit its outcome; nothing is written if the session was lost meanwhile.

        It does not wait for the write: the next call is made, or the place is free, while the database works.
        """
        for tasks in self._calls:
            outcome = await self._in_all(tasks, threads)
            if isinstance(outcome, Each):
                for task, its_own in zip(tasks, outcome.outcomes, strict=True):
                    self._settle([task], its_own)
            else:
                self._settle(tasks, outcome)
        if self.job is None:
            return  # an eager task factory: this ended within `create_task`, and `begin` adds the callback
        # The callback would cost one more turn of the loop, and the job objects for the garbage collector to visit.
        self.job.remove_done_callback(self._finished)
        self.job = None
        self.release()

    def begin(self, threads: Threads) -> None:
        """Start the task that makes the calls."""
        self.job = asyncio.get_running_loop().create_task(self.run(threads))
        # Here and not in `run`: a task that is cancelled at once never gets there.
        self.job.add_done_callback(self._finished, context=self._home.context)

    def hold(self) -> None:
        """Add a holder of the place: a body in a thread."""
        self._held += 1

    def release(self) -> None:
        """Remove a holder of the place; it is free when it has none."""
        self._held -= 1
        if self._held == 0:
            self._demand.give_back(self._calls[0][0].queue_id)
            self._home.freed()

    def give_up(self) -> None:
        """Stop the body and begin no other; an outcome that was judged before is still settled."""
        self._given_up = True
        if self._in_body is not None:
            self._cancel_body()

    def is_over(self, task_id: int) -> bool:
        """True if the body of this task is to stop, or was left behind, as one in a thread may be."""
        return self._in_body != task_id or self._stopped is not None or self._given_up or self.session.lost

    def stop(self, wish: Wish, task_ids: set[int]) -> None:
        """Stop the body of a task for a cancel or a pause. One that cleans up goes on, and a batch of messages."""
        if self._in_body not in task_ids or self._cleanup is not None or self._served.batch > 1:
            return
        if wish is Wish.CANCEL and self.on_cancel is not None and self._stopped is None and not self._given_up:
            self.on_cancel()
        elif wish is Wish.CANCEL and self._served.cleanup is None:
            self._stop_body(Cancelled())
        else:  # also if its cleanup has not begun in this turn: it is claimed again for the cleanup
            self._stop_body(Released())

    def clean_up(self, deadline: Deadline) -> None:
        """The task was cancelled, and its body cleans up until this deadline."""
        self._cleanup = deadline
        deadline.watch(lambda: self._stop_body(deadline.failure))

    def abandon(self) -> None:
        """Stop waiting for a body that does not stop, and for answers that do not come."""
        self._cancel_body()
        for job in self._waiting:
            job.cancel()

    def _stop_body(self, outcome: Outcome) -> None:
        if self._in_body is not None and self._stopped is None:
            self._stopped = outcome
            self._cancel_body()

    def _cancel_body(self) -> None:
        self.on_stop()
        if self.job is not None:
            self.job.cancel()

    def _finished(self, job: asyncio.Task[None]) -> None:
        if job.cancelled() or job.exception() is not None:
            self._break_off("cancelled" if job.cancelled() else repr(job.exception()))
        self.release()

    def _break_off(self, why: str) -> None:
        """Hold nothing any more: this code has failed, or the process is ending. The heartbeat gives the tasks back."""
        self.database.telemetry.emit(InternalTaskFailed(f"execution of {self}", why))
        for task in itertools.chain(*self._calls):
            self.session.settled(task.id, task.turn)
        self._open = 0
        self._home.ended(self)

    def _in_all(self, tasks: Sequence[Claimed], threads: Threads) -> Coroutine[Any, Any, Reached | None]:
        """The outcome of the body, or the failure of a run whose timeout is over before."""
        outcome = self._outcome(tasks, threads)
        self.deadline, self.ends_children, limit = None, (task := tasks[0]).ends_children, self._served.run_timeout
        # Most runs have no deadline; without this coroutine each of their waits passes one frame less.
        if limit is None and task.timeout is None and task.deadline_at is None:
            return outcome
        deadline = Deadline.of_run(task, limit, self.database.clock)
        self.deadline = None if deadline is None else deadline.moment
        return outcome if deadline is None else self._until(deadline, outcome)

    async def _until(self, deadline: Deadline, outcome: Coroutine[Any, Any, Reached | None]) -> Reached | None:
        if deadline.left <= 0:
            outcome.close()
            return deadline.failure
        deadline.watch(lambda: None if self._cleanup is not None else self._stop_body(deadline.failure))
        try:
            came = await outcome
            return came if self._cleanup is not None else deadline.capped(came)
        finally:
            deadline.end()

    async def _outcome(self, tasks: Sequence[Claimed], threads: Threads) -> Reached | None:
        """The outcome of the body; None if the session was lost meanwhile, so that nothing may be written."""
        if self._served.body is None:
            return no_handler(self._served.queue)
        if self._given_up or self._held > 1:  # or a body that was stopped is still in its thread
            return self._interrupted()
        self._in_body, self._stopped, self._cleanup = tasks[0].id, None, None
        executing.set(Turns(self.session, tasks, self))
        try:
            try:
                is_over = monotonic() > self.session.over_at and not await self.session.renew(self.session.lease)
                return self._interrupted() if is_over else await self._called(self._served.body(tasks, threads, self))
            except Misfit as error:
                return await self._misfit(tasks, error)
        except asyncio.CancelledError:
            # Cancelled by the worker, which is no failure of the body; or raised by the body itself, which is one.
            if self._given_up:
                return self._interrupted()
            if self._stopped is not None:
                assert self.job is not None
                self.job.uncancel()  # or the next body would count as cancelled
                return self._stopped
            return self._judged(tasks, RuntimeError("the body was cancelled"))
        except NoThread:
            return Released(SWEEP_EVERY)
        except BaseException as error:  # noqa: BLE001 - whatever else a body raises is its outcome, sys.exit() too
            return self._judged(tasks, interrupted(error) if isinstance(error, KeyboardInterrupt) else error)
        finally:
            self._in_body, self.on_stop, self.on_cancel, self.late = None, _no_callback, None, None
            if self._cleanup is not None:
                self._cleanup.end()

    def _called(self, body: Awaitable[Ended]) -> Awaitable[Ended]:
        # Most bodies have no timeout, and the guard costs a tenth of an empty body.
        return body if self._served.timeout is None else self._in_time(body, self._served.timeout)

    async def _in_time(self, body: Awaitable[Ended], timeout: float) -> Ended:
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await body
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise Timeout(f"the handler of {self._served.queue} ran longer than {timeout:g} s") from error

    async def _misfit(self, tasks: Sequence[Claimed], misfit: Misfit) -> Outcome:
        if len(tasks) > 1:
            return each_alone(tasks, misfit)
        if not await may_be_read(self.database, tasks[0], misfit):
            return self._judged(tasks, misfit.error)
        outcome = await left_to_other_code(self.database, tasks[0], misfit)
        if isinstance(outcome, Held):
            self.withheld = (held_by(tasks[0], (await program()).code),)
        return outcome

    def _interrupted(self) -> Outcome | None:
        return None if self.session.lost else Released()

    def _judged(self, tasks: Sequence[Claimed], error: BaseException) -> Outcome:
        if len(tasks) > 1:
            return judge_batch(error)
        [task], pause, policy = tasks, self.database.options.pause_check_interval, self._served.retry
        return judge(error, task.attempt, task.max_attempts, policy, self.database.clock.random(), pause=pause)

    def _settle(self, tasks: Sequence[Claimed], outcome: Outcome | Settled | None) -> None:
        """Submit the settlement of these turns; those of one call go into one flush, as far as it has room."""
        steps, self.withheld = self.withheld, ()
        if outcome is None or isinstance(outcome, Settled):
            self.settled += 0 if outcome is None else len(tasks) + outcome.along
            for task in tasks:
                self._close(task)
            return
        settlement, worker, settle_soon = settlement_of(outcome), self.session.id, self.database.tasks.settle_soon
        is_run, cleans_up = tasks[0].kind is TaskKind.RUN, self._cleanup is not None
        if is_run and (cleans_up or isinstance(outcome, Cancelled | Failed)):
            settlement = msgspec.structs.replace(settlement, cleans_up=cleans_up, ends_run=True)
        if steps:
            settlement = msgspec.structs.replace(settlement, steps=steps)
        if self._served.batch > 1 and isinstance(outcome, NotThisCode):  # or it would spoil a batch, which forgets it
            settlement = msgspec.structs.replace(settlement, alone=True)
        tells = isinstance(outcome, self._served.told) and (is_run or self._served.body is not None)
        may_follow = tells or self.ends_children or isinstance(outcome, Failed)
        if may_follow and (what := following(outcome, tells=tells, ends_children=self.ends_children)) is not None:
            for task in tasks:
                self._wait_for(task, outcome, self._settled_with(task, settlement, what))
            return
        for task in tasks:
            heard = partial(self._heard, task, outcome)
            parent, attempt, turn = task.parent_id, task.attempt, (task.id, worker, task.turn, settlement)
            group = None if task.group_key is None else (task.queue_id, task.group_key)
            if not settle_soon(*turn, heard, parent=parent, attempt=attempt, group=group):
                answer = self.database.tasks.settle(*turn, parent=parent, attempt=attempt, group=group)
                self._wait_for(task, outcome, answer)

    def _settled_with(self, task: Claimed, done: Settlement, what: Following) -> Coroutine[Any, Any, str]:
        if task.group_key is not None:
            what = dataclasses.replace(what, group=(task.queue_id, task.group_key))
        return self.database.tasks.settle_with(task.id, self.session.id, task.turn, done, what)

    def _heard(self, task: Claimed, outcome: Outcome, answer: Answer | BaseException) -> None:
        if isinstance(answer, Answer) and answer.value is not None:
            self._tell(task, outcome, answer.value)
            self._close(task)
        else:  # refused, or unknown: then the database is asked
            self._wait_for(task, outcome, self.database.tasks.settled(task.id, self.session.id, task.turn, answer))

    def _wait_for(self, task: Claimed, outcome: Outcome, answer: Coroutine[Any, Any, str]) -> None:
        job = asyncio.ensure_future(self._waited(task, outcome, answer))
        self._waiting |= {job}
        job.add_done_callback(self._has_waited)

    def _has_waited(self, job: asyncio.Task[None]) -> None:
        self._waiting -= {job}

    async def _waited(self, task: Claimed, outcome: Outcome, answer: Coroutine[Any, Any, str]) -> None:
        failure: Outcome | None = None
        try:
            self._tell(task, outcome, await answer)
        except LeaseLost:
            self.database.telemetry.emit(LateWriteRefused(self.session.id, task.id, task.turn))
        except Exception as error:  # noqa: BLE001 - it is reported, and the lease gives the task back
            if isinstance(error, Refused) and not is_refusal(outcome):
                failure = self._judged([task], error)  # which contains nothing of the body's, so it can be written
            else:
                self.database.telemetry.emit(InternalTaskFailed(f"settling {task.id}", repr(error)))
        finally:
            if failure is None:
                self._close(task)
            else:
                self._settle([task], failure)

    def _tell(self, task: Claimed, outcome: Outcome, status: str) -> None:
        self.settled += 1
        self.gave_back |= status == "PENDING"
        if task.kind is TaskKind.RUN or task.keeps_result:
            self._tell_waiters(task, outcome, status)
        error = outcome.said if isinstance(outcome, Held) else getattr(outcome, "error", None)
        if error is None:
            return
        described = f"{error.get('type')}: {error.get('message')}"[:500]
        if isinstance(outcome, NotThisCode | Held):
            why = (self._served.queue, str(error.get("message"))[:500])
            # The run has reported any other hold. Once in each session: such tasks come again and again.
            if error.get("type") == NotThisCode.__name__ and self.session.warns_of(why):
                self.database.telemetry.emit(TaskUnreadable(task.id, *why))
        elif isinstance(outcome, Failed) and status == "ERROR":
            self.database.telemetry.emit(TaskDied(task.id, self._served.queue, described))
        else:
            self.database.telemetry.emit(TaskFailed(task.id, self._served.queue, task.attempt, described))

    def _tell_waiters(self, task: Claimed, outcome: Outcome, status: str) -> None:
        if task.parent_id is not None and RunStatus(status).finished:
            self.database.run_waits.woken(task.parent_id)
        if status == RunStatus.CANCELLED:
            self.database.results.finished([task.id])  # the reason is in the database, and not known here
        elif RunStatus(status).finished:
            done, kind = settlement_of(outcome), task.kind
            self.database.results.settled(task.id, status, done.output, done.error, self._served.queue, kind=kind)

    def _close(self, task: Claimed) -> None:
        self.session.settled(task.id, task.turn)
        self._open -= 1
        if self._open == 0:
            self._home.ended(self)


def _no_callback() -> None:
    """Does nothing."""
