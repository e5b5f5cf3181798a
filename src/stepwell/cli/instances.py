"""What `stepwell decider` tells of one instance, and an input as it is typed. Only `look_at` asks a store."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from stepwell.cli.exits import NOT_FOUND, USAGE, Stop
from stepwell.cli.given import fitted, parsed, whole
from stepwell.cli.output import ago, plain, short, span
from stepwell.decider_engine import Engine
from stepwell.deciders.reading import OutstandingInfo
from stepwell.decision import Decision
from stepwell.durations import datetime_of
from stepwell.family import Family
from stepwell.machine import StateMachineView
from stepwell.store.decisions import EventRow, Wanted
from stepwell.store.store import Store

NO_CODE: Final = 0  # the schema of snapshots that nobody here can read
MOST_EVENTS: Final = 30


@dataclass(frozen=True, slots=True)
class Look:
    """An instance as it stood: `at` is the version that is shown, `states` those before and at it, if code tells."""

    type: str
    id: str
    version: int
    at: int
    ended: bool
    events: Sequence[EventRow]
    outstanding: Sequence[OutstandingInfo]
    states: tuple[Any, Any] | None
    status: str | None


async def look_at(store: Store, engine: Engine | None, type: str, id: str, at: int | None) -> Look:
    """Read what there is to show of an instance; ends the command if it has no events."""
    family = None if engine is None else engine.registry.of_type(type)
    standing = await store.decisions.look(Wanted(type=type, name=id, schema=NO_CODE, until=0))
    if standing is None:
        raise Stop(NOT_FOUND, f"there is no {type} {id}", f"stepwell decider ls {type}")
    if at is not None and at > standing.version:
        raise Stop(
            NOT_FOUND, f"{type} {id} has {standing.version} events, and no version {at}", f"--at {standing.version}"
        )
    shown = standing.version if at is None else at
    events = await store.decisions.events(standing.id, 0, shown)
    states = status = None
    if engine is not None and family is not None:
        before = await engine.state(family.decider.__class__, id, at=max(0, shown - 1))
        states = before, await engine.state(family.decider.__class__, id, at=shown)
        view = family.decider
        status = view.state_info(states[1]).status if isinstance(view, StateMachineView) else None
    waits = await (engine or Engine(store)).outstanding(type, id)
    return Look(type, id, standing.version, shown, standing.is_completed, events, waits, states, status)


def known(look: Look) -> dict[str, Any]:
    """An instance for `--json`."""
    events = [
        {"version": one.version, "type": one.type, "data": json.loads(one.data), "recorded_at": _moment(one)}
        for one in look.events
    ]
    return {
        **{name: getattr(look, name) for name in ("type", "id", "version", "at", "ended", "status", "outstanding")},
        "state": None if look.states is None else _told(look.states[1]),
        "events": events,
    }


def lines_of(look: Look) -> list[str]:
    """An instance for people."""
    place = f"version {look.version}" if look.at == look.version else f"version {look.at} of {look.version}"
    about = [f"{look.type} {look.id}", *([look.status] if look.status else []), place]
    ended = ["ended" if look.at == look.version else "ended later"] if look.ended else []
    lines = ["   ".join([*about, *ended])]
    if look.states is not None:
        lines += [f"state  {short(_told(look.states[1]), 200)}", *_difference(*look.states)]
    left_out = len(look.events) - MOST_EVENTS
    lines += ["", *([f"  … {left_out} earlier events: --json has them"] if left_out > 0 else [])]
    width = max([len(one.type) for one in look.events], default=0)
    for one in look.events[-MOST_EVENTS:]:
        lines.append(
            f"  {one.version:>4}  {one.type:<{width}}  {ago(_moment(one)):>10}  {short(json.loads(one.data), 100)}"
        )
    return [*lines, *_waiting(look), ""]


def input_of(family: Family, given: Sequence[str]) -> Any:
    """The input that was typed: the name of its class and its fields, or the whole as JSON."""
    first, *rest = given
    if first not in family.inputs.by_name:
        if rest or first.isidentifier():
            names = ", ".join(family.inputs.by_name)
            raise Stop(USAGE, f"{family.type} has no input {first}", f"one of {names}")
        return family.inputs.read_named(whole(first))
    _, fields = parsed(rest)
    types = typing.get_type_hints(family.inputs.by_name[first])
    return family.inputs.read_named({first: fitted(fields, types)})


def told(decision: Decision[Any, Any, Any]) -> dict[str, list[str]]:
    """What a decision is made of, in words."""
    return {
        "events": [_named(one) for one in decision.events],
        "effects": [_named(one) for one in decision.effects],
        "timers": [f"{_named(one.input)}{_due(one)}{f', key {one.key}' if one.key else ''}" for one in decision.timers],
        "cancelled": list(decision.cancelled),
        "triggers": [str(one) for one in decision.triggers],
        "messages": [f"to {getattr(one.queue, 'queue', one.queue)}: {short(one.payload)}" for one in decision.messages],
    }


def _due(timer: Any) -> str:
    if timer.at is not None:
        return f" at {datetime_of(timer.at).isoformat()}"
    return f" in {span((timer.after or 0) / 1_000_000)}"


def _named(value: Any) -> str:
    return f"{type(value).__name__} {short(_told(value), 150)}"


def _told(state: Any) -> Any:
    """A value of the user's as JSON, where it can be."""
    from stepwell.codec import encode
    from stepwell.errors import StepwellError

    try:
        return json.loads(encode(state, what="value"))
    except StepwellError:
        return plain(state)


def _difference(before: Any, after: Any) -> Iterator[str]:
    """What the last of the events shown has changed, field by field, where a state has fields."""
    old, new = _told(before), _told(after)
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            yield f"  - {name}: {short(old.get(name))}"
            yield f"  + {name}: {short(new.get(name))}"


def _waiting(look: Look) -> list[str]:
    if not look.outstanding or look.at != look.version:
        return []
    lines = ["", "still to come"]
    for one in look.outstanding:
        key = f" {one.key}" if one.key else ""
        tried = f", attempt {one.attempt}: {short(one.last_error or '', 60)}" if one.last_error else ""
        due = "now" if one.due is None or one.due <= datetime.now(UTC) else ago(one.due)
        lines.append(f"  {one.kind}{key}  {one.name}  due {due}{tried}")
    return lines


def _moment(event: EventRow) -> datetime:
    return datetime_of(event.recorded_at)
