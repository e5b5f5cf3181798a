"""Upkeep: every worker wakes due tasks, recovers lost ones, removes old ones, releases held runs, fans out events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Final

from stepwell.base.backoff import Retry, waits
from stepwell.base.events import InternalTaskFailed, StoreLost, WorkUnserved
from stepwell.base.program import program
from stepwell.errors import LeaseLost, StoreBusy, StoreClosed, StoreUnavailable
from stepwell.store.broadcasts import QUEUE
from stepwell.store.database import Database
from stepwell.store.poll import LONGEST_POLL
from stepwell.store.recovery import Recovery
from stepwell.store.rows import Claimed
from stepwell.store.schedules import NewSchedule
from stepwell.work.body import Served, Slot
from stepwell.work.outcome import DONE, Ended, Released, Settled
from stepwell.work.threads import Threads

ROUND_EVERY: Final = 60.0  # about; seconds between two rounds of retention
ROUND_AGAIN: Final = 1.0  # seconds after a round that has more to remove
LOOK_AT_HOLDS_EVERY: Final = 5.0  # about; seconds between two looks for held runs
REPORT_EVERY: Final = 600.0  # seconds between two looks for queues without a worker
FANNED_AT_ONCE: Final = 1  # in one worker, so that events are published in the order in which they are claimed
TOLD_SOON: Final = 1.0  # seconds until those that other transactions had locked are told


class Upkeep:
    """Wakes due tasks, recovers lost tasks and removes old ones, until it is cancelled.

    It looks after the ordered groups of the queues that `in_order` names.
    """

    def __init__(self, database: Database, in_order: Callable[[], Collection[int]] = tuple) -> None:
        self._db = database
        self._in_order = in_order
        self._recovery = Recovery(database)

    async def forever(self) -> None:
        """Do the upkeep until cancelled; wait while the database is away."""
        # In its own task: due tasks must not wait until old ones have been removed.
        tidying = asyncio.create_task(Tidying(self._db, self._in_order).forever(), name="stepwell-tidying")
        try:
            await self._watch()
        finally:
            tidying.cancel()
            await asyncio.gather(tidying, return_exceptions=True)

    async def _watch(self) -> None:
        pauses = waits(LONGEST_POLL, self._db.clock.random)
        while True:
            try:
                queues, next_due = await self._db.tasks.wake_due()
                queues |= await self._recovery.look()
            except (StoreBusy, StoreUnavailable) as error:
                self._recovery.interrupted()
                self._db.telemetry.emit(StoreLost.by(error))
                await asyncio.sleep(next(pauses))
                continue
            pauses = waits(LONGEST_POLL, self._db.clock.random)
            if queues:
                self._db.wakeups.hint(queues)
            look_every = self._recovery.look_every
            await self._db.tasks.alarm.wait(look_every if next_due is None else min(look_every, next_due + 0.001))


class Tidying:
    """Removes old rows, a bounded number at a time, and reports queues with tasks that no worker serves."""

    def __init__(self, database: Database, in_order: Callable[[], Collection[int]] = tuple) -> None:
        self._db = database
        self._in_order = in_order
        self._told: frozenset[str] = frozenset()

    async def forever(self) -> None:
        """Tidy up about once a minute, at no fixed moment, until the store is closed; a failure is tried again."""
        loop, chance = asyncio.get_running_loop(), self._db.clock.random
        try:
            await self._tried("unserved", self.report_unserved)
            reported_at = loop.time()
            await asyncio.sleep(ROUND_EVERY * chance())
            while True:
                more = await self._tried("retention", self._db.retention.round)
                if self._db.options.seal_audit:
                    more |= await self._tried("audit", self._db.seals.round)
                if queue_ids := self._in_order():
                    more |= await self._tried("ordered groups", partial(self._db.groups.tidy, queue_ids))
                if declared := self._db.schedules.declared:  # a rollback: no worker has the newer code any more
                    more |= await self._tried("schedules", partial(self._declared, declared))
                if self._db.has_broadcasts:
                    more |= await self._tried("broadcasts", self._db.broadcasts.tidy)
                if self._db.outboxes.serves:
                    more |= await self._tried("outbox", self._db.outboxes.adopt)
                if loop.time() - reported_at >= REPORT_EVERY:
                    await self._tried("unserved", self.report_unserved)
                    reported_at = loop.time()
                await asyncio.sleep(ROUND_AGAIN if more else ROUND_EVERY * (0.75 + 0.5 * chance()))
        except StoreClosed:
            return

    async def _declared(self, declared: Sequence[NewSchedule]) -> bool:
        await self._db.schedules.declare(declared)
        return await self._db.schedule_edits.retire()

    async def report_unserved(self) -> bool:
        """Report the queues that have tasks and no living worker, if they are others than the last time."""
        unserved = await self._db.admission.unserved()
        queues = frozenset(one.queue for one in unserved)
        changed, self._told = queues - self._told, queues
        if changed:
            self._db.telemetry.emit(WorkUnserved(tuple((one.queue, one.waiting) for one in unserved)))
        return bool(changed)

    async def _tried(self, name: str, work: Callable[[], Awaitable[bool]]) -> bool:
        try:
            return await work()
        except StoreClosed:
            raise
        except (StoreBusy, StoreUnavailable) as error:
            self._db.telemetry.emit(StoreLost.by(error))
        except Exception as error:  # noqa: BLE001 - the next round tries again
            self._db.telemetry.emit(InternalTaskFailed(name, repr(error)))
        return False


class Holds:
    """Releases runs of a worker's workflows that other code has held."""

    def __init__(self, database: Database, queue_ids: Callable[[], Collection[int]]) -> None:
        self._db = database
        self._queue_ids = queue_ids

    async def forever(self) -> None:
        """Look at once, as after a deploy that keeps the old name, and then every few seconds."""
        while True:
            try:
                await self.look()
            except (StoreBusy, StoreUnavailable) as error:
                self._db.telemetry.emit(StoreLost.by(error))
            await asyncio.sleep(LOOK_AT_HOLDS_EVERY * (0.75 + 0.5 * self._db.clock.random()))

    async def look(self) -> int:
        """Release the runs that other code has held; return their number. Reads the sources only if there are any."""
        queue_ids = self._queue_ids()
        if not await self._db.control.any_held(queue_ids):
            return 0
        return await self._db.control.let_go_held(queue_ids, (await program()).code)


def fanning_out(retry: Retry, lease: float | None) -> Served:
    """The queue of broadcasts, for a worker that serves workflows."""
    return Served(QUEUE, _fan_out, retry, concurrency=FANNED_AT_ONCE, lease=lease)


async def _fan_out(tasks: Sequence[Claimed], _: Threads, slot: Slot) -> Ended:
    [task] = tasks
    try:
        told = await slot.database.broadcasts.fan_out(task)
    except LeaseLost:  # another worker has it, and tells the rest
        return Settled()
    return DONE if told else Released(TOLD_SOON)
