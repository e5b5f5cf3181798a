"""Store: an open database with verbs, grouped by who calls them; what the engine calls is in `tasks` and `sessions`."""

from __future__ import annotations

from stepwell.store.bulk import Bulk
from stepwell.store.forking import Forking
from stepwell.store.history import History
from stepwell.store.holds import Holds
from stepwell.store.measuring import Measuring
from stepwell.store.messages import Messages
from stepwell.store.operating import Operating
from stepwell.store.resulting import Resulting
from stepwell.store.signals import Signals


class Store(Messages, Bulk, Forking, Holds, Resulting, Signals, Operating, Measuring, History):
    """An open store. It belongs to the event loop and the process that opened it, and says so elsewhere."""
