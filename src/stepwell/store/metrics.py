"""Measurements of workflows, and how counts by length become averages and percentiles. Pure: no I/O, no clock."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from stepwell.base.names import is_served
from stepwell.records import RunStatus, TaskKind, WorkerInfo

_VERSION: Final = re.compile(r"(.+)[._]v[0-9]+")


@dataclass(frozen=True, slots=True)
class Durations:
    """How long something took: of `count` of them the average and the longest, and within 5 percent two percentiles."""

    count: int
    average: timedelta
    p50: timedelta
    p95: timedelta
    longest: timedelta


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """The steps of one name in runs that ended: how many succeeded and failed for good, and how long they took.

    `durations` is of the attempts that succeeded, each from its beginning to its record; None for what is recorded in
    a moment, such as when a sleep is to end, or a signal that came.
    """

    succeeded: int
    failed: int
    durations: Durations | None


@dataclass(frozen=True, slots=True)
class Serving:
    """The workers that serve a workflow: how many are alive, how many silent beyond their lease, the last sign of one.

    `last_seen` is None if neither a living session serves it nor one of the newest hundred did.
    """

    live: int
    stale: int
    last_seen: datetime | None


@dataclass(frozen=True, slots=True)
class DeadCount:
    """How many dead letters of a kind a queue has."""

    queue: str
    kind: TaskKind
    count: int


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """How tasks of a queue, or runs of the workflow of that name, were settled in a window, to the minute.

    Attempts that succeeded, failed for good or are tried again; how long finished tasks had waited for their claim;
    how long each turn took, from claim to settle. Percentiles are within their bucket on a scale of 1, 2, 5, 10 and so
    on; the longest is the end of the last bucket.
    """

    succeeded: int
    failed: int
    retried: int
    waits: Durations | None
    turns: Durations | None


@dataclass(frozen=True, slots=True)
class Metrics:
    """What workflows did between two moments, and how they stand at the second.

    `runs` has every status: those that are not finished as they stand, the others if they ended in the window.
    `dead_letters` are those that were neither retried nor dropped. `durations` is of the runs that succeeded in the
    window, from their start to their end, their waits included; None if none did.
    """

    workflows: tuple[str, ...]
    since: datetime
    until: datetime
    runs: Mapping[RunStatus, int]
    dead_letters: int
    durations: Durations | None
    steps: Mapping[str, StepMetrics]
    workers: Serving

    @property
    def success_rate(self) -> float | None:
        """How many of the runs that succeeded or failed in the window succeeded, from 0 to 1; None if none ended so."""
        succeeded, failed = self.runs[RunStatus.SUCCESS], self.runs[RunStatus.ERROR]
        return succeeded / (succeeded + failed) if succeeded + failed else None

    @property
    def avg_duration(self) -> timedelta | None:
        """How long the runs that succeeded in the window took on average; None if none did."""
        return None if self.durations is None else self.durations.average


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session that has not ended, and what it serves."""

    handlers: Sequence[str]
    is_stale: bool
    heard_at: datetime


@dataclass(slots=True)
class Lengths:
    """Counts by length, which can be added up."""

    groups: Counter[int] = field(default_factory=Counter)  # by the middle of the group, in microseconds
    total: int = 0
    longest: int = 0

    def add(self, row: Any) -> None:
        """Count the things of one group; those that have no length are left out."""
        if row["places"] is None:
            return
        self._count(_middle(row["first_two"], row["places"]), row["counted"], row["total"], row["longest"])

    def add_bucket(self, bucket: int, counted: int, total: int) -> None:
        """Count the things of one bucket, by their average; bucket 0 is of those that have no length."""
        if bucket:
            self._count(max(total, 0) // counted, counted, total, end_of(bucket))

    def _count(self, middle: int, counted: int, total: int, longest: int) -> None:
        self.groups[middle] += counted
        self.total += total
        self.longest = max(self.longest, longest)

    def durations(self) -> Durations | None:
        """The durations; None if nothing was counted."""
        count = self.groups.total()
        if count == 0:
            return None
        return Durations(
            count=count,
            average=_span(round(self.total / count)),
            p50=_span(self._percentile(count, 50)),
            p95=_span(self._percentile(count, 95)),
            longest=_span(self.longest),
        )

    def _percentile(self, count: int, percent: int) -> int:
        """The length that this many percent do not exceed."""
        left = -(-count * percent // 100)
        for middle in sorted(self.groups):
            left -= self.groups[middle]
            if left <= 0:
                return min(middle, self.longest)
        return self.longest


@dataclass(slots=True)
class Tally:
    """What was counted of one workflow, or of several together."""

    runs: Counter[RunStatus] = field(default_factory=Counter)
    dead_letters: int = 0
    lengths: Lengths = field(default_factory=Lengths)
    steps: dict[str, tuple[Counter[RunStatus], Lengths]] = field(default_factory=dict)

    def add_live(self, row: Any) -> None:
        """Count runs of one status that are not finished."""
        self.runs[RunStatus(row["status"])] += row["counted"]

    def add_ended(self, row: Any) -> None:
        """Count runs that ended with one status, and if they succeeded, of one length."""
        status = RunStatus(row["status"])
        self.runs[status] += row["counted"]
        if status == RunStatus.SUCCESS:
            self.lengths.add(row)

    def add_steps(self, row: Any) -> None:
        """Count steps of one name, status and length."""
        counts, lengths = self.steps.setdefault(row["name"], (Counter(), Lengths()))
        counts[RunStatus(row["status"])] += row["counted"]
        lengths.add(row)


@dataclass(slots=True)
class QueueTally:
    """What was settled of one queue, while it is counted."""

    counts: Counter[str] = field(default_factory=Counter)
    waits: Lengths = field(default_factory=Lengths)
    turns: Lengths = field(default_factory=Lengths)

    def add(self, row: Any) -> None:
        """Count the turns of one pair of buckets."""
        for name in ("succeeded", "failed", "retried"):
            self.counts[name] += row[name]
        self.waits.add_bucket(row["wait_bucket"], row["turns"], row["wait_us"])
        self.turns.add_bucket(row["run_bucket"], row["turns"], row["run_us"])

    def metrics(self) -> QueueMetrics:
        """The metrics of what was counted."""
        succeeded, failed, retried = (self.counts[name] for name in ("succeeded", "failed", "retried"))
        return QueueMetrics(succeeded, failed, retried, self.waits.durations(), self.turns.durations())


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time up to now."""

    since: datetime
    until: datetime


def metrics_of(
    names: Sequence[str], window: Window, tally: Tally, living: Sequence[OpenSession], ended: Sequence[WorkerInfo]
) -> Metrics:
    """The counts as the `Metrics` that users get."""
    return Metrics(
        workflows=tuple(names),
        since=window.since,
        until=window.until,
        runs={status: tally.runs[status] for status in RunStatus},
        dead_letters=tally.dead_letters,
        durations=tally.lengths.durations(),
        steps={
            name: StepMetrics(counts[RunStatus.SUCCESS], counts[RunStatus.ERROR], lengths.durations())
            for name, (counts, lengths) in sorted(tally.steps.items())
        },
        workers=serving(names, living, ended),
    )


def serving(names: Sequence[str], living: Sequence[OpenSession], ended: Sequence[WorkerInfo]) -> Serving:
    """Who serves one of these workflows, and when one that did was last seen."""
    theirs = [one for one in living if _serves(one.handlers, names)]
    stale = sum(one.is_stale for one in theirs)
    seen = [one.heard_at for one in theirs]
    seen += [one.stopped_at for one in ended if one.stopped_at is not None and _serves(one.handlers, names)]
    return Serving(len(theirs) - stale, stale, max(seen, default=None))


def base_of(name: str) -> str:
    """The name that the versions of a workflow share: `process` for `process.v2` and `process_v3`."""
    found = _VERSION.fullmatch(name)
    return name if found is None else found.group(1)


def _serves(handlers: Iterable[str], names: Sequence[str]) -> bool:
    return any(is_served(name, handlers) for name in names)


def end_of(bucket: int) -> int:
    """The length in microseconds at which a bucket ends: see the macro `bucket`."""
    places, part = divmod(bucket, 3)
    return int((2, 5, 10)[part] * 10 ** (places - 1))


def _middle(first_two: str, places: int) -> int:
    """The middle of the group of numbers that begin with these digits and have this many digits."""
    size: int = 10 ** (places - len(first_two))
    return int(first_two) * size + size // 2


def _span(microseconds: int) -> timedelta:
    return timedelta(microseconds=microseconds)
