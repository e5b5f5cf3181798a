"""An open database without verbs: the handle that the services of a store share, and the rules of its use.

It belongs to the event loop and the process that opened it. It raises an error when it is used from another.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeVar

from stepwell.base.backoff import Retry
from stepwell.base.clock import Clock
from stepwell.base.names import check_name
from stepwell.base.telemetry import Telemetry
from stepwell.errors import ForkError, RunNotFound, StoreClosed, WrongLoop
from stepwell.records import TaskKind
from stepwell.store.audit import Audit, AuditLevel
from stepwell.store.by_hand import ByHand
from stepwell.store.decisions import Decisions
from stepwell.store.driver import Driver, Script, Value
from stepwell.store.flush import GroupCommit
from stepwell.store.hints.wakeups import Wakeups
from stepwell.store.horizon import EventFeed
from stepwell.store.ids import Ids, reserve_blocks
from stepwell.store.lock_queue import LockQueue
from stepwell.store.maintenance import Admission
from stepwell.store.projections import Projections
from stepwell.store.queues import Queues
from stepwell.store.results import Results
from stepwell.store.retention import Retention
from stepwell.store.retry import repeated
from stepwell.store.run_waits import RunWaits
from stepwell.store.sessions import Sessions, Suspects
from stepwell.store.sql import Statements
from stepwell.store.steps import Steps
from stepwell.store.tasks import Tasks
from stepwell.store.workflows import Living, Workflows
from stepwell.values.codec import PAYLOAD_LIMIT

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    """How a store was opened."""

    lease: float = 30.0
    timeout: float = 10.0
    payload_limit: int = PAYLOAD_LIMIT
    retry: Retry = field(default_factory=Retry)
    visibility: float = 30.0
    pause_check_interval: float = 3600.0
    keep: float | None = 7 * 86_400.0
    keep_dead_letters: float | None = None
    unreadable_after: float = 7 * 86_400.0
    tenant: str = ""
    listen: bool = True
    helper: bool = True
    hang_after: float = 300.0
    audit: AuditLevel = "problems"


class Database:
    """A driver with its flusher, clock, tenant and retries, and the services that workers call."""

    def __init__(
        self, driver: Driver, statements: Statements, options: Options, clock: Clock, telemetry: Telemetry
    ) -> None:
        self.driver, self.statements, self.options = driver, statements, options
        self.clock, self.telemetry = clock, telemetry
        self.audit = Audit(options.audit)
        self.lock_queue = LockQueue(clock, telemetry)
        self.wakeups = Wakeups(driver, clock, telemetry, listen=options.listen)
        flusher = GroupCommit(
            driver,
            clock,
            telemetry,
            lock_queue=self.lock_queue,
            shard=secrets.randbits(62),
            # Back within a sixth of the lease after an outage, so that no healthy worker counts as dead.
            longest_wait=min(1.0, options.lease / 6),
            woken=self.wakeups.hint,
        )
        self.flusher = flusher
        self.queues, self.workflows, self.living = Queues(self), Workflows(self), Living(self)
        self.ids = Ids(self._reserve)
        self.tasks = Tasks(
            driver, flusher, self.ids, clock, telemetry, wakeups=self.wakeups, audit=self.audit, timeout=options.timeout
        )
        self.wakeups.on_gone(lambda: self.tasks.alarm.set(0))  # upkeep waits for it, and looks for dead workers
        self.decisions = Decisions(self, self.ids, living=self.living, shard=flusher.shard)
        self.recorded = Steps(driver, flusher, clock, telemetry, audit=self.audit, timeout=options.timeout)
        slots = self.tasks.claim_slot + 1
        self.sessions = Sessions(driver, clock, slots=slots, tenant=options.tenant, audit=self.audit)
        self.suspects = Suspects(driver, clock, self.audit, slot=self.tasks.claim_slot)
        self.waiting = RunWaits(
            driver,
            self.living,
            clock,
            telemetry,
            lock_queue=self.lock_queue,
            slot=self.tasks.claim_slot,
            timeout=options.timeout,
            tenant=options.tenant,
            keep=options.keep,
            added=self.wakeups.hint,
        )
        self.by_hand = ByHand(self, flusher)
        self.results = Results(driver, self.wakeups, clock, telemetry, tenant=options.tenant)
        self.admission, self.retention = Admission(self), Retention(self)
        self.loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._closed = False

    @cached_property
    def feed(self) -> EventFeed:
        """All events in one order; made when it is asked for."""
        return EventFeed(self)

    @cached_property
    def projections(self) -> Projections:
        """How far projections have come; made when it is asked for."""
        return Projections(self)

    async def close(self) -> None:
        """Write what is pending and close the connections; a second call does nothing."""
        if self._closed:
            return
        await self.by_hand.ended()
        self._closed = True
        try:
            await self.flusher.close()
        finally:
            try:
                await self.results.close()
                await self.wakeups.close()
            finally:
                await self.driver.close()

    async def queue_id(self, name: str, *, create: bool = False, anew: bool = False) -> int:
        """The number of a queue, created on request. `anew` asks the database even if the number was read lately."""
        self.check()
        check_name("queue", name)
        if anew:
            self.queues.names.forget(name)
        elif (known := self.queues.names.get(name)) is not None:
            return known
        return await self.repeat(lambda: self.queues.create(name) if create else self.queues.find(name))

    async def workflow_id(self, name: str, *, create: bool = False) -> int:
        """The number of a workflow's queue, created on request; else `WorkflowNotFound` if there is none."""
        self.check()
        check_name("workflow", name)
        if (known := self.workflows.names.get(name)) is not None:
            return known
        return await self.repeat(lambda: self.workflows.create(name) if create else self.workflows.find(name))

    async def register_workflow(self, name: str, dead_letter: str | None, cleanup: float | None = None) -> int:
        """Define a workflow that a worker serves, and note which workflow is triggered when a run fails for good.

        Also note for how many seconds a cancelled run may clean up, so that any process that cancels it knows.
        """
        self.workflows.names.forget(name)
        queue_id = await self.workflow_id(name, create=True)
        if dead_letter is not None:
            await self.workflow_id(dead_letter, create=True)
        options = {} if dead_letter is None else {"dead_letter": dead_letter}
        await self.repeat(lambda: self.workflows.describe(queue_id, options, cleanup))
        return queue_id

    def check(self) -> None:
        """Refuse a call that could only hang or fail: after closing, after a fork, on another loop."""
        if self._closed:
            raise StoreClosed
        if os.getpid() != self._pid:
            raise ForkError
        if asyncio.get_running_loop() is not self.loop:
            raise WrongLoop

    async def known(self, queue: str | None) -> None:
        """Refuse a misspelt queue instead of finding nothing in it."""
        self.check()
        if queue is not None:
            await self.queue_id(queue)

    async def no_run(self, run_id: int) -> RunNotFound:
        """The error that there is no run of this number, with what has that number instead."""
        task = await self.queues.task(int(run_id))
        if task is None or task.kind is TaskKind.RUN:
            return RunNotFound(run_id)
        return RunNotFound(run_id, kind=str(task.kind), queue=task.queue)

    def params(self, **params: Value) -> dict[str, Value]:
        """Parameters of a statement, with the two that most statements take."""
        return {"now": self.clock.now(), "tenant": self.options.tenant, **params}

    async def transact(self, script: Callable[[], Script[T]]) -> T:
        """Run a script in a transaction until the database answers; the script must be safe to repeat."""
        return await self.repeat(lambda: self.driver.transact(script))

    async def transact_again(self, script: Callable[..., Script[T]]) -> T:
        """As `transact`; `again` tells the script that an earlier try may have been committed, its reply lost."""
        tries = itertools.count()
        return await self.repeat(lambda: self.driver.transact(partial(script, again=next(tries) > 0)))

    async def repeat(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work`, which must be safe to repeat, if the database answers in time."""
        options = self.options
        return await repeated(work, clock=self.clock, telemetry=self.telemetry, within=options.timeout)

    async def _reserve(self, count: int) -> list[int]:
        return await self.transact(lambda: reserve_blocks(count))
