"""The verbs of a worker's session: begin, beat, end; and of workers that find another session dead."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from stepwell.base.durations import datetime_of
from stepwell.base.names import is_version
from stepwell.records import RunStatus, WorkerInfo
from stepwell.store.control import end_children
from stepwell.store.driver import Call, Hint, Outside, Pulse, Row, Script, SessionGuards, Value
from stepwell.store.ends import tell_ends
from stepwell.store.ordered_groups import groups_of, let_next_go
from stepwell.store.rows import Claimed, Owned, SeenWorker
from stepwell.store.settle import wake_parents
from stepwell.store.tasks import claimed_of

if TYPE_CHECKING:
    from stepwell.store.database import Database


MOST_RETURNED: Final = 1000
PATIENCE: Final = 0.5  # seconds that recovery waits for a lock
GONE: Final = Hint("0", frozenset(), gone=True)  # sent by a process that listens to nothing itself


@dataclass(frozen=True, slots=True)
class Identity:
    """The name and place of a worker; for people, no decision depends on it."""

    name: str
    host: str
    pid: int
    port: int | None
    version: str
    handlers: Sequence[str]


class Sessions:
    """Worker sessions in one store."""

    def __init__(self, database: Database) -> None:
        self._db, self._driver = database, database.driver

    async def begin(self, identity: Identity, lease: int, helper: str | None = None) -> int:
        """Register a session that may write from now on; its id was never used before."""
        return await self._driver.transact(lambda: self._begin(identity, lease, helper))

    async def serve(self, worker_id: int, handlers: Sequence[str]) -> None:
        """Say what a session serves from now on."""
        params: dict[str, Value] = {"worker": worker_id, "handlers": json.dumps(list(handlers))}
        await self._driver.write(Call("serve_also", params))

    async def end(self, worker_id: int, reason: str) -> None:
        """End a session at its own request; its tasks are given back, their attempts count, and none is a suspect."""
        await self._driver.transact(lambda: self._end(Call("end_beat", {"worker": worker_id}), worker_id, reason))
        self._driver.guards.release(worker_id)

    def pulse(self) -> Pulse:
        """The heartbeat's own connection."""
        return self._driver.pulse()

    def beat(self, pulse: Pulse, workers: Sequence[int], timeout: float) -> tuple[set[int], list[Owned]]:
        """Keep these sessions alive. Returns those that are, and the tasks that they hold according to the database."""
        rows = [(worker,) for worker in workers]
        calls = [Call("beat", self._db.params(), rows), Call("owned", {}, rows), Call("forget_requests", {}, rows)]
        alive, owned, _ = pulse.run(calls, timeout)
        return (
            {row["id"] for row in alive},
            [Owned(row["worker"], row["id"], row["turn"]) for row in owned],
        )

    def note_helper(self, pulse: Pulse, workers: Sequence[int], helper: str, timeout: float) -> None:
        """Write which helper these sessions have, or why they have none."""
        pulse.run([Call("note_helper", {}, [(worker, helper) for worker in workers])], timeout)

    def outside(self, workers: Sequence[int]) -> Outside | None:
        """How another process beats for these sessions, and how it notes that their process is gone."""
        rows = [(worker,) for worker in workers]
        return self._driver.outside([Call("beat", self._db.params(), rows), Call("note_gone", {}, rows)], GONE)

    async def living(self) -> list[SeenWorker]:
        """Every session that has not ended, with its last beat."""
        rows = await self._driver.read(Call("living_workers", self._db.params()))
        return [
            SeenWorker(
                row["worker_id"], row["beat_at"], bool(row["silent"]), bool(row["gone"]), row["lease"] / 1_000_000
            )
            for row in rows
        ]

    def is_proven_dead(self, worker: SeenWorker) -> bool:
        """True if the session's process is certainly gone: its helper says so, or a file lock of its own is free."""
        return worker.gone or self._driver.guards.proves_dead(worker.worker_id)

    async def bury(self, dead: SeenWorker, *, until: float = math.inf) -> list[Row] | None:
        """Declare a session dead and give its tasks back, in one transaction; None if it has beaten since.

        Also None if the transaction begins after `until`, by this process's clock: what delayed us may have kept the
        session from beating too.
        """
        stop = Call("stop_beat", {"worker": dead.worker_id, "seen": dead.beat_at})
        script = partial(self._end, stop, dead.worker_id, "lost", died=True, until=until)
        # It is tried again, and no other session may wait behind it.
        returned = await self._driver.transact(script, patience=PATIENCE)
        if returned is not None:
            self._driver.guards.release(dead.worker_id)
        return returned

    async def acquit(self, worker_id: int) -> set[int]:
        """Clear the tasks lost with a session of suspicion: it was declared dead, and lives. Return their queues."""
        return await self._driver.transact(lambda: self._acquit(worker_id))

    async def return_stranded(self) -> list[Row]:
        """Give back tasks whose session ended without them: those that recovery had to skip because of a lock."""
        owners = await self._driver.read(Call("stranded_owners"))
        if not owners:
            return []
        return await self._driver.transact(lambda: self._return([row["worker"] for row in owners]))

    async def latest(self, limit: int = 100) -> list[WorkerInfo]:
        """Sessions, newest first."""
        rows = await self._driver.read(Call("workers", self._db.params(limit=limit)))
        return [_worker_info(row, self._driver.guards) for row in rows]

    def _begin(self, identity: Identity, lease: int, helper: str | None) -> Script[int]:
        [row] = yield Call(
            "begin_worker",
            self._db.params(
                name=identity.name,
                host=identity.host,
                pid=identity.pid,
                port=identity.port,
                version=identity.version,
                handlers=json.dumps(list(identity.handlers)),
                lease=lease,
            ),
        )
        worker_id: int = row["id"]
        self._db.has_broadcasts |= row["broadcasts"] is not None
        self._driver.guards.hold(worker_id)  # before others can see the session, or they would declare it dead
        yield Call("begin_fence", {}, [(worker_id, slot) for slot in range(self._db.claim_slot + 1)])
        yield Call("begin_beat", self._db.params(worker=worker_id, helper=helper))
        return worker_id

    def _end(
        self, stop: Call, worker_id: int, reason: str, *, died: bool = False, until: float = math.inf
    ) -> Script[list[Row] | None]:
        if self._db.clock.monotonic() > until:
            return None
        # A later statement gives the tasks back: only its new snapshot shows what a claim committed while we waited for
        # the fence. In one statement that task would stay RUNNING for ever.
        if not (yield stop):
            return None
        yield Call("lower_fence", {"worker": worker_id})
        yield Call("end_worker", self._db.params(worker=worker_id, reason=reason))
        if died:
            yield Call("note_loss", {"worker": worker_id})
        return (yield from self._return([worker_id]))

    def _acquit(self, worker: int) -> Script[set[int]]:
        queues: set[int] = set()
        while rows := (yield Call("acquit", self._db.params(worker=worker, limit=MOST_RETURNED))):
            queues |= {row["queue_id"] for row in rows}
        yield Call("forget_loss", {"worker": worker})
        return queues

    def _return(self, workers: Sequence[int]) -> Script[list[Row]]:
        returned: list[Row] = []
        for worker in workers:
            while rows := (yield Call("return_tasks", self._db.params(worker=worker, limit=MOST_RETURNED))):
                yield from self._db.audit.lost(self._db.params(), worker, rows)
                returned += rows
            yield Call("forget_requests_of", {"worker": worker})
        if ended := [(row["id"], row["status"], None) for row in returned if RunStatus(row["status"]).finished]:
            yield Call("end_steps", self._db.params(), ended)
        yield from tell_ends(self._db, [row["id"] for row in returned if row["status"] == "ERROR"])
        over = [row for row in returned if RunStatus(row["status"]).finished]
        yield from end_children(self._db.params(), over, set(), self._db.audit)
        yield from wake_parents(self._db.params(), returned)
        yield from let_next_go(self._db.params(), groups_of(row for row in returned if row["position"] is None))
        return returned


def _worker_info(row: Any, guards: SessionGuards) -> WorkerInfo:
    named = json.loads(row["handlers"])
    in_time = row["silent"] is not None and abs(row["silent"]) <= row["lease"]
    moment: Callable[[int | None], Any] = lambda value: None if value is None else datetime_of(value)  # noqa: E731
    return WorkerInfo(
        id=row["id"],
        name=row["name"],
        host=row["host"],
        pid=row["pid"],
        port=row["port"],
        version=row["version"],
        handlers=tuple(name for name in named if "/" not in name),
        lease=row["lease"] / 1_000_000,
        alive=in_time and not row["gone"] and not guards.proves_dead(row["id"]),
        silent=None if row["silent"] is None else row["silent"] / 1_000_000,
        started_at=moment(row["started_at"]),
        stopped_at=moment(row["stopped_at"]),
        stop_reason=row["stop_reason"],
        helper=row["helper"],
        zones=next((name.split("/")[1] for name in named if name.startswith("zones/")), None),
        reads=tuple(name for name in named if is_version(name)),
    )


class Suspects:
    """Tasks that were lost with a worker: one may have killed it, so each is executed alone until it survives.

    A claim skips them; a settle clears the suspicion.
    """

    def __init__(self, database: Database) -> None:
        self._db, self._driver = database, database.driver

    async def wait_in(self, queues: Sequence[int]) -> bool:
        """Whether a suspect of one of these queues could be executed now."""
        return bool(await self._driver.read(Call("has_suspects", self._params(queues))))

    async def claim(self, worker: int, queues: Sequence[int], *, beside: bool) -> list[Claimed]:
        """Claim one for a session that has no other task, or `beside` its other tasks; returns at most one."""
        asked_at = time.monotonic()
        params = self._params(queues, worker=worker, slot=self._db.claim_slot, beside=beside, admitted=None)
        return claimed_of(worker, await self._taken(Call("claim_alone", params), queues), queues, asked_at)

    async def take(self, queues: Sequence[int], visibility: int) -> list[Row]:
        """Take one by hand; returns at most one."""
        params = self._params(queues, visibility=visibility, admitted=None)
        return await self._taken(Call("take_suspect", params), queues)

    async def _taken(self, call: Call, queues: Sequence[int]) -> list[Row]:
        taken = await self._driver.transact(lambda: self._noted(call))
        return taken or await self._db.limited.admit_alone(call, queues)

    def _noted(self, call: Call) -> Script[list[Row]]:
        rows = yield call
        yield from self._db.audit.claimed(dict(call.params), rows)
        return rows

    def _params(self, queues: Sequence[int], **params: Value) -> dict[str, Value]:
        return self._db.params(queues=",".join(map(str, queues)), **params)
