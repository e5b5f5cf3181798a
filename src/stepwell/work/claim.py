"""The claims of a worker: it claims ready tasks for its free places, and suspects one at a time.

A place is one of the `concurrency` of a worker. It holds one task, or one batch, from the claim until its body ends.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from stepwell.store.database import Database
from stepwell.store.poll import Fairness
from stepwell.store.rows import Claimed
from stepwell.work.body import Served
from stepwell.work.current import hidden
from stepwell.work.demand import Demand, FreeSeat, Places, shares
from stepwell.work.execution import Execution, Home
from stepwell.work.leases import Leases
from stepwell.work.session import Session
from stepwell.work.suspects import SuspectTurns
from stepwell.work.threads import Threads

MOST_CLAIMED: Final = 10_000  # in one statement


class Claims:
    """What one worker claims and executes between its start and its stop."""

    def __init__(self, database: Database, leases: Leases, home: Home, threads: Threads, concurrency: int) -> None:
        self.demand = Demand(concurrency, {})
        self.served: dict[int, Served] = {}  # by the number of the queue
        self.executions: set[Execution] = set()
        self.limited: dict[Execution, int] = {}  # those of them that have a place in a limited queue, with its number
        self.left = True  # whether the last claim may have left ready tasks
        self.is_closed = False  # no place is offered to new tasks
        self._db = database
        self._leases = leases
        self._home = home
        self._threads = threads
        self._concurrency = concurrency
        self._suspects = SuspectTurns(database.options.lease)
        # By lease and queue; 0 stands for all queues without batches.
        self._places: defaultdict[tuple[float, int], Places] = defaultdict(Places)
        self._fairness: defaultdict[tuple[float, int], Fairness] = defaultdict(Fairness)
        self._context = hidden()  # a body is not code of a run until it says so

    def serve(self, served: dict[int, Served]) -> None:
        """Claim from these queues from now on."""
        self.demand.serve(
            {queue_id: one.concurrency for queue_id, one in served.items()},
            {queue_id: one.batch for queue_id, one in served.items() if one.batch > 1},
            {queue_id: self._leases.lease_of(one) for queue_id, one in served.items()},
        )
        self.served = served

    @property
    def room(self) -> int:
        """How many more places may be filled now."""
        # A place is free when its body has ended, even if its outcome is still being written. But the outcomes that
        # wait may not outnumber the places, or they would pile up in front of a slow database.
        return min(self.demand.free, 2 * self._concurrency - len(self.executions))

    async def fill(self, *, drains: bool) -> int:
        """Fill the free places with ready tasks and return their number. `drains` is set while a drain waits."""
        if (begun := await self._claim_alone(idle=False, drains=drains)) is not None:
            return begun
        # Asked only if there is room: each call moves on to the next queue, which would lose its turn without a claim.
        self.left = self.room <= 0
        if self.left:
            return 0
        self.demand.limited = self._db.tasks.limited
        claimed = sum([await self._claim_from(queues) for queues in self.demand.turns()])
        if not claimed and not self.executions:
            begun = await self._claim_alone(idle=True, drains=drains)
        return claimed if begun is None else begun

    def offer(self, left: Callable[[], None], queue_id: int, task_id: int) -> FreeSeat | None:
        """A place for a task that is being added, if no other task waits; None otherwise.

        None also during a claim, which may fill every free place. `left` is called when the place was filled, or was
        not needed.
        """
        served = self.served.get(queue_id)
        session = self._leases.of(served)
        if served is None or session is None or session.lost or self._leases.are_claiming:
            return None
        if self.is_closed or self.left:
            return None
        if (
            served.body is None
            or served.batch > 1
            or queue_id in self.demand.limited
            or self.room <= 0
            or not self.demand.wanted([queue_id])
        ):
            return None
        return FreeSeat(self.demand, session, queue_id, task_id, begin=self._start_added, left=left)

    async def _claim_alone(self, *, idle: bool, drains: bool) -> int | None:
        """The number of suspects that were begun; None if it is not their turn, so that other tasks may be claimed."""
        turns, now = self._suspects, time.monotonic()
        if turns.may_look(now, idle=idle, drains=drains):
            turns.looked(now, found=await self._db.suspects.wait_in(list(self.served)))
        if not turns.is_on:
            return None
        self.left = True  # so that no place is offered, and the end of any body wakes the loop
        if any(session.handing for session in self._leases) or not turns.may_claim(now, self.executions):
            return 0 if turns.is_on else None
        begun = None if turns.is_over(now) else await self._begin_suspect(now)
        if begun is None:
            turns.end(now, left=turns.is_over(now))
            return None
        turns.begun(now, begun)
        return 1

    async def _begin_suspect(self, now: float) -> Execution | None:
        """Execute one suspect, under the session of its lease; None if no suspect waits or no place is free."""
        wanted = [queue_id for queue_id, _ in self.demand.wanted(list(self.served))] if self.room > 0 else []
        for session in self._leases:
            queues = [queue_id for queue_id in wanted if self._leases.of(self.served[queue_id]) is session]
            claimed: list[Claimed] = []
            if queues:
                session.claiming(now)
                try:
                    claimed = await self._db.suspects.claim(session.id, queues, beside=bool(self.executions))
                finally:
                    session.claimed(claimed)
            if claimed:
                return self._start((claimed,), session)
        return None

    async def _claim_from(self, queues: Sequence[int]) -> int:
        wanted, batch = self.demand.wanted(queues), self.demand.batch(queues[0])
        limit, session = min(self.room * batch, MOST_CLAIMED), self._leases.of(self.served[queues[0]])
        self.left |= limit <= 0 or len(wanted) < len(queues)
        if limit <= 0 or not wanted or session is None:
            return 0
        session.claiming(time.monotonic())
        claimed: list[Claimed] = []
        try:
            claimed = await self._claim(session, wanted, limit, (session.lease, queues[0] if batch > 1 else 0))
        finally:
            session.claimed(claimed)
        for calls in shares(claimed, batch, answers_each=self.served[queues[0]].answers_each):
            self._start(calls, session)
        return len(claimed)

    async def _claim(
        self, session: Session, wanted: Sequence[tuple[int, int]], limit: int, turn: tuple[float, int]
    ) -> list[Claimed]:
        if (queue_id := wanted[0][0]) in self.demand.limited:
            claimed = await self._db.limited.claim(session.id, queue_id, min(limit, wanted[0][1]))
            self.left |= bool(claimed)  # a key may have had more than its share of this claim
            return claimed
        now = time.monotonic()
        tasks, known, fairness = self._db.tasks, self._places[turn], self._fairness[turn]
        levels = await tasks.oldest([queue_id for queue_id, _ in wanted]) if fairness.oldest_is_due() else {}
        claimed = []
        plain = False
        if not levels and self._db.driver.claims_many_queues and (places := known.above(wanted, now, limit)):
            claimed = await tasks.claim_above(session.id, places, limit)
            known.claimed(claimed, limit, now, plain=False)
        if not claimed:
            # From the beginning: if the claim above found nothing, only this one can tell that nothing is there.
            claimed = await tasks.claim(session.id, wanted, limit, levels=levels)
            plain = not levels
            if plain:
                known.claimed(claimed, limit, now, plain=True)
        filled = fairness.claimed((task.queue_id for task in claimed), wanted, limit)
        self.left |= filled or not plain
        return claimed

    def _start(self, calls: Sequence[Sequence[Claimed]], session: Session) -> Execution:
        queue_id = calls[0][0].queue_id
        self.demand.take(queue_id)
        execution = Execution(self._db, self.served[queue_id], session, calls, self.demand, home=self._home)
        self.executions.add(execution)
        if queue_id in self.demand.limited:
            self.limited[execution] = queue_id
        execution.begin(self._threads)
        return execution

    def _start_added(self, task: Claimed, session: Session) -> None:
        # In the context of the claim loop, not in that of the caller that added the task.
        self._context.copy().run(self._start, ((task,),), session)
