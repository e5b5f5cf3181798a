"""From inputs to rows, by plain functions: the inputs of one instance are decided one after the other."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from stepwell.base.durations import datetime_of
from stepwell.decider import Receipt, TimerCancelled
from stepwell.deciders.mailbox import KnownInstance, Pending
from stepwell.deciders.registry import Family, WrittenDecision
from stepwell.errors import LeaseLost, SerializationError, SubjectForgotten, UnknownRecord, VersionConflict
from stepwell.records import RunStatus
from stepwell.store.draft import Asked, Draft, Drafted
from stepwell.store.emission import Emission
from stepwell.store.instances import Change, Delivery, Instance, NewEvent, NewInstanceTask, NewReceipt, ReceiptRow
from stepwell.store.rows import Settlement
from stepwell.values.codec import PAYLOAD_LIMIT

ATTEMPTS: Final = 5  # of timers and inputs
GIVEN_BACK: Final = Settlement(RunStatus.PENDING, attempt_back=True)


class Envelope(msgspec.Struct, omit_defaults=True):
    """An effect, a timer or an input as its task stores it: by the name and version of its class."""

    id: str  # of the instance
    type: str = ""
    version: int = 1
    data: msgspec.Raw = msgspec.Raw(b"null")
    dead_letter: int | None = None  # instead of an input: the effect that was given up, for its instance
    owner: str = ""  # the type of the decider that an input is for
    key: str | None = None  # the input's own

    def text(self) -> str:
        """The JSON text that is stored."""
        return _TEXT.encode(self).decode()

    @classmethod
    def read(cls, text: str | None) -> Envelope:
        """What was stored."""
        try:
            return msgspec.json.decode(text or "", type=cls)
        except msgspec.MsgspecError as error:
            raise SerializationError(str(error), what="task of a decider") from error


_TEXT: Final = msgspec.json.Encoder()


class Drafting(Protocol):
    """Checks and encodes the messages and runs that a decision asks for; writes nothing."""

    def draft(self, queue: Any) -> Draft:
        """The draft of a message."""

    def drafted_runs(self, asked: Sequence[Asked[Any]]) -> Drafted:
        """Runs."""


class Budget:
    """The size limit and the time limit of one transaction; inputs that do not fit wait for the next one."""

    def __init__(self, most: int = 4 * 1024 * 1024, seconds: float = 0.5) -> None:
        self._left = most
        self._seconds = seconds
        self._until = math.inf  # before the first decision: one input always fits

    def spend(self, size: int) -> None:
        """Count a decision of this many bytes."""
        self._left -= size
        if self._until == math.inf:
            self._until = time.monotonic() + self._seconds

    @property
    def is_spent(self) -> bool:
        """True if no further input fits."""
        return self._left <= 0 or time.monotonic() > self._until


@dataclass(slots=True)
class Item:
    """The result of one input; `same` is the input of this transaction that it repeats."""

    pending: Pending
    receipt: Receipt | None = None
    decision: WrittenDecision | None = None
    error: BaseException | None = None
    same: Item | None = None
    drafted: list[Drafted] = field(default_factory=list)
    emissions: tuple[Emission, ...] = ()
    postponed: bool = False
    found: Any = None  # the state that it was decided on, ...
    left: Any = None  # ... and the one after it


class Proposal:
    """The decisions on the inputs of one instance, before it is known which timers it has."""

    def __init__(self, family: Family, instance: Instance, known: KnownInstance | None) -> None:
        self.family = family
        self.instance = instance
        self.items: list[Item] = []
        self.state = restored(family, instance, known)
        self.snapshot_version = max(instance.snapshot_version, 0 if known is None else known.snapshot_version)
        self.is_completed = instance.is_completed
        self._version: int | None = instance.version  # None while cancelled timers leave it open: each may be an event
        self._is_full = False
        self._now = datetime_of(instance.now)
        self._answered: dict[str, Item] = {}
        self._is_held_up = False  # an input of its inbox was not decided: those behind it wait
        self._touched: set[str] = set()  # keys of timers that were set or cancelled since the instance was locked

    def decide(self, pending: Pending, drafting: Drafting, budget: Budget, limit: int = PAYLOAD_LIMIT) -> Item:
        """Decide one more input; an exception of its decider fails only this input."""
        item = Item(pending, found=self.state)
        self.items.append(item)
        in_order = pending.delivery is not None and pending.delivery.group is not None
        is_open = pending.expected is not None and self._version is None
        self._is_full = self._is_full or budget.is_spent or is_open
        if self._is_full or (in_order and self._is_held_up):  # it waits for the next transaction, in its order
            item.postponed = True
        elif pending.delivery is not None and not self._is_ours(pending.delivery):
            item.error = LeaseLost(pending.delivery.worker, pending.delivery.task_id)
        elif not self._answered_before(item):
            try:
                self._decided(item, drafting, limit)
            except Exception as error:  # noqa: BLE001 - what a decider raises is for the sender of the input
                item.error = error
            else:
                budget.spend(_size(item.decision))
        self._is_held_up |= in_order and not _is_closed(item)
        return item

    @property
    def timer_keys(self) -> list[str]:
        """The keys of the timers that are replaced or cancelled, if they exist."""
        decisions = [item.decision for item in self.items if item.decision is not None]
        keys = [key for one in decisions for key in one.cancelled]
        keys += [timer.key for one in decisions for timer in one.timers if timer.key is not None]
        return list(dict.fromkeys(keys))

    def _is_ours(self, delivery: Delivery) -> bool:
        # A timer that an earlier input has cancelled or replaced is not delivered, even if it was claimed.
        return delivery.task_id in self.instance.open_tasks and delivery.timer_key not in self._touched

    def _answered_before(self, item: Item) -> bool:
        pending = item.pending
        if (own := self.instance.applied.get(pending.cause)) is not None:
            # Decided by the try before this one, whose reply was lost.
            item.receipt = Receipt("applied", own.first, own.last)
        elif (earlier := self._receipt_of(pending)) is not None:
            item.receipt = Receipt("duplicate", earlier.first, earlier.last)
        elif pending.key is not None and pending.key in self._answered:
            item.same = self._answered[pending.key]
        elif pending.expected is not None and pending.expected != self._version:
            assert self._version is not None
            item.error = VersionConflict(self.family.type, pending.id, expected=pending.expected, actual=self._version)
        elif self.is_completed:
            item.receipt = Receipt("completed")
        return item.receipt is not None or item.same is not None or item.error is not None

    def _receipt_of(self, pending: Pending) -> ReceiptRow | None:
        """The receipt of an earlier input with this key, if the key still counts."""
        earlier = None if pending.key is None else self.instance.receipts.get(pending.key)
        if earlier is None or pending.window is None or self.instance.now < earlier.at + pending.window:
            return earlier
        return None

    def _decided(self, item: Item, drafting: Drafting, limit: int) -> None:
        family = self.family
        decision = family.decide(self.state, item.pending.input, self._now)
        written = family.written(decision, item.pending.id, self.instance.now, limit=limit)
        state = family.evolved(self.state, [event.value for event in written.events])
        is_completed = bool(family.decider.is_terminal(state))
        headers = item.pending.headers
        if written.messages:
            item.drafted = [drafting.draft(one.queue).one(one.payload, None) for one in written.messages]
        if written.triggers:
            item.drafted.append(drafting.drafted_runs(written.triggers))
        item.drafted = [one.carrying(headers) for one in item.drafted]
        item.emissions = tuple(dataclasses.replace(one, headers=headers) for one in written.emissions)
        # Nothing was changed before this line: an input that cannot be decided leaves no trace.
        self.state, self.is_completed, item.decision = state, is_completed, written
        item.left = state
        is_counted = self._version is not None and not written.cancelled
        self._version = (self._version or 0) + len(written.events) if is_counted else None
        if written.cancelled or written.timers:
            self._touched.update(written.cancelled, (one.key for one in written.timers if one.key is not None))
        if item.pending.key is not None:
            self._answered[item.pending.key] = item


def restored(family: Family, instance: Instance, known: KnownInstance | None) -> Any:
    """The state of an instance: that in memory, its snapshot or its initial state, and the events since."""
    if instance.snapshot is not None:
        state = family.states.read(instance.snapshot)
    elif instance.base and known is not None:
        state = known.state
    else:
        state = family.decider.initial()
    return family.evolved(state, events_of(family, instance))


def events_of(family: Family, instance: Instance) -> Iterator[Any]:
    """The decoded events since the snapshot; raises for the first that cannot be read, so that nothing is decided."""
    for row in instance.tail:
        what = f"event {row.version} of {instance.type} {instance.name}"
        try:
            yield from family.events.read(row.type, row.type_version, row.data, what=what)
        except (SubjectForgotten, UnknownRecord):
            raise
        except SerializationError as error:  # the code that wrote it has read it back, so its class has changed since
            why = f"its class does not fit here at `{error.path}`: {error.source}"
            raise UnknownRecord(what, row.type, row.type_version, why) from error


def schema_of(family: Family) -> int:
    """The fingerprint of a family's states, as the number that is stored with a snapshot."""
    return int.from_bytes(bytes.fromhex(family.states.fingerprint), signed=True)


class Outcome(msgspec.Struct):
    """The rows of a proposal, the state of its instance after them, and the answers to its inputs."""

    change: Change
    known: KnownInstance
    items: list[Item]


def concluded(
    proposal: Proposal,
    pending: Mapping[str, int],
    queues: Mapping[str, int],
    *,
    snapshot_every: int,
    limit: int = PAYLOAD_LIMIT,
) -> Outcome:
    """Number the events and build the rows; `pending` are the tasks of the existing timers, by key."""
    instance = proposal.instance
    version = instance.version
    change = Change(id=instance.id, now=instance.now, before=version, after=version, is_made=instance.is_made)
    sent = [(item, item.pending.delivery) for item in proposal.items if item.pending.delivery is not None]
    delivered = [delivery for item, delivery in sent if _is_closed(item)]
    timers = Timers(pending, {delivery.task_id for delivery in delivered})
    for item in proposal.items:
        if item.decision is not None:
            _append(change, item, timers, queues, proposal.family)
        elif item.same is not None and item.same.receipt is not None:
            item.receipt = Receipt("duplicate", item.same.receipt.first, item.same.receipt.last)
        _note(change, item)
    if proposal.family.dedupe_last is not None and change.receipts:
        change.remembered = proposal.family.dedupe_last
    change.completed = proposal.is_completed and not instance.is_completed
    change.cancelled = timers.cancelled
    if not change.completed:
        change.tasks += timers.rows(instance.id, queues[inputs_queue(proposal.family.type)])
    change.settled = [*delivered, *_left_alone(proposal)]
    snapshot_version = _snapshot(change, proposal, snapshot_every, limit)
    known = KnownInstance(instance.id, change.after, proposal.state, proposal.is_completed, snapshot_version)
    return Outcome(change, known, proposal.items)


Due = tuple[str, int, int]  # an input, when it is due, and whether a delivered task led to it


class Timers:
    """The timers of an instance while its inputs are decided: the last word on a key counts."""

    def __init__(self, pending: Mapping[str, int], delivered: Collection[int]) -> None:
        self._pending = {key: task_id for key, task_id in pending.items() if task_id not in delivered}
        self._keyed: dict[str, Due] = {}
        self._others: list[Due] = []
        self.cancelled: list[int] = []

    def cancel(self, key: str) -> bool:
        """Cancel the timer with this key; False if there is none."""
        there = self._keyed.pop(key, None) is not None
        if (task_id := self._pending.pop(key, None)) is not None:
            self.cancelled.append(task_id)
            there = True
        return there

    def set(self, key: str | None, due: Due) -> None:
        """Deliver an input later, instead of the timer that has this key."""
        if key is None:
            self._others.append(due)
        else:
            self.cancel(key)
            self._keyed[key] = due

    def rows(self, instance_id: int, queue_id: int) -> Iterator[NewInstanceTask]:
        """The timers to be written."""
        for key, (text, due, inside) in self._keyed.items():
            stored = stored_key(instance_id, key)
            yield NewInstanceTask("TIMER", queue_id, due, ATTEMPTS, stored, text, instance_id, inside)
        for text, due, inside in self._others:
            yield NewInstanceTask("TIMER", queue_id, due, ATTEMPTS, None, text, instance_id, inside)


def effects_queue(type: str) -> str:
    """The queue of a decider's effects."""
    return f"{type}:effects"


def inputs_queue(type: str) -> str:
    """The queue of a decider's timers and of the inputs that were submitted to it."""
    return f"{type}:inputs"


def stored_key(instance_id: int, key: str) -> str:
    """The key of a timer's task: it is unique to the instance."""
    return f"{instance_id}:{key}"


def _append(change: Change, item: Item, timers: Timers, queues: Mapping[str, int], family: Family) -> None:
    decision, pending = item.decision, item.pending
    assert decision is not None
    first, cause = change.after + 1, pending.cause
    written = [
        *decision.events,
        *(family.events.write(TimerCancelled(k)) for k in decision.cancelled if timers.cancel(k)),
    ]
    for version, event in enumerate(written, first):
        change.events.append(NewEvent(change.id, version, event.type, event.version, event.text, cause))
    change.after += len(written)
    item.receipt = Receipt("applied", first, change.after)
    inside = int(pending.delivery is not None)  # a delivered task: queues that are being drained accept what it adds
    for effect in decision.effects:
        text = _enveloped(pending.id, effect)
        queue_id = queues[effects_queue(family.type)]
        attempts = family.retry.max_attempts
        task = NewInstanceTask("EFFECT", queue_id, None, attempts, None, text, change.id, inside, pending.headers)
        change.tasks.append(task)
    for timer in decision.timers:
        timers.set(timer.key, (_enveloped(pending.id, timer.input), timer.due, inside))


def _note(change: Change, item: Item) -> None:
    """Store the receipt of an input that has a key, or that came too late."""
    if item.receipt is None:
        return
    key = item.pending.key
    if item.decision is not None and key is not None:
        change.receipts.append(NewReceipt(change.id, key, "applied", item.receipt.first, item.receipt.last))
    elif item.receipt.outcome == "completed":
        change.receipts.append(NewReceipt(change.id, key or item.pending.cause, "completed", None, None))


def _snapshot(change: Change, proposal: Proposal, every: int, limit: int) -> int:
    """Store a snapshot of the state if there were enough events since the last one."""
    last = proposal.snapshot_version
    if change.after - last < every:
        return last
    change.snapshot = proposal.family.states.write(proposal.state, limit=limit)
    change.snapshot_schema = schema_of(proposal.family)
    return change.after  # also if the state cannot be stored: it is not tried again with every input


def _left_alone(proposal: Proposal) -> list[Delivery]:
    """Tasks that were taken along and not decided: they are given back, and wait for the one before them."""
    closed = {item.pending.delivery.task_id for item in proposal.items if item.pending.delivery and _is_closed(item)}
    rest = [one for one in proposal.instance.followers if one.task_id not in closed]
    return [Delivery(one.task_id, one.worker, one.turn, GIVEN_BACK, group=one.group) for one in rest]


def _is_closed(item: Item) -> bool:
    """True if the task that delivered the input is done."""
    return item.error is None and not item.postponed


def _enveloped(id: str, written: Any) -> str:
    return Envelope(id, written.type, written.version, msgspec.Raw(written.text.encode())).text()


def _size(decision: WrittenDecision | None) -> int:
    if decision is None:
        return 0
    written = [*decision.events, *decision.effects, *[timer.input for timer in decision.timers]]
    return sum([200 + len(one.text) for one in written])
