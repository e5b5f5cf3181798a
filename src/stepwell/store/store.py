"""Store: an open database with verbs. What users call is here; what the engine calls is in `tasks` and `sessions`.

A store belongs to the event loop and the process that opened it, and says so when used from another.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Protocol, TypeVar, overload

from stepwell.clock import Clock
from stepwell.codec import PAYLOAD_LIMIT, encode, value_hash
from stepwell.durations import Duration, microseconds_of, moment_of
from stepwell.errors import ForkError, InvalidOption, QueueNotFound, Refused, StoreClosed, WrongLoop
from stepwell.names import check_key, check_max_attempts, check_name, check_priority, check_tags
from stepwell.records import DeadLetter, NewTask, Page, QueueInfo, Task, TaskId, TaskKind, WorkerInfo
from stepwell.store.driver import Call, Driver, Script
from stepwell.store.flush import GroupCommit
from stepwell.store.ids import Ids
from stepwell.store.queues import Queues
from stepwell.store.repeat import repeated
from stepwell.store.sessions import Sessions
from stepwell.store.sql import Statements
from stepwell.store.tasks import Tasks
from stepwell.telemetry import Telemetry

In_contra = TypeVar("In_contra", contravariant=True)
In = TypeVar("In")
Unique = Literal["ever", "unfinished"]
DEFAULT_ATTEMPTS = 3


class Addressed(Protocol[In_contra]):
    """Something that names a queue and how often its messages are tried: a handler."""

    @property
    def queue(self) -> str:
        """The queue it serves."""

    @property
    def max_attempts(self) -> int:
        """How often its messages are tried in all."""

    def accepts(self, payload: In_contra, /) -> None:
        """Nothing at run time; tells a type checker what a payload may be."""


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
        self.sessions = Sessions(driver, clock, slots=self.tasks.claim_slot + 1)
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
    ) -> TaskId:
        """Write a message; when this returns it is durable and will be handled.

        With `key`, a message of the queue that has it already is returned instead (`created` is False); another
        payload under the same key raises `IdempotencyConflict`. Bad input is refused before anything is written.
        """
        message = Draft(queue, self.options.payload_limit, priority, delay, run_at, max_attempts, tags, unique)
        task = message.of(payload, key, await self._queue_of(queue))
        try:
            return await self.tasks.add(task)
        except Refused as error:
            raise await self._explained(task.queue, error) from error

    @overload
    async def enqueue_many(
        self,
        queue: Addressed[In],
        payloads: Iterable[In],
        *,
        keys: Sequence[str] | None = None,
        priority: int = 0,
        delay: Duration | None = None,
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
    ) -> list[TaskId]: ...
    async def enqueue_many(
        self,
        queue: str | Addressed[Any],
        payloads: Iterable[Any],
        *,
        keys: Sequence[str] | None = None,
        priority: int = 0,
        delay: Duration | None = None,
    ) -> list[TaskId]:
        """Write all the messages or none, in one transaction; their ids come in the same order."""
        message = Draft(queue, self.options.payload_limit, priority, delay)
        queue_id = await self._queue_of(queue)
        payloads = list(payloads)
        if keys is not None and len(keys) != len(payloads):
            raise InvalidOption("keys", len(keys), f"there are {len(payloads)} payloads; give each its key")
        tasks = [message.of(payload, key, queue_id) for payload, key in zip(payloads, keys or [None] * len(payloads), strict=True)]
        if not tasks:
            return []
        try:
            return await self.tasks.add_many(tasks)
        except Refused as error:
            raise await self._explained(tasks[0].queue, error) from error

    async def get(self, task_id: int) -> Task | None:
        """One message (or other task) as it stands; None if it is not there."""
        self.check()
        return await self._queues.task(task_id)

    async def queues(self) -> Sequence[QueueInfo]:
        """Every queue, by name."""
        self.check()
        return await self._queues.list()

    async def counts(self, queue: str) -> dict[str, int]:
        """How many messages of a queue have each status."""
        await self.queue_id(queue)
        return {str(status): count for status, count in (await self._queues.counts(queue)).items()}

    async def workers(self) -> Sequence[WorkerInfo]:
        """The newest worker sessions, living and ended."""
        self.check()
        return await self.sessions.list()

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
        self.check()
        return await self._queues.dead_letters(queue=queue, kind=kind, error=error, limit=limit, after=after)

    async def requeue(self, *ids: int, queue: str | None = None, error: str | None = None) -> int:
        """Give dead letters all their attempts again: those named, or all of a queue or type of error.

        Returns how many; a task that succeeded, was cancelled or is still under way is never touched.
        """
        self.check()
        rows = await self._queues.requeue(ids, **_filter(ids, queue, error))
        self.tasks.hint({row["queue_id"] for row in rows})
        return len(rows)

    async def drop(self, *ids: int, queue: str | None = None, error: str | None = None) -> int:
        """Delete dead letters: those named, or all of a queue or type of error. Returns how many."""
        self.check()
        return len(await self._queues.drop(ids, **_filter(ids, queue, error)))

    async def close(self) -> None:
        """Write what is pending and let go of the database; closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        await self._flusher.close()
        await self.driver.close()

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def queue_id(self, name: str, *, create: bool = False) -> int:
        """The number of a queue, made if asked for."""
        self.check()
        check_name("queue", name)
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

    async def _queue_of(self, queue: str | Addressed[Any]) -> int:
        # By name an unknown queue is an error, a misspelling more often than not; a handler is its own definition.
        return await self.queue_id(queue) if isinstance(queue, str) else await self.queue_id(queue.queue, create=True)

    async def _explained(self, queue: str, error: Refused) -> Exception:
        """A refusal because the queue was deleted under us says so."""
        self._queues.forget(queue)
        try:
            await self._queues.find(queue)
        except QueueNotFound as missing:
            return missing
        return error

    async def _reserve(self, count: int) -> list[int]:
        def script() -> Script[list[int]]:
            rows = yield Call("reserve_blocks", {"count": count})
            highest: int = rows[-1]["block"]
            return [row["block"] for row in rows] if len(rows) == count else list(range(highest - count + 1, highest + 1))

        return await repeated(
            lambda: self.driver.transact(script),
            clock=self.clock,
            telemetry=self.telemetry,
            within=self.options.timeout,
        )


class Draft:
    """What the messages of one call have in common, checked once."""

    def __init__(
        self,
        queue: str | Addressed[Any],
        payload_limit: int,
        priority: int = 0,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        tags: Iterable[str] = (),
        unique: Unique = "ever",
    ) -> None:
        if delay is not None and run_at is not None:
            raise InvalidOption("delay", delay, "give `delay` or `run_at`, not both")
        if unique not in ("ever", "unfinished"):
            raise InvalidOption("unique", unique, "it is 'ever' or 'unfinished'")
        self._queue = check_name("queue", queue if isinstance(queue, str) else queue.queue)
        default = DEFAULT_ATTEMPTS if isinstance(queue, str) else queue.max_attempts
        self._max_attempts = check_max_attempts(default if max_attempts is None else max_attempts)
        self._payload_limit = payload_limit
        self._priority = check_priority(priority)
        self._delay = 0 if delay is None else microseconds_of(delay, "delay")
        self._run_at = None if run_at is None else moment_of(run_at)
        checked = check_tags(tags)
        self._tags = encode(checked) if checked else None
        self._unique = unique

    def of(self, payload: Any, key: str | None, queue_id: int) -> NewTask:
        """The task for one payload; raises if it cannot be stored."""
        text = encode(payload, limit=self._payload_limit)
        return NewTask(
            TaskKind.MESSAGE,
            queue_id,
            self._queue,
            text,
            self._priority,
            self._delay,
            self._run_at,
            self._max_attempts,
            None if key is None else check_key(key),
            self._unique,
            None if key is None else value_hash(payload),
            self._tags,
        )


def _filter(ids: Sequence[int], queue: str | None, error: str | None) -> dict[str, str | None]:
    if bool(ids) == (queue is not None or error is not None):
        raise InvalidOption("ids", ids, "name the tasks, or give `queue` or `error` to take all that fit")
    return {"queue": queue, "error": error}
