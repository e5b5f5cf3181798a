"""Ids reserved in blocks: the id of a task is known before it is written, and no statement has to return it.

Ids are names, not an order: two processes hold different blocks, and the later id may be committed first.
"""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Awaitable, Callable
from typing import Final

from stepwell.base.futures import begin_apart
from stepwell.store.driver import Call, Script

BLOCK: Final = 1000


class Ids:
    """This process's supply of ids."""

    def __init__(self, reserve: Callable[[int], Awaitable[list[int]]]) -> None:
        self._reserve = reserve
        self._blocks: collections.deque[range] = collections.deque()
        self._left = 0
        self._lock = asyncio.Lock()
        self._ahead: asyncio.Task[None] | None = None

    async def take(self, count: int) -> list[int]:
        """This many ids that no other process has, in rising order."""
        while self._left < count:
            await self._refill(count)
        taken: list[int] = []
        while len(taken) < count:
            block = self._blocks.popleft()
            wanted = count - len(taken)
            taken.extend(block[:wanted])
            if len(block) > wanted:
                self._blocks.appendleft(block[wanted:])
        self._left -= count
        if self._left < BLOCK // 5 and self._ahead is None:
            # Reserved ahead of need, so that an enqueue does not have to wait for a block.
            self._ahead = begin_apart(self._refill(BLOCK), "stepwell-ids")
            self._ahead.add_done_callback(self._refilled)
        return taken

    async def _refill(self, wanted: int) -> None:
        async with self._lock:
            if self._left >= wanted:
                return
            count = -(-(wanted - self._left) // BLOCK)
            for block in sorted(await self._reserve(count)):
                self._blocks.append(ids_in(block))
                self._left += BLOCK

    def _refilled(self, task: asyncio.Task[None]) -> None:
        self._ahead = None
        if not task.cancelled():
            task.exception()  # the next caller that needs ids asks again and gets the error


def reserve_blocks(count: int) -> Script[list[int]]:
    """Reserve this many blocks; SQLite returns the highest of them, Postgres returns each."""
    rows = yield Call("reserve_blocks", {"count": count})
    highest: int = rows[-1]["block"]
    return [row["block"] for row in rows] if len(rows) == count else list(range(highest - count + 1, highest + 1))


def ids_in(block: int) -> range:
    """The ids of a block."""
    return range((block - 1) * BLOCK + 1, block * BLOCK + 1)


REMEMBERED: Final = 10.0  # seconds: a queue that was deleted and created again has another number


class Remembered:
    """The numbers of queues or workflows that were read lately, by name."""

    def __init__(self) -> None:
        self._ids: dict[str, tuple[int, float]] = {}

    def get(self, name: str) -> int | None:
        """The number of this name; None if it has to be read."""
        number, learned_at = self._ids.get(name, (None, 0.0))
        return number if time.monotonic() - learned_at < REMEMBERED else None

    def learn(self, name: str, number: int) -> int:
        """Remember the number from now on."""
        self._ids[name] = (number, time.monotonic())
        return number

    def forget(self, name: str) -> None:
        """Read the number again next time: the database says it is not the one that we knew."""
        self._ids.pop(name, None)
