"""The verbs by which a program steers a run, or other work that waits: signal, cancel, retry, fork, reschedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, overload

from stepwell.base.durations import Duration
from stepwell.records import CancelAnswer, RunId, SignalAnswer
from stepwell.store.run_key import RunKey, WhichRun
from stepwell.store.signals import NewSignal
from stepwell.store.task_edits import RescheduleAnswer
from stepwell.values.headers import Headers

if TYPE_CHECKING:
    from stepwell.store.database import Database

R = TypeVar("R")


class SteerVerbs:
    """What a store does to runs that are there, and to messages that wait."""

    database: Database

    async def signal(
        self,
        run: WhichRun,
        name: str,
        data: Any = None,
        *,
        key: str | None = None,
        check: bool = True,
        tx: object = None,
        actor: str | None = None,
        headers: Headers | None = None,
    ) -> SignalAnswer:
        """Keep data for the next wait of this name in a run: each signal is taken by one wait, in the order they came.

        WOKE if the run waits for it just now, KEPT if it does not yet; TOO_LATE, which counts as false, and nothing is
        kept, if the run is finished or being cancelled, or if a signal with this `key` was sent before. With `tx`, your
        own connection in a transaction, it is sent if that commits and never was if it does not; the answer is what it
        will be then. What the wait could not read is refused, if the run waits already and `check` is not False; a
        wait that begins later sets it aside and goes on waiting. `headers` are kept with it, for `signals`.
        """
        by = self.database.by(actor)
        return await self.database.signals.send(run, name, data, key, by, check=check, tx=tx, headers=headers)

    async def signal_many(
        self,
        signals: Iterable[NewSignal],
        *,
        keys: Sequence[str] | None = None,
        check: bool = True,
        tx: object = None,
        actor: str | None = None,
    ) -> list[SignalAnswer]:
        """Send several signals, each `(run, name)` or `(run, name, data)`, in one transaction (yours, with `tx`).

        All of them are written or none: an error, such as `RunNotFound` or data that a wait could not read, sends none.
        The answers come in the same order, each as `signal` gives it; those to one run are kept in their order.
        """
        by = self.database.by(actor)
        return await self.database.signals.send_many(signals, keys, by, check=check, tx=tx)

    async def resume(
        self, run: WhichRun, step: str, data: Any = None, *, check: bool = True, actor: str | None = None
    ) -> SignalAnswer:
        """Let the step (or wait) of this name return the data; a second resume is TOO_LATE and changes nothing.

        A run that has restarted since may be resumed again. What the step could not return is refused, as by `signal`.
        """
        return await self.database.signals.resume(run, step, data, self.database.by(actor), check=check)

    async def cancel(self, run: WhichRun, *, reason: str | None = None, actor: str | None = None) -> CancelAnswer:
        """Cancel a run or a message: CANCELLED at once if no worker executes it, else REQUESTED, and its worker stops
        it soon.

        After either it ends CANCELLED, even if a result comes in late, and so do its children. TOO_LATE, which counts
        as false, if it was finished before. Its worker hears of the request with the next record of a step, so that
        each branch begins at most one more, and otherwise within a second. A body in a thread cannot be stopped and
        goes on: its result is recorded, so that people know what was done, and changes nothing. A run that may clean up
        (`@workflow(cleanup=)`) does so first, until that time is over; if no worker executes it, a worker has to claim
        it for that: REQUESTED. A batch of messages is not stopped: of its messages the one is CANCELLED in the end.
        """
        return await self.database.control.cancel(await self.database.run_id(run), self.database.by(actor, reason))

    async def retry(self, run: WhichRun, *, reason: str | None = None, actor: str | None = None) -> bool:
        """Execute a failed or cancelled run again, with all its attempts: False if it is neither, or its key was taken
        meanwhile.

        It is the same run. The records of its steps stay, but the step whose failure ended it is executed again. With a
        run that was cancelled go the runs that were cancelled with it: all of them or none, and `StillStopping` is
        raised while a worker still stops one. A run that was to clean up (`@workflow(cleanup=)`) begins anew with its
        input, as after `ctx.restart`, since its steps may be undone; the runs that it had asked for stay cancelled.
        """
        return await self.database.task_edits.retry(await self.database.run_id(run), self.database.by(actor, reason))

    @overload
    async def fork(
        self,
        run: RunId[R] | RunKey[R],
        *,
        at: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        reason: str | None = None,
        actor: str | None = None,
    ) -> RunId[R]: ...
    @overload
    async def fork(
        self,
        run: WhichRun,
        *,
        at: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        reason: str | None = None,
        actor: str | None = None,
    ) -> RunId[Any]: ...
    async def fork(
        self,
        run: WhichRun,
        *,
        at: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        reason: str | None = None,
        actor: str | None = None,
    ) -> RunId[Any]:
        """Begin a new run with the same input that goes on at a step of this one; it keeps what was recorded before.

        `at` is a step's key, such as "charge#1", or its name if the run has only one of it; that step, and all later
        ones, are executed anew. Without `at` all are, and the run need not have begun. `outputs` gives earlier steps
        other results. The run itself does not change, whatever its status; the new one has no key, and its `cause` says
        where it came from.
        """
        by = self.database.by(actor, reason)
        return await self.database.forks.begin(await self.database.run_id(run), at, outputs or {}, by)

    async def reschedule(
        self,
        task: WhichRun,
        *,
        run_at: datetime | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
        reason: str | None = None,
        actor: str | None = None,
    ) -> RescheduleAnswer:
        """Do a waiting message or run at another moment, at once with `delay=0`, or with another priority.

        RESCHEDULED if it waits to begin, or to be tried again. Else nothing is changed, and the answer counts as false:
        RUNNING if a worker executes it or a consumer has taken it, TOO_LATE if it is finished or being cancelled, and
        WAITING if it is to be moved and its own code says what it waits for: a sleep, a signal, children. The priority
        alone may be changed then too.
        """
        by = self.database.by(actor, reason)
        task_id = await self.database.run_id(task)
        return await self.database.task_edits.reschedule(task_id, by, run_at=run_at, delay=delay, priority=priority)
