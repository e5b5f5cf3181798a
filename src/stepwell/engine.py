"""Engine: deciders and their projections at work in a store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import Any, Final, Self, TypeVar, cast

from stepwell.base.backoff import Retry
from stepwell.base.durations import Duration, moment_of
from stepwell.base.names import check_whole
from stepwell.decider import Decider
from stepwell.deciders.diagram import StateMachine
from stepwell.deciders.drift import ObservedMachine, observed_machine
from stepwell.deciders.mailbox import Pending
from stepwell.deciders.observation import Observation, observations
from stepwell.deciders.service import SNAPSHOT_EVERY, Service
from stepwell.errors import InvalidOption
from stepwell.projections.beside import BesideRunner
from stepwell.projections.inline import InlineProjection, InlineRunner
from stepwell.projections.projection import (
    Projection,
    ReadModel,
    ReadModelElsewhere,
    RowFunction,
    is_projection,
    options_of,
)
from stepwell.projections.row_fold import RowFold
from stepwell.projections.row_query import OrderBy, RowQuery
from stepwell.projections.runner import Runner
from stepwell.records import Page
from stepwell.store.projections import ProjectionInfo
from stepwell.store.store import Store
from stepwell.worker import Worker

R = TypeVar("R")
NO_TABLES: Final = "{}"  # such a projection has no build beside the live one
ROWS_ONLY: Final = (
    "it is for a projection with `rows=`, whose function is pure: decisions would wait for what a class does with `tx`"
)


class Engine(Service):
    """Deciders in a store: `Engine(store).register(Orders())`. It is their registry and their service, in one.

    `execute` needs no worker. Effects, timers, submitted inputs and projections are the work of a
    `Worker(store, [engine])`, in this process or another, beside its workflows and handlers; `run` is that worker for
    an engine alone.
    """

    def __init__(self, store: Store, *, together: bool = True) -> None:
        super().__init__(store, together=together)
        self._projections: dict[str, Projection] = {}
        self._queries: dict[type, RowQuery] = {}
        self._inline: set[str] = set()
        self._beginning: list[InlineRunner] = []  # inline projections that decisions may not write yet
        self._begins = asyncio.Lock()

    def register(
        self,
        decider: Decider[Any, Any, Any, Any] | ReadModel | ReadModelElsewhere | RowFunction,
        *,
        workers: int = 10,
        snapshot_every: int = SNAPSHOT_EVERY,
        retry: int | Retry | None = None,
        timeout: Duration | None = None,
        observe: bool | None = None,
        inline: bool = False,
    ) -> Self:
        """Register a decider: `workers` is how many of its effects one worker executes at the same time.

        `retry` and `timeout` are those of its effects, and `observe` records each of its inputs with how it was
        answered (`observations` and `observed` read that), in place of the decider's own.

        Its state is stored as a snapshot after every `snapshot_every` events, so that a process that does not know an
        instance reads one snapshot and the events after it. A type or a class of inputs that is registered already is
        refused.

        Or register a projection of deciders that are registered: an instance of a class with `@projection(...)`, or a
        function with `@projection(..., rows=...)`. With `inline` the rows of such a function are written in the commit
        of each decision, which fails if the function raises; register it so wherever its deciders decide.
        """
        if inline and (not is_projection(decider) or options_of(decider).rows is None):
            raise InvalidOption("inline", True, ROWS_ONLY)
        if not is_projection(decider):
            known = cast("Decider[Any, Any, Any, Any]", decider)  # anything else is refused there
            return super().register(
                known, workers=workers, snapshot_every=snapshot_every, retry=retry, timeout=timeout, observe=observe
            )
        options = options_of(decider)
        if options.name in self._projections:
            raise InvalidOption("projection", options.name, "it is registered already; each has a name of its own")
        if options.rows is None:
            self._projections[options.name] = Projection.of(decider, self.registry)
        else:
            self._register_rows(options.name, options.rows, cast("RowFunction", decider), inline=inline)
        return self

    def _register_rows(self, name: str, rows: type, function: RowFunction, *, inline: bool) -> None:
        if rows in self._queries:
            why = "another projection of this engine has these rows; give each a dataclass of its own"
            raise InvalidOption("rows", rows, why)
        fold = RowFold.of(function, self.store.database)
        self._projections[name] = known = fold.projection(function, self.registry)
        self._queries[rows] = RowQuery(name, fold)
        if inline:
            self._inline.add(name)
            self._beginning.append(InlineRunner(self.store.database, known, self._feed))
            self._mailbox.decide = self._begin_and_decide
            for type_ in {type_ for type_, _ in known.wanted}:
                self.registry.of_type(type_).inline.append(InlineProjection(known, fold, self._feed))

    async def _begin_and_decide(self, batch: Sequence[Pending], /, patience: float | None = None) -> None:
        """Before the first decision, let decisions write the rows of inline projections, if they may."""
        async with self._begins:
            while self._beginning:
                await self._beginning[0].begin_at_once()
                del self._beginning[0]
        self._mailbox.decide = self._decide
        await self._decide(batch, patience)

    async def query(
        self, rows: type[R], /, *, order_by: OrderBy = None, limit: int = 100, after: str | None = None, **where: Any
    ) -> Page[R]:
        """Rows of a projection with `rows=`, by their key or in the order of these fields (`"-cents"`: downwards).

        `status="paid"` asks for equal values, `cents__ge=100` (`gt`, `le`, `lt`) for ranges. There are `limit` at the
        most; pass the page's `next` as `after` to get the rest. They are as the live build has them: `projections()`
        says how far behind it is.
        """
        if rows not in self._queries:
            known = ", ".join(one.__name__ for one in self._queries) or "none"
            raise InvalidOption("rows", rows, f"no projection of this engine has these rows; there are {known}")
        return await self._queries[rows].page(where, order_by, limit, after)

    async def observations(
        self, type: str, id: str, *, limit: int = 100, after: str | None = None
    ) -> Page[Observation]:
        """The inputs of an instance and how each was answered, in the order of time, after the page before.

        They are recorded by the engines that register its decider with `observe`, and kept for 30 days.
        """
        self.registry.of_type(type)
        self.store.database.check()
        return await observations(self.store.database, type, id, check_whole("limit", limit, 1, 10_000), after)

    async def observed(self, type: str, *, since: datetime | None = None) -> ObservedMachine:
        """The transitions that inputs of this type have made, with counts, beside those that the decider declares.

        It reads the observations of the type, all that are kept or those `since` a moment. The decider needs
        `state_info` and `transitions`.
        """
        declared = StateMachine.of(self.registry.of_type(type).decider)
        self.store.database.check()
        begin = 0 if since is None else moment_of(since, "since")
        return await observed_machine(self.store.database, declared, begin)

    async def projections(self) -> Sequence[ProjectionInfo]:
        """How every projection of the store stands, by name: position, lag, rate, failures, what is parked."""
        return await self.store.projections()

    def beside(self) -> Sequence[Runner]:
        """A runner for each projection, and one for a build beside it, for one worker."""
        found, database = self._projections.values(), self.store.database
        live = [(InlineRunner if one.name in self._inline else Runner)(database, one, self._feed) for one in found]
        return [*live, *(BesideRunner(database, one, self._feed) for one in found if one.tables != NO_TABLES)]

    async def run(self, shutdown: Awaitable[object] | None = None, *, signals: bool = False) -> None:
        """Carry out effects, timers, inputs and projections until `shutdown` is done; with `signals` until SIGTERM."""
        await Worker(self.store, [self]).run(shutdown, signals=signals)
