"""An instance of a decider at any of its versions: the events around it, and the way through its states.

However many events an instance has, a bounded number of them is shown; a state long ago is computed from those before.
"""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Any, Final

from stepwell.deciders.diagram import StateInfo, StateMachine, status_of
from stepwell.deciders.history import OutstandingInfo, outstanding_info
from stepwell.deciders.registry import Family
from stepwell.engine import Engine
from stepwell.errors import InvalidOption
from stepwell.operate.instance import NO_CODE, changed_fields, recorded_at, value_as_json
from stepwell.operate.lookup import NameRefused
from stepwell.records import DeadLetter
from stepwell.store.instances import EventRow, InstanceQuery
from stepwell.store.store import Store
from stepwell.values.named_codecs import shown_value

BEFORE: Final = 60  # events that are shown up to the version that is looked at, ...
AFTER: Final = 30  # ... and behind it
MOST_DEAD: Final = 20
STRIDE: Final = 1_000  # versions between two states that are kept
MOST_WAYPOINTS: Final = 256

Step = tuple[str, str, str]  # a status, the event that left it, and the status that this led to


@dataclass(frozen=True, slots=True)
class PastEvent:
    """An event as it is shown: `status` is that of the state after it, if the decider's code says it."""

    version: int
    type: str
    data: Any
    at: datetime
    cause: str | None
    status: str | None


@dataclass(frozen=True, slots=True)
class Visit:
    """An instance at the version `at`, of `version` in all; the state is None without the decider's code."""

    type: str
    id: str
    version: int
    at: int
    ended: bool
    events: Sequence[PastEvent]
    has_code: bool
    state: Any
    status: str | None
    changes: Sequence[tuple[str, Any, Any]]
    machine: StateMachine | None
    way: Mapping[Step, int]
    outstanding: Sequence[OutstandingInfo]
    dead_letters: Sequence[DeadLetter]
    trouble: str | None = None  # why the state could not be computed


@dataclass
class Waypoints:
    """States that were computed before, at round versions of instances, so that a slider does not begin at the first.

    Each is copied in and out: nothing is known of what a decider's code does to a state that it is given.
    """

    engine: Engine | None = None
    states: dict[tuple[int, int], Any] = field(default_factory=dict)

    async def state(self, engine: Engine, family: Family, instance: int, name: str, at: int) -> Any:
        """The state of an instance at a version."""
        if at < STRIDE:
            return await engine.state(family.decider.__class__, name, at=at)
        if self.engine is not engine:
            self.engine, self.states = engine, {}
        key = instance, at - at % STRIDE
        if (known := self.states.pop(key, None)) is None:
            known = await engine.state(family.decider.__class__, name, at=key[1])
        with contextlib.suppress(Exception):  # a state that cannot be copied is computed again
            self.states[key] = copy.deepcopy(known)
        while len(self.states) > MOST_WAYPOINTS:
            del self.states[next(iter(self.states))]
        for row in await engine.store.database.decisions.events(instance, key[1], at):
            events = family.events.read(row.type, row.type_version, row.data, what=f"event {row.version}")
            known = family.evolved(known, events)
        return known


async def visit(
    store: Store, engine: Engine | None, type: str, id: str, at: int | None, *, waypoints: Waypoints
) -> Visit:
    """Read an instance at a version, or as it is; `NameRefused` if it has no events."""
    decisions = store.database.decisions
    store.database.check()
    found = await decisions.look(InstanceQuery(type=type, name=id, schema=NO_CODE, until=0))
    if found is None or not found.version:
        raise NameRefused("missing", f"there is no {type} {id}", f"stepwell decider ls {type}")
    at = found.version if at is None else min(max(at, 0), found.version)
    first, last = max(0, at - BEFORE), min(found.version, at + AFTER)
    rows = await decisions.events(found.id, first, last)
    family = None if engine is None else engine.registry.of_type(type) if type in _types(engine) else None
    told = Told(None, None, (None,) * len(rows), {}, None)
    if engine is not None and family is not None:
        told = await _told(partial(waypoints.state, engine, family, found.id, id, first), family, rows, at=at)
    return Visit(
        type=type,
        id=id,
        version=found.version,
        at=at,
        ended=found.is_completed,
        events=[_past(row, status) for row, status in zip(rows, told.statuses, strict=True)],
        has_code=family is not None,
        state=value_as_json(told.after),
        status=None if family is None or told.trouble else seen_status(family.decider, told.after),
        changes=[] if told.trouble else list(changed_fields(told.before, told.after)),
        machine=None if family is None else machine_of(family),
        way=told.way,
        outstanding=[outstanding_info(row) for row in await decisions.open_tasks(type, id)],
        dead_letters=await store.dead_letters(instance=(type, id), limit=MOST_DEAD),
        trouble=told.trouble,
    )


@dataclass(frozen=True, slots=True)
class Told:
    """What the decider's code tells of the events that are shown."""

    before: Any
    after: Any
    statuses: Sequence[str | None]
    way: Mapping[Step, int]
    trouble: str | None


async def _told(
    before_them: Callable[[], Awaitable[Any]], family: Family, rows: Sequence[EventRow], *, at: int
) -> Told:
    """The states before and at the version, and the status after each event, from the state before them all."""
    decider = family.decider
    try:
        state = await before_them()
        before = after = state
        statuses: list[str | None] = []
        way: Counter[Step] = Counter()
        for row in rows:
            left, came_from = seen_status(decider, state), state
            events = family.events.read(row.type, row.type_version, row.data, what=f"event {row.version}")
            state = family.evolved(state, events)
            statuses.append(seen_status(decider, state))
            if row.version == at:
                before, after = came_from, state
            if row.version <= at and left is not None and statuses[-1] is not None:
                way[left, row.type, statuses[-1] or ""] += 1
    except Exception as error:  # noqa: BLE001 - the code of the application; the page shows its events all the same
        return Told(None, None, (None,) * len(rows), {}, f"{type(error).__name__}: {error}")
    return Told(before, after, statuses, way, None)


def machine_of(family: Family) -> StateMachine | None:
    """The states that a decider declares; None if it declares none."""
    try:
        return StateMachine.of(family.decider)
    except InvalidOption:
        return None


def seen_status(decider: Any, state: Any) -> str | None:
    """The status of a state: as its decider says it, else a `status` that the state itself has; None without either."""
    if (declared := status_of(decider, state)) is not None:
        return declared
    found = state.get("status") if isinstance(state, Mapping) else getattr(state, "status", None)
    return found.name if isinstance(found, Enum) else found if isinstance(found, str) else None


def observed_machine(type: str, way: Mapping[Step, int]) -> StateMachine | None:
    """The states that were observed, where none are declared; None if there were none."""
    first = next(iter(way), None)
    unviewed: Any = None  # no decider has declared them
    return None if first is None else StateMachine(type, unviewed, (StateInfo(first[0]),), {})


def _types(engine: Engine) -> set[str]:
    return {family.type for family in engine.registry}


def _past(row: EventRow, status: str | None) -> PastEvent:
    return PastEvent(row.version, row.type, shown_value(row.data), recorded_at(row), row.cause, status)
