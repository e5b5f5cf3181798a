"""The worker's end of the line to its helper (`store/helper_process.py`): after each beat it says that it is well.

The helper is the supervisor above the worker, or a child that is started once the worker has lived for a moment. Used
from the heartbeat's thread alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from stepwell.base.events import HelperLost, NoHelper
from stepwell.store.driver import Outside
from stepwell.store.helper_process import BLOCKED, END, FILE, SIGN, can_start
from stepwell.store.store import Store

SUPERVISOR: Final = "supervisor"
CHILD: Final = "child"
LOST: Final = "lost"
START_AFTER: Final = 1.0  # seconds: who only drains a queue needs no process beside it
START_AGAIN_AFTER: Final = 3600.0  # a helper that had lived for so long may be lost once more
GOODBYE: Final = 2.0


class Lifeline:
    """The line to the helper of one store's workers, if they have one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pipe: int | None = None  # what the helper reads from the other end
        self._process: subprocess.Popen[bytes] | None = None
        self._opened_at = self._started_at = 0.0
        self._starts = 0
        self._said: Mapping[int, float] = {}  # the sessions that the helper knows of, and their leases
        self._greeted = self._is_supervised = False
        self._unwritten = b""
        self.kind = _kind(store)

    @property
    def pid(self) -> int | None:
        """The process id of a helper that is a child."""
        return None if self._process is None else self._process.pid

    def supervised(self, pipe: int) -> None:
        """The supervisor reads from this pipe; it beats for us if a child would."""
        self._pipe, self._is_supervised = pipe, True
        self.kind = SUPERVISOR if self.kind == CHILD else self.kind
        os.set_blocking(pipe, False)

    def open(self) -> None:
        """The first session has begun."""
        self._opened_at = time.monotonic()
        if self.kind == "no Python":
            self._store.telemetry.emit(NoHelper(f"sys.executable is {sys.executable or 'empty'}, which is no Python"))

    def starts_in(self) -> float:
        """Seconds until the child is to be started; infinity if none is."""
        if self.kind != CHILD or self._process is not None:
            return float("inf")
        patience = min(START_AFTER, self._store.options.lease / 3)
        return max(0.0, self._opened_at + patience - time.monotonic())

    def well(self, leases: Mapping[int, float]) -> bool:
        """Say that this process is well and has these sessions; True if `kind` has changed: the helper was lost."""
        before = self.kind
        if self._pipe is None and self.starts_in() <= 0:
            self._start()
        if self._pipe is not None and not self._write(self._words(leases)):
            self._lost(leases)
        return self.kind != before

    def blocked(self) -> None:
        """Say that the event loop has been blocked for too long: nobody is to beat for it any more."""
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
        outside = self._store.sessions.outside(list(leases)) if self.kind in (SUPERVISOR, CHILD) else None
        beat, gone = outside.calls if outside is not None else ([], [])
        if outside is not None:
            gone = [*gone, *(outside.hint if self._store.options.listen else ())]
            is_known = self._greeted and set(leases.values()) in (set(), set(self._said.values()))
            lines = [] if is_known else [{"place": self._place(outside, leases)}]
        lines.append({"beat": beat, "gone": gone, "sessions": len(leases)})
        self._greeted, self._said = True, leases
        return b"\n".join(json.dumps(line).encode() for line in lines)

    def _place(self, outside: Outside, leases: Mapping[int, float]) -> dict[str, Any]:
        options = self._store.options
        longest = max(leases.values(), default=options.lease)
        spans = {
            "lease": min(leases.values(), default=options.lease),
            "longest_lease": longest,
            "hang_after": max(options.hang_after, longest),
        }
        path = [one for one in sys.path if one]
        return {"kind": outside.kind, "address": outside.address, "lock": outside.lock, "path": path, **spans}

    def _write(self, words: bytes) -> bool:
        """Write a line; False if nobody reads it any more. One that does not read now is not waited for."""
        if self._pipe is None:
            return False
        if not (self._unwritten and words == SIGN):  # a sign more or less does not matter
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
            # Where the kernel has not told us: without its supervisor the worker stops.
            self._pipe, self.kind = None, LOST if self.kind == SUPERVISOR else self.kind
            os.kill(os.getpid(), signal.SIGTERM)
            return
        again = self._starts < 2 or time.monotonic() - self._started_at > START_AGAIN_AFTER
        self._store.telemetry.emit(HelperLost(again))
        self._end_child()
        if not again:
            self.kind = LOST
        elif self._start():
            self._write(self._words(leases))

    def _start(self) -> bool:
        command = [sys.executable, "-I", "-S", FILE, str(os.getpid())]
        try:
            # In a session of its own: Ctrl-C is not for it, and who ends our group does not end it.
            self._process = subprocess.Popen(  # noqa: S603 - our own file, no shell
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            self._store.telemetry.emit(NoHelper(str(error)))
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


def _kind(store: Store) -> str:
    """What helps this store's workers, or in a word why nothing does."""
    if not store.options.helper:
        return "off"
    if store.clock.beat_now() is not None:
        return "test clock"
    if store.sessions.outside([0]) is None:
        return "one process"  # no other can open the database
    return CHILD if can_start() else "no Python"
