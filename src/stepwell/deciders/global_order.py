"""The feed of an engine: the events of all instances in one order, as values of their classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from stepwell.base.durations import datetime_of
from stepwell.deciders.registry import Registry
from stepwell.errors import SubjectForgotten
from stepwell.store.horizon import EventFeed, FeedRow
from stepwell.values.named_codecs import FORGOTTEN_VALUE, shown_value


@dataclass(frozen=True, slots=True)
class At:
    """The place of an event: `position` in the order of all events, `version` in that of its instance `(type, id)`."""

    position: int
    type: str
    id: str
    version: int
    event_type: str  # the name under which the event's class is stored, with its version
    event_version: int
    cause: str | None  # the input that led to it
    recorded_at: datetime
    part: int = 0  # of an event that upcasters split; all parts have one position


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """An event and its place; a decider that this engine does not know gives its events as plain JSON."""

    at: At
    event: Any


@dataclass(frozen=True, slots=True)
class Feed:
    """Events in their order. Go on from `position`: no event up to there will come any more.

    `horizon` is how far readers can go now, `head` the highest position that was given out: between the two are events
    of transactions that have not ended.
    """

    events: Sequence[FeedEvent]
    position: int
    horizon: int
    head: int


class FeedReader:
    """Reads the feed of a store with the classes of the registered deciders."""

    def __init__(self, feed: EventFeed, registry: Registry) -> None:
        self._feed = feed
        self._registry = registry

    async def since(self, position: int, limit: int) -> Feed:
        """The first events after a position."""
        horizon, head = await self._feed.horizon()
        rows, reached = await self._feed.between(position, horizon, None, limit)
        events = [FeedEvent(at, event) for row in rows for at, event in self.parts(row)]
        return Feed(events, reached, horizon, head)

    def parts(self, row: FeedRow) -> Sequence[tuple[At, Any]]:
        """The event with its place: several if it was split, none if it was dropped or its subject forgotten."""
        if (family := self._registry.known(row.instance_type)) is None:
            return [] if row.data == FORGOTTEN_VALUE else [(place_of(row, 0), shown_value(row.data))]
        what = f"event {row.version} of {row.instance_type} {row.name}"
        try:
            parts = family.events.read(row.type, row.type_version, row.data, what=what)
        except SubjectForgotten:
            return []
        return [(place_of(row, number), event) for number, event in enumerate(parts)]


def place_of(row: FeedRow, part: int) -> At:
    """Where an event stands."""
    return At(
        row.position,
        row.instance_type,
        row.name,
        row.version,
        row.type,
        row.type_version,
        row.cause,
        datetime_of(row.recorded_at),
        part,
    )
