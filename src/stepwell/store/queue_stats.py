"""How full queues are, and which runs need a person: what bounded walks counted, as records. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from stepwell.base.count import Count
from stepwell.records import Aside, QueueInfo, QueueStats
from stepwell.store.metrics import looked_at_by_queue


def stats_of(queue: QueueInfo, row: Any, oldest: float | None, most: int) -> QueueStats:
    """A queue as it was counted; a part of which more than `most` were looked at is a floor."""

    def idle(number: int) -> Count:
        return Count.of(number, row["idle"], most)

    running = Count.of(row["owned"], row["owned_in_all"], most) + idle(row["taken"])
    waiting = row["idle"] - row["taken"]
    return QueueStats(
        queue=queue.name,
        paused=queue.paused,
        draining=queue.draining,
        ready=Count.of(row["ready"], row["ready"], most),
        waiting=idle(waiting),
        running=running,
        dead=Count.of(row["dead"], row["dead"], most),
        oldest=oldest,
        suspects=idle(row["suspects"]),
        scheduled=idle(waiting - row["set_aside"] - row["suspects"]),
        set_aside=idle(row["set_aside"]),
        unreadable=idle(row["unreadable"]),
    )


def aside_of(rows: Sequence[Any], most: int) -> list[Aside]:
    """The runs that need a person, of all workflows together, by what they need."""
    looked_at = looked_at_by_queue(rows, "runs")
    found = []
    every: tuple[Literal["unpause", "signal", "accept"], ...] = ("unpause", "signal", "accept")
    for needs in every:
        theirs = [row for row in rows if row["needs"] == needs]
        if theirs:
            runs = sum((Count.of(row["runs"], looked_at[row["queue_id"]], most) for row in theirs), Count())
            found.append(Aside(needs, runs, max(0.0, max(row["longest"] for row in theirs) / 1_000_000)))
    return found
