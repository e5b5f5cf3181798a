"""SIGTERM and SIGINT, for as long as a worker runs."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

from stepwell.errors import InvalidOption


@contextlib.contextmanager
def caught_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Have SIGTERM and SIGINT call `stop`, and restore the old handlers; Python calls them in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        raise InvalidOption("signals", True, "signals reach only the main thread; run there, or call `stop()` yourself")
    # Not through the loop's own registry: it drops the old handlers instead of restoring them.
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, signal.SIG_DFL if previous is None else previous)
