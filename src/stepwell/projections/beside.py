"""Drives the build beside the live one, if there is one: it catches up, is swapped with it, and is dropped."""

from __future__ import annotations

from typing import Final

from stepwell.base.events import BuildKept, ProjectionSwapped
from stepwell.deciders.global_order import FeedReader
from stepwell.errors import InvalidOption, StepwellError, StoreBusy, StoreLocked
from stepwell.projections.projection import Projection
from stepwell.projections.runner import LOOK_EVERY, SOON, HandlerFailed, Runner
from stepwell.store.builds import Behind, BuildBeside
from stepwell.store.database import Database
from stepwell.store.projections import HeldProjection
from stepwell.store.row_table import shapes_of
from stepwell.store.transaction import Tx
from stepwell.work.session import Session

LOCK_PAUSE: Final = 0.5  # seconds until a swap asks for the lock of the events again
PARKED: Final = "instances are set aside, which decisions cannot pass over; rebuild it with code that can handle them"
DROP_AGAIN: Final = 60.0  # seconds until a build is dropped that could not be


class BesideRunner(Runner):
    """Drives a projection's build beside the live one for the session of a worker; there is one at the most."""

    def __init__(self, database: Database, projection: Projection, reader: FeedReader) -> None:
        super().__init__(database, projection, reader)
        self.name = f"{projection.name} beside"
        self._live = False
        self._builds = database.builds
        self._beside: BuildBeside | None = None

    async def caught_up(self) -> None:
        """As for the live one; and a swap that was asked for is done."""
        for _ in range(2):  # the first may have looked already: a build may have been begun, or be over, since
            await self._another_round()
        if self._held is not None:
            await super().caught_up()
        while self._held is not None and self._beside is not None and self._beside.is_to_swap:
            await self._another_round()
            if self._rounds.stopping:
                return

    async def _another_round(self) -> None:
        if self._held is None:
            self._rounds.hold_off_no_longer()
        await self._rounds.another()

    async def _round(self, session: Session | None) -> float:
        if session is None or session.lost:
            return await super()._round(session)
        self._beside = await self._builds.beside(self._projection.name)
        if self._beside is None:
            return self._without()
        if self._beside.is_over:
            return await self._drop(self._beside)
        pause = await super()._round(session)
        if self._held is not None and self._held.begun and self._beside.is_to_swap:
            return await self._swap(self._held, self._beside)
        return pause

    def _without(self) -> float:
        """Rest, and let no event of this process end it: a projection without one asks seldom."""
        self._forget()
        return self._rounds.hold_off(LOOK_EVERY)

    async def _drop(self, over: BuildBeside) -> float:
        """Drop a build whose time is over; what keeps it there, such as a view of the user's, is told."""
        try:
            await self._builds.drop(self._projection.name, over.build)
        except StoreBusy:
            raise
        except StepwellError as error:
            self._db.telemetry.emit(BuildKept(self._projection.name, over.build, str(error)))
            self._forget()
            return self._rounds.hold_off(DROP_AGAIN)
        return self._without()

    async def _swap(self, held: HeldProjection, beside: BuildBeside) -> float:
        """Make it the live one, if it has come as far; returns for how many seconds to rest before the next try."""
        if held.position < beside.live_position or not await self._is_near(held):
            return SOON
        assert beside.swap_keep is not None
        came, keep, is_inline = held, beside.swap_keep, beside.live_is_inline
        try:
            async with self._transaction(lambda: self._builds.swapped(came, keep, knows_all=is_inline)) as tx:
                if is_inline:  # before the tables are renamed: decisions lock them in this order
                    came = await self._catch_up(held, tx)
                await self._tried(self._builds.rename(tx, held.name))
                tx.tables = {one: one for one in shapes_of(self._projection.tables)}
                if (on_swap := self._projection.options.on_swap) is not None:
                    await self._tried(on_swap(tx))
        except (Behind, StoreLocked):  # it is tried again: others wait behind a lock that waits
            if is_inline:
                self._rounds.hold_off(LOCK_PAUSE)
            return SOON
        except HandlerFailed as failed:
            await self._noted(held, held.position, 0, failed)
            return self._backoff()
        self._forget()
        self._db.telemetry.emit(ProjectionSwapped(held.name, held.build))
        return 0.0

    async def _catch_up(self, held: HeldProjection, tx: Tx) -> HeldProjection:
        """Handle every event that is there, under a lock that lets no decision append another."""
        if self._parked:  # its instances are looked at before a swap; here they would not go on being set aside
            raise HandlerFailed(InvalidOption("projection", held.name, PARKED))
        head, handled = await self._take_rest(held, tx)
        await self._verbs.move_in(tx, held, head, handled)
        return held._replace(position=head, tried=0)
