"""Finding dead sessions and giving their tasks back. Every worker does it; nobody is elected.

A session is dead when its beat is older than its lease by the database's clock, *and* this observer has seen it so,
unchanged, for a third of the lease by its own clock; or has seen it unchanged for two thirds, twice the time between
beats, while it was not yet late. The first alone would kill every healthy session right after an outage or a jump of
the clock. What was seen before a wait for the database proves nothing either: meanwhile nobody could beat.

Its helper's word that its process is gone proves death at once; so does, in an embedded store, a free file lock.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from stepwell.clock import Clock
from stepwell.errors import StoreBusy
from stepwell.records import RunStatus, SeenWorker
from stepwell.telemetry import SessionsRecovered

if TYPE_CHECKING:
    from stepwell.store.opened import Opened

Beat = tuple[int, int]  # a session and the moment of its last beat


class Recovery:
    """One observer of the other sessions."""

    def __init__(self, store: Opened) -> None:
        self._store = store
        self._patience = store.options.lease / 3
        self._watch = Watch(store.clock, self._patience)

    def interrupted(self) -> None:
        """The database was away: what was seen before proves nothing."""
        self._watch.interrupted()

    async def look(self) -> set[int]:
        """Bury what is dead. Returns the queues that have tasks to claim because of it."""
        try:
            living = await self._store.sessions.living()
        except BaseException:
            self.interrupted()
            raise
        proven = {one for one in living if self._store.sessions.is_proven_dead(one)}
        dead = proven.union(self._watch.dead_among(living))
        soon = self._store.clock.monotonic() + self._patience
        rows = await self._store.sessions.return_stranded()
        buried: list[int] = []
        for worker in sorted(dead, key=lambda one: one.worker_id):
            try:
                returned = await self._store.sessions.bury(worker, until=math.inf if worker in proven else soon)
            except StoreBusy:
                continue  # its fence is locked: the next look tries again, and the others are not to wait for it
            if returned is not None:
                buried.append(worker.worker_id)
                rows += returned
        if ended := [row["id"] for row in rows if RunStatus(row["status"]).finished]:
            self._store.results.finished(ended)  # lost once too often: whoever waits for them hears it now
        if buried or rows:
            self._store.telemetry.emit(SessionsRecovered(tuple(buried), len(rows)))
        return {row["queue_id"] for row in rows}


class Watch:
    """How long each session has been seen with the same beat, and silent, by this process's own clock."""

    def __init__(self, clock: Clock, patience: float) -> None:
        self._clock = clock
        self._patience = patience
        self._unchanged: dict[Beat, float] = {}
        self._silent: dict[Beat, float] = {}
        self._looked: float | None = None

    def interrupted(self) -> None:
        """Forget everything: while we could not look, they could not beat."""
        self._unchanged.clear()
        self._silent.clear()

    def dead_among(self, living: list[SeenWorker]) -> list[SeenWorker]:
        """Those of the living that are silent and have been watched, without a gap, for long enough."""
        now = self._clock.monotonic()
        if self._looked is not None and now - self._looked > 2 * self._patience:
            self.interrupted()
        self._looked = now
        beats = {(worker.worker_id, worker.beat_at): worker for worker in living}
        self._unchanged = {beat: self._unchanged.get(beat, now) for beat in beats}
        self._silent = {beat: self._silent.get(beat, now) for beat, worker in beats.items() if worker.silent}
        return [
            beats[beat]
            for beat, since in self._silent.items()
            if now - since >= self._patience or now - self._unchanged[beat] >= 2 * self._patience
        ]
