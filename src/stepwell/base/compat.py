"""Internals of CPython, asyncio and other libraries that stepwell relies on, in one place.

Their authors do not promise any of this. `TRIED` lists the versions with which the tests of this module have passed, at
least one test for each function; a test fails if another version is installed. If an attribute of an object is missing,
a run holds its place for longer, or steps in tasks of such a library are distinguished by their order only. A name that
is imported (`_GatheringFuture`) has to exist: without it this module cannot be imported.
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
WRAPPING: Final = ("anyio.", "opentelemetry.")  # modules of libraries that wrap the coroutine of a task
MOST_WRAPPED: Final = 5
MOST_FRAMES: Final = 5  # frames from the caller of a task factory to the function of asyncio that creates the task
RAISE: Final = dis.opmap["RAISE_VARARGS"]


def waited_for(task: asyncio.Task[Any]) -> asyncio.Future[Any] | None:
    """The future that a task waits for, if it is not done. Reads `Task._fut_waiter`."""
    waiter: asyncio.Future[Any] | None = getattr(task, "_fut_waiter", None)
    return None if waiter is None or waiter.done() else waiter


def waits_for_tasks(task: asyncio.Task[Any], waiter: Any) -> bool:
    """True if the task, which waits for `waiter`, can go on only when other tasks have ended.

    It waits for a task or a `gather`; or inside `asyncio.wait`, `as_completed`, or a `wait_for` that has made a task;
    or at the end of a task group, also of anyio; or for its own lock or semaphore. Anything else may come from outside
    the run, so it counts as work.
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


def place_of_wait(task: asyncio.Task[Any]) -> str:
    """What a task awaits, and where in the program, for people."""
    chain = _awaiting(task)
    own = [one for one in chain if _is_of_program(getattr(one, "cr_frame", None))]
    what = getattr(chain[-1], "__qualname__", type(chain[-1]).__name__)
    if not own:
        return str(what)
    frame = own[-1].cr_frame
    of = "a future" if own[-1] is chain[-1] else what
    return f"{of} in {own[-1].__qualname__}, {frame.f_code.co_filename}, line {frame.f_lineno}"


def _is_of_program(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] not in ("asyncio", "stepwell")


def _awaiting(task: asyncio.Task[Any]) -> list[Any]:
    """The chain of coroutines of the task that await each other; the last one waits."""
    coroutines: list[Any] = [task.get_coro()]
    while hasattr(inner := getattr(coroutines[-1], "cr_await", None), "cr_code"):
        coroutines.append(inner)
    return coroutines


def _is_local(lock: Any, awaiting: Sequence[Any]) -> bool:
    """True if the lock is a local variable of a function that waits for it: then tasks of this run hold it.

    A global lock, which limits something for all runs, may be released by another run: that counts as work.
    """
    frames = [one.cr_frame for one in awaiting if one.cr_frame is not None]  # compiled code may have none
    own = [frame for frame in frames if frame.f_globals.get("__name__") != asyncio.locks.__name__]
    return any(value is lock for frame in own for value in frame.f_locals.values())


def _waits_in_anyio(inner: Any) -> bool:
    # Read each time: the user may import anyio later, and stepwell never does.
    group = getattr(sys.modules.get("anyio._backends._asyncio"), "TaskGroup", None)
    handle = getattr(sys.modules.get("anyio._core._tasks"), "TaskHandle", None)  # since anyio 4.14
    awaited = getattr(getattr(inner, "cr_await", None), "gi_code", None)
    places = _codes(getattr(group, "__aexit__", None), getattr(handle, "__await__", None))
    return getattr(inner, "cr_code", None) in places or awaited in places


def _codes(*functions: Any) -> frozenset[CodeType]:
    return frozenset(function.__code__ for function in functions if hasattr(function, "__code__"))


def _next_completed() -> CodeType | None:
    """The code of the coroutines of `as_completed`: a method since Python 3.13, an inner function before."""
    if _ITERATOR is not None:
        return next(iter(_codes(_ITERATOR._wait_for_one)), None)  # noqa: SLF001
    inside = asyncio.as_completed.__code__.co_consts
    return next((one for one in inside if isinstance(one, CodeType) and one.co_name == "_wait_for_one"), None)


def unwrapped(coro: AnyCoroutine) -> AnyCoroutine | None:
    """The coroutine of the workflow, if a library has wrapped it in another one to create the task.

    The name of the wrapper depends on the version of the library and on whether tracing is on, so it must not be in the
    key of a step. None if the inner coroutine cannot be found: then only the order distinguishes the tasks.
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
    """The function of asyncio that creates a task; `above` is the number of frames from here to the factory."""
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
    """The frame of the code that called into the package."""
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
    """Mark an object as a coroutine function for `inspect`, asyncio, Starlette and tenacity."""
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(called)
        return

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return await called(*args, **kwargs)

    # `inspect` has no mark before 3.12; asyncio has one, and Starlette and tenacity check `__call__`.
    called._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # noqa: SLF001
    called.__call__ = awaited


def was_raised(trace: TracebackType) -> bool:
    """True if a `raise` statement raised the exception, and not the interpreter between two instructions.

    asyncio raises KeyboardInterrupt in its own signal handler, which counts as the interpreter.
    """
    code = trace.tb_frame.f_code
    return code.co_code[trace.tb_lasti] == RAISE and code.co_filename != asyncio.runners.__file__


def frame_of(thread: int) -> FrameType | None:
    """The current frame of a thread; None if it has ended."""
    return sys._current_frames().get(thread)  # noqa: SLF001 - the only way to another thread's stack


def interpreter_flags() -> list[str]:
    """The flags with which this Python was started, as multiprocessing passes them to its children."""
    flags: Callable[[], list[str]] = subprocess._args_from_interpreter_flags  # type: ignore[attr-defined]  # noqa: SLF001
    return flags()
