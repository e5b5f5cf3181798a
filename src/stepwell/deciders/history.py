"""The history of instances: their states, now and earlier, and their events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from stepwell.base.durations import datetime_of
from stepwell.base.names import check_key
from stepwell.deciders.mailbox import KnownInstance, Memory
from stepwell.deciders.proposal import Envelope, restored, schema_of, stored_key
from stepwell.deciders.registry import Family, Registry
from stepwell.errors import InvalidOption
from stepwell.records import Page, RunStatus, TaskKind
from stepwell.store.instances import EventRow, Instance, InstanceQuery
from stepwell.store.store import Store


@dataclass(frozen=True, slots=True)
class EventInfo:
    """An event of an instance; `type` is the name that it was recorded under, `event` the value as this code has it."""

    version: int
    position: int  # its number in the order of all events of the store
    type: str
    event: Any
    cause: str | None  # the input that led to it
    recorded_at: datetime
    part: int = 0  # its place among the events that an upcaster has split it into, which share version and position


@dataclass(frozen=True, slots=True)
class InstanceInfo:
    """The current state of an instance; `version` is the number of its events."""

    type: str
    id: str
    version: int
    created_at: datetime
    last_event_at: datetime
    completed_at: datetime | None


@dataclass(frozen=True, slots=True)
class OutstandingInfo:
    """An unfinished effect or timer of an instance; `name` is the effect's, or that of the timer's input."""

    id: int
    kind: TaskKind
    name: str
    key: str | None  # a timer's
    status: RunStatus
    due: datetime | None
    attempt: int
    last_error: str | None


class InstanceReader:
    """Reads the instances of the registered deciders."""

    def __init__(self, store: Store, registry: Registry, memory: Memory) -> None:
        self._store = store
        self._registry = registry
        self._memory = memory

    async def known(self, family: Family, id: str) -> KnownInstance:
        """The current state of an instance; a state in memory saves reading its events again."""
        known = self._memory.get((family.type, check_key(id, "instance")))
        instance = await self._look(family, id, None if known is None else known.version)
        if instance is None:
            return KnownInstance(0, 0, family.decider.initial(), is_completed=False, snapshot_version=0)
        state = restored(family, instance, known)
        held = KnownInstance(instance.id, instance.version, state, instance.is_completed, instance.snapshot_version)
        if instance.version:
            self._memory.put((family.type, id), held)
        return held

    async def state_at(self, family: Family, id: str, at: int) -> Any:
        """The state of an instance after its first `at` events."""
        instance = await self._look(family, check_key(id, "instance"), None, at)
        there = 0 if instance is None else instance.version
        if at > there:
            raise InvalidOption("at", at, f"{family.type} {id} has {there} events")
        return family.decider.initial() if instance is None else restored(family, instance, None)

    async def events(self, family: Family, id: str, after: int) -> list[EventInfo]:
        """The events of an instance after a version."""
        instance = await self._look(family, check_key(id, "instance"), None, 0)
        if instance is None or instance.version <= after:
            return []
        rows = await self._store.decisions.events(instance.id, after, instance.version)
        return [info for row in rows for info in _event_infos(family, id, row)]

    async def instances(self, type: str | None, limit: int, after: str | None) -> Page[InstanceInfo]:
        """Instances by type and id."""
        self._store.check()
        after_type, _, after_name = (after or ":").partition(":")
        rows = await self._store.decisions.instances(type, (after_type, after_name), limit + 1)
        found = [_instance_info(row) for row in rows[:limit]]
        return Page(found, next=f"{found[-1].type}:{found[-1].id}" if len(rows) > limit else None)

    async def outstanding(self, type: str, id: str) -> list[OutstandingInfo]:
        """The unfinished effects and timers of an instance."""
        self._store.check()
        return [
            _outstanding_info(row) for row in await self._store.decisions.open_tasks(type, check_key(id, "instance"))
        ]

    async def _look(self, family: Family, id: str, known: int | None, until: int | None = None) -> Instance | None:
        self._store.check()
        query = InstanceQuery(type=family.type, name=id, schema=schema_of(family), known=known, until=until)
        return await self._store.decisions.look(query)


def _event_infos(family: Family, id: str, row: EventRow) -> Iterator[EventInfo]:
    what, at = f"event {row.version} of {family.type} {id}", datetime_of(row.recorded_at)
    for part, event in enumerate(family.events.read(row.type, row.type_version, row.data, what=what)):
        yield EventInfo(row.version, row.position, row.type, event, row.cause, at, part)


def _instance_info(row: Mapping[str, Any]) -> InstanceInfo:
    completed = row["completed_at"]
    return InstanceInfo(
        type=row["type"],
        id=row["name"],
        version=row["version"],
        created_at=datetime_of(row["created_at"]),
        last_event_at=datetime_of(row["updated_at"]),
        completed_at=None if completed is None else datetime_of(completed),
    )


def _outstanding_info(row: Mapping[str, Any]) -> OutstandingInfo:
    return OutstandingInfo(
        id=row["id"],
        kind=TaskKind(row["kind"]),
        name=Envelope.read(row["input"]).type,
        key=None if row["key"] is None else row["key"].removeprefix(stored_key(row["instance_id"], "")),
        status=RunStatus(row["status"]),
        due=None if row["run_at"] is None else datetime_of(row["run_at"]),
        attempt=row["attempt"],
        last_error=row["last_error"],
    )
