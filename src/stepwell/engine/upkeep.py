"""Upkeep: what every worker does beside claiming, as often as each needs it. Nobody is elected for it."""

from __future__ import annotations

import asyncio

from stepwell.backoff import waits
from stepwell.errors import StoreBusy, StoreUnavailable
from stepwell.store.polling import LONGEST_POLL, SWEEP_EVERY
from stepwell.store.recovery import Recovery
from stepwell.store.store import Store
from stepwell.telemetry import StoreLost


class Upkeep:
    """Wakes what is due and recovers what is lost, until it is cancelled."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._recovery = Recovery(store)

    async def forever(self) -> None:
        """Look again and again; an outage is waited out."""
        look_every = min(SWEEP_EVERY, self._store.options.lease / 6)
        pauses = waits(LONGEST_POLL, self._store.clock.random)
        while True:
            try:
                queues, next_due = await self._store.tasks.wake_due()
                queues |= await self._recovery.look()
            except (StoreBusy, StoreUnavailable) as error:
                self._recovery.interrupted()
                self._store.telemetry.emit(StoreLost(str(error)))
                await asyncio.sleep(next(pauses))
                continue
            pauses = waits(LONGEST_POLL, self._store.clock.random)
            if queues:
                self._store.tasks.hint(queues)
            await asyncio.sleep(look_every if next_due is None else min(look_every, next_due + 0.001))
