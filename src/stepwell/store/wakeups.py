"""Hints that there may be something to claim: inside the process, to other processes, and from them.

Nothing relies on a hint. Whoever waits polls all the time, as if there were none; a hint only ends a pause sooner, so
one that is lost, late or false costs time and nothing else. That is why they are sent after the commit, in a
transaction of their own, by nobody who waits for it, and why a failure here is reported once and repaired quietly.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Collection
from typing import Final

from stepwell.clock import Clock
from stepwell.errors import StoreClosed
from stepwell.store.driver import Driver, Hint
from stepwell.store.hearing import Hearing
from stepwell.telemetry import NotifyFailed, Telemetry

TELL_EVERY: Final = 0.01  # others are told at most this often, with the union of what there was to tell
LAST_WORD: Final = 1.0

# What it returns is true if it goes to work because of what it heard.
Listener = Callable[[set[int]], object]


class Wakeups:
    """Who waits here, and the ways to and from other processes."""

    def __init__(self, driver: Driver, clock: Clock, telemetry: Telemetry, *, listen: bool) -> None:
        sender = secrets.token_hex(4)  # new for every store, so that each knows its own words again
        self._waiting: list[Listener] = []
        self._teller = Teller(driver, telemetry, sender) if listen and driver.notifies else None
        hears = listen and driver.hears_others
        self._hearing = Hearing(driver, clock, telemetry, sender, self._wake) if hears else None

    def on_added(self, listener: Listener) -> None:
        """Tell the listener the queues to which tasks were added or given back."""
        self._waiting.append(listener)
        if self._hearing is not None:
            self._hearing.wanted()

    def off_added(self, listener: Listener) -> None:
        """Stop telling the listener."""
        self._waiting.remove(listener)
        if self._hearing is not None and not self._waiting:
            self._hearing.unwanted()

    def hint(self, queue_ids: set[int]) -> None:
        """Say, here and to other processes, that these queues may have something to claim.

        If somebody here goes to work, the others hear of it a moment later: telling them takes time from the claim.
        """
        taken = self._wake(queue_ids)
        if self._teller is not None:
            self._teller.tell(queue_ids, soon=not taken)

    async def close(self) -> None:
        """Say the last word, and hear nothing more."""
        if self._teller is not None:
            await self._teller.close()
        if self._hearing is not None:
            await self._hearing.close()

    def _wake(self, queue_ids: set[int]) -> bool:
        heard = [listener(queue_ids) for listener in tuple(self._waiting)]  # all of them, not only up to the first
        return any(heard)


class Teller:
    """Tells other processes: the first hint at once, then what has gathered, one transaction at a time."""

    def __init__(self, driver: Driver, telemetry: Telemetry, sender: str) -> None:
        self._driver = driver
        self._telemetry = telemetry
        self._sender = sender
        self._pending: set[int] = set()
        self._job: asyncio.Task[None] | None = None
        self._rest: asyncio.TimerHandle | None = None
        self._failing = False

    def tell(self, queue_ids: Collection[int], *, soon: bool = True) -> None:
        """Have it told that these queues may have something to claim; returns at once and never fails."""
        self._pending.update(queue_ids)
        if not soon and self._rest is None:
            self._rest = asyncio.get_running_loop().call_later(TELL_EVERY, self._rested)
        self._go_on()

    async def close(self) -> None:
        """Tell what has gathered, unless that takes long: a process that ends after an enqueue is heard too."""
        self._rested()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORD):
                while self._job is not None:
                    await asyncio.wait([self._job])
                    self._rested()
        self._pending.clear()
        if self._job is not None:
            self._job.cancel()
            await asyncio.wait([self._job])
        self._rested()

    def _go_on(self) -> None:
        if self._pending and self._job is None and self._rest is None:
            hint, self._pending = Hint(self._sender, frozenset(self._pending)), set()
            self._rest = asyncio.get_running_loop().call_later(TELL_EVERY, self._rested)
            self._job = asyncio.create_task(self._tell(hint), name="stepwell-notify")
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
            self._pending.clear()
        except Exception as error:  # noqa: BLE001 - whoever added the task was answered long ago
            if not self._failing:
                self._failing = True
                self._telemetry.emit(NotifyFailed(str(error)))
