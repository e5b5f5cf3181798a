"""Measurements: what workflows did and how they stand, how full queues are, the health of the database, Prometheus.

The cost grows with the unfinished tasks, the dead letters and the window, never with the number of finished tasks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from stepwell.base.durations import Duration, datetime_of, microseconds_of
from stepwell.base.names import check_name, is_served
from stepwell.errors import WorkflowNotFound
from stepwell.records import Aside, Health, QueueStats, RunStatus, TaskKind
from stepwell.store import schema
from stepwell.store.driver import Call, Row, Script
from stepwell.store.exposition import Readings, exposition
from stepwell.store.metrics import (
    DeadCount,
    Metrics,
    OpenSession,
    QueueMetrics,
    QueueTally,
    Tally,
    Window,
    base_of,
    metrics_of,
)
from stepwell.store.rows import NEVER

if TYPE_CHECKING:
    from stepwell.store.database import Database
    from stepwell.store.store import Store

OF_A_FILE: Final = ("journal_mode", "synchronous")
OF_A_SERVER: Final = ("fsync", "synchronous_commit", "full_page_writes")
LIVE: Final = (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.PAUSED)

Groups = Mapping[str, Sequence[str]]  # names of workflows, by the name that they share


@dataclass(eq=False)
class Measure:
    """Measures a store, and checks the health of its database."""

    _db: Database

    async def metrics(self, name: str | None, window: Duration) -> Metrics:
        """What the workflows of this name did in the last `window`, and how they stand."""
        queues = await self._named(name)
        return (await self._measure(queues, {"": list(queues)}, window, steps=True))[""]

    async def metrics_by_workflow(
        self, name: str | None, window: Duration, *, join_versions: bool = False, steps: bool = False
    ) -> Mapping[str, Metrics]:
        """The same for each workflow, by its name, or by the name without its version."""
        queues = await self._named(name)
        groups: dict[str, list[str]] = {}
        for each in queues:
            groups.setdefault(base_of(each) if join_versions else each, []).append(each)
        return await self._measure(queues, groups, window, steps=steps)

    async def dead_letter_counts(self) -> Sequence[DeadCount]:
        """How many dead letters there are, by queue and kind; a queue without any is left out."""
        self._db.check()
        rows = await self._db.driver.read(Call("dead_counts", self._db.params()))
        return [DeadCount(row["queue"], TaskKind(row["kind"]), row["counted"]) for row in rows]

    async def queue_metrics(self, window: Duration) -> Mapping[str, QueueMetrics]:
        """How tasks of each queue were settled in the last `window`, by its name; a queue without any is left out."""
        self._db.check()
        length = microseconds_of(window, "window")
        [row] = await self._db.driver.read(Call("moment", self._db.params()))
        found: dict[str, QueueTally] = {}
        for one in await self._db.driver.read(Call("settled_since", self._db.params(since=row["now"] - length))):
            found.setdefault(one["queue"], QueueTally()).add(one)
        return {queue: settled.metrics() for queue, settled in found.items()}

    async def prometheus(self, window: Duration, *, events: bool) -> str:
        """What is measured of queues, workers and workflows, in the text format of Prometheus."""
        span = microseconds_of(window, "window")
        living = await self._living_sessions()
        return exposition(
            Readings(
                window=span / 1_000_000,
                queues=await self.queue_stats(),
                settled=await self.queue_metrics(window),
                dead=await self.dead_letter_counts(),
                aside=await self.set_aside(),
                stale=sum(one.is_stale for one in living),
                live=sum(not one.is_stale for one in living),
                workflows=await self.metrics_by_workflow(None, window),
                events=self._db.telemetry.totals() if events else {},
                projections=await self._db.projections.infos(),
            )
        )

    async def queue_stats(self) -> Sequence[QueueStats]:
        """How full every queue is, by name; the cost grows with unfinished tasks and dead letters only."""
        self._db.check()
        params = self._db.params()
        return [_stats(row) for row in await self._db.driver.read(Call("queue_stats", params))]

    async def set_aside(self) -> Sequence[Aside]:
        """The runs that go on only when a person lets them: what they need, how many, and for how long."""
        self._db.check()
        params = self._db.params(never=NEVER)
        rows = await self._db.driver.read(Call("set_aside", params))
        return [Aside(row["needs"], row["runs"], max(0.0, row["longest"] / 1_000_000)) for row in rows]

    async def health(self) -> Health:
        """What the database reports of itself: its version, its clock, and the settings that durability depends on."""
        self._db.check()
        asked_at = time.perf_counter()
        # Asked on the writing connection: on an embedded database each connection has its own settings.
        row = await self._db.driver.transact(partial(_ask, Call("health", {"now": self._db.clock.now()})))
        took = time.perf_counter() - asked_at
        embedded = self._db.statements.dialect == "sqlite"
        return Health(
            backend=self._db.driver.name,
            version=row["version"],
            schema=await schema.version(self._db.driver),
            settings={name: row[name] for name in (OF_A_FILE if embedded else OF_A_SERVER)},
            clock=datetime_of(row["clock"]),
            took=took,
            held=None if embedded else row["held"] or 0.0,
            numbered_ahead=row["numbered_ahead"],
        )

    async def _named(self, name: str | None) -> dict[str, int]:
        """The workflows that the name matches, and the numbers of their queues."""
        self._db.check()
        if name is not None:
            check_name("workflow", name.removesuffix("*") if isinstance(name, str) else name)
        rows = await self._db.driver.read(Call("workflow_queues", self._db.params()))
        queues = {row["name"]: row["id"] for row in rows if name is None or is_served(row["name"], [name])}
        if not queues and name is not None:
            raise WorkflowNotFound(name)
        return queues

    async def _measure(
        self, queues: Mapping[str, int], groups: Groups, span: Duration, *, steps: bool
    ) -> dict[str, Metrics]:
        length = microseconds_of(span, "window")
        [row] = await self._db.driver.read(Call("moment", self._db.params()))
        now: int = row["now"]
        tallies = {group: Tally() for group in groups}
        owners = {queues[name]: tallies[group] for group, names in groups.items() for name in names}
        await self._tally(owners, now - length, steps=steps)
        for dead in await self.dead_letter_counts():
            if dead.kind == TaskKind.RUN and dead.queue in queues:
                owners[queues[dead.queue]].dead_letters += dead.count
        living, ended = await self._living_sessions(), await self._db.sessions.latest()
        window = Window(datetime_of(now - length), datetime_of(now))
        return {group: metrics_of(names, window, tallies[group], living, ended) for group, names in groups.items()}

    async def _tally(self, owners: Mapping[int, Tally], since: int, *, steps: bool) -> None:
        """Count the runs of these queues, each for the tally that its queue belongs to."""
        if not owners:
            return
        rows = [(queue_id,) for queue_id in owners]
        live = [(queue_id, str(status)) for queue_id in owners for status in LIVE]
        for row in await self._db.driver.read(Call("live_runs", self._db.params(), live)):
            owners[row["queue_id"]].add_live(row)
        for row in await self._db.driver.read(Call("ended_runs", self._db.params(since=since), rows)):
            if row["kind"] == TaskKind.RUN:
                owners[row["queue_id"]].add_ended(row)
        for row in await self._db.driver.read(Call("ended_steps", self._db.params(since=since), rows)) if steps else ():
            owners[row["queue_id"]].add_steps(row)

    async def _living_sessions(self) -> list[OpenSession]:
        self._db.check()
        rows = await self._db.driver.read(
            Call("serving_sessions", {**self._db.params(), "beat_now": self._db.clock.beat_now()})
        )
        return [_session(row) for row in rows]


def _session(row: Any) -> OpenSession:
    # A beat in the future is no sign of life either: see `living_handlers`.
    is_stale = abs(row["silent"]) > row["lease"]
    return OpenSession(tuple(json.loads(row["handlers"])), is_stale, datetime_of(row["heard_at"]))


def _stats(row: Any) -> QueueStats:
    return QueueStats(
        queue=row["name"],
        paused=bool(row["paused"]),
        draining=bool(row["draining"]),
        ready=row["ready"],
        waiting=row["waiting"],
        running=row["running"],
        dead=row["dead"],
        oldest=None if row["oldest"] is None else max(0.0, row["oldest"] / 1_000_000),
        suspects=row["suspects"],
        scheduled=row["waiting"] - row["set_aside"] - row["suspects"],
        set_aside=row["set_aside"],
        unreadable=row["unreadable"],
    )


def _ask(call: Call) -> Script[Row]:
    [row] = yield call
    return row


async def workflow_metrics(name: str, store: Store, *, window: Duration = "1h") -> Metrics:
    """What a workflow did in the last `window`, and how it stands; the same as `store.metrics(name)`."""
    return await store.metrics(name, window=window)
