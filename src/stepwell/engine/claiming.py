"""What to ask of the next claim: how much, of which queues, from which place. Pure bookkeeping, no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from stepwell.records import Claimed
from stepwell.store.tasks import Place

PLAIN_EVERY = 1.0  # seconds; in a backlog, how often the claim looks behind its place again


class Demand:
    """The free places of a worker, over its queues."""

    def __init__(self, concurrency: int, limits: Mapping[int, int | None]) -> None:
        self._concurrency = concurrency
        self._limits = limits
        self._order = list(limits)
        self._busy: Counter[int] = Counter()

    @property
    def free(self) -> int:
        """How many more tasks may be started."""
        return self._concurrency - self._busy.total()

    @property
    def busy(self) -> int:
        """How many places are taken."""
        return self._busy.total()

    def take(self, queue_id: int) -> None:
        """A task of this queue is started."""
        self._busy[queue_id] += 1

    def give_back(self, queue_id: int) -> None:
        """A task of this queue has ended."""
        self._busy[queue_id] -= 1

    def next(self) -> list[tuple[int, int]]:
        """Each queue that has room, with its capacity; another one is first every time, so that none starves."""
        if self._order:
            self._order.append(self._order.pop(0))
        free = self.free
        wanted = []
        for queue_id in self._order:
            limit = self._limits[queue_id]
            capacity = free if limit is None else min(free, limit - self._busy[queue_id])
            if capacity > 0:
                wanted.append((queue_id, capacity))
        return wanted


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

    def above(self, wanted: Sequence[tuple[int, int]], now: float) -> list[Place]:
        """Where to go on, urgent first; nothing if this claim is to look from the beginning."""
        if now - self._plain_at >= PLAIN_EVERY or not self._last:
            return []
        places = []
        for queue_id, capacity in wanted:
            known = sorted((priority for queue, priority in self._last if queue == queue_id), reverse=True)
            if not known:
                return []
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
        for task in tasks:
            place = (task.queue_id, task.priority)
            self._last[place] = max(self._last.get(place, (0, 0)), (task.run_at, task.id))
