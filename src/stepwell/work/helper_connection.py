"""The connection of a worker process to its helper (`store/helper_process.py`), which beats for a held interpreter.

After each beat this process tells the helper that it is well. The helper is the supervisor above the worker, or a child
process that is started when the worker is a second old. Only the thread of the heartbeat uses the connection.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from stepwell.base.events import HelperLost, NoHelper
from stepwell.store.database import Database
from stepwell.store.driver import Outside
from stepwell.store.helper_process import BLOCKED, END, FILE, SIGN, can_start

SUPERVISOR: Final = "supervisor"
CHILD: Final = "child"
LOST: Final = "lost"
START_AFTER: Final = 1.0  # seconds: a worker that only drains a queue needs no second process
START_AGAIN_AFTER: Final = 3600.0  # seconds: a helper that has lived this long is started again when it is lost
GOODBYE: Final = 2.0


class HelperConnection:
    """The connection to the helper of one store's workers, if they have one."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._pipe: int | None = None  # the helper reads from its other end
        self._process: subprocess.Popen[bytes] | None = None
        self._opened_at = self._started_at = 0.0
        self._starts = 0
        self._said: Mapping[int, float] = {}  # the sessions that the helper knows of, and their leases
        self._greeted = self._is_supervised = False
        self._unwritten = b""
        self._known: frozenset[int] = frozenset()  # replaced as a whole: another thread reads it
        self.kind = _kind(database)

    @property
    def pid(self) -> int | None:
        """The process id of a helper that is a child."""
        return None if self._process is None else self._process.pid

    def supervised(self, pipe: int) -> None:
        """The supervisor reads from this pipe, and is the helper where otherwise a child process would be."""
        self._pipe, self._is_supervised = pipe, True
        self.kind = SUPERVISOR if self.kind == CHILD else self.kind
        os.set_blocking(pipe, False)

    def knows(self, sessions: Iterable[int]) -> bool:
        """True if the supervisor has been told of these sessions, so that it can report their end, or there is none."""
        return self.kind != SUPERVISOR or self._known.issuperset(sessions)

    def open(self) -> None:
        """The first session has begun."""
        self._opened_at = time.monotonic()
        if self.kind == "no Python":
            self._db.telemetry.emit(NoHelper(f"sys.executable is {sys.executable or 'empty'}, which is not Python"))

    def starts_in(self) -> float:
        """Seconds until the child process is started; infinity if none is needed."""
        if self.kind != CHILD or self._process is not None:
            return float("inf")
        patience = min(START_AFTER, self._db.options.lease / 3)
        return max(0.0, self._opened_at + patience - time.monotonic())

    def well(self, leases: Mapping[int, float]) -> bool:
        """Tell the helper that this process is well and has these sessions; True if the helper was lost."""
        before = self.kind
        if self._pipe is None and self.starts_in() <= 0:
            self._start()
        if self._pipe is not None and not self._write(self._words(leases)):
            self._lost(leases)
        elif not self._unwritten:
            self._known = frozenset(leases)
        return self.kind != before

    def blocked(self) -> None:
        """Tell the helper that the event loop has been blocked for too long: it stops beating too."""
        self._write(BLOCKED)

    def close(self) -> None:
        """The last session has ended."""
        if self._is_supervised:
            self._write(self._words({}))
        elif self._process is not None:
            self._write(END)
            self._end_child()

    def _words(self, leases: Mapping[int, float]) -> bytes:
        if self._greeted and self._said == leases:
            return SIGN
        lines: list[dict[str, Any]] = []
        outside = self._db.sessions.outside(list(leases)) if self.kind in (SUPERVISOR, CHILD) else None
        beat, gone = outside.calls if outside is not None else ([], [])
        if outside is not None:
            gone = [*gone, *(outside.hint if self._db.options.listen else ())]
            is_known = self._greeted and set(leases.values()) in (set(), set(self._said.values()))
            lines = [] if is_known else [{"place": self._place(outside, leases)}]
        lines.append({"beat": beat, "gone": gone, "sessions": len(leases)})
        self._greeted, self._said = True, leases
        return b"\n".join(json.dumps(line).encode() for line in lines)

    def _place(self, outside: Outside, leases: Mapping[int, float]) -> dict[str, Any]:
        options = self._db.options
        longest = max(leases.values(), default=options.lease)
        spans = {
            "lease": min(leases.values(), default=options.lease),
            "longest_lease": longest,
            "hang_after": max(options.hang_after, longest),
        }
        path = [one for one in sys.path if one]
        return {"kind": outside.kind, "address": outside.address, "lock": outside.lock, "path": path, **spans}

    def _write(self, words: bytes) -> bool:
        """Write a line without waiting for the reader; False if the reader is gone."""
        if self._pipe is None:
            return False
        if not (self._unwritten and words == SIGN):  # one sign of life more or less does not matter
            self._unwritten += words + b"\n"
        with contextlib.suppress(BlockingIOError):
            while self._unwritten:
                try:
                    self._unwritten = self._unwritten[os.write(self._pipe, self._unwritten) :]
                except BlockingIOError:
                    raise
                except OSError:
                    return False
        return True

    def _lost(self, leases: Mapping[int, float]) -> None:
        if self._is_supervised:
            # Without its supervisor the worker stops, also where the kernel sends no signal.
            self._pipe, self.kind = None, LOST if self.kind == SUPERVISOR else self.kind
            os.kill(os.getpid(), signal.SIGTERM)
            return
        again = self._starts < 2 or time.monotonic() - self._started_at > START_AGAIN_AFTER
        self._db.telemetry.emit(HelperLost(again))
        self._end_child()
        if not again:
            self.kind = LOST
        elif self._start():
            self._write(self._words(leases))

    def _start(self) -> bool:
        command = [sys.executable, "-I", "-S", FILE, str(os.getpid())]
        try:
            # In its own session: it must not receive Ctrl-C or a signal to the process group.
            self._process = subprocess.Popen(  # noqa: S603 - our own file, no shell
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            self._db.telemetry.emit(NoHelper(str(error)))
            self.kind = LOST
            return False
        assert self._process.stdin is not None
        self._pipe = self._process.stdin.fileno()
        os.set_blocking(self._pipe, False)
        self._starts += 1
        self._started_at, self._greeted, self._unwritten = time.monotonic(), False, b""
        return True

    def _end_child(self) -> None:
        process, self._process, self._pipe = self._process, None, None
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(GOODBYE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _kind(database: Database) -> str:
    """The kind of helper of this store's workers, or in a word why they have none."""
    if not database.options.helper:
        return "off"
    if database.clock.beat_now() is not None:
        return "test clock"
    if database.sessions.outside([0]) is None:
        return "one process"  # no other process can open the database
    return CHILD if can_start() else "no Python"
