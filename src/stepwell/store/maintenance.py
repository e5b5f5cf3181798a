"""What may be added and claimed: queues being drained, maintenance, queues that no worker serves, deleted tasks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from stepwell.base.count import MOST_COUNTED, Count, limit_of
from stepwell.base.durations import Duration, datetime_of, seconds_of
from stepwell.base.names import is_served
from stepwell.errors import KeyTaken, QueueNotFound, Refused, StoreBusy
from stepwell.records import Maintenance, Unserved
from stepwell.store.audit import By, What
from stepwell.store.broadcasts import QUEUE as BROADCASTS
from stepwell.store.control import end_children
from stepwell.store.driver import Call, Row, Script
from stepwell.store.ordered_groups import groups_of, let_next_go
from stepwell.store.poll import LONGEST_POLL, SHORTEST_POLL
from stepwell.store.settle import lock_families, wake_parents
from stepwell.store.workflows import living

if TYPE_CHECKING:
    from stepwell.store.database import Database

PATIENCE: Final = 0.5  # seconds to wait for transactions that add tasks


@dataclass(eq=False)
class Admission:
    """Decides what may be added to one tenant's part of a store, and what may be claimed."""

    _db: Database

    async def drain(self, name: str, by: By, *, draining: bool) -> list[int]:
        """Close a queue to new tasks, or open it again; return its number, and that of a decider's other queue."""
        params = self._db.params(name=name, other=other_of(name), draining=draining)
        what = What.QUEUE_DRAINED if draining else What.QUEUE_REOPENED
        rows = await self._db.driver.transact(partial(self._noted, Call("drain_queue", params), what, name, by))
        if name not in {row["name"] for row in rows}:
            raise QueueNotFound(name)
        return sorted(row["id"] for row in rows)

    async def worked_off(self, name: str, wait: Duration, by: By) -> int:
        """Close a queue to new tasks and wait until it has none left; return how many are left in the end."""
        until = asyncio.get_running_loop().time() + seconds_of(wait, "wait")
        queues = await self.drain(name, by, draining=True)
        pause = SHORTEST_POLL
        while left := await self.unfinished(name, queues):
            rest = until - asyncio.get_running_loop().time()
            if rest <= 0:
                break
            await asyncio.sleep(min(pause, rest))
            pause = min(LONGEST_POLL, pause * 1.5)
        return left

    async def unfinished(self, name: str, queues: Sequence[int]) -> int:
        """How many unfinished tasks closed queues still have; 0 only if no transaction is adding to them any more."""
        if count := await self._unfinished(queues):
            return count
        # A transaction that began to add before the queue was closed locks its row until it commits: when we hold the
        # row, no more tasks will come. If it holds the row for longer, it counts as one task.
        try:
            return await self._db.driver.transact(partial(self._count_alone, name, queues), patience=PATIENCE)
        except StoreBusy:
            return 1

    async def unserved(self) -> list[Unserved]:
        """The queues with unfinished tasks that no living worker serves, by name."""
        queues = await self._db.driver.read(Call("queues", self._db.params()))
        self._db.has_broadcasts |= any(row["name"] == BROADCASTS for row in queues)
        params = self._db.params(beat_now=self._db.clock.beat_now())
        serving = await self._db.driver.read(Call("living_handlers", params))
        handlers = {name for row in living(serving, self._db.driver.guards) for name in json.loads(row["handlers"])}
        alone = [row for row in queues if not is_served(row["name"], handlers)]
        rows, limit = [(row["id"],) for row in alone], limit_of(exact=False)
        found = await self._db.driver.read(Call("queue_stats", self._db.params(most=limit), rows))
        counted = {row["queue_id"]: row["ready"] + row["idle"] + row["owned"] for row in found}
        counts = [(row["name"], counted[row["id"]]) for row in alone]
        return [Unserved(name, Count.of(count, count, limit - 1)) for name, count in counts if count]

    async def begin_maintenance(self, by: By) -> None:
        """Stop all claims."""
        began = Call("begin_maintenance", self._db.params(reason=by.reason))
        await self._db.driver.transact(partial(self._noted, began, What.MAINTENANCE_BEGUN, "claims", by))

    async def end_maintenance(self, by: By) -> list[int]:
        """Allow claims again; return the queues with tasks to claim."""
        ended = Call("end_maintenance", self._db.params())
        await self._db.driver.transact(partial(self._noted, ended, What.MAINTENANCE_ENDED, "claims", by))
        return [row["id"] for row in await self._db.driver.read(Call("queues", self._db.params()))]

    async def maintenance(self) -> Maintenance | None:
        """Since when and why nothing is claimed; None if claims are allowed."""
        limit = limit_of(exact=False)
        rows = await self._db.driver.read(Call("maintenance", self._db.params(most=limit)))
        if not rows:
            return None
        running = Count.of(rows[0]["running"], rows[0]["looked_at"], limit - 1)
        return Maintenance(datetime_of(rows[0]["began_at"]), rows[0]["reason"], running)

    async def delete(self, task_id: int, by: By) -> bool:
        """Delete a task softly; False if it does not exist, or is deleted already. Waiting callers are told."""
        deleted = await self._db.driver.transact(partial(self._delete, task_id, by))
        self._db.wakeups.hint({queue_id for queue_id, _ in groups_of(deleted)})
        return bool(deleted)

    async def restore(self, task_id: int, by: By) -> Row | None:
        """Restore a task that was deleted softly; None if it does not exist, or is not deleted."""
        return await self._db.driver.transact(partial(self._restore, task_id, by))

    def _noted(self, call: Call, what: What, about: str, by: By) -> Script[Sequence[Row]]:
        """Change something of the store, and note who did if there was something to change."""
        if rows := (yield call):
            yield from self._db.audit.of_store(self._db.params(), what, about, by)
        return rows

    def _delete(self, task_id: int, by: By) -> Script[list[Row]]:
        yield from lock_families([task_id])
        deleted = yield Call("delete_task", self._db.params(id=task_id, reason=by.reason))
        yield from self._db.audit.of_all(self._db.params(), deleted, What.DELETED, by=by)
        unfinished = [row for row in deleted if row["finished_at"] is None]
        yield from wake_parents(self._db.params(), unfinished, gone=True)
        yield from end_children(self._db.params(), unfinished, set(), self._db.audit)
        yield from let_next_go(self._db.params(), groups_of(deleted))
        return deleted

    def _restore(self, task_id: int, by: By) -> Script[Row | None]:
        params = self._db.params(id=task_id)
        yield Call("savepoint")
        try:
            rows = yield Call("restore_task", params)
        except Refused:
            yield Call("rollback_to_savepoint")
            if not (holders := (yield Call("key_holder", params))):
                raise
            raise KeyTaken(task_id, holders[0]["queue"], holders[0]["key"], holders[0]["id"]) from None
        yield Call("release_savepoint")
        yield from self._db.audit.of_all(params, rows, What.RESTORED, by=by)
        return rows[0] if rows else None

    def _count_alone(self, name: str, queues: Sequence[int]) -> Script[int]:
        found = yield Call("lock_queues", self._db.params(name=name, other=other_of(name)))
        [row] = yield self._counting(queues)
        count: int = row["tasks"]
        # Another process has opened it again: a queue that is empty for a moment is not drained.
        return count if all(row["draining"] for row in found) else max(1, count)

    async def _unfinished(self, queues: Sequence[int]) -> int:
        [row] = await self._db.driver.read(self._counting(queues))
        count: int = row["tasks"]
        return count

    def _counting(self, queues: Sequence[int]) -> Call:
        return Call("unfinished", {"queue_id": queues[0], "other_id": queues[-1], "most": MOST_COUNTED})


def other_of(name: str) -> str:
    """The other queue of a decider, of effects or of inputs; the queue itself if it is neither."""
    for ending, other in ((":effects", ":inputs"), (":inputs", ":effects")):
        if name.endswith(ending):
            return name.removesuffix(ending) + other
    return name
