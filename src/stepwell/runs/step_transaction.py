"""An attempt of a step whose body gets a transaction: what it writes and the result are committed together, or neither.

If the reply of the commit is lost, the record is read before anything else happens.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple

from stepwell.errors import LeaseLost, StepwellError, StoreBusy, StoreUnavailable, Timeout
from stepwell.records import RunStatus
from stepwell.runs.call import Attempt
from stepwell.store.emission import Emission
from stepwell.store.result_transaction import ResultTransaction
from stepwell.store.rows import StepRow
from stepwell.store.transaction import SyncTx, Tx

Stored = Callable[[Attempt, Any], tuple[StepRow, Any]]  # a result as it is recorded, and as it is read back


class Committed(NamedTuple):
    """What became of an attempt whose transaction has ended with a record: its row, and the value of that."""

    row: StepRow
    value: Any


class StepTransaction:
    """One transaction of one attempt."""

    def __init__(self, attempt: Attempt, stored: Stored) -> None:
        self._attempt = attempt
        self._call, self._run = attempt.call, attempt.call.run
        self._stored = stored
        self._db = self._run.slot.database
        self._lock = threading.Lock()
        self._is_given_up = self._is_ending = False
        self._value: Any = None  # what the body returned, as it is read back
        self._transaction = ResultTransaction(self._db, self._run.task, self._end)

    async def committed(self) -> Committed:
        """Execute the body, record and commit; raises what the body or the database raises, and nothing is written."""
        job = asyncio.ensure_future(self._in_time())
        try:
            await asyncio.shield(job)
        except asyncio.CancelledError:
            if not job.cancelled():  # or the body has raised it
                await self._stop(job)
        except Exception:  # noqa: BLE001, S110 - the outcome of the job is looked at below
            pass
        return await self._outcome(job)

    async def _stop(self, job: asyncio.Future[None]) -> None:
        """The caller is cancelled: so is the body, but not what ends its transaction."""
        if self._give_up():
            job.cancel()
        await asyncio.wait([job])
        task = asyncio.current_task()
        if self._is_given_up or self._run.unwinding or task is None:
            raise asyncio.CancelledError
        task.uncancel()
        if (cleanup := self._run.cleanup) is None or not cleanup.is_under_way:  # else its next call is refused
            task.cancel()  # the caller is cancelled at its next wait

    async def _outcome(self, job: asyncio.Future[None]) -> Committed:
        try:
            job.result()
        except Exit as end:
            raise end.error from None
        except Exception as error:
            if self._transaction.ended is not None:
                raise self._transaction.ended from error
            if self._transaction.row is None:
                raise
            return await self._found(self._transaction.row, error)
        assert self._transaction.row is not None
        if self._transaction.written is not None:
            self._db.steps.committed(self._transaction.written)
        return Committed(self._transaction.row, self._value)

    async def _found(self, mine: StepRow, error: Exception) -> Committed:
        """What the database has of the step, of which it is unknown whether it was committed."""
        row = await self._asked(mine)
        if row is None or not row.status.finished:
            raise error
        if row.status is RunStatus.SUCCESS and row.output == mine.output:
            return Committed(mine, self._value)
        returns, what = self._call.definition.returns, f"result of {self._call.key}"
        return Committed(row, None if row.output is None else self._run.read(row.output, returns, what))

    async def _asked(self, row: StepRow) -> StepRow | None:
        while True:
            try:
                return await self._db.steps.after(row, self._run.task)
            except (StoreBusy, StoreUnavailable):
                if self._run.is_lost:
                    raise
            except LeaseLost:
                self._run.overtaken = True
                raise

    async def _in_time(self) -> None:
        """Everything up to the commit; the step's timeout ends a body, and not what comes after it."""
        definition = self._call.definition
        work = self._in_own if definition.tx is True else self._on_loop if definition.is_async else self._in_thread
        limit = asyncio.timeout(None)
        loop, seconds = asyncio.get_running_loop(), definition.timeout

        def over() -> None:
            if self._give_up():
                limit.reschedule(loop.time())

        timer = None if seconds is None else loop.call_later(seconds, over)
        try:
            async with limit:
                await work(limit)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise Timeout(f"step {self._call.key} ran longer than {seconds:g} s") from error
        except (SystemExit, KeyboardInterrupt) as error:  # in a task of its own it would end the loop
            raise Exit(error) from error
        finally:
            if timer is not None:
                timer.cancel()

    async def _in_own(self, limit: asyncio.Timeout) -> None:
        """In a transaction of the store: an async body here, another in a thread."""
        call = self._call

        async def body(tx: Tx) -> Any:
            if call.definition.is_async:
                return await call.definition.fn(tx, *call.args, **call.kwargs)
            blocking = SyncTx(tx, partial(_waited_for, self._run.loop))
            function = partial(call.definition.fn, blocking, *call.args, **call.kwargs)
            return await self._run.body_in_thread(function, None, limit)

        await self._transaction.own(self._run.slot.session.lease, body)

    async def _on_loop(self, _: asyncio.Timeout) -> None:
        """In a transaction that the source opens, on the loop."""
        call = self._call
        await self._transaction.opened(call.definition.tx, lambda tx: call.definition.fn(tx, *call.args, **call.kwargs))

    async def _in_thread(self, limit: asyncio.Timeout) -> None:
        """In a transaction that the source opens, all of it in one thread."""
        call = self._call
        body = lambda tx: call.definition.fn(tx, *call.args, **call.kwargs)  # noqa: E731
        await self._run.body_in_thread(partial(self._transaction.opened_here, call.definition.tx, body), None, limit)

    def _end(self, returned: Any) -> tuple[StepRow, Sequence[Emission]]:
        """The body has returned: from here on nothing interrupts the transaction, unless it was given up before."""
        row, self._value = self._stored(self._attempt, returned)
        with self._lock:
            if self._is_given_up:
                raise Late
            self._is_ending = True
        self._run.check()
        self._run.on_loop(lambda: self._db.steps.withdraw(self._attempt.shown))
        return row, self._attempt.emissions

    def _give_up(self) -> bool:
        """Let the transaction commit no more; False if it is ending."""
        with self._lock:
            self._is_given_up = not self._is_ending
            return self._is_given_up


class Late(StepwellError):  # noqa: N818 - likewise
    """The body has returned after its attempt was given up."""


class Exit(Exception):  # noqa: N818 - it carries what would end the loop, as `sys.exit()` does
    """A body has raised what is no `Exception`."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


def _waited_for(loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Let the loop do the work while the thread of a body waits."""

    async def there() -> Any:
        return await work()

    return asyncio.run_coroutine_threadsafe(there(), loop).result()
