"""The loop that drives a projection: take it, read its events, handle them, move on; one session does so at a time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from stepwell.base.backoff import doubled, waits
from stepwell.base.events import InstanceParked, ProjectionFailed, ProjectionUnreadable, StoreLost
from stepwell.deciders.global_order import At, FeedReader
from stepwell.errors import LeaseLost, Refused, SerializationError, StoreBusy, StoreUnavailable
from stepwell.projections.projection import Projection
from stepwell.projections.rounds import Rounds
from stepwell.store.builds import Behind
from stepwell.store.database import Database
from stepwell.store.driver import only_reads
from stepwell.store.horizon import FeedRow
from stepwell.store.poll import LONGEST_POLL
from stepwell.store.projections import HeldProjection, Last, ParkedInstance, WrittenInline
from stepwell.store.row_table import shapes_of
from stepwell.store.transaction import Begin, EndedInside, Tx
from stepwell.work.current import HIDDEN, current_branch
from stepwell.work.session import Session

POLL: Final = 0.2  # seconds between two looks for events, unless this process has appended some
CLAIM_EVERY: Final = 0.5  # seconds between two looks whether the projection is free
SOON: Final = 0.005  # seconds until the next look while open transactions hold events back; doubled up to POLL
FIRST_PAUSE: Final = 0.2  # seconds after an event has failed, doubled each time ...
LONGEST_PAUSE: Final = 5.0  # ... up to this
UNREADABLE_PAUSE: Final = (1.0, 60.0)  # seconds for which other code may take the projection, doubled
BEHIND: Final = 10  # times the batch, while more events than that wait
LOOK_EVERY: Final = 1.0  # seconds between two looks whether there is something else to drive
DIED: Final = "its worker died while it handled this event"
OTHER_SHAPE: Final = (
    "it was made as {}, and is {} in this code; `stepwell projection rebuild {}` makes it anew beside the old one"
)
IS_INLINE: Final = (
    "decisions write its rows, and this code does not say `inline=True`: what it decides is missing in them; say it "
    "wherever the deciders decide, or `stepwell projection inline {} --off`"
)
OVER: Final = "a projection only reads: it writes its own rows through `tx`, and executes, sends and triggers nothing"


class ReadEvent(NamedTuple):
    """An event ready to be handled, with all parts into which upcasters split it: they count as one."""

    row: FeedRow
    parts: Sequence[tuple[At, Any]]


class HandlerFailed(Exception):  # noqa: N818 - it is raised to be caught here
    """The projection raised; `by` is what, and nothing of its batch was committed."""

    def __init__(self, by: Exception) -> None:
        super().__init__(str(by))
        self.by = by


class Runner:
    """Drives one projection for the session of a worker, whenever no other session does."""

    def __init__(self, database: Database, projection: Projection, reader: FeedReader) -> None:
        self.name = projection.name
        self._live = True
        self._db = database
        self._verbs = database.projections
        self._projection = projection
        self._reader = reader
        self._held: HeldProjection | None = None
        self._parked: dict[int, ParkedInstance] = {}
        self._alone = 0  # how many events are handled one at a time from now on
        self._failures = 0
        self._rounds = Rounds(lambda: float(database.loop.time()))
        self._begin: Begin
        self._forget()

    def _forget(self) -> None:
        self._held = None
        self._outages = waits(LONGEST_POLL, self._db.clock.random)
        self._soon = SOON

    async def forever(self, session: Callable[[], Session | None]) -> None:
        """Drive the projection until `stop`; `session` is the worker's, None while it has none."""
        current_branch.set(HIDDEN)
        self._rounds.begin()
        unreadable = doubled(*UNREADABLE_PAUSE)
        made = False
        async with self._db.transactions.kept(self._db.options.lease) as begin, self._told():
            self._begin = begin
            while not self._rounds.stopping:
                try:
                    if not made:
                        await self._verbs.make(self._projection.name)
                        made = True
                    pause = await self._round(session())
                    unreadable = doubled(*UNREADABLE_PAUSE) if self._held is not None else unreadable
                except LeaseLost:
                    self._forget()
                    pause = 0.0
                except (StoreBusy, StoreUnavailable) as error:
                    self._db.telemetry.emit(StoreLost.by(error))
                    pause = next(self._outages)
                except SerializationError as error:
                    self._db.telemetry.emit(ProjectionUnreadable(self._projection.name, str(error)))
                    await self._let_go()
                    pause = self._rounds.hold_off(next(unreadable))
                await self._rounds.rest(pause)
            await self._let_go()

    def stop(self) -> None:
        """Let `forever` end when the events under way are handled, and their position is stored."""
        self._rounds.stop()

    def wake(self) -> None:
        """This process has appended events."""
        self._rounds.wake()

    async def caught_up(self) -> None:
        """Return when all events that are there now are handled or parked; at once if another session does it."""
        target = (await self._db.feed.horizon()).at
        while not self._rounds.stopping and (self._held is None or self._held.position < target):
            await self._rounds.another()
            if self._held is None:
                return

    async def _round(self, session: Session | None) -> float:
        """Do what there is to do; returns for how many seconds to rest."""
        if session is None or session.lost:
            self._forget()
            return CLAIM_EVERY
        if self._held is None or self._held.worker != session.id:
            self._held = await self._claimed(session)
            if self._held is None:
                return CLAIM_EVERY
            await self._check_tables(self._held)
            self._parked = await self._verbs.parked(self._held)
            self._alone = self._projection.options.batch if self._held.suspect or self._held.tried else 0
            self._failures = 0
        if not self._held.begun and not await self._prepare(self._held):
            return self._backoff()
        return await self._advance(self._held)

    async def _claimed(self, session: Session) -> HeldProjection | None:
        """Take the projection, if it is free; one that decisions write is for code that says so."""
        try:
            return await self._verbs.claim(self._projection.name, session.id, live=self._live)
        except WrittenInline:
            raise SerializationError(IS_INLINE.format(self.name), what=f"projection {self.name}") from None

    async def _is_near(self, held: HeldProjection) -> bool:
        """Whether the rest of the events may be handled at once."""
        return (await self._db.feed.horizon()).head - held.position <= BEHIND * self._projection.options.batch

    async def _take_rest(self, held: HeldProjection, tx: Tx) -> tuple[int, int]:
        """Handle what it has not seen, under a lock that lets none be appended; the head, and how many it were."""
        limit = BEHIND * self._projection.options.batch + 1
        types = json.dumps(sorted(self._projection.types))
        rows, head = await self._db.inline.rest(tx, held.position, types, limit)
        events, reached = self._read([row for row in rows if self._projection.wants(row)], head)
        if len(rows) == limit or reached < head:
            raise Behind
        if events:
            await self._call(events, tx)
        return head, len(events)

    async def _check_tables(self, held: HeldProjection) -> None:
        """Leave a build whose tables are of another shape to other code, and note what the user says of the tables."""
        if not held.begun or held.tables == self._projection.tables:
            return
        if self._projection.makes_tables:
            why = OTHER_SHAPE.format(held.tables, self._projection.tables, held.name)
            raise SerializationError(why, what=f"table of {held.name}")
        await self._verbs.note_tables(held, self._projection.tables)

    async def _prepare(self, held: HeldProjection) -> bool:
        """Let the projection make or empty its tables, before its first event; False if that fails."""
        begin, begun = self._projection.begin, partial(self._verbs.begun, held, self._projection.tables)
        try:
            if begin is None:
                await self._verbs.write(begun)
            else:
                async with self._transaction(begun) as tx:
                    await self._tried(begin(tx, held))
        except HandlerFailed as failed:
            await self._noted(held, held.position, 0, failed)
            return False
        self._held, self._failures = held._replace(begun=True, tables=self._projection.tables), 0
        return True

    async def _advance(self, held: HeldProjection) -> float:
        if self._parked:
            self._parked = await self._verbs.parked(held)
            if again := [number for number, one in self._parked.items() if one.retried]:
                await self._retry(held, again[0])
                return 0.0
        horizon, head = await self._db.feed.horizon()
        batch = self._projection.options.batch
        limit = BEHIND * batch if horizon - held.position > BEHIND * batch else batch
        rows, position = await self._db.feed.between(held.position, horizon, self._projection.types, limit)
        if position == held.position:
            return self._until_more(is_held_back=horizon < head)
        self._soon = SOON
        rows = [row for row in rows if self._projection.wants(row)]
        events, position = self._read(rows, position)
        if self._alone:
            return await self._one_by_one(events, position)
        try:
            await self._apply(held, events, position)
        except HandlerFailed:
            self._alone = len(events)  # one of them fails: the others do not wait for it
        return 0.0

    def _read(self, rows: Sequence[FeedRow], position: int) -> tuple[list[ReadEvent], int]:
        """The events up to the first that this code cannot read; raises if that is the very first."""
        found: list[ReadEvent] = []
        for row in rows:
            if row.instance_id in self._parked:
                continue
            try:
                found.append(ReadEvent(row, self._reader.parts(row)))
            except SerializationError:
                if not found:
                    raise
                return found, found[-1].row.position
        return found, position

    async def _apply(
        self, held: HeldProjection, events: Sequence[ReadEvent], position: int, *, alone: bool = False
    ) -> None:
        """Handle events and move on, in one transaction if the read model is in this database."""
        moved = lambda: self._verbs.moved(held, position, len(events), alone=alone)  # noqa: E731
        if self._projection.takes_tx and events:
            async with self._transaction(moved) as tx:
                await self._call(events, tx)
        else:
            await self._call(events, None)
            await self._verbs.write(moved)
        self._held = held._replace(position=position, tried=0)
        self._failures = 0

    async def _call(self, events: Sequence[ReadEvent], tx: Tx | None) -> None:
        parts = self._projection.asked_for(part for event in events for part in event.parts)
        await self._tried(self._projection.handle(parts, tx))

    async def _tried(self, work: Awaitable[None]) -> None:
        """Wait for code of the projection; an error is its own, unless it says that the database is away or busy."""
        token = only_reads.set(OVER)
        try:
            await work
        except Exception as error:
            meant = self._db.driver.meaning(error)
            if isinstance(meant, StoreBusy | StoreUnavailable):
                raise meant from error
            raise HandlerFailed(error) from error
        finally:
            only_reads.reset(token)

    async def _noted(self, held: HeldProjection, position: int, attempt: int, failed: HandlerFailed) -> str:
        text = f"{type(failed.by).__name__}: {failed.by}"
        await self._verbs.fail(held, position, text)
        self._db.telemetry.emit(ProjectionFailed(self._projection.name, position, attempt, text))
        return text

    def _backoff(self) -> float:
        """How long to rest after a failure; no hint ends it sooner."""
        self._failures += 1
        return self._rounds.hold_off(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self._failures - 1)))

    async def _one_by_one(self, events: Sequence[ReadEvent], position: int) -> float:
        """Handle each event in a transaction of its own, so that one that fails, or kills the process, is found."""
        for event in events:
            held = self._held
            if held is None or self._rounds.stopping:
                return 0.0
            if event.row.instance_id in self._parked:  # by an event before it
                continue
            tried, error = await self._verbs.begin(held, event.row.position)
            attempts = self._projection.options.attempts
            if tried > attempts:
                await self._give_up(held, event, error or DIED)
                continue
            try:
                await self._apply(held, [event], event.row.position, alone=True)
            except HandlerFailed as failed:
                text = await self._noted(held, event.row.position, tried, failed)
                if tried < attempts:
                    return self._backoff()
                await self._give_up(held, event, text)
            self._alone = max(0, self._alone - 1)
        if self._held is not None and self._held.position < position:
            await self._verbs.move(self._held, position, 0, alone=True)
            self._held = self._held._replace(position=position)
        return 0.0

    async def _give_up(self, held: HeldProjection, event: ReadEvent, error: str) -> None:
        """Set the instance of an event aside, or stop before it."""
        if self._projection.options.on_poison == "stop":
            await self._verbs.stop(held)
            self._forget()
            return
        row, self._failures = event.row, 0
        await self._verbs.park(held, row, error)
        self._db.telemetry.emit(InstanceParked(self._projection.name, row.instance_type, row.name, row.version, error))
        self._parked[row.instance_id] = ParkedInstance(row.version, retried=False)
        self._held = held._replace(position=row.position, tried=0)

    async def _retry(self, held: HeldProjection, instance_id: int) -> None:
        """Handle what was passed over of an instance, an event at a time, until it has caught up or fails again."""
        version, batch = self._parked[instance_id].version, self._projection.options.batch
        while rows := await self._verbs.parked_events(instance_id, version, held.position, batch):
            for row in rows:
                try:
                    version = await self._handle_late(held, row)
                except (HandlerFailed, SerializationError) as failed:
                    by = failed.by if isinstance(failed, HandlerFailed) else failed
                    await self._verbs.fail_parked(held, instance_id, f"{type(by).__name__}: {by}")
                    return
        await self._verbs.write(lambda: self._verbs.caught_up(held, instance_id, None))
        del self._parked[instance_id]

    async def _handle_late(self, held: HeldProjection, row: FeedRow) -> int:
        """Handle an event that was passed over, if it is wanted; returns the next version."""
        if not self._projection.wants(row):
            return row.version + 1
        event = ReadEvent(row, self._reader.parts(row))
        passed = lambda: self._verbs.caught_up(held, row.instance_id, row.version + 1)  # noqa: E731
        if self._projection.takes_tx:
            async with self._transaction(passed) as tx:
                await self._call([event], tx)
        else:
            await self._call([event], None)
            await self._verbs.write(passed)
        return row.version + 1

    @contextlib.asynccontextmanager
    async def _transaction(self, last: Last) -> AsyncIterator[Tx]:
        try:
            async with self._begin(last, OVER) as tx:
                if self._held is not None:
                    tx.tables = self._held.names_of(shapes_of(self._projection.tables))
                yield tx
        except (EndedInside, Refused) as error:  # by its rows, when they are committed, or by ending it itself
            raise HandlerFailed(error) from error

    @contextlib.asynccontextmanager
    async def _told(self) -> AsyncIterator[None]:
        """Be woken when this process has appended."""
        told = self._db.decisions.on_events
        told.append(self.wake)
        try:
            yield
        finally:
            told.remove(self.wake)

    def _until_more(self, *, is_held_back: bool) -> float:
        """How long to rest; a transaction that holds events back tells no one when it ends."""
        pause, self._soon = (self._soon, min(POLL, 2 * self._soon)) if is_held_back else (POLL, SOON)
        return pause

    async def _let_go(self) -> None:
        held = self._held
        self._forget()
        if held is not None:
            with contextlib.suppress(LeaseLost, StoreBusy, StoreUnavailable):  # the end of the session frees it too
                await self._verbs.release(held)
