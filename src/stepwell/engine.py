"""Engine: deciders at work in a store."""

from __future__ import annotations

from collections.abc import Awaitable

from stepwell.deciders.service import Service
from stepwell.worker import Worker


class Engine(Service):
    """Deciders in a store: `Engine(store).register(Orders())`. It is their registry and their service, in one.

    `execute` needs no worker. Effects, timers and submitted inputs are the work of a `Worker(store, [engine])`, in this
    process or another, beside its workflows and handlers; `run` is that worker for an engine alone.
    """

    async def run(self, shutdown: Awaitable[object] | None = None, *, signals: bool = False) -> None:
        """Carry out effects and deliver timers and inputs until `shutdown` is done, or with `signals` until SIGTERM."""
        await Worker(self.store, [self]).run(shutdown, signals=signals)
