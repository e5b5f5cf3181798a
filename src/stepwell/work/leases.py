"""The sessions of one worker: one for each lease among the queues and workflows that it serves.

So a claim belongs to one session, with one fence, and a worker that is silent for one lease loses only the tasks that
it claimed under that lease. All sessions beat together (`heartbeat.py`).
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from stepwell.base.events import SessionStarted
from stepwell.errors import StepwellError
from stepwell.store.database import Database
from stepwell.store.rows import Owned
from stepwell.store.sessions import Identity
from stepwell.work.body import Served
from stepwell.work.heartbeat import Heartbeat
from stepwell.work.session import Session


class Leases:
    """The sessions of a worker, one for each lease, in the order of the leases; empty while it is stopped."""

    def __init__(
        self,
        database: Database,
        identity: Identity,
        on_lost: Callable[[Session], None],
        on_orphans: Callable[[Session, list[Owned]], None],
    ) -> None:
        self._db = database
        self._identity = identity
        self._on_lost = on_lost
        self._on_orphans = on_orphans
        self._sessions: dict[float, Session] = {}
        self._are_all = False  # true after the first one has begun: the database may go away before the next

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(self._sessions.values()))

    def lease_of(self, served: Served | None) -> float:
        """The lease of what is served, in seconds: its own, or the store's."""
        return self._db.options.lease if served is None or served.lease is None else served.lease

    def of(self, served: Served | None) -> Session | None:
        """The session under which this is executed."""
        return self._sessions.get(self.lease_of(served))

    @property
    def are_living(self) -> bool:
        """Whether it is registered with all of its leases, and none of its sessions is known to be lost."""
        return bool(self._sessions) and self._are_all and not any(session.lost for session in self)

    @property
    def are_claiming(self) -> bool:
        """True while a claim is on its way."""
        return any(session.is_claiming for session in self)

    async def begin(self, served: Mapping[str, Served]) -> None:
        """Begin the missing sessions, each for what is served under its lease; prefixes are under the store's lease.

        A lost session is ended first: its process lives, so none of its tasks is a suspect. Raises while the database
        is away; sessions that were begun before that stay. When this returns, the supervisor knows the sessions: if
        the process is killed in the moment of its first claim, the task need not wait for the lease.
        """
        self._are_all = False
        for session in self:
            if session.lost:
                self._db.wakeups.hint(await self._db.sessions.acquit(session.id))
                await self._end(session, stopping=False)
        handlers = self._handlers(served)
        heartbeat = Heartbeat.of(self._db)
        for lease in [lease for lease in handlers if lease not in self._sessions]:
            identity = replace(self._identity, handlers=handlers[lease])
            worker_id = await self._db.sessions.begin(identity, int(lease * 1_000_000), heartbeat.helper.kind)
            session = Session(worker_id, self._on_lost, self._on_orphans, lease=lease)
            self._sessions[lease] = session
            heartbeat.add(session)
            self._db.telemetry.emit(SessionStarted(worker_id))
        await heartbeat.known()
        self._sessions = {lease: self._sessions[lease] for lease in handlers}
        self._are_all = True

    async def serve_also(self, queue: str, served: Mapping[str, Served]) -> None:
        """Register one more queue with its session, for people, and with each that is begun from now on."""
        self._identity = replace(self._identity, handlers=(*self._identity.handlers, queue))
        if (session := self.of(served[queue])) is not None:
            await self._db.sessions.serve(session.id, self._handlers(served)[session.lease])

    async def end(self, *, stopping: bool) -> None:
        """End all sessions; the tasks that they still hold are given back."""
        for session in self:
            await self._end(session, stopping=stopping)

    def drop(self) -> None:
        """Beat for no session any more, and tell the database nothing: others have their tasks when the leases end."""
        for session in self:
            Heartbeat.of(self._db).drop(session)
            session.end()
        self._sessions.clear()

    def _handlers(self, served: Mapping[str, Served]) -> Mapping[float, Sequence[str]]:
        handlers: defaultdict[float, list[str]] = defaultdict(list)
        names = self._identity.handlers
        for name in (one for one in names if "/" not in one):
            body = served.get(name)
            registered = handlers[self.lease_of(body)]
            registered += [name, *(() if body is None else (one for one in body.reads if one not in registered))]
        marks = [one for one in names if "/" in one]  # what it declares is no queue, and needs no session of its own
        handlers[next(iter(handlers), self._db.options.lease)] += marks
        return handlers

    async def _end(self, session: Session, *, stopping: bool) -> None:
        self._sessions.pop(session.lease, None)
        heartbeat = Heartbeat.of(self._db)
        try:
            await heartbeat.remove(session)
        finally:
            session.end()
        with contextlib.suppress(StepwellError):  # otherwise the lease ends it
            if session.lost and stopping:
                await self._db.sessions.acquit(session.id)
            await self._db.sessions.end(session.id, "lost" if session.lost else "stopped")
        await heartbeat.left()
