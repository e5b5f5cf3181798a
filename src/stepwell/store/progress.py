"""The progress of long work: verbs that change many rows do it in pieces, and report the size of each piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_watcher: ContextVar[Callable[[int], object] | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(watcher: Callable[[int], object]) -> Iterator[None]:
    """Report every piece that this task, or a task it starts, finishes inside the block to the watcher."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def tell_done(count: int) -> None:
    """Report that this many more are done."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher(count)
