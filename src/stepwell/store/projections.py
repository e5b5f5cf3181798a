"""Projections in the database: how far each has come, who drives it, what it has set aside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from stepwell.base.durations import datetime_of
from stepwell.base.names import check_key, check_name
from stepwell.errors import InvalidOption, LeaseLost, ProjectionNotFound
from stepwell.store.audit import By, What
from stepwell.store.driver import Call, Row, Script, Value, play_async
from stepwell.store.horizon import FeedRow, feed_row, hold_events
from stepwell.store.row_table import shapes_of, table_of_build

if TYPE_CHECKING:
    from stepwell.store.database import Database
    from stepwell.store.transaction import Tx

Last = Callable[[], Script[None]]  # the statement that ends a batch: it is the fence

INLINE: Final = (
    "its rows are written in the commits of the decisions, so it cannot stay behind; `stepwell projection inline NAME "
    "--off` has a worker follow the events again"
)
ProjectionState = Literal["running", "paused", "stopped"]


@dataclass(frozen=True, slots=True)
class ProjectionInfo:
    """How a projection stands: `lag` positions are behind it, of which `horizon` says how many it can read now.

    `rate` is events a second, over its last minute at work; `failures` counts failed attempts; `error` is why the event
    at `failed_at` could not be handled, until the projection has passed it. `owner` is the session that drives it.

    A projection that is built anew beside the `live` build has two of these; `tables` are those of the build, and
    `swapping` says that it is to become the live one. If it is `inline`, its rows are written in the commits of the
    decisions: it is never behind, and no session drives it.
    """

    name: str
    state: ProjectionState
    position: int
    horizon: int
    head: int
    handled: int
    failures: int
    rate: float
    parked: int
    tried: int
    failed_at: int | None
    error: str | None
    owner: int | None
    worker: str | None
    moved_at: datetime | None
    age: float  # seconds since its position last moved, or since it was made
    created_at: datetime
    build: int
    live: bool
    tables: tuple[str, ...]
    swapping: bool
    inline: bool

    @property
    def lag(self) -> int:
        """How many positions it is behind the newest event."""
        return max(0, self.head - self.position)


@dataclass(frozen=True, slots=True)
class ParkedInfo:
    """An instance that a projection has set aside, from the event of this version on."""

    type: str
    id: str
    version: int
    error: str
    retried: bool  # asked for, and not done yet
    parked_at: datetime


class HeldProjection(NamedTuple):
    """A build of a projection as the session that drives it knows it."""

    name: str
    build: int
    live: bool
    worker: int
    turn: int
    position: int
    begun: bool
    suspect: bool
    tried: int
    tables: str | None = None  # as they stand in the database

    def names_of(self, tables: Iterable[str]) -> dict[str, str]:
        """The names of these tables in this build."""
        return {one: table_of_build(one, self.build, live=self.live) for one in tables}


class ParkedInstance(NamedTuple):
    """An instance that was set aside, for the session that drives the projection."""

    version: int
    retried: bool


@dataclass(eq=False)
class Projections:
    """The projections of one tenant."""

    _db: Database

    async def make(self, name: str) -> None:
        """Create a projection; does nothing if it exists."""
        await self._db.transact(partial(_said, Call("make_projection", self._params(name))))

    async def claim(self, name: str, worker: int, *, live: bool = True, inline: bool = False) -> HeldProjection | None:
        """Drive the live build of a projection, or the one beside it, with this session from now on.

        None if another session does, or it is not to run; raises `WrittenInline` if decisions write its rows. Code that
        does not know it as `inline` takes back that it may become so.
        """
        asked = self._params(name, worker=worker, live=live)
        if not (free := await self._db.driver.read(Call("projection_is_free", asked))):
            return None
        if free[0]["inlined"]:
            raise WrittenInline
        build: int = free[0]["build"]
        call = Call("claim_projection", {**asked, "build": build, "inline": inline})
        rows = await self._db.driver.transact(partial(_said, call))
        if not rows:
            return None
        [row] = rows
        flags = bool(row["begun"]), bool(row["suspect"])
        place = name, build, live, worker
        return HeldProjection(*place, row["turn"], row["position"], *flags, row["tried"], row["tables"])

    async def release(self, held: HeldProjection) -> None:
        """Give a projection up."""
        await self._write("release_projection", held)

    def moved(self, held: HeldProjection, position: int, handled: int, *, alone: bool = False) -> Script[None]:
        """The last statement of a batch; raises `LeaseLost` if the batch must not be committed."""
        call = self._of(held, "move_projection", position=position, handled=handled, alone=alone)
        if not (yield call):
            raise LeaseLost(held.worker)

    async def write(self, last: Last) -> None:
        """Run the last statement of a batch alone: its read model is elsewhere, or it has no rows."""
        await self._db.driver.transact(last)

    async def move(self, held: HeldProjection, position: int, handled: int, *, alone: bool = False) -> None:
        """Move on without rows of the read model in the same transaction."""
        await self.write(lambda: self.moved(held, position, handled, alone=alone))

    async def move_in(self, tx: Tx, held: HeldProjection, position: int, handled: int) -> None:
        """Move on in a transaction that goes on after it."""
        await play_async(self.moved(held, position, handled), tx.answer)

    def begun(self, held: HeldProjection, tables: str) -> Script[None]:
        """The last statement of the transaction in which a projection has prepared its tables."""
        if not (yield self._of(held, "begin_projection", tables=tables)):
            raise LeaseLost(held.worker)

    async def note_tables(self, held: HeldProjection, tables: str) -> None:
        """Note which tables a build has, as the code says that drives it."""
        await self._write("note_tables", held, tables=tables)

    async def begin(self, held: HeldProjection, failed_at: int) -> tuple[int, str | None]:
        """Count an attempt of the next event before it is handled alone; how many that are, and the last error."""
        [row] = await self._write("try_projection", held, failed_at=failed_at)
        return row["tried"], row["error"]

    async def fail(self, held: HeldProjection, failed_at: int, error: str) -> None:
        """Note why an event could not be handled."""
        await self._write("note_projection_failure", held, failed_at=failed_at, error=error)

    async def stop(self, held: HeldProjection) -> None:
        """Stop before the event that failed too often."""
        await self._write("stop_projection", held)

    async def park(self, held: HeldProjection, row: FeedRow, error: str) -> None:
        """Set the instance of an event aside, and move on to the next event."""
        place: dict[str, Value] = {"id": row.instance_id, "version": row.version, "error": error}

        def script() -> Script[None]:
            yield self._of(held, "park_instance", **place)
            yield from self.moved(held, row.position, 0, alone=True)

        await self._db.driver.transact(script)

    async def parked(self, held: HeldProjection) -> dict[int, ParkedInstance]:
        """The instances that were set aside, by their numbers."""
        rows = await self._db.driver.read(self._of(held, "parked_instances"))
        return {row["instance_id"]: ParkedInstance(row["version"], bool(row["retried"])) for row in rows}

    async def parked_events(self, instance_id: int, version: int, until: int, limit: int) -> list[FeedRow]:
        """What was passed over of an instance from a version on, up to a position."""
        params = self._db.params(id=instance_id, version=version, until=until, limit=limit)
        return [feed_row(row) for row in await self._db.driver.read(Call("parked_events", params))]

    def caught_up(self, held: HeldProjection, instance_id: int, version: int | None) -> Script[None]:
        """Note up to which version an instance that was set aside has come, None if it has caught up."""
        if version is None:
            yield self._of(held, "unpark", id=instance_id)
        else:
            yield self._of(held, "move_parked", id=instance_id, version=version)
        yield from self.moved(held, held.position, 0 if version is None else 1, alone=True)

    async def fail_parked(self, held: HeldProjection, instance_id: int, error: str) -> None:
        """Leave an instance set aside that failed again."""
        call = self._of(held, "fail_parked", id=instance_id, error=error)
        await self._db.driver.transact(partial(_said, call))

    async def infos(self, name: str | None = None) -> Sequence[ProjectionInfo]:
        """Every build of every projection, or of the one of this name, by name; the live build first."""
        self._db.check()
        rows = await self._db.driver.read(Call("projections", self._params(name)))
        horizon = await self._db.feed.horizon() if rows else None
        return [_info(row, *horizon) for row in rows if horizon is not None]

    async def info(self, name: str) -> ProjectionInfo:
        """One projection; `ProjectionNotFound` if there is none of this name."""
        found = await self.infos(check_name("projection", name))
        if not found:
            raise ProjectionNotFound(name)
        return found[0]

    async def parked_infos(self, name: str, limit: int = 100) -> Sequence[ParkedInfo]:
        """What a projection has set aside, the oldest first."""
        await self.info(name)
        rows = await self._db.driver.read(Call("parked", self._params(name, limit=limit)))
        return [
            ParkedInfo(row[0], row[1], row[2], row[3], bool(row["retried"]), datetime_of(row["parked_at"]))
            for row in rows
        ]

    async def change(self, statement: str, name: str, by: By) -> bool:
        """Pause, resume, or let it skip; False if that changes nothing."""
        if (await self.info(name)).inline and statement == "pause_projection":
            raise InvalidOption("projection", name, INLINE)
        return bool(await self._db.transact(partial(changed_by, self._db, Call(statement, self._params(name)), by)))

    async def reset(self, name: str, by: By) -> None:
        """Let it begin again with the first event."""
        await self.info(name)

        def script() -> Script[None]:
            if not (reset := (yield Call("reset_projection", self._params(name, locked=False)))):
                yield from hold_events(self._db.statements.dialect)  # it is inline: see `inline.sql`
                reset = yield Call("reset_projection", self._params(name, locked=True))
            for row in reset:
                yield Call("unpark_all", self._params(name, build=row["build"]))
            yield from noted_change(self._db, "reset_projection", name, by)

        await self._db.transact(script)

    async def retry(self, name: str, instance: tuple[str, str], by: By, *, skipped: int) -> bool:
        """Ask for another try of an instance without its first `skipped` events; False if it is not set aside."""
        await self.info(name)
        type_, id_ = check_name("decider", instance[0]), check_key(instance[1], "instance")
        call = Call("retry_parked", self._params(name, type=type_, instance=id_, skipped=skipped))
        return bool(await self._db.driver.transact(partial(changed_by, self._db, call, by)))

    async def _write(self, statement: str, held: HeldProjection, **params: Value) -> list[Row]:
        rows = await self._db.driver.transact(partial(_said, self._of(held, statement, **params)))
        if not rows:
            raise LeaseLost(held.worker)
        return rows

    def _of(self, held: HeldProjection, statement: str, **params: Value) -> Call:
        return Call(statement, self._params(held.name, **{**_fence_of(held), **params}))

    def _params(self, name: str | None, **params: Value) -> dict[str, Value]:
        return self._db.params(name=name, **params)


class WrittenInline(Exception):  # noqa: N818 - it is raised to be caught by the one who drives it
    """Decisions write the rows of a projection, so no session may drive it."""


def _fence_of(held: HeldProjection) -> dict[str, Value]:
    return {"build": held.build, "turn": held.turn, "before": held.position}


def changed_by(db: Database, call: Call, by: By) -> Script[list[Row]]:
    """Change a projection, and note who did if there was something to change."""
    if rows := (yield call):
        yield from noted_change(db, call.statement, str(call.params["name"]), by)
    return rows


def noted_change(db: Database, statement: str, name: str, by: By) -> Script[None]:
    """Note who changed a projection: the verb is the name of its statement."""
    about = f"{statement.replace('_', ' ')} {name}"
    yield from db.audit.of_store(db.params(), What.PROJECTION_CHANGED, about, by)


def _said(call: Call) -> Script[list[Row]]:
    return (yield call)


def _info(row: Row, horizon: int, head: int) -> ProjectionInfo:
    now, moved_at = row["now"], row["moved_at"]
    lives = row["owner"] is not None and row["living"] is not None
    return ProjectionInfo(
        name=row["name"],
        state=row["state"],
        position=head if row["inlined"] else row["position"],
        horizon=horizon,
        head=head,
        handled=row["handled"],
        failures=row["failures"],
        rate=row["window_handled"] / max(1.0, (now - row["window_at"]) / 1_000_000),
        parked=row["parked"],
        tried=row["tried"],
        failed_at=row["failed_at"],
        error=row["error"],
        owner=row["owner"] if lives else None,
        worker=f"{row['worker']} ({row['host']}, pid {row['pid']})" if lives else None,
        moved_at=None if moved_at is None else datetime_of(moved_at),
        age=0.0 if row["inlined"] else max(0.0, (now - (moved_at or row["created_at"])) / 1_000_000),
        created_at=datetime_of(row["created_at"]),
        build=row["build"],
        live=bool(row["live"]),
        tables=tuple(table_of_build(one, row["build"], live=bool(row["live"])) for one in shapes_of(row["tables"])),
        swapping=row["swap_keep"] is not None,
        inline=bool(row["inlined"]),
    )
