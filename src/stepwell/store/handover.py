"""Handover: a task that is added while a worker has a free place, and no other task waits, is written as that worker's.

That saves the claim: one commit less between adding a task and executing it. The statement that writes the task checks
the fence of the session. If the session may not have the task, it is written as any other and waits to be claimed.

It earns its place in an idle process. From enqueue to handler it takes 0.7 of the time, 0.76 of the client's CPU and
0.84 of that of Postgres; from trigger to result 0.83 of the client's CPU. Measured in 9 alternating rounds on a busy
machine: `make compare ARGS="--without hand-over --only latency,workflow.latency"`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from stepwell.store.pending import Answer, Operation
from stepwell.store.rows import Claimed, NewTask, row_of, size_of

if TYPE_CHECKING:
    from stepwell.store.database import Database


class Seat(Protocol):
    """A place of a worker, kept free for one task."""

    worker: int

    def taken(self, task: Claimed) -> None:
        """The worker has the task: execute it."""

    def missed(self) -> None:
        """The worker does not have the task, or that is unknown: the place is free again."""


Offer = Callable[[int, int], Seat | None]  # of a queue and a task


class HandOver:
    """The workers of this process that may get tasks that are added here."""

    def __init__(self, database: Database) -> None:
        self._flusher, self._within = database.flusher, 2 * database.options.timeout
        self._offers: list[Offer] = []

    def on_offer(self, offer: Offer) -> Callable[[], None]:
        """Ask this worker too, until the returned function is called."""
        self._offers.append(offer)
        return lambda: self._offers.remove(offer)

    def seat_for(self, task: NewTask, task_id: int) -> Seat | None:
        """A free place for a task that is due at once; None for a task with a key, since that key may exist."""
        if task.group_key is not None or task.conditions is not None:  # of a group the first is claimed, and no other
            return None
        if not self._offers or task.key is not None or task.delay or task.run_at is not None:
            return None
        return next((seat for offer in self._offers if (seat := offer(task.queue_id, task_id)) is not None), None)

    async def add(self, task: NewTask, task_id: int, seat: Seat) -> Answer | None:
        """Write the task as the worker's; None if too much is pending for that.

        The caller may be cancelled: the answer is still handled, so that a task that was written is executed.
        """
        row = row_of(task, task_id)
        operation = Operation(
            "hand_over",
            (*row, seat.worker),
            row_id=task_id,
            size=size_of(task),
            within=self._within,
            worker=seat.worker,
            order=(task.queue_id, "", task_id),
            adds_to=task.queue_id,
            row_again=row,  # then its owner is unknown: the task only has to be there
        )
        handing = Handing(task, task_id, seat, asyncio.get_running_loop().create_future(), time.monotonic())
        if not self._flusher.offer(operation, handing.heard):
            seat.missed()
            return None
        self._flusher.deadlines.add(operation, self._within)
        try:
            return await asyncio.shield(handing.added)
        finally:
            self._flusher.deadlines.remove(operation)


@dataclass(frozen=True, slots=True, eq=False)
class Handing:
    """A task that is being written and thereby handed to a worker."""

    task: NewTask
    task_id: int
    seat: Seat
    added: asyncio.Future[Answer]
    asked_at: float

    def heard(self, answer: Answer | BaseException) -> None:
        """Handle the answer: the worker has the task, or it waits to be claimed, or that is unknown."""
        if isinstance(answer, BaseException):
            self.seat.missed()
            self.added.set_exception(answer)
            self.added.exception()  # marked as retrieved: perhaps no caller waits for it
            return
        if answer.number is None:
            self.seat.missed()
        else:
            self.seat.taken(_claimed(self.task, self.task_id, self.seat.worker, answer.number, self.asked_at))
        self.added.set_result(answer)


def _claimed(task: NewTask, task_id: int, worker: int, now: int, asked_at: float) -> Claimed:
    return Claimed(
        id=task_id,
        kind=task.kind,
        queue_id=task.queue_id,
        owner=worker,
        turn=1,
        attempt=1,
        max_attempts=task.max_attempts,
        priority=task.priority,
        run_at=now,
        key=None,
        input=task.input,
        wakes=0,
        suspect=False,
        created_at=now,
        started_at=now,
        claimed_at=now,
        asked_at=asked_at,
        parent_id=task.parent_id,
        headers=task.headers,
    )
