"""Decisions as the database takes them: how instances stand, locked, and what is written about them, all at once.

These are parts of transactions. What is decided between looking and writing is not known here.
"""

from __future__ import annotations

import collections
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from stepwell.errors import QueueDraining, Refused, StoreBusy
from stepwell.records import Claimed
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.ids import BLOCK, Ids, ids_in, reserve_blocks
from stepwell.store.isolation import one_by_one
from stepwell.store.repeat import repeated

if TYPE_CHECKING:
    from stepwell.store.opened import Opened

T = TypeVar("T")
INVISIBLE: Final = "was made by a transaction that this one cannot see; roll back and try again"


class EventRow(NamedTuple):
    """An event as it stands in an instance's stream."""

    version: int
    type: str
    type_version: int
    data: str
    cause: str | None
    position: int = 0
    recorded_at: int = 0


class ReceiptRow(NamedTuple):
    """What an input was answered: `applied` or `completed`, and the numbers of its events."""

    outcome: str
    first: int | None
    last: int | None
    at: int = 0


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that is to be looked at, and what is to be known of the inputs that wait for it."""

    type: str
    name: str
    schema: int  # of the snapshots that can be read here
    known: int | None = None  # the version whose state is at hand
    until: int | None = None  # the last version that is asked for, None for the latest
    keys: tuple[str, ...] = ()
    lost: tuple[tuple[str, int], ...] = ()  # inputs that may have been decided: their cause, and after which version
    turns: tuple[tuple[int, int, int], ...] = ()  # tasks that are delivered: id, session, turn


class Standing(msgspec.Struct, kw_only=True):
    """An instance as it stands, and its events from what is known of it, or from its snapshot, up to its version."""

    id: int
    type: str
    name: str
    version: int
    now: int
    is_completed: bool
    is_made: bool  # just now: it has no events yet
    base: int  # the version of the state that the tail is to be applied to ...
    snapshot: str | None  # ... and that state, None if it is the one at hand, or the first
    snapshot_version: int
    tail: list[EventRow] = msgspec.field(default_factory=list)
    receipts: dict[str, ReceiptRow] = msgspec.field(default_factory=dict)  # by key
    applied: dict[str, ReceiptRow] = msgspec.field(default_factory=dict)  # by cause, of those that were lost
    open_turns: set[int] = msgspec.field(default_factory=set)


class Change(msgspec.Struct, kw_only=True):
    """What is written about one instance; the rows are those of the statements that take them."""

    id: int
    before: int
    after: int
    is_made: bool = False
    snapshot: str | None = None
    snapshot_schema: int | None = None
    completed: bool = False
    events: list[tuple[Value, ...]] = msgspec.field(default_factory=list)
    receipts: list[tuple[Value, ...]] = msgspec.field(default_factory=list)
    cancelled: list[int] = msgspec.field(default_factory=list)  # timers
    tasks: list[tuple[Value, ...]] = msgspec.field(default_factory=list)  # effects and timers, without their ids
    settled: list[tuple[Value, ...]] = msgspec.field(default_factory=list)


class Supply:
    """Numbers for what a transaction writes: from those at hand, and then from blocks that it reserves itself."""

    def __init__(self, at_hand: collections.deque[int] | None = None) -> None:
        self._at_hand = at_hand
        self._own: list[int] = []

    def take(self, count: int) -> Script[list[int]]:
        """That many numbers that nobody else has."""
        taken: list[int] = []
        while self._at_hand and len(taken) < count:
            taken.append(self._at_hand.popleft())
        while len(taken) < count:
            if not self._own:  # not shared: if the transaction is undone, so is the reservation
                blocks = yield from reserve_blocks(1)
                self._own = [number for block in blocks for number in ids_in(block)]
            taken.append(self._own.pop())
        return taken


class Decisions:
    """The way of decisions to one store's database."""

    def __init__(self, store: Opened, ids: Ids, *, shard: int) -> None:
        self.driver = store.driver
        self._ids = ids
        self._clock = store.clock
        self._telemetry = store.telemetry
        self._timeout = store.options.timeout
        self._tenant = store.options.tenant
        self._slot = store.tasks.claim_slot
        self._shard = shard
        self._audit = store.audit
        self._at_hand: collections.deque[int] = collections.deque()

    async def numbers(self, count: int) -> list[int]:
        """That many numbers for tasks."""
        if len(self._at_hand) < count:
            self._at_hand.extend(await self._ids.take(max(count, BLOCK // 2)))
        return [self._at_hand.popleft() for _ in range(count)]

    async def supply(self, count: int) -> Supply:
        """Numbers for a transaction that will need about so many."""
        if len(self._at_hand) < count:
            self._at_hand.extend(await self._ids.take(max(count, BLOCK // 2)))
        return Supply(self._at_hand)

    def stand(self, wanted: Sequence[Wanted], supply: Supply) -> Script[list[Standing]]:
        """Lock these instances, making those that are missing, and find out all that is asked about them."""
        ordered = sorted(wanted, key=lambda one: (one.type, one.name))
        asked = [(one.type, one.name, one.known) for one in ordered]
        rows = {(row["type"], row["name"]): row for row in (yield Call("lock_instances", self._params(), asked))}
        missing = [one for one in ordered if (one.type, one.name) not in rows]
        made: set[tuple[str, str]] = set()
        if missing:
            found = yield from self._make(missing, supply)
            made = {(row["type"], row["name"]) for row in found if not row["version"]}
            rows |= {(row["type"], row["name"]): row for row in found}
        standings = [_standing(one, rows[one.type, one.name], is_made=(one.type, one.name) in made) for one in ordered]
        yield from self._complete(standings, ordered)
        return standings

    async def look(self, wanted: Wanted) -> Standing | None:
        """How an instance stands, read beside whatever is being decided; None if there is none."""
        call = Call("look_at_instances", self._params(), [(wanted.type, wanted.name, wanted.known)])
        rows = await self._repeated(lambda: self.driver.read(call))
        if not rows:
            return None
        standing = _standing(wanted, rows[0], is_made=False)
        until = standing.version if wanted.until is None else min(wanted.until, standing.version)
        if until > standing.base:
            standing.tail = await self.events(standing.id, standing.base, until)
        return standing

    async def events(self, instance_id: int, after: int, until: int) -> list[EventRow]:
        """The events of an instance between two versions."""
        call = Call("events_after", rows=[(instance_id, after, until)])
        rows = await self._repeated(lambda: self.driver.read(call))
        return [_event(row) for row in rows]

    async def receipts(self, keys: Sequence[tuple[int, str]]) -> list[tuple[int, str, ReceiptRow]]:
        """What was answered to inputs of these instances with these keys."""
        rows = await self.driver.read(Call("receipts_of", rows=keys))
        return [(row["instance_id"], row["key"], _receipt(row)) for row in rows]

    def pending_timers(self, asked: Sequence[tuple[Value, ...]]) -> Script[list[Row]]:
        """Of these queues and keys those that have a timer."""
        return (yield Call("pending_timers", rows=asked)) if asked else []

    def write(self, changes: Sequence[Change], supply: Supply) -> Script[None]:
        """Write what was decided, of all these instances; an instance that has moved on since refuses all of it."""
        params, changes = self._params(), sorted(changes, key=lambda one: one.id)
        moves = [_move(one) for one in changes if one.after > one.before]
        if moves and len((yield Call("move_instances", params, moves))) < len(moves):
            raise StoreBusy("an instance was moved on by somebody who does not wait for its lock")
        yield from self._each("append_events", [row for one in changes for row in one.events])
        receipts = {row[:2]: row for one in changes for row in one.receipts}  # one statement writes a row once
        yield from self._each("add_receipts", receipts.values())
        yield from self._settle([row for one in changes for row in one.settled])
        yield from self._each("cancel_timers", sorted((task_id,) for one in changes for task_id in one.cancelled))
        yield from self._each("end_timers", [(one.id,) for one in changes if one.completed])
        yield from self._add([row for one in changes for row in one.tasks], supply)
        yield from self._each("unmake_instances", [(one.id,) for one in changes if one.is_made and not one.after])

    async def write_at_once(self, call: Call) -> list[Row]:
        """Run one statement that is a whole transaction."""
        return await self.driver.write(call)

    def params(self) -> dict[str, Value]:
        """What every statement of a decision takes."""
        return self._params()

    async def keep_answer(self, task: Claimed, output: str) -> bool:
        """Keep what an effect's handler answered; False, and nothing is kept, if the task is no longer this turn's."""
        call = Call("keep_answer", self._params(slot=self._slot), [(task.id, task.owner, task.turn, output)])
        return bool(await self._repeated(lambda: self.driver.transact(lambda: _one(call)), patience=10))

    async def task_again(self, task_id: int) -> Row | None:
        """What is known of a task besides its claim."""
        rows = await self._repeated(lambda: self.driver.read(Call("task_again", {"id": task_id})), patience=10)
        return rows[0] if rows else None

    async def instances(self, **params: Value) -> list[Row]:
        """Instances of a type, or all, after a place."""
        return await self.driver.read(Call("instances", self._params(**params)))

    async def open_tasks(self, type: str, name: str) -> list[Row]:
        """The effects and timers of an instance that are not finished."""
        return await self.driver.read(Call("open_tasks_of", self._params(type=type, name=name)))

    def queue(self, name: str) -> Script[int]:
        """The number of a queue, made if it is missing, in this transaction."""
        params = self._params(name=name)
        found = yield Call("find_queue", params)
        if not found:
            yield Call("add_queue", params)
            found = yield Call("find_queue", params)
        if not found:
            raise Refused(f"queue {name} {INVISIBLE}")
        number: int = found[0]["id"]
        return number

    def _make(self, missing: Sequence[Wanted], supply: Supply) -> Script[list[Row]]:
        ids = yield from supply.take(len(missing))
        rows = [(number, one.type, one.name) for number, one in zip(ids, missing, strict=True)]
        made = yield Call("make_instances", self._params(), rows)
        names = {(row["type"], row["name"]) for row in made}
        if rest := [(one.type, one.name, one.known) for one in missing if (one.type, one.name) not in names]:
            made = [*made, *(yield Call("lock_instances", self._params(), rest))]  # somebody was quicker
        if len(made) < len(missing):
            raise Refused(f"an instance {INVISIBLE}")
        return list(made)

    def _complete(self, standings: Sequence[Standing], wanted: Sequence[Wanted]) -> Script[None]:
        """Find out what is asked besides how they stand."""
        by_id = {one.id: one for one in standings}
        pairs = list(zip(standings, wanted, strict=True))
        if tails := [(one.id, one.base, one.version) for one in standings if one.version > one.base]:
            for row in (yield Call("events_after", {}, tails)):
                by_id[row["instance_id"]].tail.append(_event(row))
        if keys := [(one.id, key) for one, asked in pairs for key in asked.keys]:
            for row in (yield Call("receipts_of", {}, keys)):
                by_id[row["instance_id"]].receipts[row["key"]] = _receipt(row)
        if lost := [(one.id, after, cause) for one, asked in pairs for cause, after in asked.lost]:
            for row in (yield Call("events_caused_by", {}, lost)):
                own = ReceiptRow("applied", row["first_version"], row["last_version"])
                by_id[row["instance_id"]].applied[row["cause"]] = own
        if turns := sorted(turn for asked in wanted for turn in asked.turns):
            rows = yield Call("open_turns", self._params(slot=self._slot), turns)
            held = {row["id"] for row in rows}
            for one, asked in pairs:
                one.open_turns = held.intersection(task_id for task_id, _, _ in asked.turns)

    def _settle(self, rows: list[tuple[Value, ...]]) -> Script[None]:
        if not rows:
            return
        settling = Call("settle", self._params(slot=self._slot), sorted(rows, key=lambda row: row[0] or 0))
        settled, _ = yield from one_by_one([settling, Call("count_settled", {"shard": self._shard}, fed_by=0)])
        yield from self._audit.noted(self._params(), filter(None, map(self._audit.settled, rows)))
        if len(settled) < len(rows):
            raise StoreBusy("a task was taken away under its lock")

    def _add(self, rows: list[tuple[Value, ...]], supply: Supply) -> Script[None]:
        if not rows:
            return
        ids = yield from supply.take(len(rows))
        added = yield Call("add_of_instances", self._params(), [(n, *row) for n, row in zip(ids, rows, strict=True)])
        if len(added) < len(rows):
            for row in (yield Call("closed_queues", rows=sorted({(row[1],) for row in rows}, key=str))):
                if row["draining"] is not None:
                    raise QueueDraining(row["name"])
            raise Refused("a queue of effects or timers is not there any more")

    def _each(self, statement: str, rows: Iterable[tuple[Value, ...]]) -> Script[None]:
        if given := list(rows):
            yield Call(statement, self._params(), given)

    async def _repeated(self, work: Callable[[], Awaitable[T]], *, patience: int = 1) -> T:
        within = patience * self._timeout
        return await repeated(work, clock=self._clock, telemetry=self._telemetry, within=within)

    def _params(self, **params: Value) -> dict[str, Value]:
        return {"now": self._clock.now(), "beat_now": self._clock.beat_now(), "tenant": self._tenant, **params}


def _standing(wanted: Wanted, row: Row, *, is_made: bool) -> Standing:
    version: int = row["version"]
    last = version if wanted.until is None else wanted.until
    base, snapshot = 0, None
    readable = row["snapshot_schema"] == wanted.schema  # one that other code wrote does not count
    if wanted.known is not None and wanted.known <= last:
        base = wanted.known
    elif row["snapshot"] is not None and readable and row["snapshot_version"] <= last:
        base, snapshot = row["snapshot_version"], row["snapshot"]
    return Standing(
        id=row["id"],
        type=row["type"],
        name=row["name"],
        version=version,
        now=row["now"],
        is_completed=row["completed_at"] is not None,
        is_made=is_made,
        base=base,
        snapshot=snapshot,
        snapshot_version=row["snapshot_version"] or 0 if readable else 0,
    )


def _event(row: Row) -> EventRow:
    return EventRow(
        row["version"],
        row["type"],
        row["type_version"],
        row["data"],
        row["cause"],
        row["position"],
        row["recorded_at"],
    )


def _receipt(row: Row) -> ReceiptRow:
    return ReceiptRow(row["outcome"], row["first_version"], row["last_version"], row["recorded_at"])


def _move(change: Change) -> tuple[Value, ...]:
    kept = None if change.snapshot is None else change.after
    schema = None if change.snapshot is None else change.snapshot_schema
    return change.id, change.before, change.after, change.snapshot, kept, schema, int(change.completed)


def _one(call: Call) -> Script[list[Row]]:
    return (yield call)
