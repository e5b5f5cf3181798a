"""A thread with an event loop, for a program that has none: the base of a sync store. It knows nothing of stores."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from stepwell.errors import ForkError, StoreClosed, Timeout, WrongLoop

R = TypeVar("R")

Answer = concurrent.futures.Future[Any]

# A signal does not always end the wait for a lock: it may reach another thread, or this one just before it waits.
# Python calls its handler when the main thread runs again, so no wait is longer than this many seconds.
LONGEST_WAIT = 0.5


class LoopThread:
    """One event loop in one daemon thread, until it is closed."""

    def __init__(self) -> None:
        _refuse_running_loop()
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(DaemonThreads())
        self._lock = threading.Lock()
        self._answers: set[Answer] = set()
        self._ending = False
        self.is_open = True
        self._thread = threading.Thread(target=self._turn, name="stepwell-sync", daemon=True)
        self._thread.start()

    @property
    def is_inherited(self) -> bool:
        """True in a forked child: the loop's thread stayed with the parent."""
        return os.getpid() != self._pid

    def wait_for(self, work: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run the coroutine on the loop, in a copy of the caller's context, and wait for its result."""
        self.refuse_dead_ends()
        _refuse_running_loop()
        if not self.is_open:
            raise _closed()
        return self._driven(work(), None)

    def call(self, function: Callable[[], object]) -> None:
        """Have the loop call the function soon; from any thread, also the loop's own, and from a signal handler."""
        if self.is_inherited:
            raise ForkError
        with contextlib.suppress(RuntimeError):  # closed: there is nothing left to tell
            self._loop.call_soon_threadsafe(function)

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None, *, patience: float = 10) -> None:
        """Refuse new calls, let running ones end, run `last`, end the loop and its thread."""
        self.refuse_dead_ends()
        with self._lock:
            if not self.is_open:
                return
            self.is_open = False
            answers = tuple(self._answers)
        concurrent.futures.wait(answers, timeout=patience)
        try:
            if last is not None:
                self._driven(last(), patience, last=True)
        finally:
            self._ending = True
            self.call(self._loop.stop)
            self._thread.join(patience)

    def refuse_dead_ends(self) -> None:
        """Raise if waiting for the loop could never end: in a forked child, and on the loop's own thread."""
        if self.is_inherited:
            raise ForkError
        if threading.current_thread() is self._thread:
            raise WrongLoop(
                "this is the sync store's own event loop, where waiting for the store would never end; "
                "make the handler a plain function (it gets a thread), or open a `stepwell.connect` store in it"
            )

    def _driven(self, coroutine: Coroutine[Any, Any, R], patience: float | None, *, last: bool = False) -> R:
        call = LoopCall(coroutine)
        with self._lock:
            if not self.is_open and not last:
                coroutine.close()
                raise _closed()
            self._answers.add(call.answer)
            self._loop.call_soon_threadsafe(call.begin)
        try:
            result: R = _answered(call.answer, patience)
        except concurrent.futures.TimeoutError:
            if call.answer.done():
                raise  # the work raised it
            raise Timeout(f"the store's loop did nothing for {patience:g} s; an async handler blocks it") from None
        except BaseException:
            # Ctrl-C in this thread: no caller will take the answer, so cancel the work and return when it has ended.
            if not call.answer.done():
                self.call(call.cancel)
                concurrent.futures.wait([call.answer])
            raise
        finally:
            self._answers.discard(call.answer)
        return result

    def _turn(self) -> None:
        while not self._ending:
            # A `SystemExit` of a task ends the program in an event loop of the user's own. Here it would only leave
            # every caller waiting for ever, so the loop goes on.
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            self._loop.run_until_complete(_end_all())
        self._loop.close()


class LoopCall:
    """A coroutine that is passed to the loop, and its answer."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.answer: Answer = concurrent.futures.Future()
        self._coroutine = coroutine
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[Any] | None = None

    def begin(self) -> None:
        """Start it; on the loop's thread."""
        self._task = asyncio.get_running_loop().create_task(self._coroutine, context=self._context)
        self._task.add_done_callback(self._end)

    def cancel(self) -> None:
        """Stop it; on the loop's thread."""
        if self._task is not None:
            self._task.cancel()

    def _end(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self.answer.set_exception(_closed())
        elif (error := task.exception()) is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(task.result())


class DaemonThreads(concurrent.futures.ThreadPoolExecutor):
    """A thread for each call. The standard pool takes no work once the interpreter ends, which is when we close."""

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[R]:
        """Call the function in a thread that the interpreter does not wait for at exit."""
        answer: concurrent.futures.Future[R] = concurrent.futures.Future()

        def work() -> None:
            try:
                answer.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - whatever it raises is its outcome
                answer.set_exception(error)

        threading.Thread(target=work, name="stepwell-sync-call", daemon=True).start()
        return answer


def _answered(answer: Answer, patience: float | None) -> Any:
    """The result, as soon as it is there; between waits this thread handles signals."""
    while patience is None and not answer.done():
        with contextlib.suppress(concurrent.futures.TimeoutError):  # its own, or the work's: that is raised below
            return answer.result(LONGEST_WAIT)
    return answer.result(patience)


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise WrongLoop(
        "a sync store would block the event loop that runs here; use `await stepwell.connect(...)` and its "
        "async verbs, or call this in a thread with `asyncio.to_thread`"
    )


def _closed() -> StoreClosed:
    return StoreClosed("this store is closed; open another with `stepwell.sync.connect`")


async def _end_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
