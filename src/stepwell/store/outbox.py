"""The outbox in the database: which outboxes there are, and the tasks of the events that are emitted for them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack

from stepwell.errors import QueueNotFound
from stepwell.store.add import add_joined
from stepwell.store.driver import Call, Row, Script
from stepwell.store.emission import KEPT, Emission, EventOptions, Route, emission_of, kept_only, together
from stepwell.store.held_keys import Ended
from stepwell.store.transaction import Tx, headers_here

if TYPE_CHECKING:
    from stepwell.store.database import Database

KNOWN: Final = 1.0  # seconds for which a process goes by the outboxes that it has read
PIECE: Final = 100  # kept events that one transaction moves to the outboxes that take them now


@dataclass(eq=False)
class Outboxes:
    """The outboxes of one tenant."""

    _db: Database
    serves: bool = False  # this process serves an outbox, so it looks for events that are kept
    _read: tuple[float, Sequence[Route]] | None = None

    async def emit(self, type: str, data: Any, tx: object = None, **options: Unpack[EventOptions]) -> str:
        """Write an event for each outbox that takes it, in a transaction of its own or in the user's; return its id."""
        self._db.check()
        emission = self.emission(type, data, **options)
        if tx is not None:
            if await self._is_missing(emission):
                await self._db.new_tasks.share(kept_only(emission), tx)
            queues = await self._db.transactions.play(self._joining(emission), tx)
            if isinstance(tx, Tx):
                tx.touched.update(queues)
            return emission.id
        try:
            await self._db.new_tasks.add(emission.drafted(await self.routes(emission.type)))
        except QueueNotFound:  # the outbox was removed since they were read
            self.forget()
            await self._db.new_tasks.add(emission.drafted(await self.routes(emission.type)))
        return emission.id

    def emit_here(self, type: str, data: Any, tx: object, **options: Unpack[EventOptions]) -> str:
        """As `emit`, through the user's own sync connection, in the user's thread, which is this one."""
        emission = self.emission(type, data, **options)
        if asyncio.run_coroutine_threadsafe(self._is_missing(emission), self._db.loop).result():
            self._db.new_tasks.share_here(kept_only(emission), tx)
        self._db.transactions.play_here(self._joining(emission), tx)
        return emission.id

    def emission(self, type: str, data: Any, **options: Unpack[EventOptions]) -> Emission:
        """An event, checked and encoded; nothing is written yet."""
        said = emission_of(type, data, limit=self._db.options.payload_limit, **options)
        return replace(said, headers=headers_here())

    def writing(self, emissions: Sequence[Emission]) -> Script[set[int]]:
        """Write events as results of pending work, in a transaction that the caller has begun; their queues."""
        routes = yield from self.reading()
        drafted = together(emissions, routes).led_to()
        yield from add_joined(self._db.params(), drafted, self._db.living, Ended(self._db.audit))
        return {one.queue_id for one in routes for each in emissions if one.takes(each.type)}

    def locking(self, emissions: Sequence[Emission]) -> Script[None]:
        """Lock the ordered groups of these events, before anything that comes later in the order of locks."""
        ordered = [one for one in emissions if one.ordered]
        routes = (yield from self.reading()) if ordered else ()
        groups = {(one.queue_id, each.subject) for one in routes for each in ordered if one.takes(each.type)}
        if groups:
            yield Call("join_groups", self._db.params(), [(*group, "wait", 0, 1) for group in sorted(groups)])

    async def routes(self, type: str) -> Sequence[Route]:
        """The outboxes, read within the last second; anew if none of them takes this type."""
        known = self._known
        if known is None or not any(one.takes(type) for one in known):
            rows = await self._db.repeat(lambda: self._db.driver.read(Call("outboxes", self._db.params())))
            known = self._learnt(rows)
        return known

    def reading(self) -> Script[Sequence[Route]]:
        """The outboxes as a transaction sees them."""
        return [_route(row) for row in (yield Call("outboxes", self._db.params()))]

    def forget(self) -> None:
        """Read the outboxes again before the next event."""
        self._read = None

    async def register(self, routes: Sequence[Route]) -> None:
        """Say which events these outboxes take from now on. What was kept for them before goes first."""
        self.serves = True
        placed = [replace(one, queue_id=await self._db.queue_id(one.queue, create=True)) for one in routes]
        while not await self._db.transact(partial(self._registering, placed)):
            pass
        self.forget()
        self._db.wakeups.hint({one.queue_id for one in placed})

    async def adopt(self) -> bool:
        """Move events that were kept to the outboxes that take them now; True if there may be more."""
        moved = await self._db.transact(self._adopting_now)
        if moved:
            self._db.wakeups.hint({one.queue_id for one in await self.routes("")})
        return moved == PIECE

    async def positions(self, ids: Sequence[int]) -> dict[int, int]:
        """Where these tasks stand in the order of their subjects."""
        call = Call("positions_of", rows=[(task_id,) for task_id in ids])
        rows = await self._db.repeat(lambda: self._db.driver.read(call))
        return {row["id"]: row["position"] for row in rows if row["position"] is not None}

    @property
    def _known(self) -> Sequence[Route] | None:
        """The outboxes that were read lately."""
        if self._read is None or time.monotonic() - self._read[0] > KNOWN:
            return None
        return self._read[1]

    def _learnt(self, rows: Sequence[Row]) -> Sequence[Route]:
        routes = [_route(row) for row in rows]
        self._read = (time.monotonic(), routes)
        return routes

    def _joining(self, emission: Emission) -> Script[Collection[str]]:
        drafted = emission.drafted((yield from self.reading()))
        yield from add_joined(self._db.params(), drafted, self._db.living, Ended(self._db.audit))
        return drafted.queues.keys()

    async def _is_missing(self, emission: Emission) -> bool:
        """Whether the queue of what is kept may have to be created before the user's transaction needs it."""
        if self._db.driver.key_slot is None:  # one writer: it is created inside of the user's transaction
            return False
        return not any(one.takes(emission.type) for one in await self.routes(emission.type))

    def _registering(self, routes: Sequence[Route]) -> Script[bool]:
        """Move what is kept for these outboxes; if that was all, they are registered in the same transaction."""
        others = [one for one in (yield from self.reading()) if one.queue_id not in {each.queue_id for each in routes}]
        if (yield from self._adopting([*others, *routes])) >= PIECE:
            return False
        for one in sorted(routes, key=lambda one: one.queue_id):
            params = self._db.params(queue_id=one.queue_id, types=json.dumps(one.types), most=one.max_attempts)
            yield Call("put_outbox", {**params, "after_dead": one.after_dead})
        return True

    def _adopting_now(self) -> Script[int]:
        return (yield from self._adopting((yield from self.reading())))

    def _adopting(self, routes: Sequence[Route]) -> Script[int]:
        """Write kept events anew for the outboxes that take them, at most `PIECE`, the first ones; return how many."""
        queues = yield Call("kept_queues", self._db.params())
        found: list[Row] = []
        for queue in queues:
            type_ = queue["name"].removeprefix(KEPT)
            if any(one.takes(type_) for one in routes):
                found += yield Call("kept_events", self._db.params(queue_id=queue["id"], limit=PIECE))
        first = sorted(found, key=lambda row: (row["created_at"], row["id"]))[:PIECE]
        if first:
            yield Call("remove_kept", {}, [(row["id"],) for row in first])
            again = [Emission.again(row["input"], row["created_at"], row["headers"]) for row in first]
            drafted = together(again, routes).led_to()
            yield from add_joined(self._db.params(), drafted, self._db.living, Ended(self._db.audit))
        return len(first)


def _route(row: Row) -> Route:
    return Route(row["queue"], tuple(json.loads(row["types"])), row["after_dead"], row["max_attempts"], row["queue_id"])
