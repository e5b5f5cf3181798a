"""Waiting for tasks to claim: until this process hears of one, or until the next poll."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from stepwell.base.clock import Clock
from stepwell.base.futures import resolve
from stepwell.store.tasks import Tasks

SHORTEST_POLL: Final = 0.02
LONGEST_POLL: Final = 0.5
SWEEP_EVERY: Final = 1.0  # how often, at least, due tasks are woken and lost ones looked for


class Polling:
    """The pauses between claims that found nothing: short at first, longer while nothing comes, ended by a hint."""

    def __init__(self, clock: Clock, longest: float = LONGEST_POLL) -> None:
        self._clock = clock
        self._longest = longest
        self._woken = False
        self._rest: asyncio.Future[None] | None = None
        self._pause = min(SHORTEST_POLL, longest)

    @contextlib.contextmanager
    def hearing(self, tasks: Tasks, queue_ids: Collection[int]) -> Iterator[None]:
        """Wake up when this process adds tasks to these queues."""

        def added(changed: set[int]) -> bool:
            heard = not changed.isdisjoint(queue_ids)
            if heard:
                self.wake()
            return heard

        tasks.on_added(added)
        try:
            yield
        finally:
            tasks.off_added(added)

    def wake(self) -> None:
        """End the pause: there may be something to claim."""
        self._woken = True
        if self._rest is not None:
            resolve(self._rest, None)

    def found(self) -> None:
        """A task was found: the next pause is a short one again."""
        self._pause = min(SHORTEST_POLL, self._longest)

    def begin(self) -> None:
        """Call before a claim: a task that arrives during the claim ends the pause after it."""
        self._woken = False

    async def rest(self, at_most: float | None = None) -> None:
        """Pause until a hint, the next poll, or the time given."""
        pause = self._pause * (0.8 + 0.4 * self._clock.random())
        self._pause = min(self._longest, self._pause * 1.5)
        if self._woken:
            return
        # A future and a timer, not an event and a timeout: between a hint and the claim every layer is waited for.
        loop = asyncio.get_running_loop()
        self._rest = loop.create_future()
        timer = loop.call_later(pause if at_most is None else min(pause, at_most), resolve, self._rest, None)
        try:
            await self._rest
        finally:
            timer.cancel()
            self._rest = None


OLDEST_EVERY: Final = 10


class Fairness:
    """Priority is strict, except that in a backlog every tenth claim takes what has waited longest.

    So it counts the claims that left something behind: without a backlog nothing is passed over.
    """

    def __init__(self) -> None:
        self._filled = 0

    def oldest_is_due(self) -> bool:
        """True if the next claim is to take the oldest whatever its priority; asking begins the count anew."""
        if self._filled < OLDEST_EVERY - 1:
            return False
        self._filled = -1  # that claim is counted too
        return True

    def claimed(self, queues: Iterable[int], wanted: Sequence[tuple[int, int]], limit: int) -> bool:
        """A claim that asked for this much has taken a task of each of these queues, some more than once.

        Returns whether it may have left something behind.
        """
        taken = Counter(queues)
        filled = taken.total() >= limit or any(taken[queue_id] >= capacity for queue_id, capacity in wanted)
        self._filled += filled
        return filled
