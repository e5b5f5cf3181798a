"""The worker's loop: claim ready tasks, call their bodies, judge the outcomes, settle.

Beside it run the upkeep of the store (`upkeep.py`) and the heartbeat (in a thread, `heartbeat.py`). A loop that fails
is reported and started again; nothing that a body does can stop it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from stepwell.base.backoff import waits
from stepwell.base.events import InternalTaskFailed, OrphansReleased, SessionLost, StoreBack, StoreLost
from stepwell.errors import LeaseLost, StoreBusy, StoreClosed, StoreUnavailable
from stepwell.store.broadcasts import QUEUE as BROADCASTS
from stepwell.store.database import Database
from stepwell.store.poll import LONGEST_POLL, Polling
from stepwell.store.rows import Owned, Wish
from stepwell.store.sessions import Identity
from stepwell.work.body import Beside, Served, declare
from stepwell.work.claim import Claims
from stepwell.work.current import HIDDEN, current_branch
from stepwell.work.execution import Execution
from stepwell.work.leases import Leases
from stepwell.work.outcome import Failed, Released, settlement_of
from stepwell.work.session import Session
from stepwell.work.threads import Threads
from stepwell.work.upkeep import Holds, Upkeep, fanning_out

LOOK_EVERY: Final = 1.0  # seconds between looks for new queues with a prefix of this worker
HEAR_EVERY: Final = 0.5  # seconds between looks for control requests


class Runtime:
    """One worker while it works."""

    def __init__(
        self,
        database: Database,
        served: Sequence[Served],
        identity: Identity,
        *,
        prefixes: tuple[str, ...] = (),
        concurrency: int,
        grace: float,
        poll: float = LONGEST_POLL,
        beside: Sequence[Beside] = (),
    ) -> None:
        self._db = database
        self._beside = beside
        self._beside_tasks: list[asyncio.Task[None]] = []
        self._by_name = {one.queue: one for one in served}
        self._prefixes = prefixes
        self._looked_at = float("-inf")  # for queues with these prefixes
        self._holds = Holds(database, self._workflows)
        self._identity = identity
        self._concurrency = concurrency
        self._grace = grace
        self._threads = Threads(f"stepwell-{identity.name}")
        self._quiet = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._polling = Polling(database.clock, poll)
        self._idle = asyncio.Event()
        self._idle_at = self.claim_number = 0  # the numbers of the last claim that found nothing, and of the last claim
        self._drains = 0
        self._stopping, self._hurried, self._looks_after = False, False, True
        self._while_served = contextlib.AsyncExitStack()
        self._deafen: Callable[[], None] = lambda: None
        self.leases = Leases(database, identity, self._session_lost, self._orphans_found)
        self.claims = Claims(database, self.leases, self, self._threads, concurrency)
        self.executed = 0

    @property
    def session(self) -> Session | None:
        """The first session; None while the worker is not registered."""
        return next(iter(self.leases), None)

    @property
    def is_serving(self) -> bool:
        """True from when the queues and workflows are made until the worker stops."""
        return bool(self._loops)

    async def register(self) -> None:
        """Begin the sessions, so that others see the worker, and claim nothing yet."""
        if self.session is None:
            try:
                await self._begin_sessions()
            except BaseException:
                await self.leases.end(stopping=self._stopping)  # or a worker that did not start would beat
                raise

    async def _register_patiently(self) -> None:
        """Begin the sessions; wait while the database is away, slow or locked, as a running worker does."""
        lost_at: float | None = None
        pauses = waits(LONGEST_POLL, self._db.clock.random)
        while self.session is None:
            try:
                await self.register()
            except (StoreBusy, StoreUnavailable) as error:
                self._db.telemetry.emit(StoreLost.by(error))
                lost_at = time.monotonic() if lost_at is None else lost_at
                await asyncio.sleep(next(pauses))
        if lost_at is not None:
            self._db.telemetry.emit(StoreBack(time.monotonic() - lost_at))

    def _workflows(self) -> list[int]:
        return [number for number, one in self.claims.served.items() if one.is_workflow and one.body is not None]

    @property
    def _scheduled(self) -> bool:
        return any(one.schedules for one in self._by_name.values())

    def _in_order(self) -> list[int]:
        limited = self._db.tasks.limited
        return [number for number, one in self.claims.served.items() if one.in_order or number in limited]

    def replace(self, served: Served) -> None:
        """Serve a queue with another body from now on; bodies under way go on, and the lease stays as it is."""
        served = replace(served, lease=self._by_name[served.queue].lease)
        self._by_name[served.queue] = served
        for queue_id, one in self.claims.served.items():
            if one.queue == served.queue:
                self.claims.served[queue_id] = served

    async def start(self, *, upkeep: bool = True) -> None:
        """Register the sessions and begin to serve; with `upkeep=False` other workers look after the store."""
        self._stopping, self._hurried, self._looks_after = False, False, upkeep
        self._threads = Threads(f"stepwell-{self._identity.name}")
        served = self.claims.served
        # A body or a thread of the last start that did not end must not take a place of this one.
        self.claims = Claims(self._db, self.leases, self, self._threads, self._concurrency)
        if self.session is None:
            await (self._register_patiently() if upkeep else self.register())
        else:
            self.claims.serve(served)
        for one in self._by_name.values():
            self._while_served.enter_context(one.while_served())
            await self._while_served.enter_async_context(one.open_while_served())
        self.context = contextvars.copy_context()
        self._db.tasks.on_added(self._added)
        self._deafen = self._db.tasks.on_wish(self._wished)
        self._refuse = self._db.tasks.hand_over.on_offer(partial(self.claims.offer, self._quiet.set))
        self._loops = [asyncio.create_task(self._supervised("claim", self._claim_forever), name="stepwell-claim")]
        hearing = self._supervised("control requests", self._hear_forever)
        self._loops.append(asyncio.create_task(hearing, name="stepwell-requests"))
        for each in self._beside:
            work = self._supervised(each.name, partial(each.forever, lambda: self.session))
            self._beside_tasks.append(asyncio.create_task(work, name=f"stepwell-{each.name}"))
        if upkeep:
            looking_after = self._supervised("upkeep", Upkeep(self._db, self._in_order).forever)
            self._loops.append(asyncio.create_task(looking_after, name="stepwell-upkeep"))
            holding = self._supervised("holds", self._holds.forever)
            self._loops.append(asyncio.create_task(holding, name="stepwell-holds"))

    async def stop(self) -> None:
        """Claim nothing more, let bodies end within the grace, give the other tasks back, end the sessions."""
        self._claim_no_more()
        self._polling.wake()
        with contextlib.suppress(ValueError):
            self._db.tasks.off_added(self._added)
            self._deafen()
            self._refuse()
        try:
            try:
                await self._end_loops()
                await self._let_go()
            finally:
                await self._unserved()
            await self.leases.end(stopping=True)
        except BaseException:  # the stop was cut off
            self._cut_off()
            raise

    async def _end_loops(self) -> None:
        """Let the claim under way end, and what is beside the tasks finish what it does, within the grace."""
        if self._loops:  # if the claim were cut off, its tasks would lose an attempt without being executed
            await asyncio.wait(self._loops[:1], timeout=self._db.options.timeout)
        for one in self._beside:
            one.stop()
        if self._beside_tasks and not self._hurried:
            await asyncio.wait(self._beside_tasks, timeout=self._grace)
        await asyncio.gather(*self._cancel_loops(), return_exceptions=True)

    def _cancel_loops(self) -> list[asyncio.Task[None]]:
        ending = [*self._beside_tasks, *self._loops]
        for one in ending:
            one.cancel()
        self._beside_tasks, self._loops = [], []
        return ending

    def _cut_off(self) -> None:
        """Stop the bodies and all that goes on in the background, and wait for nothing: no session beats any more."""
        self._cancel_loops()
        self.hurry()
        self._threads.close()
        self.leases.drop()

    async def _unserved(self) -> None:
        """Let go of what is held while it is served; what cannot be closed is reported, and keeps no session alive."""
        try:
            async with asyncio.timeout(self._db.options.timeout):
                await self._while_served.aclose()
        except Exception as error:  # noqa: BLE001 - a sink of the user's may raise anything
            self._db.telemetry.emit(InternalTaskFailed("closing what was served", repr(error)))

    async def _let_go(self) -> None:
        """Let the bodies end within the grace, and give the other tasks back."""
        executions, longest = self.claims.executions, self._db.options.timeout
        await self._over(lambda: any(session.handing for session in self.leases), longest)  # they begin now
        await self._over(lambda: executions, 0 if self._hurried else self._grace)
        self.hurry()
        await self._over(lambda: executions, longest)
        # A body that ignores its cancellation is left behind: its session ends, and its writes are refused.
        for execution in tuple(executions):
            execution.abandon()
        self._db.tasks.give_up({execution.session.id for execution in executions})
        self._threads.close()

    def hurry(self) -> None:
        """Wait for no body: give the tasks under way back at once."""
        self._hurried = True
        for execution in tuple(self.claims.executions):
            execution.give_up()

    async def drain(self) -> int:
        """Execute all tasks that are due, and those that they add, until none is left; return their number."""
        before = self.executed
        self._looked_at = float("-inf")
        await self._due()
        await self._holds.look()
        await self._drained()
        while not self._stopping and await self._due():  # tasks that have become due meanwhile
            await self._drained()
        for one in self._beside:
            await one.caught_up()
        return self.executed - before

    async def _due(self) -> set[int]:
        """Make due tasks ready, give up those that are too late, fire the ticks of schedules; return the queues."""
        queues = await self._db.tasks.wake() | (await self._db.control.expire())[1]
        return queues | await self._db.ticks.fire() if self._scheduled else queues

    def freed(self) -> None:
        """A place is free: claim if a task waits for it."""
        if self.claims.left:  # otherwise no task waits, and a hint announces the next one
            self._polling.wake()

    def ended(self, execution: Execution) -> None:
        """All tasks of a place are settled, or were lost."""
        self.claims.executions.discard(execution)
        self.executed += execution.settled
        if self.claims.left or self._drains or execution.gave_back:
            self._polling.wake()
        if (queue_id := self.claims.limited.pop(execution, None)) is not None:
            self._db.wakeups.hint({queue_id})  # a place is free, here and elsewhere
        if not self.claims.executions:
            self._quiet.set()

    async def _drained(self) -> None:
        """Wait until a claim that began after this call has found nothing, with no body under way."""
        wanted = self.claim_number + 1
        self._drains += 1
        try:
            while self._idle_at < wanted and not self._stopping:
                self._idle.clear()
                self._polling.wake()
                await self._idle.wait()
        finally:
            self._drains -= 1

    def _claim_no_more(self) -> None:
        self._stopping = self.claims.is_closed = True
        self._idle.set()

    async def _claim_forever(self) -> None:
        current_branch.set(HIDDEN)  # a body is not code of a run until it says so
        pauses = waits(min(LONGEST_POLL, self._db.options.lease / 6), self._db.clock.random)
        while not self._stopping:
            # Before the claim, so that a hint that arrives during the claim is not missed.
            self._polling.begin()
            self.claim_number += 1
            # A thread that outlived its timeout still has its place.
            idle = not self.claims.executions and not self.claims.demand.busy
            try:
                claimed = await self._claim_once()
            except (StoreBusy, StoreUnavailable) as error:
                self._db.telemetry.emit(StoreLost.by(error))
                await asyncio.sleep(next(pauses))
                continue
            pauses = waits(min(LONGEST_POLL, self._db.options.lease / 6), self._db.clock.random)
            if not claimed and idle:
                self._idle_at = self.claim_number
                self._idle.set()
            if claimed:
                self._polling.found()
            if not claimed or not self.claims.left:
                await self._polling.rest()

    async def _claim_once(self) -> int:
        """Fill the free places with ready tasks and return their number."""
        if not self.leases.are_living:
            await self._begin_sessions()
        if self._db.has_broadcasts:
            await self._fan_out()
        if self._prefixes and time.monotonic() - self._looked_at >= LOOK_EVERY:
            await self._find_queues()
        return await self.claims.fill(drains=self._drains > 0)

    async def _fan_out(self) -> None:
        """Fan out broadcasts too, now that the store has some: a worker of workflows does."""
        flows = [one for one in self._by_name.values() if one.is_workflow]
        if flows and BROADCASTS not in self._by_name:
            self._by_name[BROADCASTS] = fanning_out(self._db.options.retry, flows[0].lease)
            await self.leases.serve_also(BROADCASTS, self._by_name)
            await self._find_queues()

    async def _begin_sessions(self) -> None:
        await self.leases.begin(self._by_name)
        await self._find_queues()

    async def _find_queues(self) -> None:
        """Read the numbers of the queues, and make missing queues.

        Called after the sessions have begun: they name the queues, which therefore cannot be deleted meanwhile.
        """
        served = await declare(self._db, self._by_name.values(), looks=not self._looks_after)
        self._looked_at = time.monotonic()
        for queue in await self._db.queues.all() if self._prefixes else ():
            if queue.name.startswith(self._prefixes) and queue.id not in served:
                served[queue.id] = Served(queue.name, None, self._db.options.retry, told=(Failed,))
        self.claims.serve(served)

    def _session_lost(self, session: Session) -> None:
        """Other workers have the tasks of this session: stop their bodies, write nothing, and begin a new session."""
        self._db.telemetry.emit(SessionLost(session.id, len(session.held)))
        for execution in tuple(self.claims.executions):
            if execution.session is session:
                execution.give_up()
        self._polling.wake()

    def _wished(self, wish: Wish, turns: Mapping[int, int]) -> None:
        """Stop those of these turns that are executed here: someone has asked to cancel or pause them."""
        held = [session.held for session in self.leases]
        if ours := {task_id for task_id, turn in turns.items() if any(one.get(task_id) == turn for one in held)}:
            for execution in tuple(self.claims.executions):
                execution.stop(wish, ours)

    async def _hear_forever(self) -> None:
        """Read the control requests for the bodies under way, also for those that record nothing for long."""
        while not self._stopping:
            await asyncio.sleep(HEAR_EVERY)
            for session in self.leases:
                if session.held:
                    with contextlib.suppress(StoreBusy, StoreUnavailable):  # the claim loop reports it
                        await self._db.tasks.hear_requests(session.id)

    def _orphans_found(self, session: Session, orphans: list[Owned]) -> None:
        self._db.telemetry.emit(OrphansReleased(session.id, tuple(task.task_id for task in orphans)))
        for orphan in orphans:
            job = asyncio.create_task(self._release(session, orphan))
            self._loops.append(job)
            job.add_done_callback(self._loops.remove)

    async def _release(self, session: Session, orphan: Owned) -> None:
        with contextlib.suppress(LeaseLost):
            await self._db.tasks.settle(orphan.task_id, session.id, orphan.turn, settlement_of(Released()))
            self._polling.wake()

    def _added(self, queue_ids: set[int]) -> bool:
        """Wake the claim loop if it serves one of these queues; True if it also has a free place."""
        if self._prefixes and not queue_ids <= self.claims.served.keys():
            self._looked_at = float("-inf")  # perhaps a new queue
        elif queue_ids.isdisjoint(self.claims.served) and (not self._db.has_broadcasts or BROADCASTS in self._by_name):
            return False
        self._polling.wake()
        return self.claims.room > 0

    async def _over(self, is_under_way: Callable[[], object], timeout: float) -> None:
        """Wait while something is under way, for at most this many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while is_under_way():
                    self._quiet.clear()
                    await self._quiet.wait()

    async def _supervised(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        while not self._stopping:
            try:
                await loop()
            except StoreClosed:
                self._claim_no_more()  # nothing could be settled, so nothing more is begun
            except Exception as error:  # noqa: BLE001 - a dead loop would be a worker that looks alive and does nothing
                self._db.telemetry.emit(InternalTaskFailed(name, repr(error)))
                await asyncio.sleep(LONGEST_POLL)
