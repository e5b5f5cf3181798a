"""One instance of a decider for people: its events, state and outstanding work, and a decision in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from stepwell.base.durations import datetime_of
from stepwell.deciders.diagram import status_of
from stepwell.deciders.history import DryRun, OutstandingInfo, outstanding_info
from stepwell.engine import Engine
from stepwell.errors import StepwellError
from stepwell.operate.format import plain, short, span
from stepwell.operate.lookup import NameRefused
from stepwell.records import DeadLetter
from stepwell.store.inspection import inspect
from stepwell.store.instances import EventRow, InstanceQuery
from stepwell.store.store import Store
from stepwell.values.codec import encode
from stepwell.values.named_codecs import shown_value

NO_CODE: Final = 0  # the schema of snapshots that no code here can read
MOST: Final = 10_000  # events that are read to be shown


@dataclass(frozen=True, slots=True)
class InstanceView:
    """An instance at the version `at`; `states` are those before and at it, if the decider's code is available."""

    type: str
    id: str
    version: int
    at: int
    ended: bool
    events: Sequence[EventRow]
    outstanding: Sequence[OutstandingInfo]
    dead_letters: Sequence[DeadLetter]
    states: tuple[Any, Any] | None
    status: str | None


async def view_of(store: Store, engine: Engine | None, type: str, id: str, at: int | None) -> InstanceView:
    """Read all that is shown of an instance; raises `NameRefused` if it has no events, or no such version."""
    family = None if engine is None else engine.registry.of_type(type)
    found = await inspect(store.database.decisions, InstanceQuery(type=type, name=id, schema=NO_CODE, until=at), MOST)
    if found.instance is None:
        raise NameRefused("missing", f"there is no {type} {id}", f"stepwell decider ls {type}")
    version = found.instance.version
    if at is not None and at > version:
        said = f"{type} {id} has {version} events, and no version {at}"
        raise NameRefused("missing", said, f"--at {version}")
    shown = version if at is None else at
    states = None
    if engine is not None and family is not None:  # what an instance was at a version does not change any more
        before = await engine.state(family.decider.__class__, id, at=max(0, shown - 1))
        states = before, await engine.state(family.decider.__class__, id, at=shown)
    return InstanceView(
        type=type,
        id=id,
        version=version,
        at=shown,
        ended=found.instance.is_completed,
        events=found.events,
        outstanding=[outstanding_info(row) for row in found.outstanding],
        dead_letters=found.dead_letters,
        states=states,
        status=None if family is None or states is None else status_of(family.decider, states[1]),
    )


def as_json(look: InstanceView) -> dict[str, Any]:
    """An instance as JSON has it."""
    events = [
        {"version": one.version, "type": one.type, "data": shown_value(one.data), "recorded_at": recorded_at(one)}
        for one in look.events
    ]
    return {
        **{name: getattr(look, name) for name in ("type", "id", "version", "at", "ended", "status", "outstanding")},
        "dead_letters": look.dead_letters,
        "state": None if look.states is None else value_as_json(look.states[1]),
        "events": events,
    }


def changed_fields(before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    """Each field that differs between two states, with both values, where a state has fields."""
    old, new = value_as_json(before), value_as_json(after)
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            yield name, old.get(name), new.get(name)


def parts_of(dry: DryRun[Any]) -> dict[str, list[str]]:
    """The parts of a decision, in words; none if the instance has ended."""
    if (decision := dry.decision) is None:
        return {}
    return {
        "events": [_named(one) for one in decision.events],
        "effects": [_named(one) for one in decision.effects],
        "timers": [f"{_named(one.input)}{_due(one)}{f', key {one.key}' if one.key else ''}" for one in decision.timers],
        "cancelled": list(decision.cancelled),
        "triggers": [str(one) for one in decision.triggers],
        "messages": [f"to {getattr(one.queue, 'queue', one.queue)}: {short(one.payload)}" for one in decision.messages],
    }


def value_as_json(value: Any) -> Any:
    """A value of the application as JSON, as far as possible."""
    try:
        return json.loads(encode(value, what="value"))
    except StepwellError:
        return plain(value)


def recorded_at(event: EventRow) -> datetime:
    """When an event was recorded."""
    return datetime_of(event.recorded_at)


def _named(value: Any) -> str:
    return f"{type(value).__name__} {short(value_as_json(value), 150)}"


def _due(timer: Any) -> str:
    if timer.at is not None:
        return f" at {datetime_of(timer.at).isoformat()}"
    return f" in {span((timer.after or 0) / 1_000_000)}"
