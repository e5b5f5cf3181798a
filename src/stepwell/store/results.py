"""Waiting for something of runs, first of all their end: all waiting callers of this process together.

A caller is registered first, and then its run is read, so it misses nothing in between. A run that ends in this
process ends the wait without a read. A hint of another process has the named runs read at once. All awaited runs are
read again and again; only these reads are relied on. One read runs at a time, for all callers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from stepwell.base.backoff import waits
from stepwell.base.events import StoreLost
from stepwell.base.futures import begin_apart
from stepwell.base.program import Definition
from stepwell.errors import (
    ExecutionFailed,
    RunCancelled,
    RunNotFound,
    StoreBusy,
    StoreClosed,
    StoreUnavailable,
    Timeout,
)
from stepwell.records import RunId, RunStatus
from stepwell.store.driver import Call, Row
from stepwell.store.poll import LONGEST_POLL, SHORTEST_POLL
from stepwell.values.codec import decode
from stepwell.values.own_exceptions import failure_of_run
from stepwell.values.stamp import read_value

if TYPE_CHECKING:
    from stepwell.store.database import Database

LONGEST_WAIT: Final = 1.0  # before a database that does not answer is asked again
LOOK_AT_NEW: Final = SHORTEST_POLL  # after which a run that has only just been written is read first
MOST_AT_ONCE: Final = 1000  # runs of one read: their results may be large
SHORTEST_REST: Final = 0.001  # between two reads of all, however often others say that any of them may have ended, ...
REST_EACH: Final = 0.0001  # ... and this long for each run that was read: some times what reading it takes

K = TypeVar("K", bound=Any)  # what is waited for, in an order: a run, or something of one
A = TypeVar("A")


class Ending(msgspec.Struct, frozen=True):
    """How a run or message ended: its final status, and what it returned or why it failed, as JSON."""

    status: RunStatus
    output: str | None
    error: str | None
    workflow: str
    kind: str = "RUN"


class NextRead(Generic[K]):
    """What to read next, and a future that is done when that was tried."""

    def __init__(self) -> None:
        self.ids: set[K] = set()
        self.tried: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Awaiting(Generic[K, A]):
    """All callers in this process that wait for something of runs; what they wait for is read for all of them."""

    _name, _of_ends = "awaiting", False  # whether only the ends of runs are of interest

    def __init__(self, database: Database) -> None:
        self._db, self._wakeups = database, database.wakeups
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[K, set[asyncio.Future[A]]] = {}
        self._asked: NextRead[K] = NextRead()
        self._wake = asyncio.Event()
        self._job: asyncio.Task[None] | None = None
        self._trouble: Exception | None = None
        self._pause = 0.0
        self._poll_at = 0.0
        self._hinted_poll_at = 0.0
        self._hinted = False  # any of them may have ended

    async def close(self) -> None:
        """End all waiting with `StoreClosed`."""
        self._end_all(StoreClosed())
        if self._job is not None:
            self._job.cancel()
            await asyncio.wait([self._job])

    async def _awaited(self, key: K, timeout: float | None, *, after: float = 0.0) -> A | None:
        """What there is to say of the key, as soon as there is; None if there is nothing in time.

        It is registered first, and read after that.
        """
        waiting: asyncio.Future[A] = self._loop.create_future()
        if not self._waiting:
            (self._wakeups.on_finished if self._of_ends else self._wakeups.on_reported)(self._heard)
            self._pause = 0.0
            self._poll_at = self._loop.time() + after
        self._waiting.setdefault(key, set()).add(waiting)
        if self._job is None:
            self._job = begin_apart(self._work(), f"stepwell-{self._name}")
        if after:
            self._loop.call_later(after, self._ask_if_awaited, key)
        else:
            self._ask([key])
        tried = self._asked.tried  # when that was read
        try:
            if timeout is None:
                return await waiting
            ends_it: list[asyncio.Future[Any]] = [waiting] if timeout else [waiting, tried]
            await asyncio.wait(ends_it, timeout=timeout or None, return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else None
        finally:
            self._leave(key, waiting)

    def _ask_if_awaited(self, key: K) -> None:
        if key in self._waiting:
            self._ask([key])

    def _leave(self, key: K, waiting: asyncio.Future[A]) -> None:
        if waiting.done() and not waiting.cancelled():
            waiting.exception()  # a caller that was cancelled at the same moment does not want the error
        if (others := self._waiting.get(key)) is not None and waiting in others:
            others.remove(waiting)
            if not others:
                del self._waiting[key]
                self._rest_if_alone()

    def _end(self, key: K, ending: A | Exception) -> None:
        for waiting in self._waiting.pop(key, ()):
            if waiting.done():
                continue  # cancelled, and not gone yet
            if isinstance(ending, Exception):
                waiting.set_exception(ending)
            else:
                waiting.set_result(ending)
        self._rest_if_alone()

    def _end_all(self, error: Exception) -> None:
        for key in tuple(self._waiting):
            self._end(key, error)

    def _rest_if_alone(self) -> None:
        if not self._waiting:
            (self._wakeups.off_finished if self._of_ends else self._wakeups.off_reported)(self._heard)
            self._wake.set()  # not cancelled: a read that is broken off costs its connection

    def _heard(self, run_ids: frozenset[int] | None) -> None:
        """Read what callers wait for of these runs; None means that there may be news of any of them."""
        if run_ids is None:
            self._hinted = True
            self._wake.set()
        elif waited := self._waited_of(run_ids):
            self._ask(waited)

    def _waited_of(self, run_ids: frozenset[int]) -> Collection[K]:
        """What callers wait for of these runs."""
        raise NotImplementedError

    def _ask(self, keys: Collection[K]) -> None:
        self._asked.ids.update(keys)
        self._wake.set()

    async def _work(self) -> None:
        try:
            pauses = waits(LONGEST_WAIT, self._db.clock.random)
            while self._waiting:
                try:
                    await self._look()
                except (StoreBusy, StoreUnavailable) as error:
                    if self._trouble is None:
                        pauses = waits(LONGEST_WAIT, self._db.clock.random)
                    self._failed(error)
                    await asyncio.sleep(next(pauses))
        except Exception as error:  # noqa: BLE001 - whatever it is, no caller must wait for ever
            self._end_all(error)
        finally:
            self._job = None

    async def _look(self) -> None:
        """Read the runs asked for or, when it is time, all that callers wait for; otherwise rest."""
        self._wake.clear()
        poll_at = self._hinted_poll_at if self._hinted else self._poll_at
        if self._loop.time() >= poll_at:
            await self._poll()
        elif self._asked.ids:
            await self._read(self._asked.ids)
        else:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(poll_at):
                    await self._wake.wait()

    async def _poll(self) -> None:
        """Read all runs that callers wait for; the next time sooner if one had ended, and later if not."""
        self._hinted = False
        rest = max(SHORTEST_REST, min(LONGEST_POLL, REST_EACH * len(self._waiting)))
        found = await self._read(self._waiting)
        self._pause = SHORTEST_POLL if found else min(LONGEST_POLL, max(SHORTEST_POLL, self._pause * 1.5))
        ended = self._loop.time()
        self._hinted_poll_at = ended + rest
        self._poll_at = ended + max(rest, self._pause * (0.8 + 0.4 * self._db.clock.random()))

    async def _read(self, keys: Collection[K]) -> bool:
        """Read these runs and end the waiting for those that have ended; True if there were any."""
        asked, self._asked = self._asked, NextRead()
        wanted = sorted(self._waiting.keys() & keys)
        found = False
        try:
            for first in range(0, len(wanted), MOST_AT_ONCE):
                some = wanted[first : first + MOST_AT_ONCE]
                found |= self._learn(some, await self._db.driver.read(self._asking(some)))
        finally:
            asked.tried.set_result(None)
        self._trouble = None
        return found

    def _asking(self, some: Sequence[K]) -> Call:
        """The read of what these callers wait for."""
        raise NotImplementedError

    def _learn(self, some: Sequence[K], rows: list[Row]) -> bool:
        """End the waiting for what has come, by what was read; True if anything had."""
        raise NotImplementedError

    def _failed(self, error: StoreBusy | StoreUnavailable) -> None:
        """The result of the read is unknown, so the next one is for all runs."""
        self._trouble = error
        self._hinted, self._hinted_poll_at = True, 0.0
        if isinstance(error, StoreUnavailable):
            self._db.telemetry.emit(StoreLost(error.why))


class Results(Awaiting[int, Ending]):
    """All callers in this process that wait for a run of this store to end."""

    _name, _of_ends = "results", True

    def settled(
        self, run_id: int, status: str, output: str | None, error: str | None, workflow: str, *, kind: str = "RUN"
    ) -> None:
        """Tell this and other processes that this process has written the final status of a run or message."""
        here = run_id in self._waiting
        if here:
            self._end(run_id, Ending(RunStatus(status), output, error, workflow, kind))
        self._wakeups.tell_finished(run_id, soon=not here)

    def finished(self, run_ids: Collection[int]) -> None:
        """Tell this and other processes that these runs may have a final status; their waiting callers read them."""
        for run_id in run_ids:
            self._wakeups.tell_finished(run_id, soon=True)
        self._heard(frozenset(run_ids))

    async def ending(self, run_id: int, timeout: float | None = None, *, is_new: bool = False) -> Ending:
        """How the run ended, as soon as it has; `Timeout` if it has not in time, which for 0 is after one look at it.

        Raises `RunNotFound` if there is no such run, or no longer. One that `is_new` has not ended before it is waited
        for, so it is looked at only after a while: reading it at once would tell nothing, and keep the database from
        executing it.
        """
        after = LOOK_AT_NEW if is_new and timeout != 0 else 0.0
        if (ending := await self._awaited(run_id, timeout, after=after)) is None:
            raise Timeout(
                f"run {run_id} was not finished in {timeout:g} s; it goes on, wait for it again", seconds=timeout
            ) from self._trouble
        return ending

    def _waited_of(self, run_ids: frozenset[int]) -> Collection[int]:
        return self._waiting.keys() & run_ids

    def _asking(self, some: Sequence[int]) -> Call:
        return Call("endings", self._db.params(ids=",".join(map(str, some))))

    def _learn(self, some: Sequence[int], rows: list[Row]) -> bool:
        found = {row["id"]: row for row in rows}
        over = [run_id for run_id in some if run_id not in found or RunStatus(found[run_id]["status"]).finished]
        for run_id in over:
            if (row := found.get(run_id)) is None:
                self._end(run_id, RunNotFound(run_id))
            else:
                status = RunStatus(row["status"])
                self._end(run_id, Ending(status, row["output"], row["error"], row["workflow"], row["kind"]))
        return bool(over)


def returned(run_id: int, ending: Ending, known: Definition, as_: Any = None) -> Any:
    """What a run, whose workflow is known so, returned as it ended; raises if it did not return."""
    match ending.status:
        case RunStatus.SUCCESS if ending.output is None:
            return None  # another run has gone on for it
        case RunStatus.SUCCESS:
            type_ = _type_of(run_id, as_, known)
            return read_value(ending.output or "null", type_, what=f"result of run {int(run_id)}")
        case RunStatus.CANCELLED:
            raise RunCancelled(run_id, _error_of(ending), kind=ending.kind)
        case _ if ending.kind != "RUN":
            raise ExecutionFailed(run_id, _error_of(ending), kind=ending.kind)
        case _:
            raise failure_of_run(run_id, getattr(run_id, "raises", ()) or known.raises, _error_of(ending))


def _type_of(run_id: int, as_: Any, known: Definition) -> Any:
    """The type that the caller names, else that of the trigger, else that of the workflow as far as it is known."""
    if as_ is not None:
        return as_
    returns = run_id.returns if isinstance(run_id, RunId) else Any
    return known.returns if returns is Any else returns


def _error_of(ending: Ending) -> Mapping[str, Any] | None:
    error: Mapping[str, Any] | None = None if ending.error is None else decode(ending.error)
    return error
