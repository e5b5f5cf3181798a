"""The sync face: the same store, worker and engine for programs without an event loop.

Nothing is implemented twice: a call runs the async store's own coroutine in the store's background thread and waits for
it. Where waiting could only hang or block others (in that thread, in another event loop, after a fork) it raises. What
the async API does not have must not be here.
"""

from stepwell.runs.context import SyncContext as Context
from stepwell.sync.adapters import Tx
from stepwell.sync.run import current, shield, sleep, wait
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
