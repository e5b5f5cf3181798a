"""Handing over: a task that is added where a worker has a free place, and nothing else waits, is written as its own.

That saves the claim: one commit less between adding a task and executing it. Whether it may be so is decided where the
task is written, under the fence of the session; if not, it is written as any other and waits to be claimed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from stepwell.store.add import row_of, size_of
from stepwell.store.flush import GroupCommit
from stepwell.store.pending import Answer, Operation
from stepwell.store.rows import Claimed, NewTask


class Seat(Protocol):
    """A place of a worker, kept free for one task."""

    worker: int

    def taken(self, task: Claimed) -> None:
        """The task is the worker's: execute it."""

    def missed(self) -> None:
        """It is not, or nobody knows: the place is free again."""


Offer = Callable[[int, int], Seat | None]  # of a queue and a task


class HandOver:
    """The workers of this process that may be given what is added here."""

    def __init__(self, flusher: GroupCommit, within: float) -> None:
        self._flusher = flusher
        self._within = within
        self._offers: list[Offer] = []

    def on_offer(self, offer: Offer) -> Callable[[], None]:
        """Ask this worker too, until what is returned is called."""
        self._offers.append(offer)
        return lambda: self._offers.remove(offer)

    def seat_for(self, task: NewTask, task_id: int) -> Seat | None:
        """A free place for a task that is due at once; none for one with a key, which may be there already."""
        if not self._offers or task.key is not None or task.delay or task.run_at is not None:
            return None
        return next((seat for offer in self._offers if (seat := offer(task.queue_id, task_id)) is not None), None)

    async def add(self, task: NewTask, task_id: int, seat: Seat) -> Answer | None:
        """Write the task as the worker's; None if too much waits to be written for that.

        Whoever adds it may leave: the answer is heard all the same, so what was written is executed.
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
            row_again=row,  # then it is not known whose it is: the task is only to be there
        )
        handing = Handing(task, task_id, seat, asyncio.get_running_loop().create_future(), time.monotonic())
        if not self._flusher.offer(operation, handing.heard):
            seat.missed()
            return None
        timer = asyncio.get_running_loop().call_later(self._within, self._flusher.give_up_on, operation)
        try:
            return await asyncio.shield(handing.added)
        finally:
            timer.cancel()


@dataclass(frozen=True, slots=True, eq=False)
class Handing:
    """A task on its way into the database and, with that, to a worker."""

    task: NewTask
    task_id: int
    seat: Seat
    added: asyncio.Future[Answer]
    asked_at: float

    def heard(self, answer: Answer | BaseException) -> None:
        """What came of it: the worker's, one that waits to be claimed, or nobody knows."""
        if isinstance(answer, BaseException):
            self.seat.missed()
            self.added.set_exception(answer)
            self.added.exception()  # looked at: perhaps nobody waits for it
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
    )
