"""The queue of operations that wait for a lock of a transaction that stays open: each is tried alone.

An operation that meets a lock that is not released soon leaves the transaction that it would share with others and
comes here. One job tries the operations; of several that need the same row or key it tries only the first. New ones
are tried before those that have waited long: most locks are released soon, even if some are not.
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
LATELY: Final = 4  # tries during which a new waiter is tried before others

Claimable = object  # a row or a key, as the waiters name them


class Waiter(msgspec.Struct, eq=False):
    """An operation that could not lock a row or a key, or that stands behind one that could not."""

    needs: AbstractSet[Claimable]  # all that it will lock
    held: AbstractSet[Claimable]  # those of them that no other operation may lock before it
    attempt: Callable[[], Awaitable[bool]]  # write it, alone; False if it has to wait longer
    drop: Callable[[BaseException], object]  # called when it will not be tried any more
    go_on: Callable[[], object] | None = None  # called when the waiter before it is done: it leaves this queue
    tries: int = 0
    due: float = 0.0  # when to try it again, by the loop's clock


class LockQueue:
    """The waiters of one store."""

    def __init__(self, clock: Clock, telemetry: Telemetry) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._waiters: dict[Waiter, None] = {}  # in the order in which they came
        self.held: collections.Counter[Claimable] = collections.Counter()  # what no other may lock before the waiters
        self._tried: Waiter | None = None
        self._job: asyncio.Task[None] | None = None
        self._came = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiters)

    def holds(self, needs: Iterable[Claimable]) -> bool:
        """True if a waiter here comes before an operation that needs these."""
        return any(need in self.held for need in needs)

    def put(self, waiter: Waiter) -> None:
        """Try the waiter until it is done, after those that were here before it."""
        self._waiters[waiter] = None
        self.held.update(waiter.held)
        self._came.set()
        if self._job is None:
            self._job = begin_apart(self._work(), "stepwell-lock-queue")
            self._job.add_done_callback(self._ended)

    def withdraw(self, waiter: Waiter) -> bool:
        """Stop trying the waiter; False if it is being tried, or does not wait here."""
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
                    waiter.due = loop.time() + pause * (1 - self._clock.random() / 2)  # random: two do not meet again
        finally:
            self._job = None

    def _next(self, now: float) -> tuple[Waiter | None, float | None]:
        """The waiter to try, of those that stand behind no other and are due; or the time when the next one is due."""
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
        """Send back the waiters that stood behind these and now stand behind none: together they are written faster."""
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
        # Cancelled with the loop, perhaps before it began: the callers must not wait for ever.
        if job.cancelled() and self._job in (None, job):
            self._job = None
            for waiter in tuple(self._waiters):
                self._remove(waiter)
                waiter.drop(asyncio.CancelledError())


async def holder(driver: Driver) -> str:
    """The words for the transaction that others wait for: the oldest open one that has changed tasks."""
    words = "a transaction that has not ended"
    try:
        found = await driver.read(Call("oldest_writer")) if driver.key_slot is not None else []
    except StepwellError:  # an error here is not worth reporting
        found = []
    return words if not found else f"{words} (process {found[0]['pid']} of the server, {found[0]['seconds']:.0f} s old)"
