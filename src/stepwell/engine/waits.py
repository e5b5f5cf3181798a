"""What a task waits for, as far as asyncio shows it: another task, or something of the world outside."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from types import CodeType
from typing import Any, Final


def waits_for_tasks(task: asyncio.Task[Any], waiter: Any) -> bool:
    """True if the task, which waits for `waiter`, can go on only when other tasks have ended.

    By what it waits for (a task, a `gather`), or by where it waits: inside `asyncio.wait`, `as_completed`, a `wait_for`
    that has made a task, or at the end of a task group, also of anyio, whose tasks' handles are as good as tasks; or
    for a lock or semaphore of its own. Anything else may come from outside the run, so it counts as work.
    """
    if isinstance(waiter, _TASKS):
        return True
    *outer, inner = _awaiting(task)
    code = getattr(inner, "cr_code", None)
    if code is _WAIT_FOR:
        return isinstance(inner.cr_frame.f_locals.get("fut"), asyncio.Task)
    if code in _LOCKS:
        return _is_local(inner.cr_frame.f_locals.get("self"), outer)
    asks_next = bool(outer) and getattr(outer[-1], "cr_code", None) is _NEXT_COMPLETED
    return code in _PLACES or asks_next or _waits_in_anyio(inner)


def _awaiting(task: asyncio.Task[Any]) -> list[Any]:
    """The coroutines of the task that await each other; the last is the one that really waits."""
    coroutines: list[Any] = [task.get_coro()]
    while hasattr(inner := getattr(coroutines[-1], "cr_await", None), "cr_code"):
        coroutines.append(inner)
    return coroutines


def _is_local(lock: Any, awaiting: Sequence[Any]) -> bool:
    """True if the lock is a variable of a function that waits for it: then those that hold it are tasks of this run.

    One in a module, which limits something for all runs, may be released by another run. Then it is worth waiting for.
    """
    frames = [one.cr_frame for one in awaiting if one.cr_frame is not None]  # compiled code may show none
    own = [frame for frame in frames if frame.f_globals.get("__name__") != asyncio.locks.__name__]
    return any(value is lock for frame in own for value in frame.f_locals.values())


def _waits_in_anyio(inner: Any) -> bool:
    # Asked each time: whoever uses anyio may import it after us, and we never do.
    group = getattr(sys.modules.get("anyio._backends._asyncio"), "TaskGroup", None)
    handle = getattr(sys.modules.get("anyio._core._tasks"), "TaskHandle", None)  # since anyio 4.14
    awaited = getattr(getattr(inner, "cr_await", None), "gi_code", None)
    places = _codes(getattr(group, "__aexit__", None), getattr(handle, "__await__", None))
    return getattr(inner, "cr_code", None) in places or awaited in places


def _codes(*functions: Any) -> frozenset[CodeType]:
    return frozenset(function.__code__ for function in functions if hasattr(function, "__code__"))


def _next_completed() -> CodeType | None:
    """The code of what `as_completed` gives out: since Python 3.13 a method, before that a function within it."""
    if (iterator := getattr(asyncio.tasks, "_AsCompletedIterator", None)) is not None:
        return next(iter(_codes(iterator._wait_for_one)), None)  # noqa: SLF001
    inside = asyncio.as_completed.__code__.co_consts
    return next((one for one in inside if isinstance(one, CodeType) and one.co_name == "_wait_for_one"), None)


_WAIT_FOR: Final = asyncio.wait_for.__code__
_NEXT_COMPLETED: Final = _next_completed()
_TASKS: Final = (asyncio.Task, asyncio.tasks._GatheringFuture)  # type: ignore[attr-defined]  # noqa: SLF001
_LOCKS: Final = _codes(asyncio.Lock.acquire, asyncio.Semaphore.acquire)
_PLACES: Final = _codes(
    getattr(asyncio.tasks, "_wait", None),
    asyncio.TaskGroup.__aexit__,
    getattr(asyncio.TaskGroup, "_aexit", None),  # since Python 3.12
)
