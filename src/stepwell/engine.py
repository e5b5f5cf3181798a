"""Engine: deciders and their projections at work in a store."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Self, cast

from stepwell.base.backoff import Retry
from stepwell.base.durations import Duration
from stepwell.decider import Decider
from stepwell.deciders.service import SNAPSHOT_EVERY, Service
from stepwell.errors import InvalidOption
from stepwell.projections.projection import Projection, ReadModel, ReadModelElsewhere, is_projection
from stepwell.projections.runner import Runner
from stepwell.store.projections import ProjectionInfo
from stepwell.store.store import Store
from stepwell.worker import Worker


class Engine(Service):
    """Deciders in a store: `Engine(store).register(Orders())`. It is their registry and their service, in one.

    `execute` needs no worker. Effects, timers, submitted inputs and projections are the work of a
    `Worker(store, [engine])`, in this process or another, beside its workflows and handlers; `run` is that worker for
    an engine alone.
    """

    def __init__(self, store: Store, *, together: bool = True) -> None:
        super().__init__(store, together=together)
        self._projections: dict[str, Projection] = {}

    def register(
        self,
        decider: Decider[Any, Any, Any, Any] | ReadModel | ReadModelElsewhere,
        *,
        workers: int = 10,
        snapshot_every: int = SNAPSHOT_EVERY,
        retry: int | Retry | None = None,
        timeout: Duration | None = None,
    ) -> Self:
        """Register a decider: `workers` is how many of its effects one worker executes at the same time.

        `retry` and `timeout` are those of its effects, in place of the decider's own.

        Its state is stored as a snapshot after every `snapshot_every` events, so that a process that does not know an
        instance reads one snapshot and the events after it. A type or a class of inputs that is registered already is
        refused.

        Or register a projection of deciders that are registered: an instance of a class with `@projection(...)`.
        """
        if not is_projection(decider):
            known = cast("Decider[Any, Any, Any, Any]", decider)  # anything else is refused there
            return super().register(known, workers=workers, snapshot_every=snapshot_every, retry=retry, timeout=timeout)
        projection = Projection.of(decider, self.registry)
        if projection.name in self._projections:
            raise InvalidOption("projection", projection.name, "it is registered already; each has a name of its own")
        self._projections[projection.name] = projection
        return self

    async def projections(self) -> Sequence[ProjectionInfo]:
        """How every projection of the store stands, by name: position, lag, rate, failures, what is parked."""
        return await self.store.projections()

    def beside(self) -> Sequence[Runner]:
        """A runner for each projection, for one worker."""
        return [Runner(self.store, one, self._feed) for one in self._projections.values()]

    async def run(self, shutdown: Awaitable[object] | None = None, *, signals: bool = False) -> None:
        """Carry out effects, timers, inputs and projections until `shutdown` is done; with `signals` until SIGTERM."""
        await Worker(self.store, [self]).run(shutdown, signals=signals)
