"""Measurements in the text format that Prometheus reads. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from stepwell.records import Aside, QueueStats
from stepwell.store.emission import KEPT, QUEUE
from stepwell.store.limits_info import LimitsInfo
from stepwell.store.metrics import DeadCount, Durations, Metrics, QueueMetrics, base_of
from stepwell.store.projections import ProjectionInfo
from stepwell.store.row_table import table_of_build
from stepwell.store.schedule_info import ScheduleInfo

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[Mapping[str, str], float]


@dataclass(frozen=True, slots=True)
class Readings:
    """All measurements of one moment."""

    window: float
    queues: Sequence[QueueStats]
    settled: Mapping[str, QueueMetrics]
    dead: Sequence[DeadCount]
    aside: Sequence[Aside]
    live: int
    stale: int
    workflows: Mapping[str, Metrics]
    events: Mapping[str, int]
    projections: Sequence[ProjectionInfo] = ()
    schedules: Sequence[ScheduleInfo] = ()
    limits: Sequence[LimitsInfo] = ()


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """The samples of one name."""

    name: str
    help: str
    samples: Iterable[Sample]
    type: Literal["gauge", "counter"] = "gauge"


def exposition(readings: Readings) -> str:
    """The readings as text: each metric family with its help text; a family without samples is left out."""
    of_queues = (*_of_queues(readings), *_of_limits(readings), *_of_outboxes(readings), *_of_settled(readings))
    of_code = (*_of_workflows(readings), *_of_projections(readings), *_of_schedules(readings))
    families = (*of_queues, *_of_workers(readings), *of_code, *_of_the_process(readings))
    return "".join(line + "\n" for family in families for line in _lines(family))


def _of_queues(readings: Readings) -> Iterator[MetricFamily]:
    states = ("ready", "waiting", "running", "dead")
    yield MetricFamily(
        "stepwell_queue_tasks",
        "Tasks of a queue, by state; counted to 10,000.",
        [({"queue": one.queue, "state": state}, getattr(one, state)) for one in readings.queues for state in states],
    )
    yield MetricFamily(
        "stepwell_queue_oldest_ready_seconds",
        "For how long the oldest ready task of a queue has been ready.",
        [({"queue": one.queue}, one.oldest or 0.0) for one in readings.queues],
    )
    yield MetricFamily(
        "stepwell_queue_suspects",
        "Tasks of a queue that were lost with a worker and wait to be executed alone.",
        [({"queue": one.queue}, one.suspects) for one in readings.queues],
    )
    yield MetricFamily(
        "stepwell_queue_paused",
        "1 if the queue is paused: workers claim no task from it.",
        [({"queue": one.queue}, one.paused) for one in readings.queues],
    )
    yield MetricFamily(
        "stepwell_queue_draining",
        "1 if a queue takes nothing new.",
        [({"queue": one.queue}, one.draining) for one in readings.queues],
    )
    yield MetricFamily(
        "stepwell_dead_letters",
        "Dead letters of a queue, by kind; counted to 10,000.",
        [({"queue": one.queue, "kind": str(one.kind)}, one.count) for one in readings.dead],
    )


def _of_limits(readings: Readings) -> Iterator[MetricFamily]:
    gauges: dict[str, tuple[str, Callable[[LimitsInfo], float | None]]] = {
        "places": (
            "How many tasks of a limited queue may run at once, over all workers.",
            lambda one: one.limits.running,
        ),
        "places_taken": ("How many tasks of a limited queue run now, over all workers.", lambda one: one.running),
        "paused_keys": ("Keys of a limited queue that are paused.", lambda one: one.paused_keys),
        "rate_wait_seconds": (
            "For how long the rate of a queue allows no task; 0 if it allows one now.",
            lambda one: None if one.limits.rate is None else one.wait,
        ),
    }
    for name, (help_, value) in gauges.items():
        found = [(one.queue, value(one)) for one in readings.limits]
        samples = [({"queue": queue}, float(number)) for queue, number in found if number is not None]
        yield MetricFamily(f"stepwell_limit_{name}", help_, samples)


def _of_outboxes(readings: Readings) -> Iterator[MetricFamily]:
    gauges = {
        "lag": (
            "Events that an outbox has yet to publish; those that are dead letters are not counted.",
            "outbox",
            QUEUE,
        ),
        "kept": ("Events of a type that no outbox takes.", "type", KEPT),
    }
    for name, (help_, label, prefix) in gauges.items():
        samples = [
            ({label: one.queue.removeprefix(prefix)}, one.ready + one.waiting + one.running)
            for one in readings.queues
            if one.queue.startswith(prefix)
        ]
        yield MetricFamily(f"stepwell_outbox_{name}", help_, samples)


def _of_projections(readings: Readings) -> Iterator[MetricFamily]:
    gauges: dict[str, tuple[str, Callable[[ProjectionInfo], float]]] = {
        "lag": ("Positions between a projection and the newest event.", lambda one: one.lag),
        "age_seconds": ("Seconds since the position of a projection last moved.", lambda one: one.age),
        "parked": ("Instances that a projection has set aside.", lambda one: one.parked),
        "running": ("1 if a projection runs, 0 if it is paused or has stopped.", lambda one: one.state == "running"),
    }
    for name, (help_, value) in gauges.items():
        samples = [({"projection": _named(one)}, value(one)) for one in readings.projections]
        yield MetricFamily(f"stepwell_projection_{name}", help_, samples)
    counts = {"events": ("Events that a projection has handled.", "handled")}
    counts["failures"] = ("Attempts of a projection at an event that failed.", "failures")
    for name, (help_, field) in counts.items():
        samples = [({"projection": _named(one)}, getattr(one, field)) for one in readings.projections]
        yield MetricFamily(f"stepwell_projection_{name}_total", help_, samples, "counter")


def _of_schedules(readings: Readings) -> Iterator[MetricFamily]:
    late = [({"schedule": one.name}, one.late) for one in readings.schedules]
    yield MetricFamily("stepwell_schedule_late_seconds", "Seconds since a tick has come that was not fired.", late)
    paused = [({"schedule": one.name}, one.state == "paused") for one in readings.schedules]
    yield MetricFamily("stepwell_schedule_paused", "1 if a schedule is paused, 0 if its ticks are fired.", paused)


def _named(one: ProjectionInfo) -> str:
    """Its name; a build beside the live one is called as its tables are."""
    return table_of_build(one.name, one.build, live=one.live)


def _of_settled(readings: Readings) -> Iterator[MetricFamily]:
    outcomes = ("succeeded", "failed", "retried")
    yield MetricFamily(
        "stepwell_queue_settled",
        "Attempts at tasks of a queue that came to an end in the window, by outcome.",
        [
            ({"queue": name, "outcome": each}, getattr(one, each))
            for name, one in readings.settled.items()
            for each in outcomes
        ],
    )
    yield MetricFamily(
        "stepwell_queue_wait_seconds",
        "How long finished tasks of a queue had waited for a worker.",
        [
            ({"queue": name, **stat}, value)
            for name, one in readings.settled.items()
            for stat, value in _stats(one.waits)
        ],
    )
    yield MetricFamily(
        "stepwell_queue_turn_seconds",
        "How long turns of tasks of a queue took, from claim to settle.",
        [
            ({"queue": name, **stat}, value)
            for name, one in readings.settled.items()
            for stat, value in _stats(one.turns)
        ],
    )


def _of_workers(readings: Readings) -> Iterator[MetricFamily]:
    yield MetricFamily(
        "stepwell_workers",
        "Worker sessions that have not ended; a stale one has been silent for longer than its lease.",
        [({"state": "live"}, readings.live), ({"state": "stale"}, readings.stale)],
    )
    yield MetricFamily(
        "stepwell_workflow_workers",
        "Worker sessions that serve a workflow.",
        [
            ({**_labels(name), "state": state}, count)
            for name, one in readings.workflows.items()
            for state, count in (("live", one.workers.live), ("stale", one.workers.stale))
        ],
    )
    yield MetricFamily(
        "stepwell_workflow_worker_last_seen_timestamp_seconds",
        "When a worker that serves a workflow was last heard of.",
        [
            (_labels(name), one.workers.last_seen.timestamp())
            for name, one in readings.workflows.items()
            if one.workers.last_seen is not None
        ],
    )


def _of_workflows(readings: Readings) -> Iterator[MetricFamily]:
    yield MetricFamily("stepwell_window_seconds", "How far back runs that have ended count.", [({}, readings.window)])
    yield MetricFamily(
        "stepwell_workflow_runs",
        "Runs of a workflow that are not finished, by status; counted to 10,000.",
        _by_status(readings, finished=False),
    )
    yield MetricFamily(
        "stepwell_workflow_runs_ended",
        "Runs of a workflow that ended in the window, by status.",
        _by_status(readings, finished=True),
    )
    yield MetricFamily(
        "stepwell_workflow_success_ratio",
        "Of the runs of a workflow that succeeded or failed in the window, how many succeeded.",
        [(_labels(name), rate) for name, one in readings.workflows.items() if (rate := one.success_rate) is not None],
    )
    yield MetricFamily(
        "stepwell_workflow_duration_seconds",
        "From start to end of the runs that succeeded in the window.",
        list(_durations(readings)),
    )
    yield MetricFamily(
        "stepwell_runs_set_aside",
        "Runs that go on only when a person lets them, by what they need.",
        [({"needs": one.needs}, one.runs) for one in readings.aside],
    )


def _of_the_process(readings: Readings) -> Iterator[MetricFamily]:
    yield MetricFamily(
        "stepwell_events_total",
        "What this process has told in its log since it opened the store.",
        [({"event": name}, count) for name, count in sorted(readings.events.items())],
        "counter",
    )


def _by_status(readings: Readings, *, finished: bool) -> list[Sample]:
    return [
        ({**_labels(name), "status": str(status)}, count)
        for name, one in readings.workflows.items()
        for status, count in one.runs.items()
        if status.finished == finished
    ]


def _durations(readings: Readings) -> Iterator[Sample]:
    for name, one in readings.workflows.items():
        yield from (({**_labels(name), **stat}, value) for stat, value in _stats(one.durations))


def _stats(took: Durations | None) -> Iterator[Sample]:
    if took is not None:
        for stat, span in (("avg", took.average), ("p50", took.p50), ("p95", took.p95), ("max", took.longest)):
            yield {"stat": stat}, span.total_seconds()


def _labels(workflow: str) -> dict[str, str]:
    """Which workflow; `base` is the name that its versions share, to add them up."""
    return {"workflow": workflow, "base": base_of(workflow)}


def _lines(family: MetricFamily) -> Iterator[str]:
    samples = list(family.samples)
    if not samples:
        return
    yield f"# HELP {family.name} {_escaped(family.help)}"
    yield f"# TYPE {family.name} {family.type}"
    for labels, value in samples:
        told = ",".join(f'{name}="{_quoted(text)}"' for name, text in labels.items())
        yield f"{family.name}{{{told}}} {_number(value)}" if told else f"{family.name} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
