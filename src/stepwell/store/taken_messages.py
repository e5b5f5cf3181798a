"""Messages taken by hand: dequeue, then archive, delete, extend or release, each fenced by the turn."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from stepwell.base.durations import Duration, datetime_of, microseconds_of
from stepwell.errors import InvalidOption, StoreBusy, StoreUnavailable, TaskInUse
from stepwell.records import RunStatus, TaskId, TaskKind
from stepwell.store.audit import By, Note, What
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.pending import Operation
from stepwell.store.poll import SWEEP_EVERY, Fairness, Polling
from stepwell.store.recovery import Recovery
from stepwell.store.rows import ROW_BYTES
from stepwell.store.settle import lock_families, wake_parents
from stepwell.store.tasks import in_claim_order, wanted_of
from stepwell.values.stamp import read_value

if TYPE_CHECKING:
    from stepwell.store.database import Database

T = TypeVar("T")
SHORTEST_SWEEP: Final = 0.02


class TakenMessages:
    """Takes messages without a worker: each message has a visibility timeout in place of a session and a lease."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._flusher = database.flusher
        self._fairness: defaultdict[frozenset[int], Fairness] = defaultdict(Fairness)
        self._recovered_at = time.monotonic()
        self._swept_at = float("-inf")
        self._turns = 0
        self._giving_back: set[asyncio.Task[None]] = set()

    @functools.cached_property
    def _recovery(self) -> Recovery:
        # Created with the first message that is taken: only then does this store have to look for dead workers.
        return Recovery(self._db)

    async def poll(self, queues: Sequence[int], limit: int, visibility: int, until: float | None) -> list[Row]:
        """Take messages as soon as there are any; an empty list if none came in time."""
        self._db.check()
        loop = asyncio.get_running_loop()
        deadline = math.inf if until is None else loop.time() + until
        polling = Polling(self._db.clock)
        with polling.hearing(self._db.tasks, queues):
            while True:
                polling.begin()
                self._turns += 1
                first = self._turns % len(queues)
                try:
                    taken = await self._take_due([*queues[first:], *queues[:first]], limit, visibility)
                except (StoreBusy, StoreUnavailable):
                    self._recovery.interrupted()
                    if loop.time() >= deadline:
                        raise
                    taken = []
                if taken or loop.time() >= deadline:
                    return taken
                await polling.rest(deadline - loop.time())

    async def ended(self) -> None:
        """Wait until all messages whose callers have left are given back."""
        await asyncio.gather(*self._giving_back, return_exceptions=True)

    async def _take_due(self, queues: Sequence[int], limit: int, visibility: int) -> list[Row]:
        """Take ready messages. Also take those that are due or that a dead worker lost, even if no worker runs upkeep.

        Upkeep runs first once a second, so that a backlog cannot delay due messages for ever; otherwise it runs only if
        no message was ready. Messages that were taken are returned even if upkeep fails.
        """
        if time.monotonic() - self._swept_at >= SWEEP_EVERY:
            await self._sweep()
        taken = await self._take_for_caller(queues, limit, visibility)
        if not taken and not (await self._sweep()).isdisjoint(queues):
            taken = await self._take_for_caller(queues, limit, visibility)
        if not taken and await self._db.suspects.wait_in(queues):
            taken = await self._take_for_caller(queues, limit, visibility, suspect=True)
        return taken

    async def _sweep(self) -> set[int]:
        now = time.monotonic()
        if self._db.clock.now() is None and now - self._swept_at < SHORTEST_SWEEP:
            return set()  # another idle consumer has just done it
        self._swept_at = now
        woken = await self._db.tasks.wake()
        if now - self._recovered_at >= self._recovery.look_every:
            self._recovered_at = now
            woken |= await self._recovery.look()
        return woken

    async def _take_for_caller(
        self, queues: Sequence[int], limit: int, visibility: int, *, suspect: bool = False
    ) -> list[Row]:
        """Take messages for a caller that may be cancelled; then give them back, with their attempts."""
        take = self._db.suspects.take(queues, visibility) if suspect else self._take(queues, limit, visibility)
        taking = asyncio.ensure_future(take)
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            self._keep(asyncio.ensure_future(self._give_back(taking)))
            raise

    async def _give_back(self, taking: asyncio.Future[list[Row]]) -> None:
        for row in await taking:
            await self.close(row["id"], row["turn"], RunStatus.PENDING, parent=row["parent_id"])

    def _keep(self, job: asyncio.Task[None]) -> None:
        self._giving_back.add(job)
        job.add_done_callback(self._giving_back.discard)

    async def _take(self, queues: Sequence[int], limit: int, visibility: int) -> list[Row]:
        """Up to `limit` ready messages, hidden from all other consumers for `visibility` microseconds."""
        tasks = self._db.tasks
        params: dict[str, Value] = {"now": self._db.clock.now(), "limit": limit, "visibility": visibility}
        asked = [(queue_id, limit) for queue_id in queues]
        fairness = self._fairness[frozenset(queues)]  # of these queues alone: other queues keep their own count
        levels = await tasks.oldest(queues) if fairness.oldest_is_due() else {}
        rows = await tasks.pick("take", params, wanted_of(asked, levels))
        for queue_id in await self._db.limiters.limited(queues) if len(rows) < limit else ():
            rows += await self._db.limited.take(queue_id, limit - len(rows), visibility)
        fairness.claimed((row["queue_id"] for row in rows), asked, limit)
        return in_claim_order(rows, queues)

    async def close(
        self, task_id: int, turn: int, status: RunStatus, *, delay: int = 0, parent: int | None = None
    ) -> bool:
        """Archive a message, or give it back with its attempt; False if the consumer no longer holds it."""
        back = int(status is RunStatus.PENDING)
        note = self._db.audit.closed(task_id, turn, status)
        return await self._submit("close_taken", (task_id, turn, str(status), delay, back), parent, note)

    async def look(self, task_id: int) -> Row | None:
        """A task of this tenant as it stands; None if it does not exist, or is deleted."""
        self._db.check()
        rows = await self._db.driver.read(Call("task", self._db.params(deleted=False), [(task_id,)]))
        return rows[0] if rows else None

    async def release_held(self, task_id: int, delay: int, by: By) -> bool:
        """Give back, with its attempt, a message that any consumer has taken by hand; False if none has."""
        row = await self._not_at_work(task_id)
        if row is None or row["status"] != RunStatus.RUNNING:
            return False
        note = self._db.audit.told(task_id, row["turn"], What.RELEASED, RunStatus.PENDING, by)
        closing = (task_id, row["turn"], str(RunStatus.PENDING), delay, 1)
        return await self._submit("close_taken", closing, row["parent_id"], note)

    async def archive_unfinished(self, task_id: int, by: By) -> bool:
        """Archive a message that waits or that a consumer has taken by hand; False if it is finished or removed."""
        row = await self._not_at_work(task_id)
        if row is None or row["finished_at"] is not None:
            return False
        if row["kind"] != TaskKind.MESSAGE:
            raise InvalidOption("task_id", task_id, f"it is no message but of kind {row['kind']}; `cancel` ends a run")
        if row["status"] == RunStatus.RUNNING:
            note = self._db.audit.told(task_id, row["turn"], What.ARCHIVED, RunStatus.SUCCESS, by)
            closing = (task_id, row["turn"], str(RunStatus.SUCCESS), 0, 0)
            return await self._submit("close_taken", closing, row["parent_id"], note)
        turn = row["turn"]
        return bool(await self._db.driver.transact(lambda: self._archive(task_id, turn, by)))

    async def _not_at_work(self, task_id: int) -> Row | None:
        row = await self.look(task_id)
        if row is not None and row["owner"] is not None:
            raise TaskInUse(task_id, row["owner"])
        return row

    def _archive(self, task_id: int, turn: int, by: By) -> Script[list[Row]]:
        params = self._db.params(id=task_id)
        yield from lock_families([task_id])
        archived = yield Call("archive_waiting", {**params, "turn": turn})
        yield from self._db.audit.of_all(params, archived, What.ARCHIVED, by=by)
        yield from wake_parents(params, archived)
        return archived

    async def extend(self, task_id: int, turn: int, visibility: int) -> bool:
        """Hide a message for this long from now; False if the consumer no longer holds it."""
        return await self._submit("extend_taken", (task_id, turn, visibility))

    async def delete(self, task_id: int, turn: int, *, parent: int | None = None) -> bool:
        """Remove a message; False if the consumer no longer holds it."""
        return await self._submit("delete_taken", (task_id, turn), parent)

    async def _submit(
        self, statement: str, row: tuple[Value, ...], parent: int | None = None, note: Note | None = None
    ) -> bool:
        self._db.check()
        task_id = int(row[0] or 0)
        operation = Operation(
            statement,
            row,
            row_id=task_id,
            size=ROW_BYTES,
            within=2 * self._db.options.timeout,
            lane=task_id,
            order=row,
            parent=parent,
            notes=() if note is None else (note,),
        )
        answer = await self._flusher.submit(operation)
        if answer.value is None and answer.repeated:
            return await self._was_done(statement, task_id, row[1])
        return answer.value is not None

    async def _was_done(self, statement: str, task_id: int, turn: Value) -> bool:
        """Whether an earlier try whose reply was lost was written: the turn is still ours, and closed."""
        rows = await self._db.driver.read(Call("turns_of", rows=[(task_id,)]))
        if not rows:
            return statement == "delete_taken"
        return bool(rows[0]["turn"] == turn and (rows[0]["status"] != "RUNNING") == (statement != "extend_taken"))


class Handed:
    """The messages that a consumer has handed out and not closed, while they are hidden from others."""

    def __init__(self) -> None:
        self._messages: dict[int, tuple[Message[Any], float]] = {}

    def out(self, message: Message[Any], visibility: int) -> Message[Any]:
        """Hand a message out; the message reports here when it is closed or extended."""
        handed = replace(message, _handed=self)
        self.keep(handed, visibility)
        return handed

    def keep(self, message: Message[Any], visibility: int) -> None:
        """The message is hidden for this many microseconds from now."""
        self._messages[message.id] = message, time.monotonic() + visibility / 1_000_000

    def closed(self, message: Message[Any]) -> None:
        """The message is closed, or the consumer no longer holds it."""
        if message.id in self._messages and self._messages[message.id][0].turn == message.turn:
            del self._messages[message.id]

    def left(self) -> list[Message[Any]]:
        """The messages that are still hidden, in the order in which they were handed out; the others are forgotten."""
        now = time.monotonic()
        self._messages = {one: (message, end) for one, (message, end) in self._messages.items() if end > now}
        return [message for message, _ in self._messages.values()]

    def forget(self) -> None:
        """Let the visibility timeout of each message give it back."""
        self._messages.clear()


@dataclass(frozen=True)
class Message(Generic[T]):
    """A message taken by hand: yours until you close it, or until its visibility timeout is over and it is taken back.

    Every verb returns False, and changes nothing, when the message is no longer yours.
    """

    id: TaskId
    queue: str
    attempt: int
    key: str | None
    created_at: datetime
    turn: int
    _parent: int | None = field(repr=False)
    _text: str = field(repr=False)
    _type: Any = field(repr=False)
    _service: TakenMessages = field(repr=False)
    _handed: Handed | None = field(default=None, repr=False, compare=False)

    @functools.cached_property
    def payload(self) -> T:
        """The payload, as the type asked for. It is decoded here, so that one that does not fit spoils no other."""
        value: T = read_value(self._text, self._type)
        return value

    async def archive(self) -> bool:
        """Done: the message is never delivered again, and kept as SUCCESS."""
        return self._closed(await self._service.close(self.id, self.turn, RunStatus.SUCCESS, parent=self._parent))

    async def delete(self) -> bool:
        """Done: the message is removed."""
        return self._closed(await self._service.delete(self.id, self.turn, parent=self._parent))

    async def extend(self, by: Duration) -> bool:
        """Keep the message for this long from now."""
        visibility = microseconds_of(by, "by")
        extended = await self._service.extend(self.id, self.turn, visibility)
        if extended and self._handed is not None:
            self._handed.keep(self, visibility)
        return extended

    async def release(self, *, delay: Duration = 0) -> bool:
        """Give the message back, with its attempt; others may take it after `delay`."""
        later = microseconds_of(delay, "delay")
        released = self._service.close(self.id, self.turn, RunStatus.PENDING, delay=later, parent=self._parent)
        return self._closed(await released)

    def _closed(self, done: bool) -> bool:
        if self._handed is not None:
            self._handed.closed(self)
        return done


def message_of(row: Any, queue: str, type_: Any, service: TakenMessages) -> Message[Any]:
    """A row of `take` as the message that the consumer sees."""
    return Message(
        id=TaskId.found(row["id"]),
        queue=queue,
        attempt=row["attempt"],
        key=row["key"],
        created_at=datetime_of(row["created_at"]),
        turn=row["turn"],
        _parent=row["parent_id"],
        _text=row["input"] or "null",
        _type=type_,
        _service=service,
    )
