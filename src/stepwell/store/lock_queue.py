"""The queue of what waits for a lock of a transaction that stays open: apart from all others, and tried alone.

Whoever meets a lock that is not let go soon leaves the transaction it would share with others and comes here. One job
tries what waits; of several that need the same row or key only the first. Who came lately is tried before those who
have waited in vain for long: most locks are let go soon, however many are not.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from stepwell.base.clock import Clock
from stepwell.base.events import InternalTaskFailed
from stepwell.base.futures import begin_apart
from stepwell.base.telemetry import Telemetry
from stepwell.errors import StepwellError
from stepwell.store.driver import Call, Driver

PATIENCE: Final = 0.01  # seconds that one try waits for a lock
SHORTEST_PAUSE: Final = 0.01
LONGEST_PAUSE: Final = 0.25
LATELY: Final = 4  # tries in which one that came lately is tried before others

Claimable = object  # a row or a key, as those who come here name them


class Waiter(msgspec.Struct, eq=False):
    """Something that could not have a row or a key, or stands behind something that could not."""

    needs: AbstractSet[Claimable]  # all that it will hold
    held: AbstractSet[Claimable]  # those of them that nobody may have before it
    attempt: Callable[[], Awaitable[bool]]  # write it, alone; False if it has to wait further
    drop: Callable[[BaseException], object]  # nobody will try it any more
    go_on: Callable[[], object] | None = None  # what it stood behind is written: back to where the others are
    tries: int = 0
    due: float = 0.0  # when it is to be tried again, by the loop's clock


class LockQueue:
    """The waiters of one store."""

    def __init__(self, clock: Clock, telemetry: Telemetry) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._waiters: dict[Waiter, None] = {}  # in the order in which they came
        self.held: collections.Counter[Claimable] = collections.Counter()  # what nobody may have before those who wait
        self._tried: Waiter | None = None
        self._job: asyncio.Task[None] | None = None
        self._came = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiters)

    def holds(self, needs: Iterable[Claimable]) -> bool:
        """True if something that waits here comes before whoever needs these."""
        return any(need in self.held for need in needs)

    def put(self, waiter: Waiter) -> None:
        """Have it tried until it is done, after those that were here before it."""
        self._waiters[waiter] = None
        self.held.update(waiter.held)
        self._came.set()
        if self._job is None:
            self._job = begin_apart(self._work(), "stepwell-lock-queue")
            self._job.add_done_callback(self._ended)

    def withdraw(self, waiter: Waiter) -> bool:
        """Have it tried no more; False if it is being tried, or does not wait here."""
        if waiter is self._tried or waiter not in self._waiters:
            return False
        self._remove(waiter)
        return True

    async def empty(self) -> None:
        """Wait until nothing waits."""
        while self._job is not None:
            await asyncio.wait([self._job])

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiters:
                self._came.clear()
                waiter, until = self._next(loop.time())
                if waiter is None:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout_at(until):
                            await self._came.wait()
                elif await self._try(waiter):
                    self._remove(waiter)
                    self._let_go(waiter.held)
                    for other in self._waiters:  # its transaction may have held more
                        other.due = min(other.due, loop.time() + SHORTEST_PAUSE)
                else:
                    pause = min(LONGEST_PAUSE, SHORTEST_PAUSE * 2.0 ** min(waiter.tries, 10))
                    waiter.tries += 1
                    waiter.due = loop.time() + pause * (1 - self._clock.random() / 2)  # who met does not meet again
        finally:
            self._job = None

    def _next(self, now: float) -> tuple[Waiter | None, float | None]:
        """Of those that stand behind no other and are due, the one to try; or when the next of them is due."""
        before, free = set[Claimable](), list[Waiter]()
        for waiter in self._waiters:
            if before.isdisjoint(waiter.needs):
                free.append(waiter)
            before |= waiter.held
        due = [waiter for waiter in free if waiter.due <= now]
        if due:
            return min(due, key=lambda waiter: (min(waiter.tries, LATELY), waiter.due)), None
        return None, min((waiter.due for waiter in free), default=None)

    async def _try(self, waiter: Waiter) -> bool:
        self._tried = waiter
        try:
            return await waiter.attempt()
        except Exception as error:  # noqa: BLE001 - one waiter's defect is not to be the others'
            self._telemetry.emit(InternalTaskFailed("waiting for a lock", repr(error)))
            return False
        finally:
            self._tried = None

    def _let_go(self, free: AbstractSet[Claimable]) -> None:
        """Send those back that stood behind these and now behind nothing: together they are written faster."""
        before = set[Claimable]()
        for waiter in tuple(self._waiters):
            if waiter.go_on is None or waiter.needs.isdisjoint(free) or not before.isdisjoint(waiter.needs):
                before |= waiter.held
            else:
                self._remove(waiter)
                waiter.go_on()

    def _remove(self, waiter: Waiter) -> None:
        del self._waiters[waiter]
        for need in waiter.held:
            if self.held[need] == 1:
                del self.held[need]
            else:
                self.held[need] -= 1

    def _ended(self, job: asyncio.Task[None]) -> None:
        # Cancelled with the loop, perhaps before it began: who waits here is not to wait for ever.
        if job.cancelled() and self._job in (None, job):
            self._job = None
            for waiter in tuple(self._waiters):
                self._remove(waiter)
                waiter.drop(asyncio.CancelledError())


async def holder(driver: Driver) -> str:
    """The words for the transaction that others wait for: of those that are open, the oldest that has changed tasks."""
    words = "a transaction that has not ended"
    try:
        found = await driver.read(Call("oldest_writer")) if driver.key_slot is not None else []
    except StepwellError:  # the words are worth no error of their own
        found = []
    return words if not found else f"{words} (process {found[0]['pid']} of the server, {found[0]['seconds']:.0f} s old)"
