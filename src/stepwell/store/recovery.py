"""Finding dead sessions and giving their tasks back. Every worker does it; there is no leader."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from stepwell.base.clock import Clock
from stepwell.base.events import SessionsRecovered
from stepwell.errors import StoreBusy
from stepwell.records import RunStatus
from stepwell.store.poll import SWEEP_EVERY
from stepwell.store.rows import SeenWorker

if TYPE_CHECKING:
    from stepwell.store.database import Database

Beat = tuple[int, int]  # a session and the moment of its last beat


class Recovery:
    """One observer of the other sessions."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._watch = Watch(database.clock)
        self.look_every = _look_every([database.options.lease])  # seconds until the next look, at the most

    def interrupted(self) -> None:
        """The database was away: earlier observations prove nothing."""
        self._watch.interrupted()

    async def look(self) -> set[int]:
        """End the dead sessions. Returns the queues that have tasks to claim because of it."""
        try:
            living = await self._db.sessions.living()
        except BaseException:
            self.interrupted()
            raise
        self.look_every = _look_every([self._db.options.lease, *(one.lease for one in living)])
        proven = {one for one in living if self._db.sessions.is_proven_dead(one)}
        dead = proven.union(self._watch.dead_among(living))
        now = self._db.clock.monotonic()
        rows = await self._db.sessions.return_stranded()
        buried: list[int] = []
        for worker in sorted(dead, key=lambda one: one.worker_id):
            try:
                soon = math.inf if worker in proven else now + patience(worker)
                returned = await self._db.sessions.bury(worker, until=soon)
            except StoreBusy:
                continue  # its fence is locked: the next look tries again, and the other sessions must not wait for it
            if returned is not None:
                buried.append(worker.worker_id)
                rows += returned
        if ended := [row["id"] for row in rows if RunStatus(row["status"]).finished]:
            self._db.results.finished(ended)  # lost once too often: the callers that wait for them are told now
        if buried or rows:
            self._db.telemetry.emit(SessionsRecovered(tuple(buried), len(rows)))
        return {row["queue_id"] for row in rows}


class Watch:
    """How long this process has seen each session silent and with the same beat, by its own clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._unchanged: dict[Beat, float] = {}
        self._silent: dict[Beat, float] = {}
        self._looked: float | None = None

    def interrupted(self) -> None:
        """Forget everything: while we could not look, the sessions could not beat."""
        self._unchanged.clear()
        self._silent.clear()

    def dead_among(self, living: list[SeenWorker]) -> list[SeenWorker]:
        """Those of the sessions that are silent and have been watched, without a gap, for long enough."""
        now = self._clock.monotonic()
        unseen, self._looked = 0.0 if self._looked is None else now - self._looked, now
        beats = {(worker.worker_id, worker.beat_at): worker for worker in living}
        for beat, worker in beats.items():
            if unseen > 2 * patience(worker):  # we could not look, so perhaps it could not beat
                self._unchanged.pop(beat, None)
                self._silent.pop(beat, None)
        self._unchanged = {beat: self._unchanged.get(beat, now) for beat in beats}
        self._silent = {beat: self._silent.get(beat, now) for beat, worker in beats.items() if worker.silent}
        return [
            beats[beat]
            for beat, since in self._silent.items()
            if now - since >= patience(beats[beat]) or now - self._unchanged[beat] >= 2 * patience(beats[beat])
        ]


def patience(worker: SeenWorker) -> float:
    """Seconds that a session is watched before it counts as dead: the time between two of its beats."""
    return worker.lease / 3


def _look_every(leases: Iterable[float]) -> float:
    """How often to look, so that the shortest of these leases is watched without a gap."""
    return min(SWEEP_EVERY, min(leases) / 6)
