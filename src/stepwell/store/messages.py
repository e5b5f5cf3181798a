"""The verbs of messages: write them, and take them by hand."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar, overload

from stepwell.durations import Duration, microseconds_of, seconds_of
from stepwell.errors import InvalidOption, StepwellError
from stepwell.names import check_id, check_whole
from stepwell.records import RunStatus, TaskId
from stepwell.store.by_hand import Handed, Message, message_of
from stepwell.store.draft import Addressed, Draft, Unique
from stepwell.store.writing import Writing

In = TypeVar("In")
T = TypeVar("T")
SHORTEST_VISIBILITY = 10_000


class Messages(Writing):
    """Queues as those who fill and empty them see them."""

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
        It is tried as often as `max_attempts` says, else the handler, else the store's own policy (three times).
        """
        drafted = self.draft(
            queue,
            priority=priority,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            tags=tags,
            unique=unique,
        ).one(payload, key)
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
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        tags: Iterable[str] = (),
        unique: Unique = "ever",
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
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        tags: Iterable[str] = (),
        unique: Unique = "ever",
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
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        tags: Iterable[str] = (),
        unique: Unique = "ever",
        tx: object = None,
    ) -> list[TaskId]:
        """Write all the messages or none, in one transaction (yours, with `tx`); their ids come in the same order."""
        drafted = self.draft(
            queue,
            priority=priority,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            tags=tags,
            unique=unique,
        ).each(payloads, keys)
        return await self._add(drafted, tx)

    @overload
    async def dequeue(
        self,
        queue: str | Sequence[str],
        limit: int = 1,
        *,
        type: type[T],
        until: Duration | None = 0,
        visibility: Duration | None = None,
    ) -> list[Message[T]]: ...
    @overload
    async def dequeue(
        self,
        queue: str | Sequence[str],
        limit: int = 1,
        *,
        until: Duration | None = 0,
        visibility: Duration | None = None,
    ) -> list[Message[Any]]: ...
    async def dequeue(
        self,
        queue: str | Sequence[str],
        limit: int = 1,
        *,
        type: Any = Any,
        until: Duration | None = 0,
        visibility: Duration | None = None,
    ) -> list[Message[Any]]:
        """Take up to `limit` messages by hand: each is yours alone for `visibility`, and comes back if not closed.

        Without `visibility` it is the store's, 30 s unless `connect` said otherwise. Waits up to `until` for the first;
        None waits for as long as it takes. Several queues take turns being first.
        """
        names = [queue] if isinstance(queue, str) else list(queue)
        check_whole("limit", limit, 1, 10_000)
        if not names:
            raise InvalidOption("queue", queue, "name at least one queue")
        wait = None if until is None else seconds_of(until, "until")
        ids = {await self.queue_id(name): name for name in names}
        hidden = self._visibility(visibility)
        rows = await self.by_hand.poll(list(ids), limit, hidden, wait)
        return [message_of(row, ids[row["queue_id"]], type, self.by_hand) for row in rows]

    async def taken(self, task_id: int, turn: int, *, type: Any = Any) -> Message[Any] | None:
        """A message that was taken elsewhere, by its id and turn, to be closed here; None if it is not held now.

        The turn is that of the `Message` that `dequeue` gave; who took it later has a higher one.
        """
        check_whole("turn", turn, 0, 2**63 - 1)
        row = await self.by_hand.look(check_id(task_id))
        if row is None or (row["status"], row["owner"], row["turn"]) != (RunStatus.RUNNING, None, turn):
            return None
        return message_of(row, row["queue"], type, self.by_hand)

    @contextlib.asynccontextmanager
    async def consume(
        self, queue: str | Sequence[str], *, limit: int = 1, visibility: Duration | None = None
    ) -> AsyncIterator[AsyncIterator[Message[Any]]]:
        """Iterate over messages as they come, taking up to `limit` at once; those not closed are given back.

        At the end of the block, with their attempts; but if it ends with an error, those that it has seen come back
        when their visibility timeouts are over, and that delivery counts: one of them may be what it failed of. Those
        that have waited here for half of `visibility` are given back too, and taken anew: whoever comes to one late
        would find that somebody else has it.
        """
        waiting: collections.deque[Message[Any]] = collections.deque()
        handed, hidden = Handed(), self._visibility(visibility)

        async def messages() -> AsyncGenerator[Message[Any], None]:
            loop, patience = asyncio.get_running_loop(), hidden / 2_000_000
            while True:
                handed.left()
                waiting.extend(await self.dequeue(queue, limit, until=None, visibility=visibility))
                until = loop.time() + patience
                while waiting and loop.time() < until:
                    yield handed.out(waiting.popleft(), hidden)
                await give_back()

        async def give_back() -> None:
            while waiting:
                with contextlib.suppress(StepwellError):  # its visibility timeout brings it back
                    await waiting.popleft().release()

        iterator = messages()
        try:
            yield iterator
        except Exception:
            handed.forget()
            raise
        finally:
            await iterator.aclose()
            waiting.extendleft(reversed(handed.left()))
            await give_back()

    def _visibility(self, visibility: Duration | None) -> int:
        hidden = microseconds_of(self.options.visibility if visibility is None else visibility, "visibility")
        if hidden < SHORTEST_VISIBILITY:
            raise InvalidOption("visibility", visibility, "it is at least 10 ms: the time you need for a message")
        return hidden

    def draft(self, queue: str | Addressed[Any], **options: Any) -> Draft:
        """What messages of one call have in common, checked; nothing is written yet."""
        limit, attempts = self.options.payload_limit, self.options.retry.max_attempts
        return Draft(queue, payload_limit=limit, default_attempts=attempts, **options)
