"""Messages taken by hand: dequeue, then archive, delete, extend or release, each fenced by the turn."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from stepwell.clock import Clock
from stepwell.codec import decode
from stepwell.durations import Duration, datetime_of, microseconds_of
from stepwell.records import RunStatus, TaskId
from stepwell.store.driver import Call, Driver, Row, Script, Value
from stepwell.store.flush import GroupCommit, Operation
from stepwell.store.polling import Polling
from stepwell.store.tasks import ROW_BYTES, Tasks

T = TypeVar("T")
SLOT: Final = 0
SWEEP_EVERY: Final = 1.0


class ByHand:
    """Taking messages without a worker: no session and no lease, a visibility timeout for each message instead."""

    def __init__(self, driver: Driver, flusher: GroupCommit, tasks: Tasks, clock: Clock, *, timeout: float) -> None:
        self._driver = driver
        self._flusher = flusher
        self._tasks = tasks
        self._swept_at = float("-inf")
        self._turns = 0
        self._clock = clock
        self._timeout = timeout

    async def poll(self, queues: Sequence[int], limit: int, visibility: int, until: float | None) -> list[Row]:
        """Take messages as soon as there are any; nothing if none came in time."""
        loop = asyncio.get_running_loop()
        deadline = math.inf if until is None else loop.time() + until
        polling = Polling(self._clock)
        with polling.hearing(self._tasks, queues):
            while True:
                polling.begin()
                self._turns += 1
                first = self._turns % len(queues)
                taken = await self._take_due([*queues[first:], *queues[:first]], limit, visibility)
                if taken or loop.time() >= deadline:
                    return taken
                await polling.rest(deadline - loop.time())

    async def _take_due(self, queues: Sequence[int], limit: int, visibility: int) -> list[Row]:
        """Take what is ready, and what is due although no worker is there to sweep.

        The sweep comes first once a second, so that a backlog cannot keep what became due out for ever, and otherwise
        only when too little was ready.
        """
        if time.monotonic() - self._swept_at >= SWEEP_EVERY:
            await self._sweep()
            return await self.take(queues, limit, visibility)
        taken = await self.take(queues, limit, visibility)
        if len(taken) < limit and not (await self._sweep()).isdisjoint(queues):
            taken += await self.take(queues, limit - len(taken), visibility)
        return taken

    async def _sweep(self) -> set[int]:
        self._swept_at = time.monotonic()
        woken, _ = await self._tasks.wake_due()
        return woken

    async def take(self, queues: Sequence[int], limit: int, visibility: int) -> list[Row]:
        """Up to `limit` ready messages, hidden from everybody else for `visibility` microseconds."""
        params: dict[str, Value] = {"now": self._clock.now(), "limit": limit, "visibility": visibility}
        if self._driver.claims_many_queues:
            wanted = [(queue_id, limit) for queue_id in queues]
            [rows] = await self._driver.run(SLOT, [Call("take", params, wanted)])
        else:
            rows = await self._driver.transact(lambda: _take_queues(params, queues, limit))
        place = {queue_id: index for index, queue_id in enumerate(queues)}
        return sorted(rows, key=lambda row: (place[row["queue_id"]], -row["priority"], row["run_at"], row["id"]))

    async def close(self, task_id: int, turn: int, status: RunStatus, *, delay: int = 0) -> bool:
        """Archive a message, or give it back with its attempt; False if it is no longer the taker's."""
        back = int(status is RunStatus.PENDING)
        return await self._submit("close_taken", (task_id, turn, str(status), delay, back))

    async def extend(self, task_id: int, turn: int, visibility: int) -> bool:
        """Hide a message for this long from now; False if it is no longer the taker's."""
        return await self._submit("extend_taken", (task_id, turn, visibility))

    async def delete(self, task_id: int, turn: int) -> bool:
        """Remove a message; False if it is no longer the taker's."""
        return await self._submit("delete_taken", (task_id, turn))

    async def _submit(self, statement: str, row: tuple[Value, ...]) -> bool:
        task_id = int(row[0] or 0)
        answer = await self._flusher.submit(
            Operation(
                statement, row, row_id=task_id, size=ROW_BYTES, within=self._timeout, keeps_lane=True, order=(task_id,)
            )
        )
        return answer.value is not None


@dataclass(frozen=True)
class Message(Generic[T]):
    """A message taken by hand: yours until its visibility timeout, unless you archive, delete or release it before.

    Every verb answers False, and changes nothing, when the message is no longer yours.
    """

    id: TaskId
    queue: str
    attempt: int
    key: str | None
    created_at: datetime
    turn: int
    _text: str = field(repr=False)
    _type: Any = field(repr=False)
    _by_hand: ByHand = field(repr=False)

    @functools.cached_property
    def payload(self) -> T:
        """What was enqueued, as the type asked for. Read here and not before: one that does not fit spoils no other."""
        value: T = decode(self._text, self._type)
        return value

    async def archive(self) -> bool:
        """Done: never delivered again, kept as SUCCESS."""
        return await self._by_hand.close(self.id, self.turn, RunStatus.SUCCESS)

    async def delete(self) -> bool:
        """Done: removed."""
        return await self._by_hand.delete(self.id, self.turn)

    async def extend(self, by: Duration) -> bool:
        """Keep it for this long from now."""
        return await self._by_hand.extend(self.id, self.turn, microseconds_of(by, "by"))

    async def release(self, *, delay: Duration = 0) -> bool:
        """Give it back, its attempt too; others may have it after `delay`."""
        return await self._by_hand.close(self.id, self.turn, RunStatus.PENDING, delay=microseconds_of(delay, "delay"))


def message_of(row: Any, queue: str, type_: Any, by_hand: ByHand) -> Message[Any]:
    """A row of `take` as the message its taker sees."""
    return Message(
        id=TaskId(row["id"], created=False),
        queue=queue,
        attempt=row["attempt"],
        key=row["key"],
        created_at=datetime_of(row["created_at"]),
        turn=row["turn"],
        _text=row["input"] or "null",
        _type=type_,
        _by_hand=by_hand,
    )


def _take_queues(params: dict[str, Value], queues: Sequence[int], limit: int) -> Script[list[Row]]:
    taken: list[Row] = []
    for queue_id in queues:
        if len(taken) < limit:
            taken += yield Call("take", {**params, "queue_id": queue_id, "limit": limit - len(taken)})
    return taken
