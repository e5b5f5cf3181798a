"""What stepwell knows of the insides of others, in one place: CPython, asyncio, and libraries that users bring.

Those who wrote them promise none of this. `TRIED` has the versions with which the tests of this module have passed, at
least one test for each function; a test fails where another version is installed. Where an attribute is looked up on an
object and is missing, a run holds its place for longer, or steps in tasks of such a library are told apart by their
order alone. What is imported by name (`_GatheringFuture`) has to be there: without it this module cannot be imported.
"""

from __future__ import annotations

import asyncio
import dis
import inspect
import subprocess
import sys
from collections.abc import Callable, Coroutine, Generator, Sequence
from types import CodeType, FrameType, TracebackType
from typing import Any, Final, Literal

TRIED: Final = {
    "Python": ("3.11", "3.12", "3.13"),
    "anyio": ("4.0", "4.4", "4.8", "4.13", "4.14", "4.15", "4.16"),
    "opentelemetry-instrumentation-asyncio": ("0.48", "0.54", "0.60", "0.66"),
}
AnyCoroutine = Coroutine[Any, Any, Any] | Generator[Any, None, Any]
WRAPPING: Final = ("anyio.", "opentelemetry.")  # modules of libraries that wrap what becomes a task
MOST_WRAPPED: Final = 5
MOST_FRAMES: Final = 5  # from the caller of a task factory up to the function of asyncio that asked for the task
RAISE: Final = dis.opmap["RAISE_VARARGS"]


def waited_for(task: asyncio.Task[Any]) -> asyncio.Future[Any] | None:
    """The future that a task waits for, if it is not done. Looks at `Task._fut_waiter`."""
    waiter: asyncio.Future[Any] | None = getattr(task, "_fut_waiter", None)
    return None if waiter is None or waiter.done() else waiter


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
    # Asked each time: users of anyio may import it after us, and we never do.
    group = getattr(sys.modules.get("anyio._backends._asyncio"), "TaskGroup", None)
    handle = getattr(sys.modules.get("anyio._core._tasks"), "TaskHandle", None)  # since anyio 4.14
    awaited = getattr(getattr(inner, "cr_await", None), "gi_code", None)
    places = _codes(getattr(group, "__aexit__", None), getattr(handle, "__await__", None))
    return getattr(inner, "cr_code", None) in places or awaited in places


def _codes(*functions: Any) -> frozenset[CodeType]:
    return frozenset(function.__code__ for function in functions if hasattr(function, "__code__"))


def _next_completed() -> CodeType | None:
    """The code of what `as_completed` gives out: since Python 3.13 a method, before that a function within it."""
    if _ITERATOR is not None:
        return next(iter(_codes(_ITERATOR._wait_for_one)), None)  # noqa: SLF001
    inside = asyncio.as_completed.__code__.co_consts
    return next((one for one in inside if isinstance(one, CodeType) and one.co_name == "_wait_for_one"), None)


def unwrapped(coro: AnyCoroutine) -> AnyCoroutine | None:
    """The coroutine that the workflow has asked to be a task, where a library makes the task of one around it.

    What that is called differs between versions of the library, and with tracing switched on and off: it must not be in
    the key of a step. None if the one asked for cannot be found: then their order alone tells them apart.
    """
    inner: Any = coro
    for _ in range(MOST_WRAPPED):
        frame: FrameType | None = getattr(inner, "cr_frame", None)
        if frame is None or not frame.f_globals.get("__name__", "").startswith(WRAPPING):
            break
        within = frame.f_locals
        inner = within.get("coro") or getattr(within.get("self"), "coro", None)  # the second is anyio, since 4.14
    return inner if inner is coro or hasattr(inner, "__qualname__") else None


def made_by(above: int) -> Literal["wait_for", "as_completed"] | None:
    """The function of asyncio that makes a task of a coroutine, asked so many frames below the task factory."""
    frame: FrameType | None = sys._getframe(above + 1)  # noqa: SLF001 - the only way to see who creates the task
    for _ in range(MOST_FRAMES):
        if frame is None:
            return None
        if frame.f_code is _WAIT_FOR:
            return "wait_for"
        if frame.f_code is _AS_COMPLETED:
            return "as_completed"
        frame = frame.f_back
    return None


def caller(package: str) -> FrameType:
    """The frame of the code that has called into a package."""
    frame = sys._getframe(1)  # noqa: SLF001
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(f"{package}."):
        frame = frame.f_back
    return frame


_ITERATOR: Final[Any] = getattr(asyncio.tasks, "_AsCompletedIterator", None)  # since Python 3.13
_WAIT_FOR: Final = asyncio.wait_for.__code__
_AS_COMPLETED: Final[CodeType] = (_ITERATOR.__init__ if _ITERATOR else asyncio.as_completed).__code__
_NEXT_COMPLETED: Final = _next_completed()
_TASKS: Final = (asyncio.Task, asyncio.tasks._GatheringFuture)  # type: ignore[attr-defined]  # noqa: SLF001
_LOCKS: Final = _codes(asyncio.Lock.acquire, asyncio.Semaphore.acquire)
_PLACES: Final = _codes(
    getattr(asyncio.tasks, "_wait", None),
    asyncio.TaskGroup.__aexit__,
    getattr(asyncio.TaskGroup, "_aexit", None),  # since Python 3.12
)


def mark_as_async(called: Any) -> None:
    """Have those who ask take an object for a coroutine function: `inspect`, asyncio, Starlette, tenacity."""
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(called)
        return

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return await called(*args, **kwargs)

    # `inspect` has no mark yet; asyncio has one, and Starlette and tenacity look at an object's `__call__`.
    called._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # noqa: SLF001
    called.__call__ = awaited


def was_raised(trace: TracebackType) -> bool:
    """True if a `raise` of the code itself, and not the interpreter between two instructions, raised the exception.

    asyncio raises KeyboardInterrupt in a handler of its own: that counts as the interpreter's.
    """
    code = trace.tb_frame.f_code
    return code.co_code[trace.tb_lasti] == RAISE and code.co_filename != asyncio.runners.__file__


def frame_of(thread: int) -> FrameType | None:
    """What a thread executes now; None if it has ended."""
    return sys._current_frames().get(thread)  # noqa: SLF001 - the only way to another thread's stack


def interpreter_flags() -> list[str]:
    """The flags with which this Python was started, as multiprocessing hands them on."""
    flags: Callable[[], list[str]] = subprocess._args_from_interpreter_flags  # type: ignore[attr-defined]  # noqa: SLF001
    return flags()
