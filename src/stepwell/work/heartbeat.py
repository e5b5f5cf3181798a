"""The heartbeat: a thread with its own connection to the database, for all sessions of a store.

So neither a blocked event loop, nor a busy pool, nor a thousand held tasks can make a living session look dead. While a
body holds the interpreter, which this thread needs too, a helper process beats instead (`helper_connection.py`).
Neither of them beats any more for an event loop that has been blocked for longer than `hang_after`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import traceback
from collections import defaultdict
from functools import partial
from typing import Final

from stepwell.base.backoff import waits
from stepwell.base.compat import frame_of
from stepwell.base.events import InternalTaskFailed, LoopBlocked, StoreLost
from stepwell.base.futures import ended, passed
from stepwell.errors import StepwellError, StoreClosed
from stepwell.store.database import Database
from stepwell.store.driver import Pulse
from stepwell.store.rows import Owned
from stepwell.work.helper_connection import HelperConnection
from stepwell.work.session import Session

KNOWN_WITHIN: Final = 5.0  # seconds for a line to the supervisor
FRAMES: Final = 8  # the innermost frames of the stack of a blocked loop that are reported


class Heartbeat:
    """Beats for every session of one store until it has none."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[int, Session] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._last: threading.Thread | None = None  # it may still be ending
        self._quiet = threading.Event()  # no beat is under way, and none will be, until another session is added
        self._blockade = Blockade(self._loop)
        self.helper = HelperConnection(database)

    @classmethod
    def of(cls, database: Database) -> Heartbeat:
        """The one heartbeat of a store."""
        heartbeat: Heartbeat | None = database.heartbeat
        if heartbeat is None:
            heartbeat = database.heartbeat = cls(database)
        return heartbeat

    def add(self, session: Session) -> None:
        """Begin to beat for this session."""
        with self._lock:
            self._sessions[session.id] = session
            session.beat_soon = self._wake.set
            if self._thread is not None:
                self._wake.set()  # so that the helper learns of it
            else:
                self._quiet = threading.Event()
                work = partial(self._work, self._last)
                self._last = self._thread = threading.Thread(target=work, name="stepwell-heartbeat", daemon=True)
                self._thread.start()

    async def known(self) -> None:
        """Return when the supervisor, if there is one, knows all sessions: it could not report the end of others."""
        with self._lock:
            workers = tuple(self._sessions)
        await passed(lambda: self.helper.knows(workers), KNOWN_WITHIN)

    async def remove(self, session: Session) -> None:
        """Stop beating for this session; after the last one, no beat is under way when this returns."""
        self.drop(session)
        with self._lock:
            last, quiet = (None if self._sessions else self._thread), self._quiet
        if last is not None:
            await passed(lambda: quiet.is_set() or not last.is_alive(), 5)

    def drop(self, session: Session) -> None:
        """Begin no beat for this session any more."""
        with self._lock:
            self._sessions.pop(session.id, None)
            if not self._sessions:
                self._wake.set()

    async def close(self) -> None:
        """Beat for no session of a store that is closed, and return when the thread has ended."""
        with self._lock:
            self._sessions.clear()
            self._wake.set()
        await self.left()

    async def left(self) -> None:
        """Return when the thread has ended, and the helper with it, if no session is left."""
        with self._lock:
            last = None if self._sessions else self._last
        if last is not None:
            await ended(last, 5)

    @property
    def _lease(self) -> float:
        """The shortest lease of the sessions: one beat serves all of them."""
        with self._lock:
            return min((session.lease for session in self._sessions.values()), default=self._db.options.lease)

    @property
    def _every(self) -> float:
        """Seconds between two beats: as the store says, but never more than a third of the lease."""
        third, beat = self._lease / 3, self._db.options.beat
        return third if beat is None else min(beat, third)

    def _work(self, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()  # only one thread may use the helper connection
        while self._go_on():
            try:
                self._beat_to_the_end()
            except Exception as error:  # noqa: BLE001 - no file for its connection, say: without it the worker is lost
                self._db.telemetry.emit(InternalTaskFailed("heartbeat", repr(error)))
                self._wake.wait(self._every / 2)
                self._wake.clear()
            else:
                return

    def _beat_to_the_end(self) -> None:
        """Beat until no session is left."""
        pulse = self._db.sessions.pulse()
        self.helper.open()
        try:
            while self._go_on():
                self._rest(pulse, self._every if self._is_hung() else self._beat(pulse))
        finally:
            self.helper.close()
            with contextlib.suppress(Exception):
                pulse.close()

    def _rest(self, pulse: Pulse, seconds: float) -> None:
        """Wait until the next beat, or until the helper is to be started."""
        start = self.helper.starts_in()
        if start < seconds:
            if not self._wake.wait(start):
                self._well(pulse)
            seconds -= start
        self._wake.wait(seconds)
        self._wake.clear()

    def _well(self, pulse: Pulse) -> None:
        """Tell the helper that this process is well; record it if the helper is gone."""
        with self._lock:
            leases = {worker: self._sessions[worker].lease for worker in sorted(self._sessions)}
        if leases and self.helper.well(leases):
            with contextlib.suppress(StepwellError):  # only shown to people
                self._db.sessions.note_helper(pulse, list(leases), self.helper.kind, timeout=self._every)

    def _is_hung(self) -> bool:
        """True if the loop has been blocked for too long; its stack is reported before that."""
        if (stack := self._blockade.look(self._lease)) is not None:
            self._db.telemetry.emit(LoopBlocked(self._blockade.seconds, stack))
        with self._lock:
            longest = max((session.lease for session in self._sessions.values()), default=0.0)
        hung = self._blockade.seconds >= max(self._db.options.hang_after, longest)
        if hung:
            self.helper.blocked()
        return hung

    def _go_on(self) -> bool:
        with self._lock:
            # Nothing runs on a closed loop: other workers have to recover the tasks of its sessions.
            if self._sessions and not self._loop.is_closed():
                return True
            self._thread = None
            self._quiet.set()  # also if the last session left while this thread still waited for the one before it
            return False

    def _beat(self, pulse: Pulse) -> float:
        """Beat once and return the seconds until the next beat."""
        with self._lock:
            workers = sorted(self._sessions)
        if not self.helper.knows(workers):
            self._well(pulse)  # before the database answers: until then these sessions claim nothing
        sent_at = time.monotonic()
        pauses = waits(self._every / 2, self._db.clock.random)
        while True:
            try:
                alive, owned = self._db.sessions.beat(pulse, workers, timeout=self._every)
            except StoreClosed:
                with self._lock:
                    self._sessions.clear()
                return 0.0
            except StepwellError as error:
                self._db.telemetry.emit(StoreLost.by(error))
            except Exception as error:  # noqa: BLE001 - nothing may end the heartbeat of a living worker
                self._db.telemetry.emit(InternalTaskFailed("heartbeat", repr(error)))
            else:
                self._tell(workers, alive, owned, sent_at)
                self._well(pulse)
                return max(0.0, self._every - (time.monotonic() - sent_at))
            self._well(pulse)  # the process is well and the database is not: the helper could not reach it either
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
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(session.beaten, worker in alive, by_worker[worker], sent_at)


class Blockade:
    """How long an event loop has run nothing. Created on the thread of the loop, read from another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._asked_at: float | None = None
        self._looked_at = time.monotonic()
        self._told = False
        self.seconds = 0.0

    def look(self, lease: float) -> str | None:
        """Update `seconds`, for which the loop has been blocked; return its stack when that first exceeds the lease.

        The stack is one line for the log, the innermost call first.
        """
        now = time.monotonic()
        unseen, self._looked_at = now - self._looked_at, now
        if self._asked_at is None:
            self._ask(now)
        elif unseen > lease:
            self._asked_at += unseen  # this thread did not run either: the process or its interpreter was stopped
        self.seconds = 0.0 if self._asked_at is None else now - self._asked_at
        if self.seconds <= lease or self._told:
            return None
        self._told = True
        return self._stack()

    def _ask(self, now: float) -> None:
        self._asked_at, self._told = now, False
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._asked_at = None

    def _stack(self) -> str:
        frame = frame_of(self._thread)
        calls = traceback.extract_stack(frame) if frame is not None else []
        return " < ".join(f"{call.filename}:{call.lineno} in {call.name}" for call in reversed(calls[-FRAMES:]))
