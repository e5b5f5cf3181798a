"""The verbs that measure: what workflows did and how they stand, dead letters by kind, and all of it for Prometheus.

What they cost grows with what is unfinished or dead and with the window that is asked for, never with what is done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from stepwell.durations import Duration, datetime_of, microseconds_of
from stepwell.errors import WorkflowNotFound
from stepwell.names import check_name, is_served
from stepwell.records import RunStatus, TaskKind
from stepwell.store.driver import Call
from stepwell.store.exposition import Readings, exposition
from stepwell.store.health import Observing
from stepwell.store.metrics import DeadCount, Metrics, Session, Tally, Window, base_of, metrics_of

LIVE: Final = (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.PAUSED)

Groups = Mapping[str, Sequence[str]]  # names of workflows, by what they are called together


class Measuring(Observing):
    """A store as those who watch it over time see it."""

    async def metrics(self, name: str | None = None, *, window: Duration = "1h") -> Metrics:
        """What a workflow did in the last `window`, and how it stands; of all workflows together if none is named.

        `"process*"` is every workflow whose name begins so, such as all versions of one. Raises `WorkflowNotFound` if
        there is none.
        """
        queues = await self._named(name)
        return (await self._measure(queues, {"": list(queues)}, window, steps=True))[""]

    async def metrics_by_workflow(
        self, name: str | None = None, *, window: Duration = "1h", join_versions: bool = False, steps: bool = False
    ) -> Mapping[str, Metrics]:
        """The same for each workflow, by its name; for those whose name begins so, with `"process*"`.

        With `join_versions`, `process.v1` and `process_v2` are one, called `process`. Steps are told if asked for.
        """
        queues = await self._named(name)
        groups: dict[str, list[str]] = {}
        for each in queues:
            groups.setdefault(base_of(each) if join_versions else each, []).append(each)
        return await self._measure(queues, groups, window, steps=steps)

    async def dead_letter_counts(self) -> Sequence[DeadCount]:
        """How many dead letters there are, by queue and kind; what has none is left out."""
        self.check()
        rows = await self.driver.read(Call("dead_counts", self._params()))
        return [DeadCount(row["queue"], TaskKind(row["kind"]), row["counted"]) for row in rows]

    async def prometheus(self, *, window: Duration = "5m", events: bool = True) -> str:
        """What is measured of queues, workers and workflows, in the text format of Prometheus.

        `window` is how far back runs that have ended count; `events` adds what this process has told in its log.
        """
        span = microseconds_of(window, "window")
        living = await self._living_sessions()
        return exposition(
            Readings(
                window=span / 1_000_000,
                queues=await self.queue_stats(),
                dead=await self.dead_letter_counts(),
                aside=await self.set_aside(),
                stale=sum(one.is_stale for one in living),
                live=sum(not one.is_stale for one in living),
                workflows=await self.metrics_by_workflow(window=window),
                events=self.telemetry.totals() if events else {},
            )
        )

    async def _named(self, name: str | None) -> dict[str, int]:
        """The workflows that are meant, and the numbers of their queues."""
        self.check()
        if name is not None:
            check_name("workflow", name.removesuffix("*") if isinstance(name, str) else name)
        rows = await self.driver.read(Call("workflow_queues", self._params()))
        queues = {row["name"]: row["id"] for row in rows if name is None or is_served(row["name"], [name])}
        if not queues and name is not None:
            raise WorkflowNotFound(name)
        return queues

    async def _measure(
        self, queues: Mapping[str, int], groups: Groups, span: Duration, *, steps: bool
    ) -> dict[str, Metrics]:
        length = microseconds_of(span, "window")
        [row] = await self.driver.read(Call("moment", self._params()))
        now: int = row["now"]
        tallies = {group: Tally() for group in groups}
        owners = {queues[name]: tallies[group] for group, names in groups.items() for name in names}
        await self._tally(owners, now - length, steps=steps)
        for dead in await self.dead_letter_counts():
            if dead.kind == TaskKind.RUN and dead.queue in queues:
                owners[queues[dead.queue]].dead_letters += dead.count
        living, ended = await self._living_sessions(), await self.sessions.latest()
        window = Window(datetime_of(now - length), datetime_of(now))
        return {group: metrics_of(names, window, tallies[group], living, ended) for group, names in groups.items()}

    async def _tally(self, owners: Mapping[int, Tally], since: int, *, steps: bool) -> None:
        """Count what the runs of these queues did and do, each for whom it belongs to."""
        if not owners:
            return
        rows = [(queue_id,) for queue_id in owners]
        live = [(queue_id, str(status)) for queue_id in owners for status in LIVE]
        for row in await self.driver.read(Call("live_runs", self._params(), live)):
            owners[row["queue_id"]].add_live(row)
        for row in await self.driver.read(Call("ended_runs", self._params(since=since), rows)):
            if row["kind"] == TaskKind.RUN:
                owners[row["queue_id"]].add_ended(row)
        for row in await self.driver.read(Call("ended_steps", self._params(since=since), rows)) if steps else ():
            owners[row["queue_id"]].add_steps(row)

    async def _living_sessions(self) -> list[Session]:
        self.check()
        rows = await self.driver.read(Call("serving_sessions", {**self._params(), "beat_now": self.clock.beat_now()}))
        return [_session(row) for row in rows]


async def workflow_metrics(name: str, store: Measuring, *, window: Duration = "1h") -> Metrics:
    """What a workflow did in the last `window`, and how it stands; the same as `store.metrics(name)`."""
    return await store.metrics(name, window=window)


def _session(row: Any) -> Session:
    # A beat in the future is no sign of life either: see `living_handlers`.
    is_stale = abs(row["silent"]) > row["lease"]
    return Session(tuple(json.loads(row["handlers"])), is_stale, datetime_of(row["heard_at"]))
