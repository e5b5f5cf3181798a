"""What the checks of a store go by, as it was read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from stepwell.records import Aside, Health, Maintenance, QueueStats, StoredVersion, WorkerInfo
from stepwell.store.groups import GroupStats
from stepwell.store.horizon import Appender
from stepwell.store.limits_info import LimitedKey, LimitsInfo
from stepwell.store.projections import ProjectionInfo
from stepwell.store.schedule_info import ScheduleInfo
from stepwell.store.schema import latest
from stepwell.store.store import Store

MOST_KEYS: Final = 100  # that are looked at, of each limited queue


@dataclass(frozen=True, slots=True)
class Facts:
    """What was read from a store."""

    place: str
    needed_schema: int
    health: Health
    queues: Sequence[QueueStats]
    workers: Sequence[WorkerInfo]
    maintenance: Maintenance | None
    now: datetime
    aside: Sequence[Aside] = ()
    groups: Sequence[GroupStats] = ()
    appenders: Sequence[Appender] = ()
    projections: Sequence[ProjectionInfo] = ()
    schedules: Sequence[ScheduleInfo] = ()
    versions: Sequence[StoredVersion] = ()
    limits: Sequence[tuple[LimitsInfo, Sequence[LimitedKey]]] = ()  # with the first keys of each queue

    @property
    def living(self) -> list[WorkerInfo]:
        """The sessions that have beaten within their lease."""
        return [one for one in self.workers if one.alive and (one.silent or 0.0) <= one.lease]


async def facts_of(store: Store, place: str) -> Facts:
    """Read the facts; `place` is the redacted URL of the store."""
    queues = await store.queue_stats()
    workers = await store.workers()
    used = any(one.reads for one in workers) or any(one.unreadable for one in queues)
    return Facts(
        place=place,
        needed_schema=latest(store.database.statements),
        health=await store.health(),
        queues=queues,
        workers=workers,
        maintenance=await store.maintenance(),
        now=datetime.now(UTC),
        aside=await store.set_aside(),
        groups=await store.ordered_groups(),
        appenders=await store.appenders(),
        projections=await store.projections(),
        schedules=await store.schedules(limit=1000),
        versions=await store.stored_versions() if used else (),
        limits=[(one, await store.limits.keys(one.queue, limit=MOST_KEYS)) for one in await store.limits.all()],
    )
