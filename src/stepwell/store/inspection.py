"""An instance with everything that belongs to it, read in one snapshot of the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stepwell.records import DeadLetter
from stepwell.store.dead_letters import dead_letter, dead_letters_of
from stepwell.store.decisions import Decisions, event_of, instance_of
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.instances import EventRow, Instance, InstanceQuery


class Inspected(NamedTuple):
    """What was found of an instance; `row` and `instance` are None if it has no events."""

    row: Row | None
    instance: Instance | None  # with the events that its state needs
    events: Sequence[EventRow]  # the last ones up to the version that was asked for
    outstanding: Sequence[Row]  # its unfinished effects, timers and submitted inputs
    dead_letters: Sequence[DeadLetter]


async def inspect(decisions: Decisions, query: InstanceQuery, limit: int) -> Inspected:
    """Read an instance with up to `limit` of its events, of its submitted inputs and of its dead letters each."""
    return await decisions.snapshot(lambda params: _inspected(params, query, limit))


def _inspected(params: dict[str, Value], query: InstanceQuery, limit: int) -> Script[Inspected]:
    named: dict[str, Value] = {**params, "type": query.type, "name": query.name, "limit": limit}
    found = yield Call("look_at_instances", params, [(query.type, query.name, query.known)])
    instance, events = None, list[EventRow]()
    if found:
        instance = instance_of(query, found[0])
        last = instance.version if query.until is None else min(query.until, instance.version)
        first = max(0, last - limit)
        rows = yield Call("events_after", rows=[(instance.id, min(first, instance.base), last)])
        events = [event_of(row) for row in rows]
        instance.tail = [one for one in events if one.version > instance.base]
        events = [one for one in events if one.version > first]
    tasks = yield Call("open_tasks_of", named)
    inputs = yield Call("open_inputs_of", {**named, "inputs": f"{query.type}:inputs"})
    dead = yield dead_letters_of(params, query.type, query.name, limit)
    return Inspected(found[0] if found else None, instance, events, [*tasks, *inputs], [*map(dead_letter, dead)])
