"""An open database, before its verbs: what they all need, and the rules of its use.

It belongs to the event loop and the process that opened it, and says so when used from another.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from stepwell.backoff import Retry
from stepwell.clock import Clock
from stepwell.codec import PAYLOAD_LIMIT
from stepwell.errors import ForkError, RunNotFound, StoreClosed, WrongLoop
from stepwell.names import check_name
from stepwell.records import TaskKind
from stepwell.store.aside import Aside
from stepwell.store.audit import Audit, AuditLevel
from stepwell.store.by_hand import ByHand
from stepwell.store.decisions import Decisions
from stepwell.store.driver import Driver, Value
from stepwell.store.flush import GroupCommit
from stepwell.store.ids import Ids, reserve_blocks
from stepwell.store.living import Living
from stepwell.store.queues import Queues
from stepwell.store.repeat import repeated
from stepwell.store.results import Results
from stepwell.store.retention import Retention
from stepwell.store.serving import Serving
from stepwell.store.sessions import Sessions
from stepwell.store.sql import Statements
from stepwell.store.steps import Steps
from stepwell.store.suspects import Suspects
from stepwell.store.tasks import Tasks
from stepwell.store.waiting import Waiting
from stepwell.store.wakeups import Wakeups
from stepwell.store.workflows import Workflows
from stepwell.telemetry import Telemetry


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


class Opened:
    """A driver with its flusher, and what each group of verbs is made of."""

    def __init__(
        self, driver: Driver, statements: Statements, options: Options, clock: Clock, telemetry: Telemetry
    ) -> None:
        self.driver = driver
        self.statements = statements
        self.options = options
        self.clock = clock
        self.telemetry = telemetry
        self.audit = Audit(options.audit)
        self.aside = Aside(clock, telemetry)
        flusher = GroupCommit(
            driver,
            clock,
            telemetry,
            aside=self.aside,
            shard=secrets.randbits(62),
            # Back within a sixth of the lease after an outage, so that nobody healthy is taken for dead.
            longest_wait=min(1.0, options.lease / 6),
            woken=self._woken,
        )
        self._flusher = flusher
        self._queues = Queues(driver, clock, options.tenant, self.audit)
        self._workflows = Workflows(driver, clock, options.tenant)
        self._living = Living(driver, clock, telemetry, tenant=options.tenant, timeout=options.timeout)
        self._wakeups = Wakeups(driver, clock, telemetry, listen=options.listen)
        self.ids = Ids(self._reserve)
        self.tasks = self._tasks(flusher)
        self._wakeups.on_gone(lambda: self.tasks.alarm.set(0))  # upkeep waits for it, and looks for the dead
        self.decisions = Decisions(self, self.ids, shard=flusher.shard)
        self.recorded = Steps(driver, flusher, clock, telemetry, audit=self.audit, timeout=options.timeout)
        slots = self.tasks.claim_slot + 1
        self.sessions = Sessions(driver, clock, slots=slots, tenant=options.tenant, audit=self.audit)
        self.suspects = Suspects(driver, clock, self.audit, slot=self.tasks.claim_slot)
        self.waiting = self._runs_waiting()
        self.by_hand = ByHand(self, flusher)
        self.results = Results(driver, self._wakeups, clock, telemetry, tenant=options.tenant)
        self.serving = Serving(driver, clock, options.tenant, self.audit)
        self.retention = Retention(
            driver,
            clock,
            tenant=options.tenant,
            keep=options.keep,
            keep_dead_letters=options.keep_dead_letters,
        )
        self.heartbeat: Any = None  # of the workers of this store, once there are any; the engine's
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._closed = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that the store belongs to."""
        return self._loop

    async def close(self) -> None:
        """Write what is pending and let go of the database; closing twice is harmless."""
        if self._closed:
            return
        await self.by_hand.ended()
        self._closed = True
        try:
            await self._flusher.close()
        finally:
            try:
                await self.results.close()
                await self._wakeups.close()
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
        return await self._number_in(self._queues, name, create=create)

    def check(self) -> None:
        """Refuse a use that could only hang or break: after closing, after a fork, on another loop."""
        if self._closed:
            raise StoreClosed
        if os.getpid() != self._pid:
            raise ForkError
        if asyncio.get_running_loop() is not self._loop:
            raise WrongLoop

    async def known(self, queue: str | None) -> None:
        """Refuse a misspelt queue instead of finding nothing in it."""
        self.check()
        if queue is not None:
            await self.queue_id(queue)

    async def _number_in(self, names: Queues | Workflows, name: str, *, create: bool) -> int:
        if (known := names.known(name)) is not None:
            return known
        return await repeated(
            lambda: names.create(name) if create else names.find(name),
            clock=self.clock,
            telemetry=self.telemetry,
            within=self.options.timeout,
        )

    def _tasks(self, flusher: GroupCommit) -> Tasks:
        return Tasks(
            self.driver,
            flusher,
            self.ids,
            self.clock,
            self.telemetry,
            wakeups=self._wakeups,
            audit=self.audit,
            timeout=self.options.timeout,
        )

    def _runs_waiting(self) -> Waiting:
        return Waiting(
            self.driver,
            self._living,
            self.clock,
            self.telemetry,
            aside=self.aside,
            slot=self.tasks.claim_slot,
            timeout=self.options.timeout,
            tenant=self.options.tenant,
            keep=self.options.keep,
            added=self._woken,
        )

    def _woken(self, queue_ids: set[int]) -> None:
        self.tasks.hint(queue_ids)

    async def _no_run(self, run_id: int) -> RunNotFound:
        """That there is no run of this number, and what there is instead."""
        task = await self._queues.task(int(run_id))
        if task is None or task.kind is TaskKind.RUN:
            return RunNotFound(run_id)
        return RunNotFound(run_id, kind=str(task.kind), queue=task.queue)

    def _params(self, **params: Value) -> dict[str, Value]:
        return {"now": self.clock.now(), "tenant": self.options.tenant, **params}

    async def _reserve(self, count: int) -> list[int]:
        return await repeated(
            lambda: self.driver.transact(lambda: reserve_blocks(count)),
            clock=self.clock,
            telemetry=self.telemetry,
            within=self.options.timeout,
        )
