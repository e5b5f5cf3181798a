"""The whole store at one moment: its queues, its workers and its newest runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stepwell.records import QueueStats, Run, WorkerInfo
from stepwell.store.store import Store


@dataclass(frozen=True, slots=True)
class Overview:
    """The queues, the workers that have not ended, and the newest runs, at one moment."""

    queues: Sequence[QueueStats]
    workers: Sequence[WorkerInfo]
    runs: Sequence[Run[Any]]


async def overview_of(store: Store, runs: int) -> Overview:
    """Read the queues, the workers and this number of runs."""
    workers = [one for one in await store.workers() if one.stopped_at is None]
    return Overview(await store.queue_stats(), workers, await store.runs(limit=runs))
