"""The feed of all events of a store, in the order of their positions, up to the horizon."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from stepwell.errors import StoreUnusable
from stepwell.store.driver import Call, Row, Script
from stepwell.store.sql import Dialect

if TYPE_CHECKING:
    from stepwell.store.database import Database

EVENT_LOCKS: Final = "500ms"  # how long the lock of all events is waited for: those who append wait behind that
WINDOW: Final = 10_000  # positions that one read looks at, however few of their events are asked for
STANDBY: Final = (
    "this is a standby: it does not see which transactions are open on the primary, so it cannot tell which events may "
    "still come; connect to the primary"
)


class Horizon(NamedTuple):
    """Up to `at` every event is there or never will be; `head` is the highest position that was given out."""

    at: int
    head: int


@dataclass(frozen=True, slots=True)
class Appender:
    """An open transaction that has appended events; `pid` is None if it is prepared, under the name `prepared`."""

    position: int  # no event after it is shown to readers until the transaction ends
    pid: int | None
    user: str | None
    application: str | None
    prepared: str | None
    seconds: float | None  # since it began, or was prepared


class FeedRow(NamedTuple):
    """An event with its place in the store."""

    position: int
    instance_id: int
    instance_type: str
    name: str
    version: int
    type: str
    type_version: int
    data: str
    cause: str | None
    recorded_at: int


class FeedPart(NamedTuple):
    """Events in their order; every event asked for that is not after `position` is among them."""

    events: list[FeedRow]
    position: int


@dataclass(eq=False)
class EventFeed:
    """Reads the events of one tenant; what it has read never changes, and nothing comes in between later."""

    _db: Database

    async def horizon(self) -> Horizon:
        """How far a reader may go now: what is read after this call is complete up to there."""
        [row] = await self._db.repeat(lambda: self._db.driver.read(Call("horizon")))
        if row["standby"]:
            raise StoreUnusable(STANDBY)
        return Horizon(row["horizon"], row["head"])

    async def between(self, after: int, horizon: int, types: Collection[str] | None, limit: int) -> FeedPart:
        """The first events after a position, up to a horizon that was read before; of these types, or of all."""
        until = min(horizon, after + WINDOW)
        if until <= after:
            return FeedPart([], after)
        named = None if types is None else json.dumps(sorted(types))
        call = Call("events_between", self._db.params(after=after, until=until, types=named, limit=limit))
        rows = [feed_row(row) for row in await self._db.repeat(lambda: self._db.driver.read(call))]
        return FeedPart(rows, rows[-1].position if len(rows) == limit else until)

    async def appenders(self, limit: int = 10) -> list[Appender]:
        """The open transactions that have appended events, the one that holds the horizon up first."""
        rows = await self._db.repeat(lambda: self._db.driver.read(Call("appenders", {"limit": limit})))
        return [Appender(*row) for row in rows]


def hold_events(dialect: Dialect) -> Script[None]:
    """Wait until no transaction that has appended is open, and let none append until this one ends."""
    if dialect == "postgres":  # the others have one writer
        yield Call("patience", {"locks": EVENT_LOCKS})
        yield Call("lock_events")


def feed_row(row: Row) -> FeedRow:
    return FeedRow(
        row["position"],
        row["instance_id"],
        row["instance_type"],
        row["name"],
        row["version"],
        row["type"],
        row["type_version"],
        row["data"],
        row["cause"],
        row["recorded_at"],
    )
