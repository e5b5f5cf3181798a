"""Measurements: what workflows did and how they stand, how full queues are, the health of the database, Prometheus.

The cost grows with the number of queues and with the minutes of the window, never with the number of tasks: of each
sort a limited number is looked at, unless exact numbers are asked for.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from stepwell.base.count import Count, limit_of
from stepwell.base.durations import Duration, datetime_of, microseconds_of
from stepwell.base.names import check_name, is_served
from stepwell.errors import WorkflowNotFound
from stepwell.records import Aside, Health, QueueInfo, QueueStats, RunStatus, StoredVersion, TaskKind
from stepwell.store import schema
from stepwell.store.driver import Call, Row, Script
from stepwell.store.exposition import Readings, exposition
from stepwell.store.metrics import (
    DeadCount,
    EndedRuns,
    Metrics,
    OpenSession,
    QueueMetrics,
    QueueTally,
    Tally,
    Window,
    base_of,
    looked_at_by_queue,
    metrics_of,
)
from stepwell.store.rows import NEVER

if TYPE_CHECKING:
    from stepwell.store.database import Database
    from stepwell.store.store import Store

MOST_SCHEDULES: Final = 1_000  # of which metrics tell
NEWEST_EVENTS: Final = 1_000_000  # whose versions are looked at
_STORED_AS: Final = re.compile(r"it was stored as (.+?), version (\d+), and ")
OF_A_FILE: Final = ("journal_mode", "synchronous")
OF_A_SERVER: Final = ("fsync", "synchronous_commit", "full_page_writes")
LIVE: Final = (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.PAUSED)

Groups = Mapping[str, Sequence[str]]  # names of workflows, by the name that they share


@dataclass(eq=False)
class Measurements:
    """Measures a store, and checks the health of its database."""

    _db: Database

    async def metrics(self, name: str | None, window: Duration, *, exact: bool = False) -> Metrics:
        """What the workflows of this name did in the last `window`, and how they stand."""
        queues = await self._named(name)
        return (await self._measure(queues, {"": list(queues)}, window, steps=True, exact=exact))[""]

    async def metrics_by_workflow(
        self,
        name: str | None,
        window: Duration,
        *,
        join_versions: bool = False,
        steps: bool = False,
        exact: bool = False,
    ) -> Mapping[str, Metrics]:
        """The same for each workflow, by its name, or by the name without its version."""
        queues = await self._named(name)
        groups: dict[str, list[str]] = {}
        for each in queues:
            groups.setdefault(base_of(each) if join_versions else each, []).append(each)
        return await self._measure(queues, groups, window, steps=steps, exact=exact)

    async def dead_letter_counts(self, *, exact: bool = False) -> Sequence[DeadCount]:
        """How many dead letters there are, by queue and kind; a queue without any is left out."""
        self._db.check()
        queues = {one.id: one.name for one in await self._db.queues.all()}
        found = [(queues[id_], kind, count) for id_, kind, count in await self._dead(list(queues), exact=exact)]
        return [DeadCount(*one) for one in sorted(found)]

    async def queue_metrics(self, window: Duration) -> Mapping[str, QueueMetrics]:
        """How tasks of each queue were settled in the last `window`, by its name; a queue without any is left out."""
        self._db.check()
        length = microseconds_of(window, "window")
        [row] = await self._db.driver.read(Call("moment", self._db.params()))
        return {name: tally.metrics() for name, tally in (await self._settled(row["now"] - length)).items()}

    async def prometheus(self, window: Duration, *, events: bool, exact: bool = False) -> str:
        """What is measured of queues, workers and workflows, in the text format of Prometheus."""
        span = microseconds_of(window, "window")
        living = await self._living_sessions()
        return exposition(
            Readings(
                window=span / 1_000_000,
                queues=await self.queue_stats(exact=exact),
                settled=await self.queue_metrics(window),
                dead=await self.dead_letter_counts(exact=exact),
                aside=await self.set_aside(exact=exact),
                stale=sum(one.is_stale for one in living),
                live=sum(not one.is_stale for one in living),
                workflows=await self.metrics_by_workflow(None, window, exact=exact),
                events=self._db.telemetry.totals() if events else {},
                projections=await self._db.projections.infos(),
                schedules=await self._db.schedules.infos(MOST_SCHEDULES, None),
                limits=await self._db.limiters.all(),
            )
        )

    async def queue_stats(self, *, exact: bool = False) -> Sequence[QueueStats]:
        """How full every queue is, by name."""
        self._db.check()
        queues = await self._db.queues.all()
        limit, rows = limit_of(exact=exact), [(one.id,) for one in queues]
        found = await self._db.driver.read(Call("queue_stats", self._db.params(most=limit), rows))
        counted = {row["queue_id"]: row for row in found}
        [moment] = await self._db.driver.read(Call("moment", self._db.params()))
        since: dict[int, int] = {}
        for row in await self._db.driver.read(Call("oldest", self._db.params(), rows)):
            since[row["queue_id"]] = min(row["run_at"], since.get(row["queue_id"], row["run_at"]))
        ages = {id_: max(0.0, (moment["now"] - run_at) / 1_000_000) for id_, run_at in since.items()}
        return [_stats(one, counted[one.id], ages.get(one.id), limit - 1) for one in queues]

    async def set_aside(self, *, exact: bool = False) -> Sequence[Aside]:
        """The runs that go on only when a person lets them: what they need, how many, and for how long."""
        self._db.check()
        limit = limit_of(exact=exact)
        params, rows = self._db.params(never=NEVER, most=limit), [(id_,) for id_ in (await self._named(None)).values()]
        return _aside(await self._db.driver.read(Call("set_aside", params, rows)), limit - 1)

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

    async def stored_versions(self) -> list[StoredVersion]:
        """The versions of the newest events, by decider, and those of tasks that no code could read, by queue."""
        self._db.check()
        events = await self._db.driver.read(Call("stored_versions", self._db.params(most=NEWEST_EVENTS)))
        found = [StoredVersion(row["decider"], "event", row["name"], row["version"], row["number"]) for row in events]
        tasks: Counter[tuple[str, str, int]] = Counter()
        for row in await self._db.driver.read(Call("unread_tasks", self._db.params())):
            if (told := _STORED_AS.search(row["error"])) is not None:
                tasks[row["queue"], told[1], int(told[2])] += row["number"]
        unread = [StoredVersion(queue, "task", name, at, number) for (queue, name, at), number in tasks.items()]
        return found + unread

    async def _measure(
        self, queues: Mapping[str, int], groups: Groups, span: Duration, *, steps: bool, exact: bool
    ) -> dict[str, Metrics]:
        length = microseconds_of(span, "window")
        [row] = await self._db.driver.read(Call("moment", self._db.params()))
        now: int = row["now"]
        tallies = {group: Tally() for group in groups}
        owners = {queues[name]: tallies[group] for group, names in groups.items() for name in names}
        await self._tally(owners, {id_: name for name, id_ in queues.items()}, now - length, steps=steps, exact=exact)
        for queue_id, kind, count in await self._dead(list(owners), exact=exact):
            if kind == TaskKind.RUN:
                owners[queue_id].dead_letters += count
        living, ended = await self._living_sessions(), await self._db.sessions.latest()
        window = Window(datetime_of(now - length), datetime_of(now))
        return {group: metrics_of(names, window, tallies[group], living, ended) for group, names in groups.items()}

    async def _tally(
        self, owners: Mapping[int, Tally], names: Mapping[int, str], since: int, *, steps: bool, exact: bool
    ) -> None:
        """Count the runs of these queues, each for the tally that its queue belongs to."""
        if not owners:
            return
        limit, rows = limit_of(exact=exact), [(queue_id,) for queue_id in owners]
        live = [(queue_id, str(status)) for queue_id in owners for status in LIVE]
        for row in await self._db.driver.read(Call("live_runs", self._db.params(most=limit), live)):
            owners[row["queue_id"]].add_live(row, limit - 1)
        window = self._db.params(since=since, most=limit)
        ended = EndedRuns.of(await self._db.driver.read(Call("ended_runs", window, rows)), limit - 1)
        settled = await self._settled(since) if ended.too_many else {}
        for queue_id, counted in ended.by_queue.items():
            owners[queue_id].add_ended(counted, settled.get(names[queue_id]))
        if steps:
            found = await self._db.driver.read(Call("ended_steps", window, rows))
            are_all = not ended.too_many and sum(row["counted"] for row in found) <= 10 * (limit - 1)
            for row in found:
                owners[row["queue_id"]].add_steps(row, are_all=are_all)

    async def _settled(self, since: int) -> dict[str, QueueTally]:
        """What was settled since the minute of this moment, by queue."""
        found: dict[str, QueueTally] = {}
        for row in await self._db.driver.read(Call("settled_since", self._db.params(since=since))):
            found.setdefault(row["queue"], QueueTally()).add(row)
        return found

    async def _dead(self, queues: Sequence[int], *, exact: bool) -> list[tuple[int, TaskKind, Count]]:
        limit = limit_of(exact=exact)
        rows = await self._db.driver.read(Call("dead_counts", self._db.params(most=limit), [(id_,) for id_ in queues]))
        looked_at = looked_at_by_queue(rows, "counted")
        return [
            (row["queue_id"], TaskKind(row["kind"]), Count.of(row["counted"], looked_at[row["queue_id"]], limit - 1))
            for row in rows
        ]

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


def _stats(queue: QueueInfo, row: Any, oldest: float | None, most: int) -> QueueStats:
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


def _aside(rows: Sequence[Any], most: int) -> list[Aside]:
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


def _ask(call: Call) -> Script[Row]:
    [row] = yield call
    return row


async def workflow_metrics(name: str, store: Store, *, window: Duration = "1h") -> Metrics:
    """What a workflow did in the last `window`, and how it stands; the same as `store.metrics(name)`."""
    return await store.metrics(name, window=window)
