"""The claim of a limited queue: who has a place, whose turn it is, and what begins.

On Postgres it is one statement, so that no client holds the limiter while it does something else. An embedded database
has one writer: there the same walk is a script of small statements in one transaction.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.rows import Claimed
from stepwell.store.tasks import claimed_of

if TYPE_CHECKING:
    from stepwell.store.database import Database

MOST_TRIES: Final = 5
LONGEST_PAUSE: Final = 0.005  # seconds between two tries
VISITS: Final = 1000  # keys that one claim looks at, if all of them are blocked
NO_LIMIT: Final = 1_000_000
KEYS_A_STATEMENT: Final = 50


class LimitedClaims:
    """Claims from limited queues, for sessions and by hand."""

    def __init__(self, database: Database) -> None:
        self._db, self._driver = database, database.driver

    async def claim(self, worker: int, queue_id: int, limit: int) -> list[Claimed]:
        """Claim up to `limit` tasks of a limited queue for a session, those of its keys in turns."""
        asked_at = time.monotonic()
        rows = await self._taken(queue_id, limit, worker=worker, visibility=None)
        return claimed_of(worker, rows, [queue_id], asked_at)

    async def take(self, queue_id: int, limit: int, visibility: int) -> list[Row]:
        """Take up to `limit` messages by hand, each for this many microseconds."""
        return await self._taken(queue_id, limit, worker=None, visibility=visibility)

    async def admit_alone(self, call: Call, queue_ids: Collection[int]) -> list[Row]:
        """Take a suspect of those of the queues that are limited, by this statement, if there is a place for it."""
        limited = await self._db.limiters.limited(queue_ids)
        if not limited:
            return []
        asked = Call(call.statement, {**call.params, "queues": ",".join(map(str, sorted(limited)))})
        return await self._driver.transact(partial(self._alone, asked))

    async def _taken(self, queue_id: int, limit: int, **asked: Value) -> list[Row]:
        params = self._db.params(queue_id=queue_id, slot=self._db.claim_slot, limit=limit, visits=VISITS, **asked)
        for _ in range(MOST_TRIES):
            rows = await self._claimed(params)
            if not rows or rows[0]["id"] != 0:
                return rows
            if rows[0]["kind"] == "gone":
                break
            await asyncio.sleep(LONGEST_PAUSE * self._db.clock.random())  # others have claimed just now
        self._db.limiters.changed()
        return []

    async def _claimed(self, params: dict[str, Value]) -> list[Row]:
        if not self._driver.claims_many_queues:
            return await self._driver.transact(lambda: self._noted(params, claim_by_steps(params)))
        if self._db.audit.everything:
            return await self._driver.transact(lambda: self._noted(params, _said(Call("claim_limited", params))))
        [rows] = await self._driver.run(self._db.claim_slot, [Call("claim_limited", params)])
        return rows

    def _noted(self, params: dict[str, Value], claiming: Script[list[Row]]) -> Script[list[Row]]:
        rows = yield from claiming
        yield from self._db.audit.claimed(params, [row for row in rows if row["id"] != 0])
        return rows

    def _alone(self, call: Call) -> Script[list[Row]]:
        params = call.params
        found = yield Call("limited_suspects", {name: params[name] for name in ("now", "queues")})
        if not found:
            return []
        queue_id, key = found[0]["queue_id"], found[0]["limit_key"]
        limiters = yield Call("lock_limiter", {"queue_id": queue_id})
        places = yield Call("places", {"queue_id": queue_id})
        said = yield Call("key_limit", {"queue_id": queue_id, "limit_key": key})
        if limiters:
            row, own = limiters[0], said[0] if said else None
            keys = KeyTurns.of(row, places)
            most = NO_LIMIT if row["running"] is None else row["running"]
            is_paused = own is not None and own["paused_at"] is not None
            if len(places) >= most or is_paused or keys.free(key, None if own is None else own["running"]) <= 0:
                return []
            yield Call("admit", {"queue_id": queue_id, "id": found[0]["id"]})
        taken = yield Call(call.statement, {**params, "admitted": found[0]["id"]})
        yield from self._db.audit.claimed(dict(params), taken)
        return taken


def _said(call: Call) -> Script[list[Row]]:
    return (yield call)


@dataclass(slots=True)
class KeyTurns:
    """How many of each key have a place, and how many may."""

    per_key: int | None
    running: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, limiter: Row, places: Sequence[Row]) -> KeyTurns:
        """Those of a limiter and of the places that are taken."""
        keys = cls(limiter["per_key"])
        for row in places:
            keys.running[row["limit_key"]] = keys.running.get(row["limit_key"], 0) + 1
        return keys

    def free(self, key: str, most: int | None) -> int:
        """How many more of a key may begin."""
        most = self.per_key if most is None else most
        return NO_LIMIT if most is None else most - self.running.get(key, 0)


@dataclass(slots=True)
class Turn:
    """A key that has free places, and how many of it begin in each round."""

    key: str
    free: int
    weight: int


def claim_by_steps(params: dict[str, Value]) -> Script[list[Row]]:
    """The claim of a limited queue where there is one writer: the walk of `claim_limited`, statement by statement."""
    opened = yield Call("open_limiter", params)
    if not opened:
        return []
    limiter = opened[0]
    places = yield Call("places", params)
    most = NO_LIMIT if limiter["running"] is None else limiter["running"]
    room = min(int(params["limit"] or 0), most - len(places))
    if room <= 0:
        return []
    turns, last, steps = yield from _walk(params, limiter, KeyTurns.of(limiter, places), room)
    weights = sum(turn.weight for turn in turns)
    ready: list[list[int]] = []
    for turn in turns:
        share = min(turn.free, turn.weight * -(-room // weights))
        rows = yield Call("ready_of_key", {**params, "limit_key": turn.key, "limit": share})
        ready.append([row["id"] for row in rows])
    picked = list(_in_rounds(turns, ready))[:room]
    if not picked and steps < VISITS:
        return []
    cursor, remaining = last, 0
    if picked:
        turn, nth, _ = picked[-1]
        cursor, remaining = turn.key, turn.weight - 1 - nth % turn.weight
    ids = [task_id for _, _, task_id in picked]
    admitted = json.dumps([row["id"] for row in places] + ids)
    yield Call("keep_limiter", {**params, "admitted": admitted, "cursor": cursor, "remaining": remaining})
    return (yield Call("take_picked", {**params, "ids": ",".join(map(str, ids))})) if ids else []


def _walk(params: dict[str, Value], limiter: Row, keys: KeyTurns, room: int) -> Script[tuple[list[Turn], str, int]]:
    """The keys whose turn it is, beginning after the one served last, or with it if its turn is not over.

    As many as there is room for, or all that may go on; and the last key that was looked at, and how many were.
    """
    cursor, remaining = str(limiter["cursor"]), int(limiter["remaining"])
    turns: list[Turn] = []
    last, steps, lap, after, is_behind = cursor, 0, 0, cursor, remaining == 0
    while True:
        most = min(room - len(turns), KEYS_A_STATEMENT) + 1
        rows = yield Call("keys_ahead", {**params, "after": after, "most": most})
        for row in rows:
            key = row["limit_key"]
            if is_behind and key == after:
                continue
            if lap and (key > cursor or (key == cursor and remaining > 0)):
                return turns, last, steps
            weight = remaining if steps == 0 and remaining > 0 and key == cursor else row["weight"] or 1
            last, steps = key, steps + 1
            free = 0 if row["paused_at"] is not None else keys.free(key, row["running"])
            turns += [Turn(key, free, weight)] if free > 0 else []
            if len(turns) >= room or steps >= VISITS:
                return turns, last, steps
        after, is_behind = (rows[-1]["limit_key"], True) if rows else (after, is_behind)
        if len(rows) < most:
            if lap:
                return turns, last, steps
            lap, after, is_behind = 1, "", False


def _in_rounds(turns: Sequence[Turn], ready: Sequence[Sequence[int]]) -> Iterator[tuple[Turn, int, int]]:
    """The tasks in the order in which they begin: in each round as many of a key as its weight."""
    first = 0
    while any(len(ids) > first * turn.weight for turn, ids in zip(turns, ready, strict=True)):
        for turn, ids in zip(turns, ready, strict=True):
            for nth in range(first * turn.weight, min(len(ids), (first + 1) * turn.weight)):
                yield turn, nth, ids[nth]
        first += 1
