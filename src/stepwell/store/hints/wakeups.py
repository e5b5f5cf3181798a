"""Hints that there may be something to claim, or news of a run: inside the process, to others, and from them.

Nothing relies on a hint. Every call that waits also polls; a hint only ends a pause sooner, so one that is lost, late
or false costs time and nothing else. That is why hints are sent after the commit, in a transaction of their own, while
no caller waits for it, and why a failure here is reported once and repaired quietly.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from stepwell.base.events import NotifyFailed
from stepwell.base.futures import begin_apart
from stepwell.base.telemetry import Telemetry
from stepwell.errors import StoreClosed
from stepwell.store.driver import Driver, Hint
from stepwell.store.hints.listener import Hearing

if TYPE_CHECKING:
    from stepwell.store.database import Database

TELL_EVERY: Final = 0.01  # others are told at most this often, with the union of what there was to tell
LAST_WORD: Final = 1.0
MOST_FINISHED: Final = 400  # runs that are named in one word; when there are more, any of them may be meant

# What it returns is true if it goes to work because of what it heard.
Listener = Callable[[set[int]], object]
# What it is told are runs that may be finished, or have reported something, or None: any of them may have.
Waiter = Callable[[frozenset[int] | None], object]


class Wakeups:
    """Who waits here, and the ways to and from other processes."""

    def __init__(self, database: Database) -> None:
        driver, telemetry, listen = database.driver, database.telemetry, database.options.listen
        sender = secrets.token_hex(4)  # new for every store, so that each knows its own words again
        self._waiting: list[Listener] = []
        self._waiters: list[Waiter] = []
        self._readers: list[Waiter] = []
        self._on_gone: Callable[[], object] = lambda: None
        self._teller = Teller(driver, telemetry, sender) if listen and driver.notifies else None
        hears = listen and driver.hears_others
        self._hearing = (
            Hearing(
                driver,
                database.clock,
                telemetry,
                sender,
                wake=self.wake,
                finished=self._finished,
                reported=self._reported,
                gone=self._gone,
            )
            if hears
            else None
        )

    def on_gone(self, listener: Callable[[], object]) -> None:
        """Tell the one listener there is that a worker's process is gone, its sessions to be recovered."""
        self._on_gone = listener

    def on_added(self, listener: Listener) -> None:
        """Tell the listener the queues to which tasks were added or given back."""
        self._waiting.append(listener)
        if self._hearing is not None:
            self._hearing.wanted()

    def off_added(self, listener: Listener) -> None:
        """Stop telling the listener."""
        self._waiting.remove(listener)
        self._rest_if_alone()

    def on_finished(self, waiter: Waiter) -> None:
        """Tell the waiter which runs other processes say may be finished."""
        self._waiters.append(waiter)
        if self._hearing is not None:
            # A run ends in milliseconds: who always waited a moment before listening would only ever poll.
            self._hearing.wanted(soon=True)

    def off_finished(self, waiter: Waiter) -> None:
        """Stop telling the waiter."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        self._rest_if_alone()

    def on_reported(self, reader: Waiter) -> None:
        """Tell the reader which runs have reported something or are finished, here or elsewhere."""
        self._readers.append(reader)
        self.on_finished(reader)

    def off_reported(self, reader: Waiter) -> None:
        """Stop telling the reader."""
        if reader in self._readers:
            self._readers.remove(reader)
        self.off_finished(reader)

    def hint(self, queue_ids: set[int]) -> None:
        """Say, here and to other processes, that these queues may have something to claim.

        If a worker here takes the work, the others are told a moment later: telling them takes time from the claim.
        """
        taken = self.wake(queue_ids)
        if self._teller is not None:
            self._teller.tell(queue_ids, soon=not taken)

    def tell_finished(self, run_id: int, *, soon: bool) -> None:
        """Say to other processes that a run may be finished; a moment later if a caller here already knows."""
        if self._readers:
            self._reported(frozenset((run_id,)))
        if self._teller is not None:
            self._teller.tell_finished(run_id, soon=soon)

    def tell_reported(self, run_id: int) -> None:
        """Say, here and to other processes, that a run has reported something; to others a moment later."""
        self._reported(frozenset((run_id,)))
        if self._teller is not None:
            self._teller.tell_reported(run_id)

    async def close(self) -> None:
        """Say the last word, and hear nothing more."""
        if self._teller is not None:
            await self._teller.close()
        if self._hearing is not None:
            await self._hearing.close()

    def wake(self, queue_ids: set[int]) -> bool:
        """Say here that these queues may have something to claim; true if one who hears goes to work."""
        heard = [listener(queue_ids) for listener in tuple(self._waiting)]  # all of them, not only up to the first
        return any(heard)

    def _gone(self) -> None:
        self._on_gone()

    def _finished(self, run_ids: frozenset[int] | None) -> None:
        for waiter in tuple(self._waiters):
            waiter(run_ids)

    def _reported(self, run_ids: frozenset[int] | None) -> None:
        for reader in tuple(self._readers):
            reader(run_ids)

    def _rest_if_alone(self) -> None:
        if self._hearing is not None and not self._waiting and not self._waiters:
            self._hearing.unwanted()


class Teller:
    """Tells other processes: the first hint at once, then what has gathered, one transaction at a time."""

    def __init__(self, driver: Driver, telemetry: Telemetry, sender: str) -> None:
        self._driver = driver
        self._telemetry = telemetry
        self._sender = sender
        self._pending = Untold()
        self._job: asyncio.Task[None] | None = None
        self._rest: asyncio.TimerHandle | None = None
        self._failing = self._closed = False

    def tell(self, queue_ids: Collection[int], *, soon: bool = True) -> None:
        """Have it told that these queues may have something to claim; returns at once and never fails."""
        self._pending.queues.update(queue_ids)
        self._tell_later(soon=soon)

    def tell_finished(self, run_id: int, *, soon: bool = True) -> None:
        """Have it told that this run may be finished; returns at once and never fails."""
        self._pending.add_finished(run_id)
        self._tell_later(soon=soon)

    def tell_reported(self, run_id: int) -> None:
        """Have it told that this run has reported something; soon, since more may follow; never fails."""
        self._pending.add_reported(run_id)
        self._tell_later(soon=False)

    async def close(self) -> None:
        """Tell what has gathered, unless that takes long: a process that ends after an enqueue is heard too."""
        self._rested()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORD):
                while self._job is not None:
                    await asyncio.wait([self._job])
                    self._rested()
        self._closed = True  # what is left, and what comes later, is not told
        if self._job is not None:
            self._job.cancel()
            await asyncio.wait([self._job])
        self._rested()

    def _tell_later(self, *, soon: bool) -> None:
        if self._closed:
            return
        if not soon and self._rest is None:
            self._rest = asyncio.get_running_loop().call_later(TELL_EVERY, self._rested)
        self._go_on()

    def _go_on(self) -> None:
        if self._pending and not self._closed and self._job is None and self._rest is None:
            hint, self._pending = self._pending.hint(self._sender), Untold()
            self._rest = asyncio.get_running_loop().call_later(TELL_EVERY, self._rested)
            self._job = begin_apart(self._tell(hint), "stepwell-notify")
            self._job.add_done_callback(self._told)

    def _rested(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        self._go_on()

    def _told(self, _: asyncio.Task[None]) -> None:
        self._job = None
        self._go_on()

    async def _tell(self, hint: Hint) -> None:
        try:
            await self._driver.notify(hint)
            self._failing = False
        except StoreClosed:
            self._pending = Untold()
        except Exception as error:  # noqa: BLE001 - the caller that added the task was answered long ago
            if not self._failing:
                self._failing = True
                self._telemetry.emit(NotifyFailed(str(error)))


class Untold:
    """What there is to tell; it does not grow with the number of runs that are finished."""

    def __init__(self) -> None:
        self.queues: set[int] = set()
        self._finished: set[int] = set()
        self._reported: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self.queues or self._finished or self._reported)

    def add_finished(self, run_id: int) -> None:
        """Note the run, or that there are too many of them."""
        if len(self._finished) <= MOST_FINISHED:
            self._finished.add(run_id)

    def add_reported(self, run_id: int) -> None:
        """Note the run, or that there are too many of them."""
        if len(self._reported) <= MOST_FINISHED:
            self._reported.add(run_id)

    def hint(self, sender: str) -> Hint:
        """All of it, in one hint."""
        finished, reported = (
            None if len(some) > MOST_FINISHED else frozenset(some) for some in (self._finished, self._reported)
        )
        return Hint(sender, frozenset(self.queues), finished=finished, reported=reported)


SOON: Final = 1.0  # seconds; what is due later, the next sweep finds in time


class Alarm:
    """Rings when something that this process has put off for a moment is due."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._at = math.inf

    def set(self, delay: float) -> None:
        """Ring after this many seconds, unless it rings before that."""
        loop = asyncio.get_running_loop()
        at = loop.time() + delay
        if delay < SOON and at < self._at:
            self._at = at
            loop.call_at(at + 0.001, self._ring)

    async def wait(self, at_most: float) -> None:
        """Wait until it rings, or for that long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(at_most):
                await self._rung.wait()
        self._rung.clear()

    def _ring(self) -> None:
        self._at = math.inf
        self._rung.set()
