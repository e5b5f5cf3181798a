"""A worker's session: which tasks it holds, and what the database answers to its beats."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

from stepwell.base.futures import resolve
from stepwell.store.rows import Claimed, Owned

MOST_WARNED: Final = 100


class Session:
    """One registration of a worker. Used on the worker's loop only, also by the heartbeat."""

    def __init__(
        self,
        worker_id: int,
        on_lost: Callable[[Session], None],
        on_orphans: Callable[[Session, list[Owned]], None],
        *,
        lease: float,
    ) -> None:
        self.id = worker_id
        self.lease = lease  # seconds
        self.lost = False
        self.beat_soon: Callable[[], None] = lambda: None  # the heartbeat sets it
        self.renewed_at = time.monotonic()  # when the last successful beat was sent: the lease began then
        # After this moment another worker may have its tasks: no body is begun before a beat has renewed the lease.
        self.over_at = self.renewed_at + lease
        self._renewing: asyncio.Future[None] | None = None
        self._ended = False
        self.held: dict[int, int] = {}  # task id -> turn
        self._on_lost = on_lost
        self._on_orphans = on_orphans
        self._warned: set[tuple[str, str]] = set()
        self.handing: set[int] = set()  # tasks that are being added for this session, and are not held yet
        self._claim_started: float | None = None
        self._unheld: dict[tuple[int, int], float] = {}

    def claiming(self, since: float) -> None:
        """A claim begins: its tasks are not held yet."""
        self._claim_started = since

    def claimed(self, tasks: Iterable[Claimed]) -> None:
        """The claim has answered."""
        self._claim_started = None
        self.held.update({task.id: task.turn for task in tasks})

    @property
    def is_claiming(self) -> bool:
        """True while a claim is on its way."""
        return self._claim_started is not None

    def settled(self, task_id: int, turn: int) -> None:
        """A turn is closed, or given up."""
        if self.held.get(task_id) == turn:
            del self.held[task_id]

    async def renew(self, within: float) -> bool:
        """Renew the lease if its last renewal is more than `within` seconds ago; False if the session is over.

        Waits while the database is away. Concurrent callers share one beat.
        """
        asked_at = time.monotonic()
        while not (self.lost or self._ended) and self.renewed_at < asked_at - within:
            if self._renewing is None or self._renewing.done():
                self._renewing = asyncio.get_running_loop().create_future()
                self.beat_soon()
            await asyncio.shield(self._renewing)
        return not (self.lost or self._ended)

    def warns_of(self, cause: tuple[str, str]) -> bool:
        """True the first time for a queue and an error of its tasks; not for too many: senders write such errors."""
        if cause in self._warned or len(self._warned) >= MOST_WARNED:
            return False
        self._warned.add(cause)
        return True

    def end(self) -> None:
        """The last beat was sent: release those who wait for one."""
        self._ended = True
        if self._renewing is not None:
            resolve(self._renewing, None)

    def beaten(self, alive: bool, owned: list[Owned], sent_at: float) -> None:
        """Take the answer of the database to a beat that was sent at this time.

        A task that the session owns and does not hold comes from a claim whose reply was lost. Since the session lives,
        no other worker would take it; so it is given back. But only if two beats found it and no claim was under way
        since before the first beat: the tasks of such a claim look the same.
        """
        if alive:
            self.renewed_at = max(self.renewed_at, sent_at)
            self.over_at = self.renewed_at + self.lease
        if self._renewing is not None:
            resolve(self._renewing, None)
        if not alive:
            if not self.lost:
                self.lost = True
                self._on_lost(self)
            return
        unheld = {
            (task.task_id, task.turn): task
            for task in owned
            if self.held.get(task.task_id) != task.turn and task.task_id not in self.handing
        }
        oldest_claim = sent_at if self._claim_started is None else self._claim_started
        # A claim may have begun after the beat was sent and taken the task before it was answered.
        first_seen = {place: self._unheld.get(place, max(sent_at, oldest_claim)) for place in unheld}
        orphans = [task for place, task in unheld.items() if first_seen[place] < min(oldest_claim, sent_at)]
        self._unheld = first_seen
        if orphans:
            self._on_orphans(self, orphans)
