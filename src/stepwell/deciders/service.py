"""The service of deciders: every input goes through it, wherever it comes from."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import secrets
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Self, TypeVar, overload

from stepwell.base.backoff import Retry
from stepwell.base.durations import Duration, microseconds_of
from stepwell.base.names import check_key, check_whole
from stepwell.decider import Decider, Receipt
from stepwell.deciders.decide import Decided, DecisionCase
from stepwell.deciders.effects import DeciderBodies, enveloped
from stepwell.deciders.global_order import Feed, FeedReader
from stepwell.deciders.history import (
    DryRun,
    EventInfo,
    Inspection,
    InstanceInfo,
    InstanceReader,
    OutstandingInfo,
    state_as_json,
)
from stepwell.deciders.mailbox import Mailbox, Memory, Pending
from stepwell.deciders.optimistic_decisions import OptimisticDecisions
from stepwell.deciders.proposal import ATTEMPTS, effects_queue, inputs_queue
from stepwell.deciders.registry import Family, Registry
from stepwell.errors import InvalidOption, Refused, StoreUnavailable
from stepwell.records import Page, TaskId, TaskKind
from stepwell.runs.branches import Branch
from stepwell.runs.call import current_attempt
from stepwell.runs.current import current
from stepwell.store.draft import Drafted
from stepwell.store.rows import NewTask
from stepwell.store.store import Store
from stepwell.store.transaction import Tx, headers_here
from stepwell.work.body import Beside, Served
from stepwell.work.current import current_branch

S = TypeVar("S")
I = TypeVar("I")  # noqa: E741 - as in Decider
E = TypeVar("E")
X = TypeVar("X")
LANES: Final = 2  # concurrent transactions of decisions, where the database allows concurrent writes
SNAPSHOT_EVERY: Final = 100


class Service:
    """The deciders of a store: takes their inputs and reads their instances. Workers execute their effects."""

    def __init__(self, store: Store, *, together: bool = True) -> None:
        if not isinstance(store, Store):
            why = "pass an open store: `async with connect(...) as store`; a sync one is for `stepwell.sync.Engine`"
            raise InvalidOption("store", store, why)
        self.store = store
        self._db = database = store.database
        self._loop = database.loop
        self.registry = Registry(self._db.options.codec, self._db.options.secret)
        self._memory = Memory()
        self._workers: dict[str, int] = {}
        self._snapshot_every: dict[str, int] = {}
        self._feed = FeedReader(database.feed, self.registry)
        self._reader = InstanceReader(database, self.registry, self._memory)
        self._case = partial(DecisionCase, database, self._memory, self._snapshot_every)
        is_remote, may_guess = database.decisions.is_remote, database.decisions.may_guess
        self._optimistic = OptimisticDecisions(database, self._memory, self._snapshot_every) if may_guess else None
        self._mailbox = Mailbox(
            self._decide,
            database.clock,
            database.telemetry,
            aside=database.lock_queue,
            lanes=LANES if is_remote else 1,
            together=together,
        )
        self._bodies = DeciderBodies(database, self.registry, self._routed, takes_along=together)
        self._causes = map(f"{secrets.token_hex(8)}-{{}}".format, itertools.count(1))

    def register(
        self,
        decider: Decider[Any, Any, Any, Any],
        *,
        workers: int = 10,
        snapshot_every: int = SNAPSHOT_EVERY,
        retry: int | Retry | None = None,
        timeout: Duration | None = None,
        observe: bool | None = None,
    ) -> Self:
        """Register a decider: `workers` is how many of its effects one worker executes at the same time.

        `retry` and `timeout` are those of its effects, and `observe` records its inputs, in place of the decider's own.

        Its state is stored as a snapshot after every `snapshot_every` events, so that a process that does not know an
        instance reads one snapshot and the events after it. A type or a class of inputs that is registered already is
        refused.
        """
        check_whole("workers", workers, 1, 10_000)
        check_whole("snapshot_every", snapshot_every, 1, 1_000_000)
        keep = self._db.options.keep
        family = self.registry.register(decider, keep=keep, retry=retry, timeout=timeout, observe=observe)
        self._db.retention.observations |= family.observe
        if family.forgettable and self._db.options.encrypted:
            self._db.subjects.forgettable(family.type)
        self._workers[family.type] = workers
        self._snapshot_every[family.type] = snapshot_every
        return self

    async def execute(
        self, input: object, *, key: str | None = None, expected_version: int | None = None, tx: object = None
    ) -> Receipt:
        """Decide an input; when this returns, its events are committed with their effects and timers.

        The receipt has the result: `applied`, with the numbers of its events; `duplicate`, if an input with
        its `key` was decided before for the same instance; `completed`, if the instance has ended. Business outcomes
        are events.

        With `expected_version` it is decided on exactly that version of its instance, 0 if it must not exist yet; on
        another, `VersionConflict` is raised and nothing is written, so that the caller can read and decide again. A
        duplicate is answered as one, whatever it expects.

        With `tx`, your own connection in a transaction or one of `store.transaction()`, it is decided in that
        transaction. In the body of a step the key is that of the step unless you give one, so a step that is tried
        again decides once; in the code of the workflow itself the call is refused.
        """
        pending = self._pending(input, key, expected_version)
        if tx is None:
            pending.within = 2 * self._db.options.timeout  # one try that hangs until its deadline, and one more
            return await self._routed(pending)
        await self._db.new_tasks.share(_shared(pending), tx)
        decided = await self._db.transactions.play(
            self._db.decisions.joined(self._case([pending], raises=True)), tx, "Engine"
        )
        if isinstance(tx, Tx):
            tx.touched.update(decided.queues, *(one.queues for one in decided.drafted))
        return _answer_of(decided)

    def execute_in_this_thread(
        self, input: object, key: str | None, expected_version: int | None, tx: object
    ) -> Receipt:
        """Decide an input through the user's own sync connection, in the user's thread."""
        pending = self._pending(input, key, expected_version)
        self._db.new_tasks.share_here(_shared(pending), tx)
        case = self._case([pending], raises=True)
        return _answer_of(self._db.transactions.play_here(self._db.decisions.joined(case), tx, "Engine"))

    async def execute_dynamic(
        self,
        type: str,
        payload: Any,
        *,
        key: str | None = None,
        expected_version: int | None = None,
        tx: object = None,
    ) -> Receipt:
        """As `execute`, for an input that comes as JSON: the name of its class, and its fields.

        `await engine.execute_dynamic("order", {"Pay": {"order_id": "123"}})`
        """
        read = self.registry.of_type(type).inputs.read_named(payload)
        return await self.execute(read, key=key, expected_version=expected_version, tx=tx)

    async def submit(
        self, input: object, *, key: str | None = None, delay: Duration | None = None, tx: object = None
    ) -> TaskId:
        """Store an input that a worker decides soon, or after `delay`; it is durable when this returns.

        It is decided exactly once, and tried again after a pause if its decider raises. A second input with the same
        `key` and instance is not stored (`created` is False).
        """
        [task_id] = await self._db.new_tasks.add(self._drafted(input, key, delay), tx)
        return task_id

    def submit_in_this_thread(self, input: object, key: str | None, delay: Duration | None, tx: object) -> TaskId:
        """Store an input through the user's own sync connection, in the user's thread."""
        [task_id] = self._db.new_tasks.add_here(self._drafted(input, key, delay), tx)
        return task_id

    async def dry_run(self, input: object) -> DryRun[Any]:
        """The decision that the input would lead to now, and the state after it; nothing is written.

        Raises what `execute` would raise about the decision: an exception of the decider, or a value that cannot be
        stored.
        """
        return await self._reader.dry_run(self.registry.of_input(input), input)

    @overload
    async def state(self, decider: str, id: str, *, at: int | None = None) -> Any: ...
    @overload
    async def state(self, decider: type[Decider[S, I, E, X]], id: str, *, at: int | None = None) -> S: ...
    async def state(self, decider: Any, id: str, *, at: int | None = None) -> Any:
        """The state of an instance, now or after its first `at` events; the initial one if it has none.

        With a decider's class it returns the state itself; with its type, `engine.state("order", id)`, the state as
        JSON: dicts, lists, strings and numbers. Both need its code, since the database holds events and only `evolve`
        computes a state: `DeciderNotFound` if the decider is not registered in this engine.
        """
        family = self._family(decider)
        if at is None:
            state = (await self._reader.known(family, id)).state
        else:
            state = await self._reader.state_at(family, id, check_whole("at", at, 0, 2**63 - 1))
        return state_as_json(family, id, state) if isinstance(decider, str) else state

    @overload
    async def inspect(self, decider: str, id: str, *, at: int | None = None, limit: int = 100) -> Inspection[Any]: ...
    @overload
    async def inspect(
        self, decider: type[Decider[S, I, E, X]], id: str, *, at: int | None = None, limit: int = 100
    ) -> Inspection[S]: ...
    async def inspect(self, decider: Any, id: str, *, at: int | None = None, limit: int = 100) -> Inspection[Any]:
        """An instance with everything that belongs to it, as it was at one moment.

        Whatever is written meanwhile, its state, history, outstanding work and dead letters fit together. State, status
        and history are those after its first `at` events, or the latest. `limit` bounds the events, the last of which
        are returned, the submitted inputs and the dead letters. By the decider's type it has the state as JSON, as
        `state` does. An instance without events has version 0 and the initial state.
        """
        family = self._family(decider)
        if at is not None:
            check_whole("at", at, 0, 2**63 - 1)
        look = await self._reader.inspect(family, id, at, check_whole("limit", limit, 1, 10_000))
        if isinstance(decider, str):
            look = dataclasses.replace(look, state=state_as_json(family, id, look.state))
        return look

    async def events(self, type: str, id: str, *, after: int = 0) -> Sequence[EventInfo]:
        """The events of an instance after this version, in their order, including those of the engine."""
        return await self._reader.events(self.registry.of_type(type), id, check_whole("after", after, 0, 2**63 - 1))

    async def events_since(self, position: int, limit: int = 100) -> Feed:
        """The events of all instances after this position, in one order that never changes; `.position` goes on.

        Nothing comes later before what was returned: events of transactions that may still be overtaken are not in it
        yet. It reads from the primary: on a standby of Postgres it raises `StoreUnusable`.
        """
        self._db.check()
        check_whole("position", position, 0, 2**63 - 1)
        return await self._feed.since(position, check_whole("limit", limit, 1, 10_000))

    async def instances(
        self, type: str | None = None, *, limit: int = 100, after: str | None = None
    ) -> Page[InstanceInfo]:
        """Instances of one type, or of all types, by type and id."""
        return await self._reader.instances(type, check_whole("limit", limit, 1, 10_000), after)

    async def outstanding(self, type: str, id: str) -> Sequence[OutstandingInfo]:
        """The unfinished effects and timers of an instance, the first due first.

        Read from the database, without the decider's code; `DeciderNotFound` if neither this engine nor the database
        has such a type.
        """
        found = await self._reader.outstanding(type, id)
        if not found and not await self._reader.instances(type, 1, None):
            self.registry.of_type(type)
        return found

    async def flush(self) -> None:
        """Wait until no input of this process waits for its decision."""
        await self._mailbox.empty()

    def served(self) -> list[Served]:
        """The queues that a worker serves for these deciders."""
        return [one for family in self.registry for one in self._bodies.served(family, self._workers[family.type])]

    def beside(self) -> Sequence[Beside]:
        """What a worker does for this engine besides tasks."""
        return ()

    def _family(self, decider: Any) -> Family:
        return self.registry.of_type(decider) if isinstance(decider, str) else self.registry.of_decider(decider)

    def _pending(self, input: object, key: str | None, expected: int | None) -> Pending:
        _refuse_in_workflow(input)
        if expected is not None:
            check_whole("expected_version", expected, 0, 2**63 - 1)
        family = self.registry.of_input(input)
        key = self._key_of(family, input, key)
        place, cause = family.identify(input), next(self._causes)
        pending = Pending(family, place, input, cause, key, expected=expected)
        pending.headers = family.headers_of(place, headers_here())
        return pending.sent_from_outside()

    def _drafted(self, input: object, key: str | None, delay: Duration | None) -> Drafted:
        _refuse_in_workflow(input)
        family = self.registry.of_input(input)
        key = self._key_of(family, input, key)
        envelope = enveloped(family, input, limit=self._db.options.payload_limit, key=key)
        queue, stored = inputs_queue(family.type), None if key is None else f"{len(key)}:{key}@{envelope.id}"
        later = 0 if delay is None else microseconds_of(delay, "delay")
        task = NewTask(
            TaskKind.INPUT,
            0,
            queue,
            envelope.text(),
            delay=later,
            max_attempts=ATTEMPTS,
            key=stored,
            group_key=None if later else envelope.id,  # what is due later has a moment and no place in the order
            after_failure=family.after_failure,
            headers=family.headers_of(envelope.id, headers_here()),
        )
        return Drafted(TaskKind.INPUT, [task], {queue: True})

    def _key_of(self, family: Family, input: object, key: str | None) -> str | None:
        """The given key, or that of the input, or in the body of a step that of the step; None if there is none."""
        if key is not None:
            return check_key(key)
        if (own := family.key_of(input)) is not None:
            return own
        if (attempt := current_attempt()) is None:
            return None
        attempt.inputs += 1  # a body that is tried again sends its inputs in the same order
        return f"{current().key}/{attempt.inputs}"

    async def _routed(self, pending: Pending) -> Receipt:
        """Decide an input that is not part of the caller's transaction."""
        self._db.check()
        if self._db.options.encrypted and pending.delivery is None:
            await self._db.subjects.admit([pending.headers])
        answer: asyncio.Future[Receipt] = self._loop.create_future()
        pending.answer = answer
        self._mailbox.put(pending)
        try:
            return await answer
        finally:
            answer.cancel()  # its caller may be gone

    async def _decide(self, batch: Sequence[Pending], /, patience: float | None = None) -> None:
        """Decide a batch, and answer its inputs after the commit."""
        queues = await self._queues({one.family.type for one in batch})
        known = {one.place: self._memory.get(one.place) for one in batch}
        try:
            if self._optimistic is not None and patience is None:
                decided, rest = await self._optimistic.decide(batch, queues)
                await self._tell(decided)
                batch = rest
            if batch:
                await self._decide_locked(batch, queues, patience)
        except StoreUnavailable:
            for one in batch:  # it may have been decided: the next try looks for its events after this version
                held = known[one.place]
                one.base = one.base if one.base is not None else 0 if held is None else held.version
            raise
        except Refused:
            for name in queues:
                await self._db.queue_id(name, create=True, anew=True)  # perhaps it was deleted and created again
            raise

    async def _decide_locked(self, batch: Sequence[Pending], queues: dict[str, int], patience: float | None) -> None:
        asked_at = time.monotonic()
        count = 2 * len(batch)
        decided = await self._db.decisions.decide(self._case(batch), queues, count=count, patience=patience)
        if self._optimistic is not None:
            self._optimistic.time.heard(min(one.now for one in decided.changes), asked_at)
        await self._tell(decided)

    async def _tell(self, decided: Decided) -> None:
        for outcome in decided.outcomes:
            if outcome.change.after:
                place = outcome.items[0].pending.place
                self._memory.put(place, outcome.known)
            along = sum(item.pending.is_along and item.receipt is not None for item in outcome.items)
            for item in outcome.items:
                delivery = item.pending.delivery
                item.pending.took_along = along if delivery is not None and delivery.takes_along else 0
                item.pending.end(item.receipt, item.error)
        self._db.decisions.tell(decided.changes)
        if asked := {name for one in decided.drafted for name in one.queues}:
            self._db.wakeups.hint({await self._db.queue_id(name) for name in asked})

    async def _queues(self, types: set[str]) -> dict[str, int]:
        names = [queue(type_) for type_ in types for queue in (effects_queue, inputs_queue)]
        return {name: await self._db.queue_id(name, create=True) for name in names}


def _refuse_in_workflow(input: object) -> None:
    """Refuse an input in the code of a workflow, which does not record that it was sent; a step does."""
    if isinstance(current_branch.get(), Branch):
        why = "in a workflow every replay would send it again: do it in a step, which is recorded"
        raise InvalidOption("input", input, why)


def _shared(pending: Pending) -> Drafted:
    """The settings of all instances of a type."""
    names = effects_queue(pending.family.type), inputs_queue(pending.family.type)
    return Drafted(TaskKind.INPUT, [], dict.fromkeys(names, True))


def _answer_of(decided: Decided) -> Receipt:
    [item] = decided.outcomes[0].items
    assert item.receipt is not None
    return item.receipt
