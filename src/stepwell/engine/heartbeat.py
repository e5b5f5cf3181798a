"""The heartbeat: a thread of its own with its own way to the database, for all sessions of a store.

So neither a blocked event loop, nor a busy pool, nor a thousand held tasks can make a living session look dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import defaultdict

from stepwell.backoff import waits
from stepwell.engine.session import Session
from stepwell.errors import StepwellError, StoreClosed
from stepwell.records import Owned
from stepwell.store.driver import Pulse
from stepwell.store.ending import ended
from stepwell.store.store import Store
from stepwell.telemetry import InternalTaskFailed, StoreLost


class Heartbeat:
    """Beats for every session of one store until it has none."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._every = store.options.lease / 3
        self._sessions: dict[int, Session] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, store: Store) -> Heartbeat:
        """The one heartbeat of a store."""
        heartbeat: Heartbeat | None = getattr(store, "heartbeat", None)
        if heartbeat is None:
            heartbeat = store.heartbeat = cls(store)
        return heartbeat

    def add(self, session: Session) -> None:
        """Beat for this session from now on."""
        with self._lock:
            self._sessions[session.id] = session
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="stepwell-heartbeat", daemon=True)
                self._thread.start()

    async def remove(self, session: Session) -> None:
        """Beat for it no more; when it was the last, the thread has ended when this returns."""
        with self._lock:
            self._sessions.pop(session.id, None)
            last = None if self._sessions else self._thread
        if last is not None:
            self._wake.set()
            await ended(last, 5)

    def _work(self) -> None:
        while self._go_on():
            try:
                self._beat_to_the_end()
            except Exception as error:  # noqa: BLE001 - no file for its connection, say: without it the worker is lost
                self._store.telemetry.emit(InternalTaskFailed("heartbeat", repr(error)))
                self._wake.wait(self._every / 2)
                self._wake.clear()
            else:
                return

    def _beat_to_the_end(self) -> None:
        """Beat until no session is left."""
        pulse = self._store.sessions.pulse()
        try:
            while self._go_on():
                self._wake.wait(self._beat(pulse))
                self._wake.clear()
        finally:
            with contextlib.suppress(Exception):
                pulse.close()

    def _go_on(self) -> bool:
        with self._lock:
            # On a loop that was closed under us nothing goes on: what its sessions hold must be recovered by others.
            if self._sessions and not self._loop.is_closed():
                return True
            self._thread = None
            return False

    def _beat(self, pulse: Pulse) -> float:
        """Beat once, and say how long to rest."""
        with self._lock:
            workers = sorted(self._sessions)
        sent_at = time.monotonic()
        pauses = waits(self._every / 2, self._store.clock.random)
        while True:
            try:
                alive, owned = self._store.sessions.beat(pulse, workers, timeout=self._every)
            except StoreClosed:
                with self._lock:
                    self._sessions.clear()
                return 0.0
            except StepwellError as error:
                self._store.telemetry.emit(StoreLost.by(error))
            except Exception as error:  # noqa: BLE001 - nothing may end the heartbeat of a living worker
                self._store.telemetry.emit(InternalTaskFailed("heartbeat", repr(error)))
            else:
                self._tell(workers, alive, owned, sent_at)
                return max(0.0, self._every - (time.monotonic() - sent_at))
            if self._wake.wait(next(pauses)):
                return 0.0
            sent_at = time.monotonic()

    def _tell(self, workers: list[int], alive: set[int], owned: list[Owned], sent_at: float) -> None:
        by_worker: dict[int, list[Owned]] = defaultdict(list)
        for task in owned:
            by_worker[task.worker_id].append(task)
        for worker in workers:
            with self._lock:
                session = self._sessions.get(worker)
            if session is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to hear it
                    self._loop.call_soon_threadsafe(session.beaten, worker in alive, by_worker[worker], sent_at)
