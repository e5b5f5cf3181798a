"""Inline projections: from a moment on decisions write their rows; until then a session follows the events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from stepwell.base.backoff import doubled
from stepwell.base.events import ProjectionInlined
from stepwell.deciders.global_order import FeedReader
from stepwell.errors import InlineProjectionFailed, LeaseLost, SerializationError, StoreLocked
from stepwell.projections.projection import Projection
from stepwell.projections.row_fold import RowFold, RowFolding
from stepwell.projections.runner import LOOK_EVERY, HandlerFailed, Runner
from stepwell.store.builds import Behind
from stepwell.store.database import Database
from stepwell.store.horizon import FeedRow
from stepwell.store.projections import HeldProjection, WrittenInline
from stepwell.store.row_table import Changed, Rows
from stepwell.work.session import Session

OTHERS_TAKE: Final = 5.0  # seconds that another process may take to begin it
LOOK_AGAIN: Final = 0.02
LOCK_PAUSES: Final = (0.5, 30.0)  # seconds until the lock of the events is asked for again, doubled


class InlineProjection:
    """A projection as the decisions of its deciders write it."""

    def __init__(self, projection: Projection, fold: RowFold, reader: FeedReader) -> None:
        self.name = projection.name
        self.tables = projection.tables
        # The row of an instance is written under the lock of that instance, unless another one may write it too.
        self.is_shared = projection.options.key is not None or len({type_ for type_, _ in projection.wanted}) > 1
        self._projection = projection
        self._fold = fold
        self._reader = reader

    @property
    def table(self) -> Rows:
        """Its rows."""
        return self._fold.table

    def folding(self, events: Sequence[FeedRow], /) -> InlineFolding | None:
        """What these events do to its rows; None if they concern none."""
        with _failing(self.name):
            rows = [row for row in events if self._projection.wants(row)]
            parts = self._projection.asked_for(part for row in rows for part in self._reader.parts(row))
            folding = self._fold.folding(parts)
        return None if folding is None else InlineFolding(self.name, folding)


class InlineFolding:
    """The events of one transaction for one projection; if its function raises, the decisions fail."""

    def __init__(self, name: str, folding: RowFolding) -> None:
        self.keys = folding.keys
        self._name = name
        self._folding = folding

    def changed(self, found: Sequence[Mapping[str, Any]], /) -> Changed:
        """Fold the events into the rows that are there."""
        with _failing(self._name):
            return self._folding.changed(found)


@contextlib.contextmanager
def _failing(name: str) -> Iterator[None]:
    """Say of an error in the code of a projection whose it is; its decision fails, and no other."""
    try:
        yield
    except Exception as error:
        raise InlineProjectionFailed(name, f"{type(error).__name__}: {error}") from error


class InlineRunner(Runner):
    """Follows the events as for any projection, until it has caught up and decisions can write the rows."""

    def __init__(self, database: Database, projection: Projection, reader: FeedReader) -> None:
        super().__init__(database, projection, reader)
        self._lock_pauses = doubled(*LOCK_PAUSES)

    async def begin_at_once(self) -> None:
        """Let decisions write the rows from now on, unless a worker is at it or there is much to catch up with.

        Another process that is just beginning it is waited for: a decision that this one commits before would keep it
        from being inline.
        """
        await self._verbs.make(self._projection.name)
        until = self._rounds.now() + OTHERS_TAKE
        while self._rounds.now() < until and await self._may_be():
            if await self._began():
                return
            await asyncio.sleep(LOOK_AGAIN)

    async def _began(self) -> bool:
        """Try to let decisions write the rows; False if another process was at it just now."""
        self._held = held = await self._db.inline.take(self._projection.name)
        if held is None:
            return False
        try:
            async with self._db.transactions.kept(self._db.options.lease) as self._begin:
                await self._check_tables(held)
                self._parked = await self._verbs.parked(held)
                if held.begun or await self._prepare(held):
                    await self._begin_inline(held._replace(begun=True), 0.0)
        except LeaseLost:  # the other process has taken it since
            return False
        except SerializationError:  # a worker takes it, and says what is wrong
            return True
        finally:
            self._forget()
        return True

    async def caught_up(self) -> None:
        """As for any projection, and decisions write its rows, if nothing holds it up."""
        if self._held is None:
            self._rounds.hold_off_no_longer()
        await super().caught_up()
        for _ in range(2):  # the round under way may have asked for less: it is over, and then a whole one
            if self._held is None or self._rounds.stopping or self._rounds.is_held_off:
                return
            await self._rounds.another()

    async def _claimed(self, session: Session) -> HeldProjection | None:
        try:
            return await self._verbs.claim(self._projection.name, session.id, inline=True)
        except WrittenInline:  # an operator may have reset it: look again, but not at every event of this process
            self._rounds.hold_off(LOOK_EVERY)
            return None

    async def _advance(self, held: HeldProjection) -> float:
        pause = await super()._advance(held)
        if self._held is None or self._rounds.stopping:
            return pause
        return await self._begin_inline(self._held, pause)

    async def _may_be(self) -> bool:
        return await self._db.inline.may_be(self._projection.name, {type_ for type_, _ in self._projection.wanted})

    async def _begin_inline(self, held: HeldProjection, pause: float) -> float:
        """Catch up under the lock of the events, and hand the rows over to the decisions."""
        if self._parked or self._alone or self._failures or not (await self._may_be() and await self._is_near(held)):
            return pause
        position, handled = held.position, 0
        try:
            async with self._transaction(lambda: self._db.inline.begun(held, position, handled)) as tx:
                position, handled = await self._take_rest(held, tx)
        except (Behind, HandlerFailed):  # the next round handles them as usual
            return pause
        except StoreLocked:
            return self._rounds.hold_off(next(self._lock_pauses))
        self._forget()
        self._lock_pauses = doubled(*LOCK_PAUSES)
        self._db.telemetry.emit(ProjectionInlined(held.name, position))
        return LOOK_EVERY
