"""The thread that owns a connection to an embedded database, and how those who wait for it get their answers."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from stepwell.base.futures import ended, resolve
from stepwell.errors import StoreClosed

T = TypeVar("T")


class ConnectionThread:
    """A thread that owns one connection and does what is submitted, one thing after the other."""

    def __init__(self, name: str, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._pending: collections.deque[tuple[Answer, Callable[[Any], Any]]] = collections.deque()
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()  # half the price of a semaphore
        self._closing = False
        # A daemon: a process may end while another one holds the file.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._started = threading.Lock()

    def submit(self, work: Callable[[Any], T], *, first: bool = False) -> concurrent.futures.Future[T]:
        """Have the work done with the connection; cancelling the answer before its turn means it is not done."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self.put(future, work, first=first)
        return future

    def put(self, answer: Answer, work: Callable[[Any], T], *, first: bool = False) -> None:
        """Have the work done, and its result told, unless nothing waits for it any more when its turn comes."""
        if self._closing:
            answer.set_exception(StoreClosed())
            return
        (self._pending.appendleft if first else self._pending.append)((answer, work))
        self._wake.put(None)
        with self._started:
            if self._thread.ident is None:
                self._thread.start()

    async def close(self) -> None:
        """Finish what is pending and close the connection."""
        with self._started:
            self._closing = True
        self._wake.put(None)
        await ended(self._thread, 10)

    def _work(self) -> None:
        connection: Any = None
        while True:
            self._wake.get()
            if not self._pending:
                if self._closing:
                    break
                continue
            answer, work = self._pending.popleft()
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                if connection is None:
                    connection = self._connect()
                answer.set_result(work(connection))
            except BaseException as error:  # noqa: BLE001 - every failure belongs to the caller, not to this thread
                answer.set_exception(error)
            del answer, work  # or a connection without work would keep what it read last
        if connection is not None:
            connection.close()


class LoopAnswer:
    """A future of a loop, answered from a thread: a third of the price of two futures that are chained."""

    __slots__ = ("_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> None:
        self._loop = loop
        self._future = future

    def set_running_or_notify_cancel(self) -> bool:
        """Whether its caller still waits."""
        return not self._future.done()

    def set_result(self, result: Any, /) -> None:
        """Answer the caller, if its loop is not closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(resolve, self._future, result)

    set_exception = set_result


Answer = concurrent.futures.Future[Any] | LoopAnswer
