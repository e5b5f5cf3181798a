"""Finding dead sessions and giving their tasks back. Every worker does it; nobody is elected.

A session is dead when its beat is older than its lease by the database's clock, *and* this observer has seen the beat
unchanged for a third of the lease by its own clock, without a gap. The first alone would kill every healthy session
right after an outage or a jump of the clock. In an embedded store a free file lock proves death at once.
"""

from __future__ import annotations

from stepwell.clock import Clock
from stepwell.errors import StoreBusy
from stepwell.records import SilentWorker
from stepwell.store.store import Store
from stepwell.telemetry import SessionsRecovered


class Recovery:
    """One observer of the other sessions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watch = Watch(store.clock, store.options.lease / 3)

    async def look(self) -> set[int]:
        """Bury what is dead. Returns the queues that have tasks to claim because of it."""
        try:
            silent = await self._store.sessions.silent()
        except BaseException:
            self._watch.interrupted()
            raise
        dead = {worker.worker_id: worker for worker in self._watch.dead_among(silent)}
        dead.update({worker.worker_id: worker for worker in await self._store.sessions.proven_dead()})
        rows = await self._store.sessions.return_stranded()
        buried: list[int] = []
        for worker in dead.values():
            try:
                returned = await self._store.sessions.bury(worker)
            except StoreBusy:
                continue  # its fence is locked: the next look tries again, and the others are not to wait for it
            if returned is not None:
                buried.append(worker.worker_id)
                rows += returned
        if buried or rows:
            self._store.telemetry.emit(SessionsRecovered(tuple(buried), len(rows)))
        return {row["queue_id"] for row in rows}


class Watch:
    """How long each silent session has been seen with the same beat, by this process's own clock."""

    def __init__(self, clock: Clock, patience: float) -> None:
        self._clock = clock
        self._patience = patience
        self._since: dict[SilentWorker, float] = {}
        self._looked: float | None = None

    def interrupted(self) -> None:
        """Forget everything: while we could not look, they could not beat."""
        self._since.clear()

    def dead_among(self, silent: list[SilentWorker]) -> list[SilentWorker]:
        """Those of the silent that have been so, unchanged and watched all along, for long enough."""
        now = self._clock.monotonic()
        if self._looked is not None and now - self._looked > 2 * self._patience:
            self.interrupted()
        self._looked = now
        self._since = {worker: self._since.get(worker, now) for worker in silent}
        return [worker for worker, since in self._since.items() if now - since >= self._patience]
