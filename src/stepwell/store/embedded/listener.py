"""Listens for other processes' commits to an embedded file: there are no notifications, so its version is polled."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from stepwell.base.futures import ended
from stepwell.store.driver import Heard, Hint, Lost

LOOK_EVERY: Final = 0.01
LOOK_EVERY_IDLE: Final = 0.025
IDLE_AFTER: Final = 0.2  # seconds since the file was touched: longer than a commit takes


class Watched(Protocol):
    """A file that other processes write."""

    def touched(self) -> object:
        """Something that is different after any process has written, long before or just before it is committed."""

    def version(self, connection: Any) -> int:
        """A number that is different after any other connection has committed."""


class FileEar:
    """A thread with a connection of its own that looks whether the file was changed, and then what is ready.

    It sees the commits of its own process too; a hint for what is claimed already costs nothing. Whether a run was
    finished by the change is left to the calls that wait for one. While no process writes, it only asks the file
    system, which takes a third of the time that a query takes.
    """

    def __init__(
        self,
        *,
        name: str,
        connect: Callable[[], Any],
        watched: Watched,
        ready: Callable[[Any], frozenset[int]],
        heard: Heard,
        lost: Lost,
    ) -> None:
        self._connect = connect
        self._watched = watched
        self._ready = ready
        self._heard = heard
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._stopped = False
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Look no more."""
        self._stopped = True
        await ended(self._thread, 1)

    def _watch(self) -> None:
        try:
            with contextlib.closing(self._connect()) as connection:
                touched: object = None
                seen: int | None = None
                idle_at = 0.0
                while not (self._stopped or self._loop.is_closed()):
                    # A plain sleep: being woken is nearly all that a look costs, and an event costs twice as much.
                    time.sleep(LOOK_EVERY if time.monotonic() < idle_at else LOOK_EVERY_IDLE)
                    now = time.monotonic()
                    before, touched = touched, self._watched.touched()
                    if touched != before:
                        idle_at = now + IDLE_AFTER
                    if now < idle_at and (version := self._watched.version(connection)) != seen:
                        seen = version  # before the queues are read: what is committed meanwhile is seen next time
                        self._say(connection)
        except Exception as error:  # noqa: BLE001 - whatever it is, this thread is at its end and must say so
            self._on_loop(partial(self._lost, f"{type(error).__name__}: {error}"))

    def _say(self, connection: Any) -> None:
        self._on_loop(partial(self._heard, Hint("", self._ready(connection), finished=None)))

    def _on_loop(self, say: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(say)
        except RuntimeError:
            self._stopped = True  # the loop is gone, and everybody who waited on it
