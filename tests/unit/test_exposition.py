"""The text that Prometheus reads, and the arithmetic behind it: pure, so no store is needed."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell import Aside, Count, DeadCount, Metrics, QueueMetrics, QueueStats, RunStatus, Serving, TaskKind
from stepwell.store.exposition import MetricFamily, Readings, _lines, exposition
from stepwell.store.metrics import Durations, Lengths, base_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LABEL = r'[a-z]+="(?:[^"\\\n]|\\[\\"n])*"'
LINE = re.compile(rf"[a-z_]+(\{{{LABEL}(?:,{LABEL})*\}})? -?[0-9][0-9.e+-]*")


def took(**seconds: float) -> Durations:
    return Durations(count=2, **{name: timedelta(seconds=each) for name, each in seconds.items()})


def readings() -> Readings:
    counts = {RunStatus.SUCCESS: 3, RunStatus.ERROR: 1, RunStatus.PAUSED: 2}
    runs = {status: Count(counts.get(status, 0)) for status in RunStatus}
    durations = took(average=1.5, p50=1, p95=2, longest=2.25)
    measured = Metrics(("process.v2",), NOW, NOW, runs, Count(1), durations, {}, Serving(1, 2, NOW))
    return Readings(
        window=300.0,
        queues=[QueueStats("a", True, False, Count(1), Count(2), Count(3), Count(4), oldest=0.25, suspects=Count(5))],
        settled={"a": QueueMetrics(5, 1, 2, durations, None)},
        dead=[DeadCount("a", TaskKind.TIMER, Count(4))],
        aside=[Aside("signal", Count(2), 60.0)],
        live=1,
        stale=2,
        workflows={"process.v2": measured},
        events={"task_died": 7},
    )


@pytest.mark.proves("MM-11")
def test_the_text_is_what_prometheus_reads() -> None:
    text = exposition(readings())
    assert text.endswith("\n")
    lines = text.splitlines()
    assert all(LINE.fullmatch(line) for line in lines if not line.startswith("#")), text
    names = [line.split(" ")[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names)), "a family stands together, once"
    assert 'stepwell_queue_paused{queue="a"} 1' in lines
    assert 'stepwell_queue_suspects{queue="a"} 5' in lines
    assert 'stepwell_queue_oldest_ready_seconds{queue="a"} 0.25' in lines
    assert 'stepwell_queue_settled{queue="a",outcome="retried"} 2' in lines
    assert 'stepwell_queue_wait_seconds{queue="a",stat="p95"} 2' in lines
    assert not any("turn_seconds" in line for line in lines), "a family without samples is left out"
    assert 'stepwell_workflow_workers{workflow="process.v2",base="process",state="stale"} 2' in lines
    assert 'stepwell_workflow_success_ratio{workflow="process.v2",base="process"} 0.75' in lines
    assert 'stepwell_workflow_duration_seconds{workflow="process.v2",base="process",stat="max"} 2.25' in lines
    assert lines[-3:] == [
        "# HELP stepwell_events_total What this process has told in its log since it opened the store.",
        "# TYPE stepwell_events_total counter",
        'stepwell_events_total{event="task_died"} 7',
    ]


@pytest.mark.proves("MM-11")
def test_what_has_no_samples_is_left_out() -> None:
    empty = Readings(300.0, [], {}, [], [], 0, 0, {}, {})
    assert {line.split(" ")[0].partition("{")[0] for line in exposition(empty).splitlines() if line[0] != "#"} == {
        "stepwell_workers",
        "stepwell_window_seconds",
    }


@pytest.mark.proves("MM-11")
def test_labels_and_help_are_escaped() -> None:
    family = MetricFamily("name", "one\ntwo \\ three", [({"label": 'a "b" \\ c\nd'}, 1.5)])
    assert list(_lines(family)) == [
        "# HELP name one\\ntwo \\\\ three",
        "# TYPE name gauge",
        'name{label="a \\"b\\" \\\\ c\\nd"} 1.5',
    ]


@pytest.mark.proves("MM-05")
@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=60))
def test_a_percentile_is_within_five_percent_of_the_exact_one(lengths: list[int]) -> None:
    counted = Lengths()
    for each in lengths:
        digits = str(each)
        counted.add({"first_two": digits[:2], "places": len(digits), "counted": 1, "total": each, "longest": each})
    found = counted.durations()
    assert found is not None
    for percent, told in ((50, found.p50), (95, found.p95)):
        exact = sorted(lengths)[-(-len(lengths) * percent // 100) - 1]
        assert told / timedelta(microseconds=1) == pytest.approx(exact, rel=0.051, abs=0)
    assert found.longest == timedelta(microseconds=max(lengths))


@pytest.mark.proves("MM-09")
@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("process.v1", "process"),
        ("process_v12", "process"),
        ("media.process_v2", "media.process"),
        ("process", "process"),
        ("processv2", "processv2"),
        ("process.v", "process.v"),
        ("process.v2.draft", "process.v2.draft"),
        (".v2", ".v2"),
    ],
)
def test_versions_share_the_name_before_their_number(name: str, base: str) -> None:
    assert base_of(name) == base
