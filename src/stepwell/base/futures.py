"""Futures, tasks and threads: answer a future, start a task outside of any run, wait for a thread."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")
LOOK_EVERY: Final = 0.002


def resolve(future: asyncio.Future[T], answer: T | BaseException) -> None:
    """Set the result or the exception of a future, unless it is done."""
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
        future.exception()  # retrieved, or asyncio would log it if no task waits
    else:
        future.set_result(answer)


class LoopAnswer(NamedTuple, Generic[T]):
    """A future that a thread answers, in place of a `concurrent.futures.Future` that is chained to it."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[T]

    def set_running_or_notify_cancel(self) -> bool:
        """Whether its caller still waits."""
        return not self.future.done()

    def set_result(self, answer: T | BaseException) -> None:
        """Answer the caller, if its loop is not closed."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(resolve, self.future, answer)

    def set_exception(self, error: BaseException) -> None:
        """Tell the caller what went wrong."""
        self.set_result(error)


def resolve_all(futures: Iterable[asyncio.Future[T]], error: BaseException) -> None:
    """Set the exception of all these futures."""
    for future in futures:
        resolve(future, error)


def begin_apart(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """Start the work in a new context, without the task factory, which is for the tasks of users."""
    return asyncio.Task(work, loop=asyncio.get_running_loop(), name=name, context=contextvars.Context())


class Driven(Generic[T]):
    """Does work in a new context and no task: up to its first wait when it begins, the rest as its waits end.

    For work that nothing cancels, and that asks for no task of its own, as `asyncio.timeout` does: what may need one it
    starts with `begin_apart`, and awaits.
    """

    __slots__ = ("_context", "_done", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], done: Callable[[T | BaseException], object]) -> None:
        self._work, self._done, self._context = work, done, contextvars.Context()

    @classmethod
    def begin(cls, work: Callable[[], Coroutine[Any, Any, T]], done: Callable[[T | BaseException], object]) -> None:
        """Do the work, and call `done` with what it returns or raises."""
        driven = cls(work(), done)
        driven._context.run(driven._step)

    def _step(self, _: object = None) -> None:
        try:
            awaited = self._work.send(None)
        except StopIteration as end:
            self._done(end.value)
        except BaseException as error:
            self._done(error)
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
        else:
            if awaited is None:  # `asyncio.sleep(0)`
                asyncio.get_running_loop().call_soon(self._step, context=self._context)
            else:
                awaited._asyncio_future_blocking = False  # noqa: SLF001 - the protocol of `await`, as a task says it
                awaited.add_done_callback(self._step, context=self._context)


async def ended(thread: threading.Thread, within: float) -> None:
    """Return when the thread has ended or was never started, or after this many seconds."""
    await passed(lambda: not thread.is_alive(), within)


async def passed(fact: Callable[[], bool], within: float) -> None:
    """Return when a fact that another thread changes is true, or after this many seconds."""
    deadline = asyncio.get_running_loop().time() + within
    while not fact() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - a dying thread sets no event
        await asyncio.sleep(LOOK_EVERY)
