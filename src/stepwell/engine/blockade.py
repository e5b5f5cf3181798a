"""How long an event loop has run nothing, as another thread of the process sees it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
import traceback
from typing import Final

FRAMES: Final = 8  # of the stack: those in which it stands, not those that led there


class Blockade:
    """Made on the loop's own thread; looked at from another."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._asked_at: float | None = None
        self._looked_at = time.monotonic()
        self._told = False
        self.seconds = 0.0

    def look(self, lease: float) -> str | None:
        """Find out for how many `seconds` it has been blocked; when that is first more than the lease, its stack.

        The innermost call comes first, all in one line: it is for the log.
        """
        now = time.monotonic()
        unseen, self._looked_at = now - self._looked_at, now
        if self._asked_at is None:
            self._ask(now)
        elif unseen > lease:
            self._asked_at += unseen  # this thread did not run either: the process was stopped, or its interpreter held
        self.seconds = 0.0 if self._asked_at is None else now - self._asked_at
        if self.seconds <= lease or self._told:
            return None
        self._told = True
        return self._stack()

    def _ask(self, now: float) -> None:
        self._asked_at, self._told = now, False
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._asked_at = None

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - the only way to another thread's stack
        calls = traceback.extract_stack(frame) if frame is not None else []
        return " < ".join(f"{call.filename}:{call.lineno} in {call.name}" for call in reversed(calls[-FRAMES:]))
