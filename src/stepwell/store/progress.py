"""How far long work is: verbs that change many rows do it in pieces, and tell after each how many that was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_watcher: ContextVar[Callable[[int], object] | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(watcher: Callable[[int], object]) -> Iterator[None]:
    """Have every piece that is done meanwhile, by this task and those it starts, told to the watcher."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def tell_done(count: int) -> None:
    """Tell that so many more are done."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher(count)
