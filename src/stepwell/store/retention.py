"""How long rows are kept, and the removal of older ones.

Every worker does it, a bounded piece at a time; `Store.prune` does it at once and to the end. A task is removed with
everything that belongs to it, in one transaction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from stepwell.base.durations import Duration, datetime_of, seconds_of
from stepwell.errors import InvalidOption
from stepwell.store.audit import By, What
from stepwell.store.driver import Call, Row, Script, Value
from stepwell.store.progress import tell_done

if TYPE_CHECKING:
    from stepwell.store.database import Database

PIECE: Final = 1000  # rows a transaction
PIECES: Final = 10  # of finished tasks a round; then other work has its turn

# How long rows are kept that have no option of `connect`, in seconds; docs/upkeep.md shows the same table.
DAY: Final = 86_400.0
KEPT: Final = {
    "remove_sessions": 1 * DAY,
    "remove_rollup": 90 * DAY,
    "remove_ticks": 90 * DAY,
}
OBSERVATIONS: Final = 30 * DAY


@dataclass(eq=False)
class Retention:
    """The removal of old rows from one tenant's part of a store."""

    _db: Database
    observations: bool = False  # this process observes inputs, so it removes old observations too

    async def round(self) -> bool:
        """Remove a bounded number of rows that are too old; True if there may be more."""
        now = await self._now()
        kept = [*KEPT.items(), ("remove_receipts", self._db.options.keep)]
        kept += [
            ("remove_old_audit", self._db.options.keep_audit),
            ("remove_deleted", self._db.options.keep),
            ("remove_dead", self._db.options.keep_dead_letters),
        ]
        if self.observations:
            kept.append(("remove_observations", OBSERVATIONS))
        more = False
        for statement, seconds in kept:
            if seconds is not None:
                more |= await self._piece(statement, before=_ago(now, seconds)) == PIECE
        if self._db.options.seal_audit and self._db.options.keep_audit is not None:
            more |= await self._db.seals.drop(_ago(now, self._db.options.keep_audit))
        if self._db.options.keep is not None:
            _, unfinished = await self._finished(_ago(now, self._db.options.keep), PIECES)
            more |= unfinished
        return more

    async def prune(self, older_than: Duration | None, by: By, *, dead_letters: bool, dry_run: bool) -> int:
        """Remove all finished and deleted tasks of this age, and dead letters if asked; return how many."""
        kept = self._db.options.keep if older_than is None else older_than
        if kept is None:
            why = "this store keeps what is finished for ever: say how old it must be"
            raise InvalidOption("older_than", None, why)
        age = seconds_of(kept, "older_than")
        before = _ago(await self._now(), age)
        if dry_run:
            return await self._outlived(before, dead_letters=dead_letters)
        about = f"what ended before {datetime_of(before):%Y-%m-%d %H:%M:%S}" + dead_letters * ", dead letters too"
        await self._db.driver.transact(partial(self._db.audit.of_store, self._db.params(), What.PRUNED, about, by))
        count, _ = await self._finished(before)
        for statement in ("remove_deleted", "remove_dead") if dead_letters else ("remove_deleted",):
            while removed := await self._piece(statement, before=before):
                count += removed
        while await self._piece("remove_observations", before=before) == PIECE:
            pass  # of inputs, which are no tasks: not counted
        return count

    async def _outlived(self, before: int, *, dead_letters: bool) -> int:
        """How many tasks `prune` would remove."""
        params: dict[str, Value] = {"tenant": self._db.options.tenant, "before": before, "dead_letters": dead_letters}
        [row] = await self._db.driver.read(Call("count_outlived", params))
        tasks: int = row["tasks"]
        return tasks

    async def _finished(self, before: int, pieces: float = math.inf) -> tuple[int, bool]:
        """Remove finished tasks queue by queue, at most this many pieces; how many, and whether there are more."""
        queues = await self._db.driver.read(
            Call("outlived_queues", {"tenant": self._db.options.tenant, "before": before})
        )
        count = 0
        # In random order: with more queues than pieces the last queues would never have their turn.
        for queue in sorted(queues, key=lambda _: self._db.clock.random()):
            removed = PIECE
            while removed == PIECE:
                if pieces == 0:
                    return count, True
                removed = await self._piece("remove_finished", before=before, queue_id=queue["id"])
                count, pieces = count + removed, pieces - 1
        return count, False

    async def _piece(self, statement: str, **params: Value) -> int:
        call = Call(statement, {"tenant": self._db.options.tenant, "limit": PIECE, **params})
        alone = statement in KEPT or statement in ("remove_receipts", "remove_observations", "remove_old_audit")
        script = _remove if alone else partial(_remove_tasks, broadcasts=self._db.has_broadcasts)
        removed = await self._db.driver.transact(partial(script, call))
        tell_done(removed)
        return removed

    async def _now(self) -> int:
        [row] = await self._db.driver.read(Call("moment", {"now": self._db.clock.now()}))
        now: int = row["now"]
        return now


def _remove(call: Call) -> Script[int]:
    return len((yield call))


def _remove_tasks(call: Call, *, broadcasts: bool) -> Script[int]:
    removed = yield call
    yield from remove_belongings(removed, broadcasts=broadcasts)
    return len(removed)


def remove_belongings(removed: Sequence[Row], *, broadcasts: bool) -> Script[None]:
    """Remove what belongs to tasks that this transaction removes; waits for broadcasts only where there are any."""
    ids = ",".join(str(row["id"]) for row in removed)
    if ids and broadcasts:
        yield Call("remove_subscriptions", {"ids": ids})
    if ids:
        for statement in ("remove_steps", "remove_signals", "remove_reports", "remove_audit"):
            yield Call(statement, {"ids": ids})


def _ago(now: int, seconds: float) -> int:
    return now - round(seconds * 1_000_000)
