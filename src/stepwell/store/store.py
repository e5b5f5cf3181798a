"""Store: an open database with verbs. What users call is here; what the engine calls is in `tasks` and `sessions`.

A store belongs to the event loop and the process that opened it, and says so when used from another.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from stepwell.clock import Clock
from stepwell.codec import PAYLOAD_LIMIT
from stepwell.durations import Duration, microseconds_of, seconds_of
from stepwell.errors import ForkError, InvalidOption, QueueNotFound, Refused, StepwellError, StoreClosed, WrongLoop
from stepwell.names import check_filter, check_id, check_name, check_whole
from stepwell.records import DeadLetter, Page, QueueInfo, Task, TaskId, WorkerInfo
from stepwell.store.by_hand import ByHand, Message, message_of
from stepwell.store.draft import Addressed, Draft, Drafted, Unique
from stepwell.store.driver import AsyncJoin, Driver, Script, SyncJoin, Value, play, play_async
from stepwell.store.flush import GroupCommit
from stepwell.store.ids import Ids, reserve_blocks
from stepwell.store.joined import add_joined
from stepwell.store.queues import Queues
from stepwell.store.repeat import repeated
from stepwell.store.sessions import Sessions
from stepwell.store.sql import Statements
from stepwell.store.tasks import Tasks
from stepwell.telemetry import Telemetry

In = TypeVar("In")
T = TypeVar("T")
SHORTEST_VISIBILITY = 10_000


@dataclass(frozen=True, slots=True)
class Options:
    """How a store was opened."""

    lease: float = 30.0
    timeout: float = 10.0
    payload_limit: int = PAYLOAD_LIMIT
    tenant: str = ""


class Store:
    """An open store."""

    def __init__(
        self, driver: Driver, statements: Statements, options: Options, clock: Clock, telemetry: Telemetry
    ) -> None:
        self.driver = driver
        self.statements = statements
        self.options = options
        self.clock = clock
        self.telemetry = telemetry
        flusher = GroupCommit(
            driver,
            clock,
            telemetry,
            shard=secrets.randbits(62),
            # Back within a sixth of the lease after an outage, so that nobody healthy is taken for dead.
            longest_wait=min(1.0, options.lease / 6),
        )
        self._flusher = flusher
        self._queues = Queues(driver, clock, options.tenant)
        self.tasks = Tasks(driver, flusher, Ids(self._reserve), clock, telemetry, timeout=options.timeout)
        self.sessions = Sessions(driver, clock, slots=self.tasks.claim_slot + 1, tenant=options.tenant)
        self.by_hand = ByHand(self, flusher)
        self.heartbeat: Any = None  # of the workers of this store, once there are any; the engine's
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._closed = False

    async def create_queue(self, name: str) -> None:
        """Make a queue; does nothing if it is there."""
        await self.queue_id(name, create=True)

    @overload
    async def enqueue(
        self,
        queue: Addressed[In],
        payload: In,
        *,
        key: str | None = None,
        priority: int = 0,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        tags: Iterable[str] = (),
        unique: Unique = "ever",
        tx: object = None,
    ) -> TaskId: ...
    @overload
    async def enqueue(
        self,
        queue: str,
        payload: Any,
        *,
        key: str | None = None,
        priority: int = 0,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        tags: Iterable[str] = (),
        unique: Unique = "ever",
        tx: object = None,
    ) -> TaskId: ...
    async def enqueue(
        self,
        queue: str | Addressed[Any],
        payload: Any,
        *,
        key: str | None = None,
        priority: int = 0,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        tags: Iterable[str] = (),
        unique: Unique = "ever",
        tx: object = None,
    ) -> TaskId:
        """Write a message; when this returns it is durable and will be handled.

        With `key`, a message of the queue that has it already is returned instead (`created` is False); another
        payload under the same key raises `IdempotencyConflict`. With `tx`, your own connection in a transaction, the
        message is there if that commits and never was if it does not. Bad input is refused before anything is written.
        By a queue's name a message is tried three times unless `max_attempts` says otherwise; through a handler, as
        often as the handler says.
        """
        drafted = self.drafted(
            queue,
            [payload],
            None if key is None else [key],
            priority=priority,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            tags=tags,
            unique=unique,
        )
        [task_id] = await self._add(drafted, tx)
        return task_id

    @overload
    async def enqueue_many(
        self,
        queue: Addressed[In],
        payloads: Iterable[In],
        *,
        keys: Sequence[str] | None = None,
        priority: int = 0,
        delay: Duration | None = None,
        tx: object = None,
    ) -> list[TaskId]: ...
    @overload
    async def enqueue_many(
        self,
        queue: str,
        payloads: Iterable[Any],
        *,
        keys: Sequence[str] | None = None,
        priority: int = 0,
        delay: Duration | None = None,
        tx: object = None,
    ) -> list[TaskId]: ...
    async def enqueue_many(
        self,
        queue: str | Addressed[Any],
        payloads: Iterable[Any],
        *,
        keys: Sequence[str] | None = None,
        priority: int = 0,
        delay: Duration | None = None,
        tx: object = None,
    ) -> list[TaskId]:
        """Write all the messages or none, in one transaction (yours, with `tx`); their ids come in the same order."""
        return await self._add(self.drafted(queue, payloads, keys, priority=priority, delay=delay), tx)

    @overload
    async def dequeue(
        self,
        queue: str | Sequence[str],
        limit: int = 1,
        *,
        type: type[T],
        until: Duration | None = 0,
        visibility: Duration = 30,
    ) -> list[Message[T]]: ...
    @overload
    async def dequeue(
        self, queue: str | Sequence[str], limit: int = 1, *, until: Duration | None = 0, visibility: Duration = 30
    ) -> list[Message[Any]]: ...
    async def dequeue(
        self,
        queue: str | Sequence[str],
        limit: int = 1,
        *,
        type: Any = Any,
        until: Duration | None = 0,
        visibility: Duration = 30,
    ) -> list[Message[Any]]:
        """Take up to `limit` messages by hand: each is yours alone for `visibility`, and comes back if not closed.

        Waits up to `until` for the first; None waits for as long as it takes. Several queues take turns being first.
        """
        names = [queue] if isinstance(queue, str) else list(queue)
        check_whole("limit", limit, 1, 10_000)
        if not names:
            raise InvalidOption("queue", queue, "name at least one queue")
        wait = None if until is None else seconds_of(until, "until")
        ids = {await self.queue_id(name): name for name in names}
        hidden = microseconds_of(visibility, "visibility")
        if hidden < SHORTEST_VISIBILITY:
            raise InvalidOption("visibility", visibility, "it is at least 10 ms: the time you need for a message")
        rows = await self.by_hand.poll(list(ids), limit, hidden, wait)
        return [message_of(row, ids[row["queue_id"]], type, self.by_hand) for row in rows]

    @contextlib.asynccontextmanager
    async def consume(
        self, queue: str | Sequence[str], *, limit: int = 1, visibility: Duration = 30
    ) -> AsyncIterator[AsyncIterator[Message[Any]]]:
        """Iterate over messages as they come, taking up to `limit` at once; those not looked at are given back.

        Those that have waited here for half of `visibility` are given back too, and taken anew: whoever comes to one
        late would find that somebody else has it.
        """
        waiting: collections.deque[Message[Any]] = collections.deque()

        async def messages() -> AsyncGenerator[Message[Any], None]:
            loop, patience = asyncio.get_running_loop(), seconds_of(visibility, "visibility") / 2
            while True:
                waiting.extend(await self.dequeue(queue, limit, until=None, visibility=visibility))
                until = loop.time() + patience
                while waiting and loop.time() < until:
                    yield waiting.popleft()
                await give_back()

        async def give_back() -> None:
            while waiting:
                with contextlib.suppress(StepwellError):  # its visibility timeout brings it back
                    await waiting.popleft().release()

        iterator = messages()
        try:
            yield iterator
        finally:
            await iterator.aclose()
            await give_back()

    async def pause_queue(self, queue: str) -> None:
        """Let nobody claim from the queue until it is resumed; what is under way goes on."""
        self.check()
        await self._queues.pause(queue, paused=True)

    async def resume_queue(self, queue: str) -> None:
        """Let the queue be claimed from again."""
        self.check()
        await self._queues.pause(queue, paused=False)
        self.tasks.hint({await self.queue_id(queue)})

    async def purge(self, queue: str) -> int:
        """Delete the queue's messages, whatever their status, except those a worker is executing; how many."""
        await self.queue_id(queue)
        return await self._queues.purge(queue)

    async def delete_queue(self, queue: str) -> None:
        """Delete a queue; refused with the counts while it has messages, living workers or a workflow."""
        self.check()
        await self._queues.delete(queue)

    async def get(self, task_id: int) -> Task | None:
        """One message (or other task) as it stands; None if it is not there."""
        self.check()
        return await self._queues.task(check_id(task_id))

    async def queues(self) -> Sequence[QueueInfo]:
        """Every queue, by name."""
        self.check()
        return await self._queues.all()

    async def counts(self, queue: str) -> dict[str, int]:
        """How many messages of a queue have each status; a status that none has is left out."""
        await self.queue_id(queue)
        return {str(status): count for status, count in (await self._queues.counts(queue)).items()}

    async def workers(self) -> Sequence[WorkerInfo]:
        """The newest worker sessions, living and ended."""
        self.check()
        return await self.sessions.latest()

    async def dead_letters(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        error: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[DeadLetter]:
        """Tasks that ended in ERROR, oldest first: of one queue, kind, or type of error if given."""
        await self._known(queue)
        return await self._queues.dead_letters(
            queue=queue,
            kind=check_filter("kind", kind),
            error=check_filter("error", error),
            limit=check_whole("limit", limit, 1, 10_000),
            after=after,
        )

    async def requeue(self, *ids: int, queue: str | None = None, error: str | None = None) -> int:
        """Give dead letters all their attempts again: those named, or all of a queue or type of error.

        Returns how many; a task that succeeded, was cancelled or is still under way is never touched, nor one whose
        key has been taken again meanwhile.
        """
        chosen = _filter(ids, queue, error)
        await self._known(queue)
        rows = await self._queues.requeue(ids, **chosen)
        self.tasks.hint({row["queue_id"] for row in rows})
        return len(rows)

    async def drop(self, *ids: int, queue: str | None = None, error: str | None = None) -> int:
        """Delete dead letters: those named, or all of a queue or type of error. Returns how many."""
        chosen = _filter(ids, queue, error)
        await self._known(queue)
        return len(await self._queues.drop(ids, **chosen))

    async def close(self) -> None:
        """Write what is pending and let go of the database; closing twice is harmless."""
        if self._closed:
            return
        await self.by_hand.ended()
        self._closed = True
        try:
            await self._flusher.close()
        finally:
            await self.driver.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def queue_id(self, name: str, *, create: bool = False, anew: bool = False) -> int:
        """The number of a queue, made if asked for; `anew` asks the database even if it was just asked."""
        self.check()
        check_name("queue", name)
        if anew:
            self._queues.forget(name)
        return await repeated(
            lambda: self._queues.create(name) if create else self._queues.find(name),
            clock=self.clock,
            telemetry=self.telemetry,
            within=self.options.timeout,
        )

    def check(self) -> None:
        """Refuse a use that could only hang or break: after closing, after a fork, on another loop."""
        if self._closed:
            raise StoreClosed
        if os.getpid() != self._pid:
            raise ForkError
        if asyncio.get_running_loop() is not self._loop:
            raise WrongLoop

    def drafted(
        self, queue: str | Addressed[Any], payloads: Iterable[Any], keys: Sequence[str] | None, **options: Any
    ) -> Drafted:
        """Messages checked and encoded; nothing is written yet."""
        return Draft(queue, payload_limit=self.options.payload_limit, **options).each(payloads, keys)

    def add_in_this_thread(self, drafted: Drafted, tx: object) -> list[TaskId]:
        """Write the messages through the user's own sync connection, in the user's thread."""
        match self.driver.join(tx):
            case SyncJoin(answer):
                return play(self._joining(drafted), answer)
            case AsyncJoin():
                raise InvalidOption("tx", tx, "it belongs to an event loop: join it through `stepwell.connect(...)`")

    async def _add(self, drafted: Drafted, tx: object) -> list[TaskId]:
        if not drafted.tasks:
            return []
        if tx is not None:
            return await self._join(drafted, tx)
        try:
            return await self._write(drafted)
        except Refused as error:
            explained = await self._explained(drafted.queue, error)
            if not (drafted.defines_queue and isinstance(explained, QueueNotFound)):
                raise explained from error
        return await self._write(drafted)  # deleted under us; a handler makes its queue again

    async def _write(self, drafted: Drafted) -> list[TaskId]:
        # By name an unknown queue is an error, a misspelling more often than not; a handler is its own definition.
        queue_id = await self.queue_id(drafted.queue, create=drafted.defines_queue)
        tasks = [replace(task, queue_id=queue_id) for task in drafted.tasks]
        return [await self.tasks.add(tasks[0])] if len(tasks) == 1 else await self.tasks.add_many(tasks)

    async def _join(self, drafted: Drafted, tx: object) -> list[TaskId]:
        self.check()
        match self.driver.join(tx):
            case AsyncJoin(answer):
                return await play_async(self._joining(drafted), answer)
            case SyncJoin():
                raise InvalidOption("tx", tx, "it belongs to its thread: join it through `stepwell.sync.connect(...)`")

    def _joining(self, drafted: Drafted) -> Script[list[TaskId]]:
        params: dict[str, Value] = {"now": self.clock.now(), "tenant": self.options.tenant}
        return add_joined(params, drafted.tasks, create=drafted.defines_queue)

    async def _known(self, queue: str | None) -> None:
        """Refuse a misspelt queue instead of finding nothing in it."""
        self.check()
        if queue is not None:
            await self.queue_id(queue)

    async def _explained(self, queue: str, error: Refused) -> Exception:
        """A refusal because the queue was deleted under us says so."""
        self._queues.forget(queue)
        try:
            await self._queues.find(queue)
        except QueueNotFound as missing:
            return missing
        return error

    async def _reserve(self, count: int) -> list[int]:
        return await repeated(
            lambda: self.driver.transact(lambda: reserve_blocks(count)),
            clock=self.clock,
            telemetry=self.telemetry,
            within=self.options.timeout,
        )


def _filter(ids: Sequence[int], queue: str | None, error: str | None) -> dict[str, str | None]:
    if bool(ids) == (queue is not None or error is not None):
        raise InvalidOption("ids", ids, "name the tasks, or give `queue` or `error` to take all that fit")
    for task_id in ids:
        if isinstance(task_id, Iterable):
            raise InvalidOption("ids", task_id, "pass them one by one: `requeue(*ids)`, `drop(*ids)`")
        check_id(task_id)
    return {"queue": queue, "error": check_filter("error", error)}
