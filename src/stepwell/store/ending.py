"""Waiting for a thread to end, without a thread to wait in: when the interpreter ends, none can be started."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final

LOOK_EVERY: Final = 0.002


async def ended(thread: threading.Thread, within: float) -> None:
    """Return when the thread has ended or was never started, or after this many seconds."""
    await passed(lambda: not thread.is_alive(), within)


async def passed(fact: Callable[[], bool], within: float) -> None:
    """Return when this is so, which only another thread knows, or after this many seconds."""
    deadline = asyncio.get_running_loop().time() + within
    while not fact() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - a dying thread tells nobody
        await asyncio.sleep(LOOK_EVERY)
