"""The worker's loop: claim what is ready, call its body, judge what came of it, settle.

Around it two more: one looks after the store (`upkeep.py`), one beats (in a thread, `heartbeat.py`). A loop
that fails is reported and started again; nothing a body does can stop them.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from stepwell.backoff import waits
from stepwell.engine import branches
from stepwell.engine.claiming import Demand, Places, shares
from stepwell.engine.execution import Execution
from stepwell.engine.handing import FreeSeat
from stepwell.engine.holds import Holds
from stepwell.engine.leases import Leases
from stepwell.engine.outcome import Released, settlement_of
from stepwell.engine.served import Served
from stepwell.engine.session import Session
from stepwell.engine.showing import Showing
from stepwell.engine.suspects import SuspectTurns
from stepwell.engine.threads import Threads
from stepwell.engine.upkeep import Upkeep
from stepwell.errors import LeaseLost, StoreBusy, StoreClosed, StoreUnavailable
from stepwell.records import Claimed, Owned, Wish
from stepwell.store.fairness import Fairness
from stepwell.store.polling import LONGEST_POLL, Polling
from stepwell.store.sessions import Identity
from stepwell.store.store import Store
from stepwell.telemetry import (
    InternalTaskFailed,
    OrphansReleased,
    SessionLost,
    StoreBack,
    StoreLost,
)

LOOK_EVERY: Final = 1.0  # seconds; how soon a new queue with a prefix of ours is found
HEAR_EVERY: Final = 0.5  # seconds between looks at what is asked of the bodies under way
MOST_CLAIMED: Final = 10_000  # at once: what a statement and its answer can well carry


class Runtime:
    """One worker at work."""

    def __init__(
        self,
        store: Store,
        served: Sequence[Served],
        identity: Identity,
        *,
        prefixes: tuple[str, ...] = (),
        concurrency: int,
        grace: float,
        poll: float = LONGEST_POLL,
    ) -> None:
        self._store = store
        self._by_name = {one.queue: one for one in served}
        self._prefixes = prefixes
        self._looked_at = float("-inf")  # for queues with these prefixes
        self._served: dict[int, Served] = {}
        self._holds = Holds(store, self._workflows)
        self._identity = identity
        self._concurrency = concurrency
        self._grace = grace
        self._demand = Demand(0, {})
        # Of each lease: of a queue with batches, and of the others (0).
        self._places: defaultdict[tuple[float, int], Places] = defaultdict(Places)
        self._fairness: defaultdict[tuple[float, int], Fairness] = defaultdict(Fairness)
        self._suspects = SuspectTurns(store.options.lease)
        self._threads = Threads(f"stepwell-{identity.name}")
        self.showing = Showing()
        self._executions: set[Execution] = set()
        self._quiet = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._polling = Polling(store.clock, poll)
        self._idle = asyncio.Event()
        self._idle_at = self._claims = 0  # the number of the last claim that found nothing to do, and of the last
        self._left = True  # whether the last claim may have left something that a free place could be given
        self._drains = 0
        self._stopping = self._hurried = False
        self._labels = False  # whether tasks of this loop are labelled for the runs executed here
        self._deafen: Callable[[], None] = lambda: None
        self.leases = Leases(store, identity, self._session_lost, self._orphans_found)
        self.executed = 0

    @property
    def session(self) -> Session | None:
        """The first of its sessions; None while it is not registered."""
        return next(iter(self.leases), None)

    async def register(self) -> None:
        """Begin the sessions, so that others see the worker, and claim nothing yet."""
        if self.session is None:
            try:
                await self._begin_sessions()
            except BaseException:
                await self.leases.end(stopping=self._stopping)  # begun or not: nobody would beat for nothing
                raise

    async def _register_patiently(self) -> None:
        """Begin the sessions however long the database is away, slow or locked, as one that runs does; and say so."""
        lost_at: float | None = None
        pauses = waits(LONGEST_POLL, self._store.clock.random)
        while self.session is None:
            try:
                await self.register()
            except (StoreBusy, StoreUnavailable) as error:
                self._store.telemetry.emit(StoreLost.by(error))
                lost_at = time.monotonic() if lost_at is None else lost_at
                await asyncio.sleep(next(pauses))
        if lost_at is not None:
            self._store.telemetry.emit(StoreBack(time.monotonic() - lost_at))

    def _workflows(self) -> list[int]:
        return [number for number, one in self._served.items() if one.is_workflow and one.body is not None]

    def replace(self, served: Served) -> None:
        """Serve a queue with another body from now on; what is under way goes on with the old one. Its lease stays."""
        served = replace(served, lease=self._by_name[served.queue].lease)
        self._by_name[served.queue] = served
        for queue_id, one in self._served.items():
            if one.queue == served.queue:
                self._served[queue_id] = served

    async def start(self, *, upkeep: bool = True) -> None:
        """Register the sessions and begin to serve; `upkeep=False` leaves the store to others."""
        self._stopping = self._hurried = False
        self._executions = set()  # a body that did not stop is not this start's
        self._suspects = SuspectTurns(self._store.options.lease)
        self._demand = Demand(self._concurrency, {})
        self._threads = Threads(f"stepwell-{self._identity.name}")
        if self.session is None:
            self._served = {}
            await (self._register_patiently() if upkeep else self.register())
        else:
            self._serve(self._served)
        if any(one.is_workflow for one in self._by_name.values()):
            self._labels = True
            branches.install(asyncio.get_running_loop())
        self.context = contextvars.copy_context()
        self._begun_in = contextvars.copy_context()
        self._begun_in.run(branches.current_branch.set, branches.HIDDEN)  # what is executed is no run's code
        self._store.tasks.on_added(self._added)
        self._deafen = self._store.tasks.on_wish(self._wished)
        self._refuse = self._store.tasks.hand_over.on_offer(self._offer)
        self._loops = [asyncio.create_task(self._supervised("claim", self._claim_forever), name="stepwell-claim")]
        hearing = self._supervised("control requests", self._hear_forever)
        self._loops.append(asyncio.create_task(hearing, name="stepwell-requests"))
        if upkeep:
            looking_after = self._supervised("upkeep", Upkeep(self._store).forever)
            self._loops.append(asyncio.create_task(looking_after, name="stepwell-upkeep"))
            holding = self._supervised("holds", self._holds.forever)
            self._loops.append(asyncio.create_task(holding, name="stepwell-holds"))

    async def stop(self) -> None:
        """Claim nothing more, let bodies end within the grace, give back what is left, end the sessions."""
        self._stopping = True
        self._polling.wake()
        self._idle.set()
        with contextlib.suppress(ValueError):
            self._store.tasks.off_added(self._added)
            self._deafen()
            self._refuse()
        if self._loops:
            # A claim under way is answered, not cut off: what it takes would be ours, not executed, its attempt lost.
            await asyncio.wait(self._loops[:1], timeout=self._store.options.timeout)
        await _gone(self._loops)
        self._loops = []
        try:
            await self._let_go()
        finally:  # also of a stop that is cut off: from here on a step is a plain call again
            if self._labels:
                self._labels = False
                branches.uninstall(asyncio.get_running_loop())
        await self.leases.end(stopping=True)

    async def _let_go(self) -> None:
        """Let the bodies end within the grace, and give back what is left."""
        await self._handed_over()
        await self._all_ended(0 if self._hurried else self._grace)
        for execution in tuple(self._executions):
            execution.give_up()
        await self._all_ended(self._store.options.timeout)
        # A body that swallows its cancellation is left behind: its session ends, and whatever it does is refused.
        for execution in tuple(self._executions):
            execution.abandon()
        self._store.tasks.give_up({execution.session.id for execution in self._executions})
        self._threads.close()

    def hurry(self) -> None:
        """Wait for no body any more: give back at once what is under way."""
        self._hurried = True
        for execution in tuple(self._executions):
            execution.give_up()

    async def drain(self) -> int:
        """Execute all that is due now, and what that leads to, until nothing is left to claim; how many that was."""
        before = self.executed
        self._looked_at = float("-inf")
        await self._store.tasks.wake()
        await self._holds.look()
        await self._drained()
        while not self._stopping and await self._store.tasks.wake():  # due meanwhile
            await self._drained()
        return self.executed - before

    def freed(self, demand: Demand, queue_id: int) -> None:
        """A place is free again: go on if something waits for it."""
        demand.give_back(queue_id)
        if self._left:  # otherwise nothing waits for the place: what comes later is heard of
            self._polling.wake()

    def ended(self, execution: Execution) -> None:
        """A place's tasks are all settled, or not ours any more."""
        self._executions.discard(execution)
        self.executed += execution.settled
        if self._left or self._drains or execution.gave_back:
            self._polling.wake()
        if not self._executions:
            self._quiet.set()

    async def _drained(self) -> None:
        """Wait until a claim of the loop, begun after this call, has found nothing and nothing is under way."""
        wanted = self._claims + 1
        self._drains += 1
        try:
            while self._idle_at < wanted and not self._stopping:
                self._idle.clear()
                self._polling.wake()
                await self._idle.wait()
        finally:
            self._drains -= 1

    async def _claim_forever(self) -> None:
        branches.current_branch.set(branches.HIDDEN)  # what is executed from here is no run's code, unless it says so
        pauses = waits(min(LONGEST_POLL, self._store.options.lease / 6), self._store.clock.random)
        while not self._stopping:
            # Cleared before the claim: whatever arrives while it is under way sets it again and is not missed.
            self._polling.begin()
            self._claims += 1
            idle = not self._executions and not self._demand.busy  # a thread that outlived its timeout has its place
            try:
                claimed = await self._claim_once()
            except (StoreBusy, StoreUnavailable) as error:
                self._store.telemetry.emit(StoreLost.by(error))
                await asyncio.sleep(next(pauses))
                continue
            pauses = waits(min(LONGEST_POLL, self._store.options.lease / 6), self._store.clock.random)
            if not claimed and idle:
                self._idle_at = self._claims
                self._idle.set()
            if claimed:
                self._polling.found()
            if not claimed or not self._left:
                await self._polling.rest()

    async def _claim_once(self) -> int:
        """Fill the free places with what is ready; how many tasks that took."""
        if not self.leases.are_living:
            await self._begin_sessions()
        if self._prefixes and time.monotonic() - self._looked_at >= LOOK_EVERY:
            await self._find_queues()
        if (begun := await self._claim_alone(idle=False)) is not None:
            return begun
        # Asked only when there is room: asking moves the queues' turns on, and a turn without a claim is a turn lost.
        self._left = self._room() <= 0
        if self._left:
            return 0
        claimed = sum([await self._claim_from(queues) for queues in self._demand.turns()])
        if not claimed and not self._executions and (begun := await self._claim_alone(idle=True)) is not None:
            return begun
        return claimed

    async def _claim_alone(self, *, idle: bool) -> int | None:
        """How many suspects were begun, if it is their turn, and nothing else may be; None if it is not."""
        turns, now = self._suspects, time.monotonic()
        if not turns.is_on and turns.may_look(now, idle=idle, drains=self._drains > 0):
            turns.looked(now, found=await self._store.suspects.wait_in(list(self._served)))
        if not turns.is_on:
            return None
        self._left = True  # so no place is offered, and whatever ends wakes us
        if any(session.handing for session in self.leases) or not turns.may_claim(now, self._executions):
            return 0 if turns.is_on else None
        begun = None if turns.is_over(now) else await self._begin_suspect(now)
        if begun is None:
            turns.end(now, left=turns.is_over(now))
            return None
        turns.begun(now, begun)
        return 1

    async def _begin_suspect(self, now: float) -> Execution | None:
        """Execute one suspect, under the session of its lease; None if there is none for which there is a place."""
        wanted = [queue_id for queue_id, _ in self._demand.wanted(list(self._served))] if self._room() > 0 else []
        for session in self.leases:
            queues = [queue_id for queue_id in wanted if self.leases.of(self._served[queue_id]) is session]
            claimed: list[Claimed] = []
            if queues:
                session.claiming(now)
                try:
                    claimed = await self._store.suspects.claim(session.id, queues, beside=bool(self._executions))
                finally:
                    session.claimed(claimed)
            if claimed:
                return self._start((claimed,), session)
        return None

    async def _claim_from(self, queues: Sequence[int]) -> int:
        wanted, batch = self._demand.wanted(queues), self._demand.batch(queues[0])
        limit, session = min(self._room() * batch, MOST_CLAIMED), self.leases.of(self._served[queues[0]])
        self._left |= limit <= 0 or len(wanted) < len(queues)
        if limit <= 0 or not wanted or session is None:
            return 0
        session.claiming(time.monotonic())
        claimed: list[Claimed] = []
        try:
            claimed = await self._claim(session, wanted, limit, (session.lease, queues[0] if batch > 1 else 0))
        finally:
            session.claimed(claimed)
        for calls in shares(claimed, batch):
            self._start(calls, session)
        return len(claimed)

    def _room(self) -> int:
        # A place is free when its body has ended, while what came of it is still being written; but no more may wait
        # to be written than are executed, or a slow database would be owed ever more.
        return min(self._demand.free, 2 * self._concurrency - len(self._executions))

    async def _claim(
        self, session: Session, wanted: Sequence[tuple[int, int]], limit: int, turn: tuple[float, int]
    ) -> list[Claimed]:
        now = time.monotonic()
        tasks, known, fairness = self._store.tasks, self._places[turn], self._fairness[turn]
        levels = await tasks.oldest([queue_id for queue_id, _ in wanted]) if fairness.oldest_is_due() else {}
        claimed: list[Claimed] = []
        plain = False
        if not levels and self._store.driver.claims_many_queues and (places := known.above(wanted, now, limit)):
            claimed = await tasks.claim_above(session.id, places, limit)
            known.claimed(claimed, limit, now, plain=False)
        if not claimed:
            # From the beginning, also after nothing was found above: only this claim can say that there is nothing.
            claimed = await tasks.claim(session.id, wanted, limit, levels=levels)
            plain = not levels
            if plain:
                known.claimed(claimed, limit, now, plain=True)
        filled = fairness.claimed((task.queue_id for task in claimed), wanted, limit)
        self._left |= filled or not plain
        return claimed

    def _start(self, calls: Sequence[Sequence[Claimed]], session: Session) -> Execution:
        demand, queue_id = self._demand, calls[0][0].queue_id
        demand.take(queue_id)  # this start's: a thread may outlive the stop and free its place only later
        execution = Execution(self._store, self._served[queue_id], session, calls, demand, home=self)
        self._executions.add(execution)
        execution.begin(self._threads)
        return execution

    async def _begin_sessions(self) -> None:
        await self.leases.begin(self._by_name)
        await self._find_queues()

    async def _find_queues(self) -> None:
        """Learn the numbers of the queues, making those that are missing.

        After the sessions have begun and name them: from then on nobody can delete them under us.
        """
        served = {await self._number(one): one for one in self._by_name.values()}
        self._looked_at = time.monotonic()
        for queue in await self._store.queues() if self._prefixes else ():
            if queue.name.startswith(self._prefixes) and queue.id not in served:
                served[queue.id] = Served(queue.name, None, self._store.options.retry)
        self._serve(served)

    def _serve(self, served: dict[int, Served]) -> None:
        self._demand.serve(
            {queue_id: one.concurrency for queue_id, one in served.items()},
            {queue_id: one.batch for queue_id, one in served.items() if one.batch > 1},
            {queue_id: self.leases.lease_of(one) for queue_id, one in served.items()},
        )
        self._served = served

    async def _number(self, served: Served) -> int:
        if served.is_workflow:
            return await self._store.register_workflow(served.queue, served.dead_letter, served.cleanup)
        return await self._store.queue_id(served.queue, create=True, anew=True)

    def _session_lost(self, session: Session) -> None:
        """Others have its tasks now: stop their bodies, write nothing of them, and begin it anew."""
        self._store.telemetry.emit(SessionLost(session.id, len(session.held)))
        for execution in tuple(self._executions):
            if execution.session is session:
                execution.give_up()
        self._polling.wake()

    def _wished(self, wish: Wish, turns: Mapping[int, int]) -> None:
        """Somebody asked for these turns to be cancelled or paused: stop those that are executed here."""
        held = [session.held for session in self.leases]
        if ours := {task_id for task_id, turn in turns.items() if any(one.get(task_id) == turn for one in held)}:
            for execution in tuple(self._executions):
                execution.stop(wish, ours)

    async def _hear_forever(self) -> None:
        """Hear what is asked of the bodies under way, also of those that record nothing for long."""
        while not self._stopping:
            await asyncio.sleep(HEAR_EVERY)
            for session in self.leases:
                if session.held:
                    with contextlib.suppress(StoreBusy, StoreUnavailable):  # others tell of that; it is read again
                        await self._store.tasks.hear_requests(session.id)

    def _orphans_found(self, session: Session, orphans: list[Owned]) -> None:
        self._store.telemetry.emit(OrphansReleased(session.id, tuple(task.task_id for task in orphans)))
        for orphan in orphans:
            job = asyncio.create_task(self._release(session, orphan))
            self._loops.append(job)
            job.add_done_callback(self._loops.remove)

    async def _release(self, session: Session, orphan: Owned) -> None:
        with contextlib.suppress(LeaseLost):
            await self._store.tasks.settle(orphan.task_id, session.id, orphan.turn, settlement_of(Released()))
            self._polling.wake()

    def _added(self, queue_ids: set[int]) -> bool:
        """Go to work if these are queues of ours and there is a place; True if so."""
        if self._prefixes and not queue_ids <= self._served.keys():
            self._looked_at = float("-inf")  # perhaps a queue made since we looked
        elif queue_ids.isdisjoint(self._served):
            return False
        self._polling.wake()
        return self._room() > 0

    def _offer(self, queue_id: int, task_id: int) -> FreeSeat | None:
        """A place for a task that is being added, if it would be the next to be claimed: nothing else waits.

        Not beside a claim, which has been promised all the places that are free.
        """
        served = self._served.get(queue_id)
        session = self.leases.of(served)
        if (
            served is None
            or session is None
            or session.lost
            or self.leases.are_claiming
            or self._stopping
            or self._left
        ):
            return None
        if served.body is None or served.batch > 1 or self._room() <= 0 or not self._demand.wanted([queue_id]):
            return None
        return FreeSeat(self._demand, session, queue_id, task_id, begin=self._taken, left=self._quiet.set)

    def _taken(self, task: Claimed, session: Session) -> None:
        # As if the claim had begun it: whoever added the task, and whatever flushed it, has another context.
        self._begun_in.copy().run(self._start, ((task,),), session)

    async def _handed_over(self) -> None:
        """Wait for what is being added as ours: it is executed within the grace, or given back."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._store.options.timeout):
                while any(session.handing for session in self.leases):
                    self._quiet.clear()
                    await self._quiet.wait()

    async def _all_ended(self, timeout: float) -> None:
        """Wait until nothing is under way any more, or for that long."""
        self._quiet.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._executions:
                    await self._quiet.wait()

    async def _supervised(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        while not self._stopping:
            try:
                await loop()
            except StoreClosed:
                self._stopping = True  # under us: nothing could be settled, so nothing more is begun
                self._idle.set()
            except Exception as error:  # noqa: BLE001 - a dead loop would be a worker that looks alive and does nothing
                self._store.telemetry.emit(InternalTaskFailed(name, repr(error)))
                await asyncio.sleep(LONGEST_POLL)


async def _gone(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
