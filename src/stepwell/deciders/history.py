"""The history of instances: their states, now and earlier, and their events."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from stepwell.base.durations import datetime_of
from stepwell.base.names import check_key
from stepwell.deciders.diagram import status_of
from stepwell.deciders.mailbox import KnownInstance, Memory
from stepwell.deciders.proposal import Envelope, restored, schema_of
from stepwell.deciders.registry import Family, Registry
from stepwell.decision import Decision
from stepwell.errors import InvalidOption, SubjectForgotten
from stepwell.records import DeadLetter, Page, RunStatus, TaskKind
from stepwell.store.database import Database
from stepwell.store.inspection import inspect
from stepwell.store.instances import EventRow, Instance, InstanceQuery
from stepwell.values.codec import decode, encode

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class EventInfo:
    """An event of an instance; `type` is the name that it was recorded under, `event` the value as this code has it."""

    version: int
    position: int  # its number in the order of all events of the store
    type: str
    event: Any  # None if its subject was forgotten
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
    """An unfinished effect, timer or submitted input of an instance; `name` is that of the effect or the input."""

    id: int
    kind: TaskKind
    name: str
    key: str | None  # a timer's, or an input's own
    status: RunStatus
    due: datetime | None
    attempt: int
    last_error: str | None


@dataclass(frozen=True, slots=True)
class Inspection(Generic[S]):
    """An instance as it was at one moment: `state`, `status` and `events` are those at its version `at`.

    `version` is the number of its events at that moment, and what is `outstanding` or dead is what was so then.
    """

    type: str
    id: str
    version: int
    at: int
    state: S
    status: str | None  # as its decider's `state_info` says, if it has one
    events: Sequence[EventInfo]  # the last ones, in their order
    outstanding: Sequence[OutstandingInfo]  # effects and timers, the first due first, then submitted inputs
    dead_letters: Sequence[DeadLetter]
    created_at: datetime | None  # None if it has no events yet
    last_event_at: datetime | None
    completed_at: datetime | None


@dataclass(frozen=True, slots=True)
class DryRun(Generic[S]):
    """What an input would lead to at this version of its instance: the decision, and the state after it.

    An instance that has ended decides nothing: `decision` is None, and the state is what it is.
    """

    version: int
    decision: Decision[Any, Any, Any] | None
    state: S


class InstanceReader:
    """Reads the instances of the registered deciders."""

    def __init__(self, database: Database, registry: Registry, memory: Memory) -> None:
        self._db = database
        self._registry = registry
        self._memory = memory

    async def known(self, family: Family, id: str) -> KnownInstance:
        """The current state of an instance; a state in memory saves reading its events again."""
        known = self._memory.get((family.type, check_key(id, "instance")))
        if family.forgettable:
            known = None  # it may have been forgotten: then its state is known no more
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
        rows = await self._db.decisions.events(instance.id, after, instance.version)
        return [info for row in rows for info in _event_infos(family, id, row)]

    async def instances(self, type: str | None, limit: int, after: str | None) -> Page[InstanceInfo]:
        """Instances by type and id."""
        self._db.check()
        after_type, _, after_name = (after or ":").partition(":")
        rows = await self._db.decisions.instances(type, (after_type, after_name), limit + 1)
        found = [_instance_info(row) for row in rows[:limit]]
        return Page(found, next=f"{found[-1].type}:{found[-1].id}" if len(rows) > limit else None)

    async def outstanding(self, type: str, id: str) -> list[OutstandingInfo]:
        """The unfinished effects and timers of an instance."""
        self._db.check()
        return [outstanding_info(row) for row in await self._db.decisions.open_tasks(type, check_key(id, "instance"))]

    async def inspect(self, family: Family, id: str, at: int | None, limit: int) -> Inspection[Any]:
        """An instance with everything that belongs to it, as it was at one moment."""
        self._db.check()
        query = InstanceQuery(type=family.type, name=check_key(id, "instance"), schema=schema_of(family), until=at)
        found = await inspect(self._db.decisions, query, limit)
        version = 0 if found.instance is None else found.instance.version
        if at is not None and at > version:
            raise InvalidOption("at", at, f"{family.type} {id} has {version} events")
        state = _state_of(family, found.instance)
        info = None if found.row is None else _instance_info(found.row)
        return Inspection(
            type=family.type,
            id=id,
            version=version,
            at=version if at is None else at,
            state=state,
            status=None if state is None else status_of(family.decider, state),
            events=[info for row in found.events for info in _event_infos(family, id, row)],
            outstanding=[outstanding_info(row) for row in found.outstanding],
            dead_letters=found.dead_letters,
            created_at=None if info is None else info.created_at,
            last_event_at=None if info is None else info.last_event_at,
            completed_at=None if info is None else info.completed_at,
        )

    async def dry_run(self, family: Family, input: Any) -> DryRun[Any]:
        """Decide an input and write nothing; what could not be stored is refused as it would be."""
        id = family.identify(input)  # noqa: A001 - the word for it everywhere
        known = await self.known(family, id)
        if known.is_completed:
            return DryRun(known.version, None, known.state)
        now = await self._db.decisions.now()
        decision = family.decide(known.state, input, datetime_of(now))
        written = family.written(decision, id, now, limit=self._db.options.payload_limit)
        return DryRun(known.version, decision, family.evolved(known.state, [one.value for one in written.events]))

    async def _look(self, family: Family, id: str, known: int | None, until: int | None = None) -> Instance | None:
        self._db.check()
        query = InstanceQuery(type=family.type, name=id, schema=schema_of(family), known=known, until=until)
        return await self._db.decisions.look(query)


def _state_of(family: Family, instance: Instance | None) -> Any:
    """The state for people: None if it cannot be known, since the subject of its events was forgotten."""
    try:
        return family.decider.initial() if instance is None else restored(family, instance, None)
    except SubjectForgotten:
        return None


def _event_infos(family: Family, id: str, row: EventRow) -> Iterator[EventInfo]:
    what, at = f"event {row.version} of {family.type} {id}", datetime_of(row.recorded_at)
    try:
        events = family.events.read(row.type, row.type_version, row.data, what=what)
    except SubjectForgotten:
        events = (None,)
    for part, event in enumerate(events):
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


def state_as_json(family: Family, id: str, state: Any) -> Any:
    """A state as JSON has it: dicts, lists, strings and numbers."""
    return decode(encode(state, limit=sys.maxsize, what=f"state of {family.type} {id}"))


def outstanding_info(row: Mapping[str, Any]) -> OutstandingInfo:
    """What a task of an instance is, for people."""
    kind, envelope = TaskKind(row["kind"]), Envelope.read(row["input"])
    timer = None if row["key"] is None else row["key"].partition(":")[2]  # stored as `stored_key` makes it
    return OutstandingInfo(
        id=row["id"],
        kind=kind,
        name=envelope.type if envelope.dead_letter is None else f"effect {envelope.dead_letter} was given up",
        key=envelope.key if kind is TaskKind.INPUT else timer,
        status=RunStatus(row["status"]),
        due=None if row["run_at"] is None else datetime_of(row["run_at"]),
        attempt=row["attempt"],
        last_error=row["last_error"],
    )
