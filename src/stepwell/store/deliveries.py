"""Deliveries: the turns of the tasks that bring inputs, in the transaction in which these are decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stepwell.errors import StoreBusy
from stepwell.store.bisection import one_by_one
from stepwell.store.driver import Call, Script, Value
from stepwell.store.instances import Deliberation, Delivery, Follower, Instance, InstanceQuery
from stepwell.store.ordered_groups import (
    LONGEST_TAKEN_ALONG,
    MOST_IN_ALL,
    MOST_TAKEN_ALONG,
    let_next_go,
    lock_groups,
)
from stepwell.store.pending import GroupKey
from stepwell.store.settle import settle_row

if TYPE_CHECKING:
    from stepwell.store.database import Database


class Deliveries:
    """Locks the turns that deliver inputs before these are decided, and ends them after."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def take(
        self, work: Deliberation[Any], instances: Sequence[Instance], queries: Sequence[InstanceQuery]
    ) -> Script[Sequence[tuple[int, str]]]:
        """Lock the turns that deliver inputs, and take along what stands behind these in order; return its keys."""
        deliveries = [one for asked in queries for one in asked.deliveries]
        if not deliveries:
            return ()
        yield from lock_groups(one.group for one in deliveries if one.group is not None)
        turns = sorted((one.task_id, one.worker, one.turn) for one in deliveries)
        rows = yield Call("open_turns", self._db.params(slot=self._db.claim_slot), turns)
        held: dict[int, int | None] = {row["id"]: row["position"] for row in rows}
        for one, asked in zip(instances, queries, strict=True):
            one.open_tasks = held.keys() & {delivery.task_id for delivery in asked.deliveries}
        heads = [
            (one.worker, *one.group, held[one.task_id])
            for one in deliveries
            if one.takes_along and one.group is not None and held.get(one.task_id) is not None
        ]
        if not heads:
            return ()
        by_group = yield from self._followers(heads)
        for one, asked in zip(instances, queries, strict=True):
            groups = {delivery.group for delivery in asked.deliveries}
            one.followers = [each for group in groups if group for each in by_group.get(group, ())]
            one.open_tasks |= {each.task_id for each in one.followers}
        return work.take_along(instances)

    def settle(self, deliveries: Sequence[Delivery]) -> Script[set[int]]:
        """End these turns; returns the queues in which the next task of an ordered group is ready now."""
        rows = [settle_row(one.task_id, one.worker, one.turn, one.settlement) for one in deliveries]
        rows.sort(key=lambda row: row.id)
        settling = Call("settle", self._db.params(slot=self._db.claim_slot), rows)
        counting = Call("count_settled", {"shard": self._db.flusher.shard}, fed_by=0)
        settled, _ = yield from one_by_one([settling, counting])
        yield from self._db.audit.noted(self._db.params(), filter(None, map(self._db.audit.settled, rows)))
        if len(settled) < len(rows):
            raise StoreBusy("a task was taken away under its lock")
        return (yield from let_next_go(self._db.params(), {one.group for one in deliveries if one.group is not None}))

    def _followers(self, heads: Sequence[tuple[Value, ...]]) -> Script[dict[GroupKey, list[Follower]]]:
        """Take what stands behind these tasks in their groups, as far as it may be executed."""
        most = min(MOST_TAKEN_ALONG, MOST_IN_ALL // len(heads))
        params = self._db.params(most=most, longest=LONGEST_TAKEN_ALONG)
        rows = yield Call("take_along", params, heads)
        yield from self._db.audit.claimed(params, rows)
        followers: dict[GroupKey, list[Follower]] = {}
        for row in sorted(rows, key=lambda row: row["position"]):
            group = row["queue_id"], row["group_key"]
            one = Follower(row["id"], row["owner"], row["turn"], group, row["input"], row["headers"])
            followers.setdefault(group, []).append(one)
        return followers
