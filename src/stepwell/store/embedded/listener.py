"""Listens for other processes' commits to an embedded file: there are no notifications, so its log is watched.

Linux tells a process that a file was written (inotify). Elsewhere, or if it refuses to, the file is looked at again and
again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import select
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from stepwell.base.futures import ended
from stepwell.store.driver import Heard, Hint, Lost

LOOK_EVERY: Final = 0.01
LOOK_EVERY_IDLE: Final = 0.025
IDLE_AFTER: Final = 0.2  # seconds since the file was touched: longer than a commit takes
COMMIT: Final = 0.0003  # from the first write of a short commit until the others see it
REST: Final = 10  # times what it took to look and to tell, before the next look: a tenth of a core at most, ...
LONGEST_REST: Final = 0.01  # ... unless the look took so long because the process is busy
LOOK_ANYWAY: Final = 1.0
WRITTEN: Final = 0x002  # IN_MODIFY
REMOVED: Final = 0x400  # IN_DELETE_SELF


class Watched(Protocol):
    """A file that other processes write."""

    @property
    def log(self) -> str:
        """The file to which a commit is written before other connections see it."""

    def touched(self) -> object:
        """Something that is different after any process has written, long before or just before it is committed."""

    def version(self, connection: Any) -> int:
        """A number that is different after any other connection has committed."""


class FileEar:
    """A thread with a connection of its own that looks whether the file was changed, and then what is ready.

    Whether a run was finished by the change is left to the calls that wait for one. A hint for what is claimed already
    costs nothing, so it may be woken in vain.
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
        self._watch = watch_of(watched)
        self._thread = threading.Thread(target=self._listen, name=name, daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Look no more."""
        self._stopped = True
        self._watch.wake()
        await ended(self._thread, 1)

    def begin_writing(self) -> None:
        """This process has the only right to write the file: what is written now is no news."""
        self._watch.ignore()

    def end_writing(self) -> None:
        """Others may write it."""
        self._watch.heed()

    def _listen(self) -> None:
        try:
            with contextlib.closing(self._watch), contextlib.closing(self._connect()) as connection:
                seen: int | None = None
                while not (self._stopped or self._loop.is_closed()):
                    if self._watch.wait() and (version := self._watched.version(connection)) != seen:
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


class Attention(Protocol):
    """Notices that a file may have been changed."""

    def wait(self) -> bool:
        """Wait until it may have been, or for some time; True if it has to be asked for its version."""

    def wake(self) -> None:
        """End the waiting, from another thread."""

    def ignore(self) -> None:
        """Do not notice what is written from now on, ..."""

    def heed(self) -> None:
        """... until now."""

    def close(self) -> None:
        """Watch no more."""


def watch_of(watched: Watched) -> Attention:
    """Notice changes of a file in the best way that there is."""
    try:
        return LogWatch(watched.log)
    except OSError:  # not on this system, or this user has too many of them
        return Looks(watched)


class LogWatch:
    """Is told by the kernel that the log is written, except by this process.

    A commit is seen by others a moment after the last of its writes: the time for which the disk makes it durable. So
    one look follows soon, and others after pauses that double: it is seen after twice that time at the latest.
    """

    def __init__(self, path: str) -> None:
        self._path = os.fsencode(path)
        self._kernel = _kernel()
        if (descriptor := self._kernel.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)) < 0:
            raise OSError("inotify_init1")
        self._descriptor: int | None = descriptor
        self._end = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()  # of the descriptor: it is used by the writer, and its number again by others
        self._ignores = False
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._poll.register(self._end, select.POLLIN)
        self._pause = LOOK_ANYWAY
        self._told_at = time.monotonic()
        self.heed()
        _every_watch.add(self)

    def wait(self) -> bool:
        """Wait until the log was written, and a moment more; or until the next look."""
        time.sleep(min(LONGEST_REST, REST * (time.monotonic() - self._told_at)))
        if self._poll.poll(self._pause * 1000):
            time.sleep(COMMIT)  # and with all that is written meanwhile, it is one look
            self._pause = 0.001
            with contextlib.suppress(BlockingIOError):
                os.read(self._descriptor or -1, 65536)
        elif self._pause < IDLE_AFTER:
            self._pause *= 2
        else:
            self._pause = LOOK_ANYWAY
            self._again()  # the log may be another file by now
        self._told_at = time.monotonic()
        return True

    def wake(self) -> None:
        """End the waiting."""
        with self._lock:
            if self._descriptor is not None:
                os.eventfd_write(self._end, 1)

    def ignore(self) -> None:
        """Do not notice what is written from now on."""
        self._ignores = True
        self._again()

    def heed(self) -> None:
        """Notice what is written from now on."""
        self._ignores = False
        self._again()

    def _again(self) -> None:
        """Say to the kernel what is to be told of the file that now has the log's name, if there is one."""
        with self._lock:
            if self._descriptor is not None:
                self._kernel.inotify_add_watch(self._descriptor, self._path, REMOVED if self._ignores else WRITTEN)

    def close(self) -> None:
        """Watch no more."""
        with self._lock:
            self.let_go()

    def let_go(self) -> None:
        """Close the descriptors, as in a forked child: there the threads that use them are gone."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            os.close(self._end)
            self._descriptor = None


class Looks:
    """Looks at the file again and again.

    While no process writes, it only asks the file system, which takes a third of the time that a query takes. It
    notices what this process writes, too.
    """

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._touched: object = None
        self._idle_at = 0.0

    def wait(self) -> bool:
        """Wait for the next look; True if the file was written lately."""
        # A plain sleep: being woken is nearly all that a look costs, and an event costs twice as much.
        time.sleep(LOOK_EVERY if time.monotonic() < self._idle_at else LOOK_EVERY_IDLE)
        before, self._touched = self._touched, self._watched.touched()
        now = time.monotonic()
        if self._touched != before:
            self._idle_at = now + IDLE_AFTER
        return now < self._idle_at

    def wake(self) -> None:
        """The waiting is short."""

    def ignore(self) -> None:
        """It cannot."""

    def heed(self) -> None:
        """It does."""

    def close(self) -> None:
        """Nothing to close."""


def _kernel() -> Any:
    """The functions of Linux that the standard library does not offer."""
    if sys.platform != "linux":
        raise OSError("no inotify")
    return ctypes.PyDLL(None)  # the calls are short: letting go of the interpreter would take longer


_every_watch: weakref.WeakSet[LogWatch] = weakref.WeakSet()


def _close_in_child() -> None:
    """Close what a forked child inherited: if it read, its parent would miss what it has read."""
    for watch in _every_watch:
        watch.let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
