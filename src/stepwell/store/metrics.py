"""Measurements of workflows, and how counts by length become averages and percentiles. Pure: no I/O, no clock."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from stepwell.base.count import Count
from stepwell.base.names import is_served
from stepwell.records import RunStatus, TaskKind, WorkerInfo

# How the counts of a minute name the ends of runs; what was cancelled is not among them.
ENDS: Final = {RunStatus.SUCCESS: "succeeded", RunStatus.ERROR: "failed", RunStatus.CANCELLED: ""}
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

    succeeded: Count
    failed: Count
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
    count: Count


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

    Of each workflow and status at most 10,000 are looked at, the newest if they ended, unless exact numbers are asked
    for: a larger number is a floor, and `durations` and `steps` are of the newest. More than that which succeeded or
    failed are counted by the minute.
    """

    workflows: tuple[str, ...]
    since: datetime
    until: datetime
    runs: Mapping[RunStatus, Count]
    dead_letters: Count
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

    runs: dict[RunStatus, Count] = field(default_factory=lambda: defaultdict(Count))
    dead_letters: Count = field(default_factory=Count)
    lengths: Lengths = field(default_factory=Lengths)
    steps: dict[str, tuple[dict[RunStatus, Count], Lengths]] = field(default_factory=dict)

    def add_live(self, row: Any, most: int) -> None:
        """Count runs of one status that are not finished."""
        self.runs[RunStatus(row["status"])] += Count.of(row["counted"], row["looked_at"], most)

    def add_ended(self, counted: EndedOfQueue, settled: QueueTally | None) -> None:
        """Count runs that ended, of one queue: too many to look at by what was `settled`; time those that succeeded."""
        by_minutes = Counter[str]() if settled is None else settled.counts
        for status, name in ENDS.items():
            count = Count(counted.counts[status], is_floor=counted.is_floor(status))
            self.runs[status] += Count(by_minutes[name]) if count.is_floor and by_minutes[name] >= count else count
        for row in counted.succeeded:
            self.lengths.add(row)

    def add_steps(self, row: Any, *, are_all: bool) -> None:
        """Count steps of one name, status and length."""
        counts, lengths = self.steps.setdefault(row["name"], (defaultdict(Count), Lengths()))
        counts[RunStatus(row["status"])] += Count(row["counted"], is_floor=not are_all)
        lengths.add(row)


@dataclass(slots=True)
class EndedOfQueue:
    """The runs of one queue that ended in a window, while they are counted."""

    most: int
    counts: Counter[RunStatus] = field(default_factory=Counter)  # of the runs
    succeeded: list[Any] = field(default_factory=list)  # rows that tell how long they took
    _looked_at: Counter[bool] = field(default_factory=Counter)  # tasks of every kind, by whether they failed

    def add(self, row: Any) -> None:
        """Count the tasks of one kind, status and length."""
        status = RunStatus(row["status"])
        self._looked_at[status == RunStatus.ERROR] += row["counted"]
        if row["kind"] == TaskKind.RUN:
            self.counts[status] += row["counted"]
            if status == RunStatus.SUCCESS:
                self.succeeded.append(row)

    def is_floor(self, status: RunStatus) -> bool:
        """Whether there are more than were looked at."""
        return self._looked_at[status == RunStatus.ERROR] > self.most

    @property
    def is_cut(self) -> bool:
        """Whether there are more of any status."""
        return max(self._looked_at.values(), default=0) > self.most


@dataclass(frozen=True, slots=True)
class EndedRuns:
    """The runs that ended in a window, by queue."""

    by_queue: Mapping[int, EndedOfQueue]

    @classmethod
    def of(cls, rows: Iterable[Any], most: int) -> EndedRuns:
        """What was counted, up to a limit for each queue."""
        found: dict[int, EndedOfQueue] = {}
        for row in rows:
            found.setdefault(row["queue_id"], EndedOfQueue(most)).add(row)
        return cls(found)

    @property
    def too_many(self) -> bool:
        """Whether a queue has more than were looked at."""
        return any(one.is_cut for one in self.by_queue.values())


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


def looked_at_by_queue(rows: Iterable[Any], column: str) -> Counter[int]:
    """How many tasks of each queue were looked at, in counts by queue and something else."""
    looked_at = Counter[int]()
    for row in rows:
        looked_at[row["queue_id"]] += row[column]
    return looked_at


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
