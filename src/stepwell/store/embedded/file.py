"""Locks on files beside an embedded database: whose turn it is to write, and which processes are alive.

All of them live in one folder named after the database file. The locks are the operating system's (`flock`): they
vanish with the process that held them, whatever killed it.
"""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path

from stepwell.errors import StoreUnusable

try:
    import fcntl
except ImportError:  # Windows: no proof of death there, the lease alone decides
    fcntl = None  # type: ignore[assignment]


class WriteTurn:
    """A queue of processes for the right to write one file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "writer.lock"
        self._descriptor: int | None = None
        _every_turn.add(self)

    def __enter__(self) -> None:
        """Wait for the turn."""
        if fcntl is None:
            return
        if self._descriptor is None:
            self.path.parent.mkdir(exist_ok=True)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        """Give it up."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the lock's file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class OpenedFile:
    """The file that a path named when it was opened: what is written to one that was removed is lost with it."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._opened: tuple[int, int] | None = None

    def note(self) -> None:
        """It is open: from now on, or from when it is made, the path has to name this very file."""
        self._opened = self._opened or self._found()

    def check(self) -> None:
        """Refuse to go on if the path names no file any more, or another one."""
        if self._opened is None:
            self.note()
        elif self._found() != self._opened:
            raise StoreUnusable(
                f"{self._path} was removed or replaced while it was open, and whatever is written now would be lost "
                "with it: put the file back, or start this process anew"
            )

    def _found(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)  # noqa: PTH116 - for every transaction, and half the price
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino


class FileGuards:
    """A locked file for each session: when the lock is free, its process is gone.

    A lock that is held proves nothing, since a forked child may have inherited it; neither does a missing file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[int, int] = {}
        _every_guard.add(self)

    def hold(self, worker_id: int) -> None:
        """Lock this session's file; it appears under its name only once it is locked."""
        if fcntl is None:
            return
        self._folder.mkdir(exist_ok=True)
        unnamed = self._folder / f"worker-{worker_id}.{os.getpid()}"
        descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        unnamed.rename(self._path(worker_id))
        self._held[worker_id] = descriptor

    def release(self, worker_id: int) -> None:
        """Remove this session's file, even if another process holds it."""
        self._path(worker_id).unlink(missing_ok=True)
        if (descriptor := self._held.pop(worker_id, None)) is not None:
            os.close(descriptor)

    def proves_dead(self, worker_id: int) -> bool:
        """True if no process holds the lock of a session that once did."""
        if fcntl is None or worker_id in self._held:
            return False
        try:
            descriptor = os.open(self._path(worker_id), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            return True
        finally:
            os.close(descriptor)

    def let_go(self) -> None:
        """Close what was inherited by a fork; the parent's locks stay."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def _path(self, worker_id: int) -> Path:
        return self._folder / f"worker-{worker_id}.lock"


class ProcessGuards:
    """For a database that only one process may open: a session this process does not hold is gone."""

    def __init__(self, path: str) -> None:
        self._path = path

    def hold(self, worker_id: int) -> None:
        """Remember the session as ours."""
        with _process_lock:
            _process_sessions.setdefault(self._path, set()).add(worker_id)

    def release(self, worker_id: int) -> None:
        """Forget the session."""
        with _process_lock:
            _process_sessions.get(self._path, set()).discard(worker_id)

    def proves_dead(self, worker_id: int) -> bool:
        """True if no store of this process holds the session."""
        with _process_lock:
            return worker_id not in _process_sessions.get(self._path, set())


class OneProcess:
    """The right of one process, with any number of stores in it, to open a file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "process.lock"

    def take(self) -> int | None:
        """Take the right; return the pid of the process that has it, or None when it is ours now."""
        if fcntl is None:
            return None
        key = str(self._path.resolve())
        with _process_lock:
            if key in _process_files:
                descriptor, users = _process_files[key]
                _process_files[key] = (descriptor, users + 1)
                return None
            self._path.parent.mkdir(exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.read(descriptor, 20)
                os.close(descriptor)
                return int(holder or 0)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            _process_files[key] = (descriptor, 1)
            return None

    def give_back(self) -> None:
        """Give the right back when the last store of this process is closed."""
        key = str(self._path.resolve())
        with _process_lock:
            if key not in _process_files:
                return
            descriptor, users = _process_files.pop(key)
            if users > 1:
                _process_files[key] = (descriptor, users - 1)
            else:
                os.close(descriptor)


_process_lock = threading.Lock()
_process_sessions: dict[str, set[int]] = {}
_process_files: dict[str, tuple[int, int]] = {}
_every_guard: weakref.WeakSet[FileGuards] = weakref.WeakSet()
_every_turn: weakref.WeakSet[WriteTurn] = weakref.WeakSet()


def _close_in_child() -> None:
    """Close what a forked child inherited: while it holds a lock, its parent's death would not show."""
    for turn in _every_turn:
        turn.close()
    for guard in _every_guard:
        guard.let_go()
    for descriptor, _ in _process_files.values():
        os.close(descriptor)
    _process_files.clear()
    _process_sessions.clear()
    global _process_lock  # noqa: PLW0603 - another thread of the parent may have held it, and is not here to free it
    _process_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
