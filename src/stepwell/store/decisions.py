"""Decisions in the database: read instances under their locks, decide, and write, in one transaction.

What happens between reading and writing is not known here: that is a `Deliberation`, made of plain calls.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from stepwell.errors import QueueDraining, Refused, StoreBusy
from stepwell.store.add import add_joined
from stepwell.store.decision_statement import decide_at_once
from stepwell.store.deliveries import Deliveries
from stepwell.store.driver import LOCKS, Call, Row, Script, Value
from stepwell.store.held_keys import Ended
from stepwell.store.ids import BLOCK, ids_in, reserve_blocks
from stepwell.store.instances import (
    Change,
    Deliberation,
    EventRow,
    Instance,
    InstanceQuery,
    NewInstanceTask,
    NewReceipt,
    ReceiptRow,
    Ruling,
)
from stepwell.store.rows import Claimed

if TYPE_CHECKING:
    from stepwell.store.database import Database

T = TypeVar("T")
R = TypeVar("R", bound=Ruling)
INVISIBLE: Final = "was made by a transaction that this one cannot see; roll back and try again"


class Moved(NamedTuple):
    """The instances whose version a statement has raised; `now` is the database's time, read at `asked_at` of ours."""

    ids: frozenset[int]
    now: int | None = None
    asked_at: float = 0.0


class Supply:
    """Ids for what a transaction writes: first those at hand, then blocks that the transaction reserves itself."""

    def __init__(self, at_hand: collections.deque[int] | None = None) -> None:
        self._at_hand = at_hand
        self._own: list[int] = []

    def take(self, count: int) -> Script[list[int]]:
        """This many ids that no other process has."""
        taken: list[int] = []
        while self._at_hand and len(taken) < count:
            taken.append(self._at_hand.popleft())
        while len(taken) < count:
            if not self._own:  # not shared: if the transaction is rolled back, so is the reservation
                blocks = yield from reserve_blocks(1)
                self._own = [number for block in blocks for number in ids_in(block)]
            taken.append(self._own.pop())
        return taken


class Decisions:
    """Reads and writes decisions in the database of one store."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._driver = database.driver
        self._deliveries = Deliveries(database)
        self._at_hand: collections.deque[int] = collections.deque()
        self.on_events: list[Callable[[], None]] = []  # called after events were committed by this process

    @property
    def is_remote(self) -> bool:
        """Whether a network is in between: there a decision costs its round trips, and several may write at once."""
        return self._driver.flush_slots > 1

    @property
    def may_guess(self) -> bool:
        """Whether `decide_at_once` may be used: it has all values in one parameter, unencrypted, and notes no task."""
        return self.is_remote and not self._db.options.encrypted and not self._db.audit.everything

    async def decide(
        self, work: Deliberation[R], queues: Mapping[str, int], *, count: int, patience: float | None = None
    ) -> R:
        """Read instances, decide and write, in one transaction that waits for a lock for `patience` seconds.

        `count` is about how many instances and tasks it will add.
        """
        supply = await self.supply(count)
        woken: set[int] = set()
        script = partial(self._decided, work, supply, queues, woken)
        decided = await self._driver.transact(script, patience=LOCKS if patience is None else patience)
        if woken:
            self._db.wakeups.hint(woken)
        return decided

    def joined(self, work: Deliberation[R]) -> Script[R]:
        """Do it in a transaction that the user has begun; missing queues are created in it."""
        return self._decided(work, Supply(), None, set())

    async def decide_at_once(self, changes: Sequence[Change]) -> Moved:
        """Write changes that were decided on known states, except those of instances that have a newer version."""
        if not changes:
            return Moved(frozenset())
        ordered = sorted(changes, key=lambda one: one.id)
        count = sum(len(one.tasks) for one in ordered)
        await self.supply(count)
        ids = [self._at_hand.popleft() for _ in range(count)]
        asked_at = time.monotonic()
        rows = await self._driver.write(decide_at_once(self._db.params(), ordered, ids))
        now = rows[0]["now"] if rows else None
        return Moved(frozenset(row["id"] for row in rows), now, asked_at)

    def tell(self, changes: Iterable[Change]) -> None:
        """Tell this and other processes which queues have new tasks, and projections here that there are new events.

        A hint that no caller relies on.
        """
        for told in self.on_events:
            told()
        queues: set[int] = set()
        for change in changes:
            for task in change.tasks:
                if task.run_at is None or task.run_at <= change.now:
                    queues.add(task.queue_id)
                else:
                    self._db.tasks.alarm.set((task.run_at - change.now) / 1_000_000)
        if queues:
            self._db.wakeups.hint(queues)

    async def supply(self, count: int) -> Supply:
        """Ids for a transaction that will need about this many."""
        if len(self._at_hand) < count:
            self._at_hand.extend(await self._db.ids.take(max(count, BLOCK // 2)))
        return Supply(self._at_hand)

    async def look(self, query: InstanceQuery) -> Instance | None:
        """An instance as it stands, read without a lock; None if it does not exist."""
        call = Call("look_at_instances", self._db.params(), [(query.type, query.name, query.known)])
        rows = await self._db.repeat(lambda: self._driver.read(call))
        if not rows:
            return None
        instance = instance_of(query, rows[0])
        until = instance.version if query.until is None else min(query.until, instance.version)
        if until > instance.base:
            instance.tail = await self.events(instance.id, instance.base, until)
        return instance

    async def snapshot(self, script: Callable[[dict[str, Value]], Script[T]]) -> T:
        """Run a script of reads, which is given the parameters of this store: it sees all as it was at one moment."""
        return await self._db.repeat(lambda: self._driver.snapshot(partial(script, self._db.params())))

    async def events(self, instance_id: int, after: int, until: int) -> list[EventRow]:
        """The events of an instance between two versions."""
        call = Call("events_after", rows=[(instance_id, after, until)])
        rows = await self._db.repeat(lambda: self._driver.read(call))
        return [event_of(row) for row in rows]

    async def receipts(self, keys: Sequence[tuple[int, str]]) -> list[tuple[int, str, ReceiptRow]]:
        """The receipts for inputs of these instances with these keys."""
        rows = await self._driver.read(Call("receipts_of", rows=keys))
        return [(row["instance_id"], row["key"], _receipt(row)) for row in rows]

    async def keep_answer(self, task: Claimed, output: str) -> bool:
        """Keep the output of an effect's handler; False, and nothing is kept, if this turn no longer holds the task."""
        call = Call(
            "keep_answer", self._db.params(slot=self._db.claim_slot), [(task.id, task.owner, task.turn, output)]
        )
        return bool(await self._db.repeat(lambda: self._driver.transact(lambda: _one(call)), patience=10))

    async def now(self) -> int:
        """The time of the clock by which due times are judged."""
        [row] = await self._driver.read(Call("moment", {"now": self._db.clock.now()}))
        moment: int = row["now"]
        return moment

    async def instances(self, type: str | None, after: tuple[str, str], limit: int) -> list[Row]:
        """Instances of one type, or of all types, after this type and name, in that order."""
        place = {"after_type": after[0], "after_name": after[1]}
        return await self._driver.read(Call("instances", self._db.params(type=type, limit=limit, **place)))

    async def open_tasks(self, type: str, name: str) -> list[Row]:
        """The effects and timers of an instance that are not finished."""
        return await self._driver.read(Call("open_tasks_of", self._db.params(type=type, name=name)))

    async def tasks_of(self, type: str, name: str) -> Sequence[Any]:
        """The effects and timers of an instance, finished or not."""
        return await self._driver.read(Call("tasks_of_instance", self._db.params(type=type, name=name)))

    async def observations(self, type: str, name: str, after: int, limit: int) -> list[Row]:
        """What was recorded of the inputs of an instance, after this number, in their order."""
        call = Call("observations_of", self._db.params(type=type, name=name, after_id=after, limit=limit))
        return await self._db.repeat(lambda: self._driver.read(call))

    async def observed_transitions(self, type: str, since: int) -> list[Row]:
        """How often inputs of a type have led from one status to another since a moment."""
        call = Call("observed_transitions", self._db.params(type=type, since=since))
        return await self._db.repeat(lambda: self._driver.read(call))

    def _decided(
        self, work: Deliberation[R], supply: Supply, queues: Mapping[str, int] | None, woken: set[int]
    ) -> Script[R]:
        instances = yield from self._stand(work, supply)
        if queues is None:
            queues = yield from self._queues(work.queues)
        proposed = work.propose(instances)
        timers = [(queues[name], key) for name, key in proposed.timers]
        pending = (yield Call("pending_timers", rows=timers)) if timers else []
        ruling = proposed.conclude({row["key"]: row["id"] for row in pending}, queues)
        woken |= yield from self._write(ruling.changes, supply)
        for drafted in ruling.drafted:
            yield from add_joined(self._db.params(), drafted, self._db.living, Ended(self._db.audit))
        if ruling.emissions:
            woken |= yield from self._db.outboxes.writing(ruling.emissions)
        if ruling.inline:
            yield from self._db.inline.keep(ruling.inline, ruling.changes, instances)
        return ruling

    def _stand(self, work: Deliberation[R], supply: Supply) -> Script[list[Instance]]:
        """Lock the instances, create those that are missing, and read all that the queries ask for."""
        ordered = sorted(work.queries, key=lambda one: (one.type, one.name))
        asked = [(one.type, one.name, one.known) for one in ordered]
        rows = {(row["type"], row["name"]): row for row in (yield Call("lock_instances", self._db.params(), asked))}
        missing = [one for one in ordered if (one.type, one.name) not in rows]
        made: set[tuple[str, str]] = set()
        if missing:
            found = yield from self._make(missing, supply)
            made = {(row["type"], row["name"]) for row in found if not row["version"]}
            rows |= {(row["type"], row["name"]): row for row in found}
        instances = [
            instance_of(one, rows[one.type, one.name], is_made=(one.type, one.name) in made) for one in ordered
        ]
        keys = yield from self._deliveries.take(work, instances, ordered)
        yield from self._complete(instances, ordered, keys)
        return instances

    def _queues(self, names: Iterable[str]) -> Script[dict[str, int]]:
        queues: dict[str, int] = {}
        for name in names:
            queues[name] = yield from self._queue(name)
        return queues

    def _queue(self, name: str) -> Script[int]:
        """The number of a queue, created in this transaction if it is missing."""
        params = self._db.params(name=name)
        found = yield Call("find_queue", params)
        if not found:
            yield Call("add_queue", params)
            found = yield Call("find_queue", params)
        if not found:
            raise Refused(f"queue {name} {INVISIBLE}")
        number: int = found[0]["id"]
        return number

    def _make(self, missing: Sequence[InstanceQuery], supply: Supply) -> Script[list[Row]]:
        ids = yield from supply.take(len(missing))
        rows = [(number, one.type, one.name) for number, one in zip(ids, missing, strict=True)]
        made = yield Call("make_instances", self._db.params(), rows)
        names = {(row["type"], row["name"]) for row in made}
        if rest := [(one.type, one.name, one.known) for one in missing if (one.type, one.name) not in names]:
            # Another transaction has created them in the meantime.
            made = [*made, *(yield Call("lock_instances", self._db.params(), rest))]
        if len(made) < len(missing):
            raise Refused(f"an instance {INVISIBLE}")
        return list(made)

    def _complete(
        self, instances: Sequence[Instance], queries: Sequence[InstanceQuery], keys: Sequence[tuple[int, str]]
    ) -> Script[None]:
        """Read what the queries ask for besides the instances themselves."""
        by_id = {one.id: one for one in instances}
        pairs = list(zip(instances, queries, strict=True))
        if tails := [(one.id, one.base, one.version) for one in instances if one.version > one.base]:
            for row in (yield Call("events_after", {}, tails)):
                by_id[row["instance_id"]].tail.append(event_of(row))
        if keys := [*keys, *((one.id, key) for one, asked in pairs for key in asked.keys)]:
            for row in (yield Call("receipts_of", {}, keys)):
                by_id[row["instance_id"]].receipts[row["key"]] = _receipt(row)
        if lost := [(one.id, after, cause) for one, asked in pairs for cause, after in asked.lost]:
            for row in (yield Call("events_caused_by", {}, lost)):
                own = ReceiptRow("applied", row["first_version"], row["last_version"])
                by_id[row["instance_id"]].applied[row["cause"]] = own

    def _write(self, changes: Sequence[Change], supply: Supply) -> Script[set[int]]:
        """Write the changes of all these instances; if one has a newer version, nothing is written.

        Returns the queues in which the next task of an ordered group is ready now.
        """
        woken: set[int] = set()
        params, changes = self._db.params(), sorted(changes, key=lambda one: one.id)
        moves = [_move(one) for one in changes if one.after > one.before]
        if moves and len((yield Call("move_instances", params, moves))) < len(moves):
            raise StoreBusy("an instance was moved on by a transaction that does not wait for its lock")
        # One statement may write a row only once.
        receipts = {(row.instance_id, row.key): row for one in changes for row in one.receipts}
        if events := [row for one in changes for row in one.events]:
            yield Call("append_events", params, events)
        if receipts:
            yield from self._keep_receipts(changes, list(receipts.values()))
        if observed := [row for one in changes for row in one.observed]:
            yield Call("add_observations", params, observed)
        if settled := [delivery for one in changes for delivery in one.settled]:
            woken = yield from self._deliveries.settle(settled)
        if cancelled := sorted((task_id,) for one in changes for task_id in one.cancelled):
            yield Call("cancel_timers", params, cancelled)
        if ended := [(one.id,) for one in changes if one.completed]:
            yield Call("end_timers", params, ended)
        if tasks := [task for one in changes for task in one.tasks]:
            yield from self._add(tasks, supply)
        if unmade := [(one.id,) for one in changes if one.is_made and not one.after]:
            yield Call("unmake_instances", params, unmade)
        return woken

    def _keep_receipts(self, changes: Sequence[Change], receipts: Sequence[NewReceipt]) -> Script[None]:
        yield Call("add_receipts", self._db.params(), receipts)
        if remembered := [(one.id, one.remembered) for one in changes if one.remembered is not None]:
            yield Call("forget_contents", {}, remembered)

    def _add(self, tasks: Sequence[NewInstanceTask], supply: Supply) -> Script[None]:
        ids = yield from supply.take(len(tasks))
        rows = [(task_id, *task) for task_id, task in zip(ids, tasks, strict=True)]
        added = yield Call("add_of_instances", self._db.params(), rows)
        if len(added) < len(rows):
            for row in (yield Call("closed_queues", rows=sorted({(task.queue_id,) for task in tasks}))):
                if row["draining"] is not None:
                    raise QueueDraining(row["name"])
            raise Refused("a queue of effects or timers is not there any more")
        if self._db.audit.everything:
            yield from self._db.audit.created(self._db.params(), [row["id"] for row in added])


def instance_of(query: InstanceQuery, row: Row, *, is_made: bool = False) -> Instance:
    """The instance that a row stands for, as far as its query wants to know it; without its events."""
    version: int = row["version"]
    last = version if query.until is None else query.until
    base, snapshot = 0, None
    readable = row["snapshot_schema"] == query.schema  # a snapshot that other code wrote is ignored
    if query.known is not None and query.known <= last:
        base = query.known
    elif row["snapshot"] is not None and readable and row["snapshot_version"] <= last:
        base, snapshot = row["snapshot_version"], row["snapshot"]
    return Instance(
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


def event_of(row: Row) -> EventRow:
    """An event as it was recorded."""
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
