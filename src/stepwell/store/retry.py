"""Repeating a call to the database until it answers or the time is over: one way for everything but the flush."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from stepwell.base.backoff import waits
from stepwell.base.clock import Clock
from stepwell.base.events import StoreLost
from stepwell.base.telemetry import Telemetry
from stepwell.errors import StoreBusy, StoreUnavailable

T = TypeVar("T")


async def repeated(
    work: Callable[[], Awaitable[T]], *, clock: Clock, telemetry: Telemetry, within: float, longest_wait: float = 1.0
) -> T:
    """The result of `work`, which must be safe to repeat; the last error if there is none in time."""
    pauses = waits(longest_wait, clock.random)
    started = asyncio.get_running_loop().time()
    while True:
        try:
            return await work()
        except (StoreBusy, StoreUnavailable) as error:
            if isinstance(error, StoreUnavailable):
                telemetry.emit(StoreLost(error.why))
            if asyncio.get_running_loop().time() - started >= within:
                raise
        await asyncio.sleep(next(pauses))
