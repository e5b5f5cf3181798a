"""Runs that are held for the code of others: this worker's may be another, and then it lets them go, once each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from stepwell.engine.program import program
from stepwell.errors import StoreBusy, StoreUnavailable
from stepwell.store.store import Store
from stepwell.telemetry import StoreLost

LOOK_EVERY: Final = 5.0  # seconds, about


class Holds:
    """Looks for runs of a worker's workflows that other code has held."""

    def __init__(self, store: Store, queue_ids: Callable[[], Collection[int]]) -> None:
        self._store = store
        self._queue_ids = queue_ids

    async def forever(self) -> None:
        """Look at once, which mends held runs after a deploy, and then now and then: a run may be held later."""
        while True:
            try:
                await self.look()
            except (StoreBusy, StoreUnavailable) as error:
                self._store.telemetry.emit(StoreLost.by(error))
            await asyncio.sleep(LOOK_EVERY * (0.75 + 0.5 * self._store.clock.random()))

    async def look(self) -> int:
        """Let go what other code has held; the sources are read only if something is held. How many runs that was."""
        queue_ids = self._queue_ids()
        if not await self._store.any_held(queue_ids):
            return 0
        return await self._store.let_go_held(queue_ids, (await program()).code)
