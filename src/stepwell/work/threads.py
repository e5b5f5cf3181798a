"""Threads for sync bodies. They are daemon threads, so that a body that never returns cannot keep the process from
ending; the pool of the standard library joins its threads at exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from stepwell.work.body import Slot

T = TypeVar("T")


class NoThread(Exception):  # noqa: N818 - a word of ours, never seen by users
    """No thread can be started: there are too many, or the interpreter is ending. The body was not called."""


class Threads:
    """A pool with one thread for each body that runs; idle threads are used again."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = 0
        self._count = 0
        self._lock = threading.Lock()

    def run(self, body: Callable[[], Any]) -> asyncio.Future[Any]:
        """Call the body in a thread, in a copy of the caller's context; its result or exception is the future's."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                result, error = context.run(body), None
            except BaseException as raised:  # noqa: BLE001 - whatever a body raises is its outcome
                result, error = None, raised
            with self._lock:
                self._idle += 1  # before the answer, after which the next body begins: it is to use this thread
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has stopped without this body
                loop.call_soon_threadsafe(_answer, future, result, error)

        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            else:
                thread = threading.Thread(target=self._serve, name=f"{self._name}-{self._count + 1}", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    raise NoThread(str(error)) from error
                self._count += 1
        self._work.put(work)
        return future

    def close(self) -> None:
        """Let every thread end after its current body."""
        for _ in range(self._count):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work  # or an idle thread would keep the last run and its arguments alive


async def in_thread(
    body: Callable[[], T], threads: Threads, slot: Slot, running: set[asyncio.Future[Any]] | None = None
) -> T:
    """Call the body in a thread and hold its place until the thread is done; `running` has its future meanwhile."""
    future = threads.run(body)
    slot.hold()
    future.add_done_callback(lambda _: slot.release())
    if running is not None:
        running.add(future)
        future.add_done_callback(running.discard)
    try:
        result: T = await asyncio.shield(future)  # a thread cannot be cancelled
    except asyncio.CancelledError:
        future.add_done_callback(_left)
        raise
    return result


def _left(future: asyncio.Future[Any]) -> None:
    """What a body raises that was left alone is no news."""
    if not future.cancelled():
        future.exception()


def _answer(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration | GeneratorExit | KeyboardInterrupt):
        # A future cannot carry the first, nor a coroutine the second; the third would end the loop.
        future.set_exception(RuntimeError(f"a body raised {type(error).__name__}"))
    else:
        future.set_exception(error)
