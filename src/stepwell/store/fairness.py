"""Priority is strict, except that in a backlog every tenth claim takes what has waited longest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

OLDEST_EVERY: Final = 10


class Fairness:
    """Counts the claims that left something behind: without a backlog nothing is passed over."""

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
