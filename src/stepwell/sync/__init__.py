"""The sync face: the same store, worker and engine for programs without an event loop.

Nothing is implemented twice: a call runs the async store's own coroutine in the store's background thread and waits for
it. Where waiting could only hang or block others (in that thread, in another event loop, after a fork) it raises. What
the async API does not have must not be here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar, overload

from stepwell.base.durations import Duration
from stepwell.runs.cleanup import Shield
from stepwell.runs.context import SyncContext as Context
from stepwell.runs.current import current_in_thread
from stepwell.runs.wait import NOTHING, Raised
from stepwell.store.transaction import SyncTx as Tx
from stepwell.sync.store import Message, Store, connect
from stepwell.sync.worker import Engine, Worker

__all__ = [
    "Context",
    "Engine",
    "Message",
    "Store",
    "Tx",
    "Worker",
    "connect",
    "current",
    "shield",
    "sleep",
    "wait",
]

T = TypeVar("T")
D = TypeVar("D")


def current() -> Context:
    """The context of the run that executes the calling code: a sync workflow, or a step's body. In a handler it is
    that of the message.
    """
    return current_in_thread()


def sleep(until: Duration | datetime) -> None:
    """Let the current run wait for a span, or until a moment; it holds nothing meanwhile and survives every restart."""
    current().sleep(until)


def shield() -> Shield:
    """A block in which a run goes on even if it was cancelled, for the code of sync workflows."""
    return Shield()


@overload
def wait(name: str, type: type[T], *, timeout: None = None) -> T: ...
@overload
def wait(name: str, type: type[T], *, timeout: Duration, default: Raised) -> T: ...
@overload
def wait(name: str, type: type[T], *, timeout: Duration, default: D) -> T | D: ...
@overload
def wait(name: str, type: type[T], *, timeout: Duration) -> T | None: ...
@overload
def wait(name: str, *, timeout: Duration | None = None, default: Any = NOTHING) -> Any: ...
def wait(name: str, type: Any = Any, *, timeout: Any = None, default: Any = NOTHING) -> Any:
    """Let the current run wait for a signal of this name, and return its data; it holds nothing meanwhile."""
    return current().wait(name, type, timeout=timeout, default=default)
