"""How often Python looks for reference cycles while a worker works."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator
from typing import Final

# A worker makes many objects that live for as long as their task, and few cycles: every early collection looks at all
# that is under way, and finds next to nothing. This is a fourteenth of them, at the price of a few megabytes.
THRESHOLDS: Final = (10_000, 20, 100)


class Garbage:
    """The thresholds of this process's garbage collector, as they were before the first of several workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers = 0
        self._before = gc.get_threshold()

    @contextlib.contextmanager
    def collected_rarely(self) -> Iterator[None]:
        """Let Python collect garbage less often in this process, and when the last such block ends, as before.

        What the program has set is respected: a collector that is off or rarer stays as it is, and thresholds that
        were changed meanwhile are not put back.
        """
        with self._lock:
            self._workers += 1
            if self._workers == 1:
                self._begin()
        try:
            yield
        finally:
            with self._lock:
                self._workers -= 1
                if self._workers == 0 and gc.get_threshold() == THRESHOLDS:
                    gc.set_threshold(*self._before)

    def _begin(self) -> None:
        self._before = gc.get_threshold()
        if gc.isenabled() and 0 < self._before[0] < THRESHOLDS[0]:
            gc.set_threshold(*THRESHOLDS)


GARBAGE: Final = Garbage()
