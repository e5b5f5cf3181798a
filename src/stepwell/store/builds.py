"""Builds of a projection in the database: one beside the live one, how they are swapped, and what is dropped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from stepwell.base.durations import Duration, microseconds_of
from stepwell.base.names import check_name
from stepwell.errors import InvalidOption, LeaseLost, ProjectionNotFound
from stepwell.store.audit import By
from stepwell.store.driver import Call, Row, Script, Value, play_async
from stepwell.store.projections import HeldProjection, changed_by, noted_change
from stepwell.store.row_table import TableCalls, shapes_of, table_of_build

if TYPE_CHECKING:
    from stepwell.store.database import Database
    from stepwell.store.transaction import Tx

SWAP_LOCKS: Final = "100ms"  # how long a rename waits for readers: those behind it wait for as long
NO_TABLES: Final = (
    "it does not say which tables it has, so another build would write into the same ones; "
    "say `@projection(..., tables=[...])`, use `tx.table(...)`, and let a worker begin it"
)


class BuildBeside(NamedTuple):
    """The build beside the live one, for the session that drives it."""

    build: int
    live_position: int
    live_is_inline: bool
    swap_keep: int | None  # it is to be swapped with the live one, which is then kept for so long
    is_over: bool  # it is to be dropped by now

    @property
    def is_to_swap(self) -> bool:
        """Whether it is to become the live one."""
        return self.swap_keep is not None


class Builds:
    """The builds of the projections of one tenant."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self.tables = TableCalls(database.statements)

    async def rebuild(self, name: str, by: By) -> int:
        """Begin a build beside the live one, in place of one that is there; returns its number."""
        return await self._db.transact(partial(self._rebuilt, check_name("projection", name), by))

    async def ask_for_swap(self, name: str, keep_old: Duration, by: By) -> bool:
        """Have the build beside the live one become the live one; False if there is none."""
        await self._db.projections.info(name)
        call = Call("ask_for_swap", self._params(name, keep=microseconds_of(keep_old, "keep_old")))
        return bool(await self._db.transact(partial(changed_by, self._db, call, by)))

    async def beside(self, name: str) -> BuildBeside | None:
        """The build beside the live one, None if there is none."""
        rows = await self._db.driver.read(Call("build_beside", self._params(name)))
        found = [
            BuildBeside(
                one["build"],
                one["live_position"],
                bool(one["live_inlined"]),
                one["swap_keep"],
                bool(one["is_over"]),
            )
            for one in rows
        ]
        return found[0] if found else None

    async def drop(self, name: str, build: int) -> None:
        """Drop a build that is not the live one, with its tables."""
        await self._db.transact(partial(self._dropped, name, build))

    async def rename(self, tx: Tx, name: str) -> None:
        """Give the tables of the build beside the live one their own names, and the live ones those of their build.

        The first part of a swap. Tables come before the rows of `{projection}`, as in a batch, so the two wait for
        each other in one order.
        """
        await play_async(self._renamed(name), tx.answer)

    def swapped(self, held: HeldProjection, keep: int, *, knows_all: bool = False) -> Script[None]:
        """The last part of a swap; raises if it must not be committed: the new build is behind, or was taken.

        It `knows_all` if it has every event, under a lock that lets no other be appended: a live build whose rows
        decisions write has.
        """
        live, beside = yield from self._pair(Call("lock_builds", self._params(held.name)))
        if (beside["build"], beside["turn"], beside["position"]) != (held.build, held.turn, held.position):
            raise LeaseLost(held.worker)
        if beside["position"] < live["position"]:
            raise Behind
        if live["inlined"] and not knows_all:
            raise Behind
        yield Call("retire_build", self._params(held.name, build=live["build"], keep=keep, head=held.position))
        yield Call("promote_build", self._params(held.name, build=beside["build"], inlined=live["inlined"]))

    def _renamed(self, name: str) -> Script[None]:
        if self._db.statements.dialect == "postgres":
            yield Call("patience", {"locks": SWAP_LOCKS})
        live, beside = yield from self._pair(Call("builds", self._params(name)))
        for row, is_live in ((live, True), (beside, False)):
            for table in shapes_of(row["tables"]):
                own, other = (table_of_build(table, row["build"], live=each) for each in (is_live, not is_live))
                yield self.tables.rename(own, other)

    def _pair(self, call: Call) -> Script[Sequence[Row]]:
        rows = yield call
        if len(rows) != 2:
            raise LeaseLost(0)
        return rows

    def _rebuilt(self, name: str, by: By) -> Script[int]:
        yield Call("lock_builds", self._params(name))  # another one waits, and sees what this one has begun
        rows = yield Call("builds", self._params(name))
        if not rows:
            raise ProjectionNotFound(name)
        if not shapes_of(rows[0]["tables"]):
            raise InvalidOption("projection", name, NO_TABLES)
        for row in rows[1:]:
            yield from self._dropped(name, row["build"])
        build: int = max(row["build"] for row in rows) + 1
        yield Call("add_build", self._params(name, build=build))
        yield from noted_change(self._db, "rebuild_projection", name, by)
        return build

    def _dropped(self, name: str, build: int) -> Script[None]:
        """Drop a build, unless another process has: its row is removed first, so that one waits for the other."""
        for row in (yield Call("remove_build", self._params(name, build=build))):
            for table in shapes_of(row["tables"]):
                yield self.tables.drop(table_of_build(table, build, live=False))
            yield Call("unpark_all", self._params(name, build=build))

    def _params(self, name: str, **params: Value) -> dict[str, Value]:
        return self._db.params(name=name, **params)


class Behind(Exception):  # noqa: N818 - it is raised to be caught by the one who swaps
    """The build has not come as far as the live one."""


def _said(call: Call) -> Script[list[Row]]:
    return (yield call)
