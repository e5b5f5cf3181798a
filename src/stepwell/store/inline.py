"""Rows that decisions keep: the events of a transaction are folded into them before it commits, once for each table."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from stepwell.errors import InlineProjectionFailed, InvalidOption, LeaseLost
from stepwell.store.audit import By
from stepwell.store.driver import Call, Row, Script, Value, play_async
from stepwell.store.horizon import FeedRow, feed_row, hold_events
from stepwell.store.projections import HeldProjection, changed_by, noted_change
from stepwell.store.row_table import Cell, Changed, Rows

if TYPE_CHECKING:
    from stepwell.store.database import Database
    from stepwell.store.instances import Change, Instance
    from stepwell.store.transaction import Tx

PARTS: Final = 256  # locks that all keys share: a server has memory for some thousands, of all its transactions
ISOLATED: Final = "it does not see what others commit meanwhile, and {} needs that: begin it with READ COMMITTED"
OTHER_SHAPE: Final = (
    "its table was made as {}, and is {} in this code; other columns need a projection of another name, beside this "
    "one for as long as it is read"
)


class Folding(Protocol):
    """The events of a transaction that concern the rows of one projection: `changed` is what becomes of those."""

    @property
    def keys(self) -> Sequence[Cell]:
        """The keys of these rows."""

    def changed(self, found: Sequence[Row], /) -> Changed:
        """Fold the events into the rows that are there."""


class InlineFold(Protocol):
    """A projection whose rows decisions write; `is_shared` if several instances may write the same row."""

    @property
    def name(self) -> str:
        """The projection's."""

    @property
    def tables(self) -> str:
        """Its table with its shape, as it is noted in the database."""

    @property
    def is_shared(self) -> bool:
        """Whether the lock of an instance is not enough to write its row."""

    @property
    def table(self) -> Rows:
        """Its rows."""

    def folding(self, events: Sequence[FeedRow], /) -> Folding | None:
        """What these events do to its rows; None if they concern none."""


class Rest(NamedTuple):
    """The events that a projection has not seen, under a lock that lets no other be appended; `head` is the last."""

    events: Sequence[FeedRow]
    head: int


class InlineRows:
    """The rows of inline projections of one tenant, and who writes them: decisions, or a session behind them."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def keep(
        self, folds: Sequence[InlineFold], changes: Sequence[Change], instances: Sequence[Instance]
    ) -> Script[None]:
        """Fold the events of decisions into the rows of these projections, in the transaction that appends them."""
        events = yield from _appended(changes, instances)
        asked = Call("inline_builds", self._db.params(), [(one.name,) for one in folds])
        stands = {row["name"]: row for row in (yield asked)}
        foldings = [
            (fold, folding)
            for fold in folds
            if _is_ours(fold, stands[fold.name]) and (folding := fold.folding(events)) is not None
        ]
        shared = [(fold.table.table.name, folding.keys) for fold, folding in foldings if fold.is_shared]
        if shared and self._db.statements.dialect == "postgres":  # the others have one writer
            yield Call("lock_rows_of_keys", {}, sorted(set(_places(self._db.statements.schema, shared))))
        for fold, folding in foldings:
            yield from fold.table.fold(fold.table.table.name, folding.keys, folding.changed)

    async def may_be(self, name: str, types: Iterable[str]) -> bool:
        """Whether a projection of the events of these deciders may become inline, and is not yet."""
        params = self._db.params(name=name, types=json.dumps(sorted(types)))
        rows = await self._db.driver.read(Call("may_be_inline", params))
        return any(row["allowed"] for row in rows)

    async def let(self, name: str, by: By, *, inline: bool) -> bool:
        """Let it become inline once it has caught up, or let a worker follow the events; False if that is so."""
        await self._db.projections.info(name)
        if inline:
            let = Call("let_inline", self._db.params(name=name))
            return bool(await self._db.transact(partial(changed_by, self._db, let, by)))
        return await self._db.transact(partial(self._left, name, by))

    def _left(self, name: str, by: By) -> Script[bool]:
        left = yield Call("leave_inline", self._db.params(name=name, head=0, locked=False))
        if not left:
            yield from hold_events(self._db.statements.dialect)
            [row] = yield Call("horizon")
            left = yield Call("leave_inline", self._db.params(name=name, head=row["head"], locked=True))
        if left:
            yield from noted_change(self._db, "leave_inline", name, by)
        return bool(left)

    async def take(self, name: str) -> HeldProjection | None:
        """Drive a projection for one transaction, without a session; None if a session drives it, or none may."""
        call = Call("take_projection", self._db.params(name=name))
        rows = await self._db.driver.transact(partial(_said, call))
        if not rows:
            return None
        [row] = rows
        place = name, row["build"], True, 0
        return HeldProjection(*place, row["turn"], row["position"], bool(row["begun"]), False, 0, row["tables"])

    async def rest(self, tx: Tx, after: int, types: str, limit: int) -> Rest:
        """Keep everybody from appending until the transaction ends, and read what comes after a position."""
        await play_async(hold_events(self._db.statements.dialect), tx.answer)
        [row] = await tx.answer(Call("horizon"))
        head: int = row["head"]
        params: dict[str, Value] = {"after": after, "until": head, "types": types, "limit": limit}
        found = await tx.answer(Call("events_between", self._db.params(**params)))
        return Rest([feed_row(each) for each in found], head)

    def begun(self, held: HeldProjection, position: int, handled: int) -> Script[None]:
        """The last statement of the transaction from which on decisions write the rows."""
        place: dict[str, Value] = {"name": held.name, "build": held.build, "turn": held.turn, "before": held.position}
        if not (yield Call("inline_projection", self._db.params(**place, position=position, handled=handled))):
            raise LeaseLost(held.worker)


def _appended(changes: Sequence[Change], instances: Sequence[Instance]) -> Script[list[FeedRow]]:
    """The events of decisions in the order of their positions, which the database has just given them."""
    by_id = {one.id: one for one in instances}
    rows = yield Call("events_after", {}, sorted((one.id, one.before, one.after) for one in changes if one.events))
    events = [
        FeedRow(
            row["position"],
            row["instance_id"],
            by_id[row["instance_id"]].type,
            by_id[row["instance_id"]].name,
            row["version"],
            row["type"],
            row["type_version"],
            row["data"],
            row["cause"],
            row["recorded_at"],
        )
        for row in rows
    ]
    return sorted(events, key=lambda event: event.position)


def _is_ours(fold: InlineFold, stand: Row) -> bool:
    """Whether the decisions write the rows; if not, a worker follows the events, and this one's too."""
    if not stand["sees_commits"]:
        raise InvalidOption("tx", fold.name, ISOLATED.format(fold.name))
    if stand["inlined"] and stand["tables"] != fold.tables:
        raise InlineProjectionFailed(fold.name, OTHER_SHAPE.format(stand["tables"], fold.tables))
    return bool(stand["inlined"])


def _places(schema: str, shared: Sequence[tuple[str, Sequence[Cell]]]) -> Iterator[tuple[int, int]]:
    """The numbers that stand for these keys of these tables; advisory locks are the whole database's."""
    for table, keys in shared:
        place = zlib.crc32(f"stepwell {schema} {table}".encode()) - 2**31
        for key in keys:
            yield place, zlib.crc32(str(key).encode()) % PARTS


def _said(call: Call) -> Script[list[Row]]:
    return (yield call)
