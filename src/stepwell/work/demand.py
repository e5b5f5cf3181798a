"""What the next claim asks for: how many tasks, of which queues, from which position. Pure bookkeeping, no I/O."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from stepwell.store.rows import Claimed
from stepwell.store.tasks import Place
from stepwell.work.session import Session

PLAIN_EVERY: Final = 1.0  # seconds between two claims from the beginning, in a backlog


class Demand:
    """The free places of a worker, over its queues. A place holds one task, or one batch of a queue with batches."""

    def __init__(
        self,
        concurrency: int,
        limits: Mapping[int, int | None],
        batches: Mapping[int, int] | None = None,
        leases: Mapping[int, float] | None = None,
    ) -> None:
        self._busy: Counter[int] = Counter()
        self.busy = 0  # how many places are taken
        self.free = concurrency  # how many more may be taken
        self.limited: frozenset[int] = frozenset()  # queues with limits over all workers
        self._order: list[int] = []
        self.serve(limits, batches or {}, leases or {})

    def serve(self, limits: Mapping[int, int | None], batches: Mapping[int, int], leases: Mapping[int, float]) -> None:
        """Go on with these queues, their limits, batches and leases; places that are taken stay taken."""
        self._limits = limits
        self._batches = batches
        self._leases = leases
        kept = [queue_id for queue_id in self._order if queue_id in limits]
        self._order = list(dict.fromkeys([*kept, *limits]))

    def take(self, queue_id: int) -> None:
        """A place is taken for this queue."""
        self._busy[queue_id] += 1
        self.busy += 1
        self.free -= 1

    def give_back(self, queue_id: int) -> None:
        """A place taken for this queue is free."""
        self._busy[queue_id] -= 1
        self.busy -= 1
        self.free += 1

    def turns(self) -> list[tuple[int, ...]]:
        """The queues, grouped by claim; each time another queue is first, so that none starves.

        A queue with batches has its own claim: a limit over several queues counts tasks, and its places hold many. So
        has a queue with limits. The queues of each lease have their own claim too: a claim belongs to one session.
        """
        if self._order:
            self._order.append(self._order.pop(0))
        turns: defaultdict[tuple[float | None, int], list[int]] = defaultdict(list)
        for queue_id in self._order:
            alone = queue_id if queue_id in self._batches or queue_id in self.limited else 0
            turns[self._leases.get(queue_id), alone].append(queue_id)
        return [tuple(queues) for queues in turns.values()]

    def wanted(self, queues: Sequence[int]) -> list[tuple[int, int]]:
        """Each of these queues that has room, with the number of its tasks that fit."""
        free = self.free
        wanted = []
        for queue_id in queues:
            limit = self._limits[queue_id]
            places = free if limit is None else min(free, limit - self._busy[queue_id])
            if places > 0:
                wanted.append((queue_id, places * self.batch(queue_id)))
        return wanted

    def batch(self, queue_id: int) -> int:
        """How many tasks of this queue fit into a place."""
        return self._batches.get(queue_id, 1)


def shares(
    tasks: Sequence[Claimed], batch: int, *, answers_each: bool = False
) -> Iterator[tuple[tuple[Claimed, ...], ...]]:
    """The claimed tasks, by place and there by call of the body.

    Up to `batch` tasks go into one call, but a task that has failed before goes alone: a bad message must not fail its
    neighbours twice, and uses up only its own attempts. Not where the body `answers_each`: it failed by itself.
    """
    if batch == 1:  # the common case, for thousands of tasks
        yield from (((task,),) for task in tasks)
        return
    for start in range(0, len(tasks), batch):
        share = tasks[start : start + batch]
        failed = {task.id for task in share if task.suspect or (task.attempt > 1 and not answers_each)}
        alone = ((task,) for task in share if task.id in failed)
        together = tuple(task for task in share if task.id not in failed)
        yield (together, *alone) if together else tuple(alone)


class Places:
    """How far the claim has come in each queue and priority while there is a backlog.

    With an old snapshot open anywhere in the database, the index entries of everything claimed since then stay, and a
    claim from the beginning steps over all of them. So in a backlog the claim goes on where it ended, and only once a
    second looks behind: for what was returned, added late or has another priority. Without a backlog, always from the
    beginning: then there is nothing to step over, and nothing may be missed for a second.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], tuple[int, int]] = {}
        self._plain_at = float("-inf")

    def above(self, wanted: Sequence[tuple[int, int]], now: float, limit: int = 0) -> list[Place]:
        """Where to continue, the highest priority first; empty if this claim starts from the beginning."""
        if now - self._plain_at >= PLAIN_EVERY or not self._last:
            return []
        places = []
        for queue_id, capacity in wanted:
            known = sorted((priority for queue, priority in self._last if queue == queue_id), reverse=True)
            if not known or (len(known) > 1 and capacity < limit):
                return []  # each priority may fill the capacity: together they would exceed it
            places += [(queue_id, capacity, priority, *self._last[queue_id, priority]) for priority in known]
        return places

    def claimed(self, tasks: Sequence[Claimed], limit: int, now: float, *, plain: bool) -> None:
        """Remember how far this claim came; forget it all when it found less than it asked for."""
        if plain:
            self._plain_at = now
            self._last.clear()
        if len(tasks) < limit:
            self._last.clear()
            return
        for place, last in {(task.queue_id, task.priority): (task.run_at, task.id) for task in tasks}.items():
            self._last[place] = max(self._last.get(place, (0, 0)), last)  # in claim order, so the last is the furthest


class FreeSeat:
    """A place that a worker keeps free for a task while the task is being added: no claim counts on it."""

    def __init__(
        self,
        demand: Demand,
        session: Session,
        queue_id: int,
        task_id: int,
        *,
        begin: Callable[[Claimed, Session], None],
        left: Callable[[], None],
    ) -> None:
        self.worker = session.id
        self._demand = demand
        self._session = session
        self._queue_id = queue_id
        self._task_id = task_id
        self._begin = begin
        self._left = left
        demand.take(queue_id)
        session.handing.add(task_id)

    def taken(self, task: Claimed) -> None:
        """The session owns the task: execute it, unless the session was lost meanwhile."""
        self._session.held[task.id] = task.turn
        self._leave()
        if not self._session.lost:
            self._begin(task, self._session)

    def missed(self) -> None:
        """The session does not own the task, or this is unknown: then the heartbeat finds out."""
        self._leave()

    def _leave(self) -> None:
        self._demand.give_back(self._queue_id)
        self._session.handing.discard(self._task_id)
        self._left()
