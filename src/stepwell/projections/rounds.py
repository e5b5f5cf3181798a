"""The rounds of a runner: when the next one begins, what begins it sooner, and who waits until one is over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable


class Rounds:
    """When a runner works and when it rests, by the time of its loop."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.stopping = False
        self._woken, self._over = asyncio.Event(), asyncio.Event()
        self._not_before = 0.0

    @property
    def is_held_off(self) -> bool:
        """True while nothing begins the next round."""
        return self.now() < self._not_before

    def begin(self) -> None:
        """Rounds follow one another until `stop`."""
        self.stopping = False

    def stop(self) -> None:
        """Begin no other round, and let nothing wait for one."""
        self.stopping = True
        self._woken.set()
        self._over.set()

    def wake(self) -> None:
        """Begin the next round now, unless it is held off."""
        self._woken.set()

    def hold_off(self, pause: float) -> float:
        """Pause before the next round; return for how many seconds."""
        self._not_before = self.now() + pause
        return pause

    def hold_off_no_longer(self) -> None:
        """Let the next round begin when something wakes it."""
        self._not_before = 0.0

    async def another(self) -> None:
        """Return when the round that is under way is over, or one that begins now."""
        if not self.stopping:
            self._over.clear()
            self._woken.set()
            await self._over.wait()

    async def rest(self, pause: float) -> None:
        """Rest for so long, or until something wakes it; while it is held off, to the end."""
        self._over.set()
        until = self.now() + pause
        while not self.stopping:
            now = self.now()
            if now >= self._not_before and (self._woken.is_set() or now >= until):
                break
            if self._woken.is_set():  # not yet
                self._woken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(until, self._not_before) - now):
                    await self._woken.wait()
        self._woken.clear()
