"""Deadlines of many who wait, with one timer for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """Calls `late` with what has waited too long.

    The timer is set again only when it goes off, or for a deadline that comes before it: most of those who wait are
    answered long before theirs, and a timer for each would cost more than it ever tells.
    """

    def __init__(self, late: Callable[[K], object]) -> None:
        self._late = late
        self._due: dict[K, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, waiting: K, within: float) -> None:
        """Call `late` with it after this many seconds, unless it is removed before."""
        loop = asyncio.get_running_loop()
        due = self._due[waiting] = loop.time() + within
        if self._timer is None or due < self._timer.when():
            self._set(loop, due)

    def remove(self, waiting: K) -> None:
        """It does not wait any more."""
        self._due.pop(waiting, None)

    def close(self) -> None:
        """Forget all who wait."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(due, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, now = None, loop.time()
        for waiting in [one for one, due in self._due.items() if due <= now]:
            self.remove(waiting)
            self._late(waiting)
        if self._due and self._timer is None:
            self._set(loop, min(self._due.values()))
