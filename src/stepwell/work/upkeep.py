"""Upkeep: what every worker does beside claiming, as often as each needs it. Nobody is elected for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from stepwell.base.backoff import waits
from stepwell.base.events import InternalTaskFailed, StoreLost, WorkUnserved
from stepwell.errors import StoreBusy, StoreClosed, StoreUnavailable
from stepwell.store.poll import LONGEST_POLL
from stepwell.store.recovery import Recovery
from stepwell.store.store import Store

ROUND_EVERY: Final = 60.0  # seconds between two rounds of retention, about
ROUND_AGAIN: Final = 1.0  # after a round that left something
REPORT_EVERY: Final = 600.0  # how often work that nobody serves is looked for


class Upkeep:
    """Wakes what is due, recovers what is lost and removes what is old, until it is cancelled."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._recovery = Recovery(store)

    async def forever(self) -> None:
        """Look again and again; an outage is waited out."""
        # Beside it, and not between two looks: what is due is not to wait until what is old has been removed.
        tidying = asyncio.create_task(Tidying(self._store).forever(), name="stepwell-tidying")
        try:
            await self._watch()
        finally:
            tidying.cancel()
            await asyncio.gather(tidying, return_exceptions=True)

    async def _watch(self) -> None:
        pauses = waits(LONGEST_POLL, self._store.clock.random)
        while True:
            try:
                queues, next_due = await self._store.tasks.wake_due()
                queues |= await self._recovery.look()
            except (StoreBusy, StoreUnavailable) as error:
                self._recovery.interrupted()
                self._store.telemetry.emit(StoreLost.by(error))
                await asyncio.sleep(next(pauses))
                continue
            pauses = waits(LONGEST_POLL, self._store.clock.random)
            if queues:
                self._store.tasks.hint(queues)
            look_every = self._recovery.look_every
            await self._store.tasks.alarm.wait(look_every if next_due is None else min(look_every, next_due + 0.001))


class Tidying:
    """Removes what has outlived its time, a bounded piece at a time, and tells of work that nobody serves."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._told: frozenset[str] = frozenset()

    async def forever(self) -> None:
        """Tidy up about once a minute, at no fixed moment, until the store is closed; what fails is tried again."""
        loop, chance = asyncio.get_running_loop(), self._store.clock.random
        try:
            await self._tried("unserved", self.report_unserved)
            reported_at = loop.time()
            await asyncio.sleep(ROUND_EVERY * chance())
            while True:
                more = await self._tried("retention", self._store.retention.round)
                if loop.time() - reported_at >= REPORT_EVERY:
                    await self._tried("unserved", self.report_unserved)
                    reported_at = loop.time()
                await asyncio.sleep(ROUND_AGAIN if more else ROUND_EVERY * (0.75 + 0.5 * chance()))
        except StoreClosed:
            return

    async def report_unserved(self) -> bool:
        """Tell of the queues that have work and no living worker, if they are others than the last time."""
        unserved = await self._store.unserved()
        queues = frozenset(one.queue for one in unserved)
        changed, self._told = queues - self._told, queues
        if changed:
            self._store.telemetry.emit(WorkUnserved(tuple((one.queue, one.waiting) for one in unserved)))
        return bool(changed)

    async def _tried(self, name: str, work: Callable[[], Awaitable[bool]]) -> bool:
        try:
            return await work()
        except StoreClosed:
            raise
        except (StoreBusy, StoreUnavailable) as error:
            self._store.telemetry.emit(StoreLost.by(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the next round tries again
            self._store.telemetry.emit(InternalTaskFailed(name, repr(error)))
        return False
