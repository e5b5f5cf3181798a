"""Threads for sync bodies. Daemons, so that a body that never returns cannot keep the process from ending;
the standard pool joins its threads at exit and would.
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
    """The system gives no thread: it has too many, or the interpreter is ending. No body was called."""


class Threads:
    """As many threads as bodies run at once; an idle one is used again."""

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
                self._idle += 1  # before the answer: it lets the next body begin, which would get a thread more
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker gave this body up long ago
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
        """Let every thread end after what it is doing."""
        for _ in range(self._count):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work  # or a thread without work would keep the last run, and what it was given


async def in_thread(
    body: Callable[[], T], threads: Threads, slot: Slot, running: set[asyncio.Future[Any]] | None = None
) -> T:
    """Call the body in a thread, in `running` while it runs; its place is free only when it has really ended."""
    future = threads.run(body)
    slot.hold()
    future.add_done_callback(lambda _: slot.release())
    if running is not None:
        running.add(future)
        future.add_done_callback(running.discard)
    result: T = await asyncio.shield(future)  # a thread cannot be cancelled
    return result


def _answer(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration | GeneratorExit | KeyboardInterrupt):
        # A future cannot carry the first, a coroutine the second; the third, which no person can send to a thread,
        # would end the loop.
        future.set_exception(RuntimeError(f"a body raised {type(error).__name__}"))
    else:
        future.set_exception(error)
