"""Store: an open database with verbs, grouped by who calls them; what the engine calls is in `tasks` and `sessions`."""

from __future__ import annotations

from stepwell.store.control import Control
from stepwell.store.health import Health
from stepwell.store.messages import Messages
from stepwell.store.operating import Operating
from stepwell.store.resulting import Resulting
from stepwell.store.runs import Runs


class Store(Messages, Runs, Resulting, Control, Operating, Health):
    """An open store. It belongs to the event loop and the process that opened it, and says so elsewhere."""
