"""Definitions of workflows: a row beside that of the queue; both are created and removed together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from stepwell.base.durations import datetime_of, microseconds_of
from stepwell.base.events import NoWorker
from stepwell.base.names import is_served
from stepwell.errors import NoWorkerAvailable, Refused, WorkflowNotFound
from stepwell.records import WorkflowInfo
from stepwell.store.draft import RequireWorker
from stepwell.store.driver import Call, Row, Script, SessionGuards, Value
from stepwell.store.ids import Remembered

if TYPE_CHECKING:
    from stepwell.store.database import Database

MOST_RACES: Final = 3


@dataclass(eq=False)
class Workflows:
    """The workflows of one tenant in one store."""

    _db: Database
    names: Remembered = field(default_factory=Remembered)  # the numbers of their queues that were read lately

    async def create(self, name: str, patience: float | None = None) -> int:
        """Create the workflow and its queue if they do not exist; return the queue's number either way."""
        # Read first, so that nothing is written twice.
        if found := await self._db.driver.read(find_workflow(self._db.params(), name)):
            if found[0]["ordered"]:
                self._db.new_tasks.in_order.add(found[0]["id"])
            return self.names.learn(name, found[0]["id"])
        made = await self._db.driver.transact(lambda: create_workflow(self._db.params(), name), patience=patience)
        return self.names.learn(name, made)

    async def find(self, name: str) -> int:
        """The number of the queue of an existing workflow."""
        found = await self._db.driver.read(find_workflow(self._db.params(), name))
        if not found:
            raise WorkflowNotFound(name)
        if found[0]["ordered"]:
            self._db.new_tasks.in_order.add(found[0]["id"])
        return self.names.learn(name, found[0]["id"])

    async def describe(self, queue_id: int, options: dict[str, Any], cleanup: float | None) -> None:
        """Store the options of a workflow, for processes that do not have its code."""
        text = json.dumps(options) if options else None
        span = None if cleanup is None else microseconds_of(cleanup, "cleanup")
        params = self._db.params(queue_id=queue_id, options=text, cleanup=span)
        await self._db.driver.transact(lambda: _one(Call("describe_workflow", params)))

    async def all(self) -> list[WorkflowInfo]:
        """Every workflow, by name."""
        return [
            _workflow_info(row) for row in await self._db.driver.read(Call("workflows", self._db.params(name=None)))
        ]

    async def get(self, name: str) -> WorkflowInfo:
        """One workflow."""
        rows = await self._db.driver.read(Call("workflows", self._db.params(name=name)))
        if not rows:
            raise WorkflowNotFound(name)
        return _workflow_info(rows[0])


def create_workflow(params: dict[str, Value], name: str) -> Script[int]:
    """Create a workflow and its queue, whichever is missing; return the queue's number."""
    params = {**params, "name": name}
    for _ in range(MOST_RACES):
        yield Call("add_queue", params)
        # Locked, so that no other transaction deletes it before the workflow's row exists; gone if one was quicker.
        if held := (yield Call("hold_queue", params)):
            queue_id: int = held[0]["id"]
            yield Call("add_workflow", {**params, "queue_id": queue_id})
            return queue_id
    raise Refused(f"the queue {name} was made by a transaction that this one cannot see; roll back and try again")


def _one(call: Call) -> Script[None]:
    yield call


def find_workflow(params: dict[str, Value], name: str) -> Call:
    """Ask for the number of a workflow's queue."""
    return Call("find_workflow", {**params, "name": name})


def _workflow_info(row: Any) -> WorkflowInfo:
    options = {} if row["options"] is None else json.loads(row["options"])
    return WorkflowInfo(name=row["name"], created_at=datetime_of(row["created_at"]), options=options)


REMEMBERED: Final = 1.0  # seconds, for a warning; an error is never raised on remembered values


def living(rows: Iterable[Row], guards: SessionGuards) -> list[Row]:
    """The sessions that were heard of in time, without those whose process is known to be gone."""
    return [row for row in rows if not row["gone"] and not guards.proves_dead(row["id"])]


@dataclass(eq=False)
class Living:
    """The workflows that living workers of one tenant serve, and what a trigger does if none serves its workflow."""

    _db: Database
    _served: frozenset[str] = frozenset()
    _learned_at: float | None = None
    _learning: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def check(self, required: Mapping[str, RequireWorker]) -> None:
        """Warn of workflows that no living worker serves, or raise `NoWorkerAvailable`, as each policy says.

        A burst of triggers that only warn costs one small read.
        """
        asks = _asks(required)
        if asks == "error":
            self._judge(required, await self._learn())
        elif asks == "warn":
            async with self._learning:
                served = self._served if self._is_fresh else await self._learn()
            self._judge(required, served)

    def checking(self, required: Mapping[str, RequireWorker]) -> Script[None]:
        """The same inside a user's transaction, and only through its connection."""
        asks = _asks(required)
        if asks == "error" or (asks == "warn" and not self._is_fresh):
            self._judge(required, self._learned((yield self._asking())))
        elif asks == "warn":
            self._judge(required, self._served)

    @property
    def _is_fresh(self) -> bool:
        return self._learned_at is not None and self._db.clock.monotonic() - self._learned_at < REMEMBERED

    async def _learn(self) -> frozenset[str]:
        return self._learned(await self._db.repeat(lambda: self._db.driver.read(self._asking())))

    def _asking(self) -> Call:
        return Call("living_handlers", self._db.params(beat_now=self._db.clock.beat_now()))

    def _learned(self, rows: Sequence[Row]) -> frozenset[str]:
        rows = living(rows, self._db.driver.guards)
        self._served = frozenset(name for row in rows for name in json.loads(row["handlers"]))
        self._learned_at = self._db.clock.monotonic()
        return self._served

    def _judge(self, required: Mapping[str, RequireWorker], served: Iterable[str]) -> None:
        alone = {name: policy for name, policy in required.items() if not is_served(name, served)}
        for name, policy in alone.items():
            if policy == "error":
                raise NoWorkerAvailable(name)
        for name, policy in alone.items():
            if policy == "warn":
                self._db.telemetry.emit(NoWorker(name))


def _asks(required: Mapping[str, RequireWorker]) -> RequireWorker:
    """The strictest of the policies."""
    policies = required.values()
    return "error" if "error" in policies else "warn" if "warn" in policies else "ignore"
