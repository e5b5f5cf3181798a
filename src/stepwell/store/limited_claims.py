"""The claim of a limited queue: who has a place, whose turn it is, what the rates allow, and what begins.

On Postgres it is one statement, so that no client holds the limiter while it does something else. An embedded database
has one writer: there the same walk is a script of small statements in one transaction.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.rates import Rates
from stepwell.store.rows import Claimed
from stepwell.store.tasks import claimed_of

if TYPE_CHECKING:
    from stepwell.store.database import Database

MOST_TRIES: Final = 5
LONGEST_PAUSE: Final = 0.005  # seconds between two tries
VISITS: Final = 1000  # keys that one claim looks at, if all of them are blocked
NO_LIMIT: Final = 1_000_000
KEYS_A_STATEMENT: Final = 50
T = TypeVar("T")
LONGEST_WAIT: Final = 60.0  # seconds after which a claim that waits for a rate is tried again, at the latest


class LimitedClaims:
    """Claims from limited queues, for sessions and by hand."""

    def __init__(self, database: Database) -> None:
        self._db, self._driver = database, database.driver
        self._ends: dict[int, tuple[int | None, asyncio.TimerHandle]] = {}  # of waits for a rate, by queue

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

    def next_begin(self) -> int | None:
        """By the clock of a test: when a rate that holds back what was just looked for allows the next task."""
        return min((at for at, _ in self._ends.values() if at is not None), default=None)

    async def _taken(self, queue_id: int, limit: int, **asked: Value) -> list[Row]:
        params = self._db.params(queue_id=queue_id, slot=self._db.claim_slot, limit=limit, visits=VISITS, **asked)
        for _ in range(MOST_TRIES):
            rows = await self._claimed(params)
            self._wait_for(queue_id, rows)
            if not rows or rows[0]["id"] != 0:
                return rows
            if rows[0]["kind"] == "wait":
                return []
            if rows[0]["kind"] == "gone":
                break
            if rows[0]["kind"] == "back":
                await self._driver.transact(partial(self._set_back, queue_id))
                continue
            await asyncio.sleep(LONGEST_PAUSE * self._db.clock.random())  # others have claimed just now
        self._db.limiters.changed()
        return []

    def _wait_for(self, queue_id: int, rows: Sequence[Row]) -> None:
        """Have who waits here for the queue look again when its rates allow the next task."""
        _, known = self._ends.pop(queue_id, (None, None))
        if known is not None:
            known.cancel()
        if rows and rows[0]["id"] == 0 and rows[0]["kind"] == "wait":
            wait, now = int(rows[0]["run_at"]), self._db.clock.now()
            looking = partial(self._db.wakeups.wake, {queue_id})
            timer = self._db.loop.call_later(min(wait / 1_000_000, LONGEST_WAIT), looking)
            self._ends[queue_id] = None if now is None else now + wait, timer

    async def _claimed(self, params: dict[str, Value]) -> list[Row]:
        if not self._driver.claims_many_queues:
            return await self._driver.transact(lambda: self._noted(params, claim_by_steps(params)))
        if self._db.audit.everything:
            return await self._driver.transact(lambda: self._noted(params, _said(Call("claim_limited", params))))
        [rows] = await self._driver.run(self._db.claim_slot, [Call("claim_limited", params)])
        return rows

    def _set_back(self, queue_id: int) -> Script[None]:
        for row in (yield Call("lock_limiter", self._db.params(queue_id=queue_id))):
            yield from Rates.locked(queue_id, row)

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
        limiters = yield Call("lock_limiter", {"now": params["now"], "queue_id": queue_id})
        places = yield Call("places", {"queue_id": queue_id})
        said = yield Call("key_limit", {"queue_id": queue_id, "limit_key": key})
        if limiters:
            row, own = limiters[0], said[0] if said else None
            keys = KeyTurns.of(row, places)
            most = NO_LIMIT if row["running"] is None else row["running"]
            is_paused = own is not None and own["paused_at"] is not None
            if len(places) >= most or is_paused or keys.free(key, None if own is None else own["running"]) <= 0:
                return []
            rates = yield from Rates.locked(queue_id, row)
            if rates.of_keys is not None:
                rates.know((yield Call("paid_of_keys", {}, [(queue_id, key)])))
            if rates.wait(key, found[0]["cost"]) > 0:
                return []
            rates.begin(key, found[0]["cost"])
            yield from rates.paying(queue_id)
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
    limiter, queue_id = opened[0], int(params["queue_id"] or 0)
    places = yield Call("places", params)
    most = NO_LIMIT if limiter["running"] is None else limiter["running"]
    room, rates = min(int(params["limit"] or 0), most - len(places)), (yield from Rates.locked(queue_id, limiter))
    if room <= 0:
        return []
    params = {**params, "wakes_cost": limiter["wakes_cost"]}
    walk = Walk(params, limiter, KeyTurns.of(limiter, places), rates, room)
    if rates.of_all is not None and rates.wait_of_all(0) >= 0:
        return [_waiting(params, rates.wait_of_all(1))]
    yield from walk.go()
    turns, weights = walk.turns, sum(turn.weight for turn in walk.turns)
    ready: list[list[tuple[int, int]]] = []
    for turn in turns:
        share = min(turn.free, turn.weight * -(-room // weights))
        rows = yield Call("ready_of_key", {**params, "limit_key": turn.key, "limit": share})
        ready.append([(row["id"], row["cost"]) for row in rows])
    picked, wait = _allowed(list(_in_rounds(turns, ready)), rates, room)
    if not picked and walk.steps < VISITS:
        return [_waiting(params, wait or walk.wait)] if wait or walk.wait else []
    cursor, remaining = walk.last, 0
    if picked:
        turn, nth, _ = picked[-1]
        cursor, remaining = turn.key, turn.weight - 1 - nth % turn.weight
    ids = [task_id for _, _, task_id in picked]
    admitted = json.dumps([row["id"] for row in places] + ids)
    kept: dict[str, Value] = {"admitted": admitted, "cursor": cursor, "remaining": remaining}
    yield Call("keep_limiter", {**params, **kept, "paid": rates.paid_after, "paid_at": rates.now})
    yield from rates.paying_keys(queue_id)
    return (yield Call("take_picked", {**params, "ids": ",".join(map(str, ids))})) if ids else []


def _waiting(params: Mapping[str, Value], wait: int) -> Row:
    """The row that says that a rate allows nothing for so many microseconds."""
    row: Any = {"id": 0, "kind": "wait", "queue_id": params["queue_id"], "run_at": wait}
    return row


Picked = tuple[Turn, int, int]  # the turn of a key, the number of a task in it, and the task


def _allowed(ranked: Sequence[tuple[Turn, int, tuple[int, int]]], rates: Rates, room: int) -> tuple[list[Picked], int]:
    """Those that the rates allow, of each key up to the first that its rate does not; if none, how long it waits."""
    picked: list[Picked] = []
    blocked, wait = set[str](), 0
    for turn, nth, (task_id, cost) in ranked:
        if len(picked) == room:
            break
        if turn.key in blocked or rates.wait_of_key(turn.key, cost) > 0:
            blocked.add(turn.key)
            continue
        if (wait := rates.wait(turn.key, cost)) > 0:
            break
        rates.begin(turn.key, cost)
        picked.append((turn, nth, task_id))
    return picked, 0 if picked else max(wait, 0)


class Walk:
    """The keys whose turn it is, beginning after the one served last, or with it if its turn is not over."""

    def __init__(self, params: dict[str, Value], limiter: Row, keys: KeyTurns, rates: Rates, room: int) -> None:
        self._params, self._keys, self._rates, self._room = params, keys, rates, room
        self._cursor, self._remaining = str(limiter["cursor"]), int(limiter["remaining"])
        self.turns: list[Turn] = []  # as many as there is room for, or all that may go on
        self.last, self.steps = self._cursor, 0  # the last key that was looked at, and how many were
        self.wait = 0  # how long the first waits of those that only their rate holds back

    def go(self) -> Script[None]:
        """Go from key to key, once around."""
        lap, after, is_behind = 0, self._cursor, self._remaining == 0
        rated = self._rates.of_keys is not None
        while True:
            most = min(self._room - len(self.turns), KEYS_A_STATEMENT) + 1
            rows = yield Call("keys_ahead", {**self._params, "after": after, "most": most, "rated": rated})
            if rated:
                self._rates.know(rows)
            for row in rows:
                key = row["limit_key"]
                if is_behind and key == after:
                    continue
                own_turn = key == self._cursor and self._remaining > 0
                if (lap and (key > self._cursor or own_turn)) or self._looked_at(row, own_turn=own_turn):
                    return
            after, is_behind = (rows[-1]["limit_key"], True) if rows else (after, is_behind)
            if len(rows) < most:
                if lap:
                    return
                lap, after, is_behind = 1, "", False

    def _looked_at(self, row: Row, *, own_turn: bool) -> bool:
        """Note whether this key may go on; true if no more keys are looked at."""
        key = row["limit_key"]
        weight = self._remaining if self.steps == 0 and own_turn else row["weight"] or 1
        self.last, self.steps = key, self.steps + 1
        free = 0 if row["paused_at"] is not None else self._keys.free(key, row["running"])
        wait = self._rates.wait_of_key(key, row["cost"]) if row["cost"] is not None else 0
        if wait <= 0 < free:
            self.turns.append(Turn(key, free, weight))
        elif row["paused_at"] is None and wait > 0:
            self.wait = min(wait, self.wait or wait)
        return len(self.turns) >= self._room or self.steps >= VISITS


def _in_rounds(turns: Sequence[Turn], ready: Sequence[Sequence[T]]) -> Iterator[tuple[Turn, int, T]]:
    """The tasks in the order in which they begin: in each round as many of a key as its weight."""
    first = 0
    while any(len(ids) > first * turn.weight for turn, ids in zip(turns, ready, strict=True)):
        for turn, ids in zip(turns, ready, strict=True):
            for nth in range(first * turn.weight, min(len(ids), (first + 1) * turn.weight)):
                yield turn, nth, ids[nth]
        first += 1
