"""An open database without verbs: the handle that the services of a store share, and the rules of its use.

It belongs to the event loop and the process that opened it. It raises an error when it is used from another.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar

from stepwell.base.backoff import Retry
from stepwell.base.clock import Clock
from stepwell.base.names import check_filter, check_name
from stepwell.base.program import Definitions
from stepwell.base.telemetry import Telemetry
from stepwell.errors import ForkError, RunNotFound, StoreClosed, WrongLoop
from stepwell.records import TaskKind
from stepwell.store.arrivals import Arrivals
from stepwell.store.asks import Asks
from stepwell.store.audit import Audit, AuditLevel, By, History
from stepwell.store.broadcasts import Broadcasts
from stepwell.store.builds import Builds
from stepwell.store.bulk import Bulk
from stepwell.store.control import Control
from stepwell.store.dead_letters import DeadLetters
from stepwell.store.decisions import Decisions
from stepwell.store.driver import Driver, Script, Value
from stepwell.store.excerpts import Excerpts
from stepwell.store.flush import GroupCommit
from stepwell.store.groups import Groups
from stepwell.store.hints.wakeups import Wakeups
from stepwell.store.horizon import EventFeed
from stepwell.store.ids import Ids, reserve_blocks
from stepwell.store.inline import InlineRows
from stepwell.store.limited_claims import LimitedClaims
from stepwell.store.limiters import Limiters
from stepwell.store.lock_queue import LockQueue
from stepwell.store.maintenance import Admission
from stepwell.store.measurements import Measurements
from stepwell.store.messages import Messages
from stepwell.store.new_tasks import NewTasks
from stepwell.store.outbox import Outboxes
from stepwell.store.projections import Projections
from stepwell.store.queues import Queues
from stepwell.store.rates import Charges
from stepwell.store.reports import Reports
from stepwell.store.results import Results
from stepwell.store.retention import Retention
from stepwell.store.retry import repeated
from stepwell.store.run_key import RunKey, WhichRun, asking, number_in
from stepwell.store.run_waits import RunWaits
from stepwell.store.runs import Forks, Runs
from stepwell.store.schedule_edits import ScheduleEdits
from stepwell.store.schedules import Schedules
from stepwell.store.seals import Seals
from stepwell.store.sessions import Sessions, Suspects
from stepwell.store.signal_list import SignalList
from stepwell.store.signals import Signals
from stepwell.store.sql import Statements
from stepwell.store.steps import Steps
from stepwell.store.subjects import Subjects
from stepwell.store.taken_messages import TakenMessages
from stepwell.store.task_edits import TaskEdits
from stepwell.store.tasks import Tasks
from stepwell.store.ticks import Ticks
from stepwell.store.transaction import Transactions
from stepwell.store.workflows import Living, Workflows
from stepwell.values.codec import PAYLOAD_LIMIT
from stepwell.values.named_codecs import Codec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    """How a store was opened."""

    lease: float = 30.0
    beat: float | None = None
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
    seal_audit: bool = False
    keep_audit: float | None = 30 * 86_400.0
    codec: Codec | None = None
    encrypted: bool = False
    secret: bytes = field(default=b"", repr=False)  # of an encrypted tenant: its hashes of values are keyed with it
    logs: str = "info"  # the least level of the log lines that are kept with a run


class Database:
    """What the services of a store share, and the services: each takes this handle and nothing else.

    Services are listed after those that they use when they are made.
    """

    def __init__(
        self, driver: Driver, statements: Statements, options: Options, clock: Clock, telemetry: Telemetry
    ) -> None:
        self.driver, self.statements, self.options = driver, statements, options
        self.clock, self.telemetry = clock, telemetry
        self.loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._closed = False
        self.claim_slot = driver.claim_slot
        self.audit = Audit(options.audit, tenant=options.tenant, sealed=options.seal_audit)
        self.actor: Callable[[], str] | None = None  # who acts where a verb is not told: the command line knows
        self.lock_queue = LockQueue(clock, telemetry)
        self.wakeups = Wakeups(self)
        self.flusher = GroupCommit(self)
        self.ids = Ids(self._reserve)
        self.transactions, self.new_tasks = Transactions(self), NewTasks(self)
        self.definitions = Definitions()
        self.queues, self.admission, self.tasks = Queues(self), Admission(self), Tasks(self)
        self.wakeups.on_gone(lambda: self.tasks.alarm.set(0))  # upkeep waits for it, and looks for dead workers
        self.messages, self.taken_messages, self.outboxes = Messages(self), TakenMessages(self), Outboxes(self)
        self.workflows, self.living = Workflows(self), Living(self)
        self.runs, self.forks, self.bulk = Runs(self), Forks(self), Bulk(self)
        self.steps, self.run_waits = Steps(self), RunWaits(self)
        self.results, self.reports, self.asks = Results(self), Reports(self), Asks(self)
        self.signal_list = SignalList(self)
        self.signals, self.control, self.task_edits = Signals(self), Control(self), TaskEdits(self)
        self.decisions, self.feed = Decisions(self), EventFeed(self)
        self.projections, self.builds = Projections(self), Builds(self)
        self.sessions, self.suspects = Sessions(self), Suspects(self)
        self.groups, self.dead_letters, self.retention = Groups(self), DeadLetters(self), Retention(self)
        self.arrivals = Arrivals(self)
        self.history, self.measurements, self.excerpts = History(self), Measurements(self), Excerpts(self)
        self.has_broadcasts = False  # from when this process knows that there are any
        self.heartbeat: Any = None  # of the workers of this store, once there are any; `work/` makes it

    @cached_property
    def limiters(self) -> Limiters:
        """The limits of queues, as code and people say them."""
        return Limiters(self)

    @cached_property
    def limited(self) -> LimitedClaims:
        """Claims from queues with limits; most stores have none."""
        return LimitedClaims(self)

    @cached_property
    def charges(self) -> Charges:
        """What tasks of queues with rates have cost in truth."""
        return Charges(self)

    @cached_property
    def seals(self) -> Seals:
        """The seals of the audit; most stores have none."""
        return Seals(self)

    @cached_property
    def inline(self) -> InlineRows:
        """The rows of inline projections; most stores have none."""
        return InlineRows(self)

    @cached_property
    def broadcasts(self) -> Broadcasts:
        """Events that are told to every run and workflow that subscribed."""
        return Broadcasts(self)

    @cached_property
    def schedules(self) -> Schedules:
        """The schedules; most stores have none."""
        return Schedules(self)

    @cached_property
    def schedule_edits(self) -> ScheduleEdits:
        """Changes of schedules."""
        return ScheduleEdits(self)

    @cached_property
    def subjects(self) -> Subjects:
        """Whose values have a key of their own; only of an encrypted store."""
        return Subjects(self)

    @cached_property
    def ticks(self) -> Ticks:
        """The ticks of schedules."""
        return Ticks(self)

    async def close(self) -> None:
        """Write what is pending and close the connections; a second call does nothing."""
        if self._closed:
            return
        await self.taken_messages.ended()
        if "charges" in self.__dict__:
            await self.charges.close()
        self._closed = True
        try:
            await self.flusher.close()
        finally:
            try:
                await self.results.close()
                await self.reports.close()
                await self.asks.close()
                await self.wakeups.close()
            finally:
                try:
                    await self.driver.close()
                finally:
                    if self.heartbeat is not None:  # of a worker that was not stopped, or whose stop was cut off
                        await self.heartbeat.close()

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

    async def run_id(self, run: WhichRun) -> int:
        """The number of a run: of the one that has the key now, if it is named by its key.

        Looked up once for each call of a verb, so that a call which is repeated concerns the same run.
        """
        if not isinstance(run, RunKey):
            return run
        self.check()
        return number_in(await self.driver.read(asking(self.options.tenant, run)), run)

    async def register_workflow(
        self, name: str, dead_letter: str | None, cleanup: float | None = None, lifecycle: Sequence[str] = ()
    ) -> int:
        """Define a workflow that a worker serves, and note which workflow is triggered when a run fails for good.

        Also note what is emitted of the life of its runs, and for how many seconds a cancelled run may clean up, so
        that any process that cancels it knows.
        """
        self.workflows.names.forget(name)
        queue_id = await self.workflow_id(name, create=True)
        if dead_letter is not None:
            await self.workflow_id(dead_letter, create=True)
        options: dict[str, Any] = {} if dead_letter is None else {"dead_letter": dead_letter}
        if lifecycle:
            options["lifecycle"] = sorted(lifecycle)
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

    def by(self, actor: str | None, reason: str | None = None) -> By:
        """Who asks for a change and why, for the audit."""
        who = self.actor() if actor is None and self.actor is not None else actor
        return By(check_filter("actor", who), check_filter("reason", reason))

    def params(self, **params: Value) -> dict[str, Value]:
        """Parameters of a statement, with those that most statements take."""
        return {
            "now": self.clock.now(),
            "beat_now": self.clock.beat_now(),
            "tenant": self.options.tenant,
            **params,
        }

    async def transact(self, script: Callable[[], Script[T]]) -> T:
        """Run a script in a transaction until the database answers; the script must be safe to repeat."""
        return await self.repeat(lambda: self.driver.transact(script))

    async def transact_again(self, script: Callable[..., Script[T]]) -> T:
        """As `transact`; `again` tells the script that an earlier try may have been committed, its reply lost."""
        tries = itertools.count()
        return await self.repeat(lambda: self.driver.transact(partial(script, again=next(tries) > 0)))

    async def repeat(self, work: Callable[[], Awaitable[T]], *, patience: int = 1) -> T:
        """The result of `work`, which must be safe to repeat, if the database answers within that many timeouts."""
        within = patience * self.options.timeout
        return await repeated(work, clock=self.clock, telemetry=self.telemetry, within=within)

    async def _reserve(self, count: int) -> list[int]:
        return await self.transact(lambda: reserve_blocks(count))
