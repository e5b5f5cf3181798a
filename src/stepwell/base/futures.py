"""Answering those who wait."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

T = TypeVar("T")
LOOK_EVERY: Final = 0.002


def resolve(future: asyncio.Future[T], answer: T | BaseException) -> None:
    """Give whoever waits an answer, or the reason why there is none; nothing if they have one, or have gone."""
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
        future.exception()  # looked at: perhaps nobody waits for it
    else:
        future.set_result(answer)


def resolve_all(futures: Iterable[asyncio.Future[T]], error: BaseException) -> None:
    """Tell all who wait why there is no answer."""
    for future in futures:
        resolve(future, error)


def begin_apart(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """Begin the work in a context of its own, past any task factory: those are for the tasks of users."""
    return asyncio.Task(work, loop=asyncio.get_running_loop(), name=name, context=contextvars.Context())


async def ended(thread: threading.Thread, within: float) -> None:
    """Return when the thread has ended or was never started, or after this many seconds."""
    await passed(lambda: not thread.is_alive(), within)


async def passed(fact: Callable[[], bool], within: float) -> None:
    """Return when this is so, which only another thread knows, or after this many seconds."""
    deadline = asyncio.get_running_loop().time() + within
    while not fact() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - a dying thread tells nobody
        await asyncio.sleep(LOOK_EVERY)
