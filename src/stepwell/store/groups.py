"""What upkeep and people see of ordered groups: how much waits in them, which stand still, which had to be woken."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from stepwell.base.events import OrderRepaired
from stepwell.store.driver import Call, Row, Script
from stepwell.store.ordered_groups import groups_of, let_next_go, lock_groups
from stepwell.store.pending import GroupKey

if TYPE_CHECKING:
    from stepwell.store.database import Database

PIECE: Final = 1000  # groups of one transaction
MOST: Final = 10_001  # tasks of a queue that are looked at
KEPT: Final = 86_400.0  # seconds for which a group is remembered that has no task


@dataclass(frozen=True, slots=True)
class GroupStats:
    """The ordered groups of a queue: what waits in them, for how long, and how many stand still.

    Of the queue's tasks at most 10,001 are looked at.
    """

    queue: str
    groups: int  # that have tasks
    tasks: int  # in all of them
    oldest: float | None  # seconds since the first of them was added
    stopped: int  # groups that wait for a dead letter: until it is requeued, dropped or deleted
    # Groups of which upkeep had to wake the first task: a process died just after a cancel, or stepwell is wrong.
    repaired: int


@dataclass(eq=False)
class Groups:
    """The ordered groups of one tenant."""

    _db: Database

    async def stats(self) -> Sequence[GroupStats]:
        """How the ordered groups of each queue stand; queues that have none are left out."""
        queues = {row["id"]: row for row in await self._db.driver.read(Call("queues_in_order", self._db.params()))}
        rows = [(number,) for number in queues]
        found = await self._db.driver.read(Call("group_stats", self._db.params(most=MOST), rows)) if rows else []
        return [_stats(queues[row["queue_id"]], row) for row in found]

    async def tidy(self, queue_ids: Collection[int]) -> bool:
        """Wake the first task of each group of these queues if it is asleep, and remove groups that are long empty.

        A task that nothing would wake cannot be, so each is reported and counted.
        """
        rows = [(queue_id,) for queue_id in sorted(queue_ids)]
        asleep = await self._db.driver.read(Call("asleep_groups", self._db.params(limit=PIECE), rows))
        if asleep:
            woken = await self._db.driver.transact(partial(self._repair, asleep))
            self._db.wakeups.hint({row["id"] for row in woken})
            for row in woken:
                self._db.telemetry.emit(OrderRepaired(row["id"], row["group_key"]))
        [moment] = await self._db.driver.read(Call("moment", self._db.params()))
        params = self._db.params(limit=PIECE, before=moment["now"] - int(KEPT * 1_000_000))
        removed = await self._db.driver.write(Call("remove_groups", params))
        return len(asleep) == PIECE or len(removed) == PIECE

    async def let_go(self, left: Iterable[Row]) -> None:
        """Let those go on that stood behind these tasks, which a transaction has ended that did not lock their groups.

        Were it to lock them after its tasks, it could deadlock with a settle. If this process dies, `tidy` does it.
        """
        if groups := sorted(groups_of(left)):
            self._db.wakeups.hint(await self._db.transact(partial(self._letting_go, groups)))

    def _letting_go(self, groups: Sequence[GroupKey]) -> Script[set[int]]:
        yield from lock_groups(groups)
        return (yield from let_next_go(self._db.params(), groups))

    def _repair(self, asleep: Sequence[Row]) -> Script[list[Row]]:
        groups = sorted((row["queue_id"], row["group_key"]) for row in asleep)
        yield from lock_groups(groups)
        woken = yield Call("next_in_group", self._db.params(), groups)
        if woken:
            yield Call("note_repaired", self._db.params(), [(row["id"], row["group_key"]) for row in woken])
        return woken


def _stats(queue: Row, row: Row) -> GroupStats:
    oldest = None if row["oldest"] is None else row["oldest"] / 1_000_000
    return GroupStats(queue["name"], row["groups"], row["tasks"], oldest, row["stopped"], queue["repaired"])
