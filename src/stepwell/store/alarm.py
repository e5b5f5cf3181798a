"""Knowing when something is due that this process itself has put off."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Final

SOON: Final = 1.0  # seconds; what is due later, the next sweep finds in time


class Alarm:
    """Rings when something that this process has put off for a moment is due."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._at = math.inf

    def set(self, delay: float) -> None:
        """Ring after this many seconds, unless it rings before that."""
        loop = asyncio.get_running_loop()
        at = loop.time() + delay
        if delay < SOON and at < self._at:
            self._at = at
            loop.call_at(at + 0.001, self._ring)

    async def wait(self, at_most: float) -> None:
        """Wait until it rings, or for that long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(at_most):
                await self._rung.wait()
        self._rung.clear()

    def _ring(self) -> None:
        self._at = math.inf
        self._rung.set()
