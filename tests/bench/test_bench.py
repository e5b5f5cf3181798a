"""The benchmark runs, at sizes that say nothing about speed, and refuses databases whose commits are not durable."""

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench import compare, figures, telling
from bench.__main__ import REFUSED, RESULTS, main, merged
from bench.contestants import CONTESTANTS
from bench.contestants.stepwell import Stepwell, connect
from bench.durability import NotDurable, check_folder
from bench.peers import LOCKS, ROOT
from bench.running import plan
from bench.workloads import WORKLOADS
from tests.ground.databases import run_sql


def test_it_measures_stepwell_and_raw_sql_under_every_kind_of_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.ground.check_folder", lambda *_: None)  # whether it works, wherever files are kept here
    workloads = [
        "enqueue.bulk",
        "latency.two",
        "growth",
        "workflow.many",
        "workflow.few",
        "workflow.one",
        "workflow.latency.two",
        "decider.inline",
        "model.rebuild",
    ]
    arguments = ["--backend", "sqlite", "--contestants", "stepwell,raw", "--scale", "0.001", "--rounds", "1", "--json"]
    done = CliRunner().invoke(main, [*arguments, "--only", ",".join(workloads)])
    assert done.exit_code == 0, done.output
    lines = json.loads(done.stdout)["lines"]
    expected = {(name, "empty", who) for name in workloads for who in ("stepwell", "raw")}
    expected |= {("growth", "finished", who) for who in ("stepwell", "raw")}
    expected.remove(("model.rebuild", "empty", "raw"))
    assert {(line["workload"], line["state"], line["contestant"]) for line in lines} == expected
    assert all(line["count"] >= 5 and line["api"] for line in lines)


@pytest.mark.proves("G-07")
@pytest.mark.parametrize("on", ["sqlite", "postgres"])
def test_it_measures_how_a_drain_grows_with_worker_processes(on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.ground.check_folder", lambda *_: None)
    workloads = ["crew.one", "crew.two", "busy.one", "busy.four"]
    arguments = ["--backend", on, "--contestants", "stepwell", "--scale", "0.001", "--rounds", "1", "--json"]
    done = CliRunner().invoke(main, [*arguments, "--only", ",".join(workloads)])
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)
    assert [(line["workload"], line["count"], line["audit"]) for line in results["lines"]] == [
        (name, 40, "problems") for name in workloads
    ]
    page = telling.page(results)
    assert "## With more worker processes" in page
    assert re.search(r"\| that do nothing \| \w+ \| [\d,]+/s \(1.0x\) \| [\d,]+/s \([\d.]+x\) \|  \|", page)
    assert "stepwell with audit=problems." in page


@pytest.mark.proves("G-07")
def test_the_page_shows_throughput_latency_and_growth_on_every_backend() -> None:
    """What was measured last: all that there was to measure then, on both."""
    lines = json.loads(RESULTS.read_text(encoding="utf-8"))["lines"]
    measured = {(line["workload"], line["backend"]) for line in lines if line["contestant"] == "stepwell"}
    crews = {name for name in WORKLOADS if name.partition(".")[0] in ("crew", "busy")}
    wanted = {"drain", "enqueue.single", "workflow.many", "latency", "latency.two"}
    wanted |= {name for name, _ in measured if name in crews}
    assert {(name, backend) for name in wanted for backend in telling.BACKENDS} <= measured


async def test_a_store_that_does_not_flush_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    queue = await connect(url)
    try:
        await queue.install()
        _writer(queue, "pragma synchronous = normal")
        with pytest.raises(NotDurable, match="synchronous is 1"):
            await queue.install()
    finally:
        await queue.close()


async def test_a_store_in_memory_is_refused() -> None:
    queue = await connect("sqlite:///:memory:")
    try:
        with pytest.raises(NotDurable, match="journal_mode is memory"):
            await queue.install()
    finally:
        await queue.close()


def test_a_server_that_does_not_flush_is_refused(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = postgres_url.rpartition("/")[2]
    run_sql(postgres_url, f'alter database "{database}" set synchronous_commit = off')
    monkeypatch.setenv("STEPWELL_BENCH_POSTGRES", postgres_url)
    done = CliRunner().invoke(main, ["--backend", "postgres", "--quick", "--contestants", "raw"])
    assert done.exit_code == REFUSED
    assert "synchronous_commit is off" in done.stderr


def test_a_folder_in_memory_is_refused() -> None:
    mounts = "disk / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n"
    check_folder(Path("/var/tmpfiles/x"), mounts)
    with pytest.raises(NotDurable, match="/tmp is a tmpfs"):
        check_folder(Path("/tmp/x"), mounts)


def test_targets_are_judged_against_the_best_peer_and_the_empty_database() -> None:
    lines = [
        *(_line("drain", who, rate=rate) for who, rate in {"stepwell": 300, "pgqrs": 100, "pgqueuer": 200}.items()),
        *(_line("enqueue.bulk", who, rate=rate) for who, rate in {"stepwell": 600, "chancy": 200}.items()),
        _line("latency", "stepwell", p50_ms=2.5),
        _line("growth", "stepwell", rate=100),
        _line("growth", "stepwell", state="finished", rate=79),
        _line("scheduled", "stepwell", p50_ms=1.0),
        _line("scheduled", "stepwell", state="scheduled", p50_ms=1.05),
    ]
    judged = {row.workload.name: (row.compared, row.met) for row in figures.rows(figures.summaries(lines))}
    assert judged == {
        "drain": (1.5, False),
        "enqueue.bulk": (3.0, True),
        "latency": (None, False),
        "growth": (0.79, False),
        "scheduled": (pytest.approx(1 / 1.05), True),
    }


def test_workflows_are_judged_against_the_best_peer_and_raw_sql() -> None:
    many = {"stepwell": 8000, "raw": 16_000, "pgqrs": 160, "dbos": 40}
    one = {"stepwell": 600, "raw": 1000, "pgqrs": 60}
    lines = [
        *(_line("workflow.many", who, rate=rate) for who, rate in many.items()),
        *(_line("workflow.one", who, rate=rate) for who, rate in one.items()),
        _line("workflow.latency", "stepwell", p50_ms=1.9),
        _line("workflow.latency.two", "stepwell", p50_ms=3.1),
        _line("asleep", "stepwell", statements=380, connections=5, memory_mb=34),
        _line("asleep", "stepwell", state="sleeping", statements=390, connections=6, memory_mb=34),
    ]
    rows = figures.rows(figures.summaries(lines))
    assert {row.workload.name: (row.compared, row.share, row.met) for row in rows} == {
        "workflow.many": (50, 0.5, True),
        "workflow.one": (10, 0.6, False),
        "workflow.latency": (None, None, True),
        "workflow.latency.two": (None, None, False),
        "asleep": (pytest.approx(38 / 39), None, False),  # it has a connection more
    }
    results = {"rounds": 1, "settings": {"postgres": {"fsync": "on"}}, "python": "3", "lines": lines}
    assert "| asleep | stepwell | 390/min, 6 connections, 34 MB |" in telling.page(results)


def test_what_is_measured_anew_takes_the_place_of_the_same() -> None:
    before = {"rounds": 3, "lines": [_line("drain", "stepwell", rate=1), _line("drain", "raw", rate=2)]}
    anew = {"rounds": 1, "lines": [_line("drain", "stepwell", rate=3), _line("model.sql", "stepwell", rate=4)]}
    both = merged(before, anew)
    assert both["rounds"] == 3
    found = sorted((line["workload"], line["contestant"], line["rate"]) for line in both["lines"])
    assert found == [("drain", "raw", 2), ("drain", "stepwell", 3), ("model.sql", "stepwell", 4)]


def test_a_median_is_told_and_not_the_best_round() -> None:
    lines = [_line("drain", "stepwell", rate=rate) for rate in (100, 900, 200)]
    [summary] = figures.summaries(lines)
    assert summary.middle == 200
    results = {"rounds": 3, "settings": {"postgres": {"fsync": "on"}}, "python": "3", "lines": lines}
    assert "| drain | stepwell | 200/s | 100 - 900 |" in telling.page(results)


@pytest.mark.skipif(not (ROOT / ".venv-bench-graphile" / ".ready").exists(), reason="`make bench` fetches it")
def test_it_measures_a_peer_that_is_written_for_node() -> None:
    arguments = ["--backend", "postgres", "--contestants", "graphile", "--scale", "0.003", "--rounds", "1", "--json"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    lines = json.loads(done.stdout)["lines"]
    assert {(line["workload"], line["client_us"]) for line in lines} == {("enqueue.bulk", None), ("drain", None)}
    assert all(line["version"] and line["rate"] > 0 for line in lines)


def test_a_contestant_is_left_out_where_its_program_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def taking_part() -> set[str]:
        return {one.contestant for one in plan(["drain", "latency"], ["postgres"], ["graphile", "stepwell"], 1)}

    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    assert taking_part() == {"graphile", "stepwell"}
    assert [one.workload.name for one in plan(["drain", "latency"], ["postgres"], ["graphile"], 1)] == ["drain"]
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert taking_part() == {"stepwell"}


def test_every_peer_is_pinned() -> None:
    for contestant in CONTESTANTS.values():
        if contestant.peer and contestant.program is None:
            lock = (LOCKS / f"{contestant.name}.txt").read_text(encoding="utf-8")
            assert f"\n{contestant.distribution}==" in lock
            assert "://" not in lock
    packages = json.loads((LOCKS / "graphile" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert all("integrity" in one and "resolved" not in one for name, one in packages.items() if name)


def _line(workload: str, who: str, *, state: str = "empty", **figure: float) -> dict[str, Any]:
    known = {"workload": workload, "contestant": who, "state": state, "backend": "postgres", "round": 1}
    return {**known, "count": WORKLOADS[workload].size, "api": "a call", "version": "1", **figure}


def _writer(queue: Stepwell, sql: str) -> None:
    def execute(connection: sqlite3.Connection) -> None:
        connection.execute(sql)

    driver: Any = queue._store.database.driver
    driver._writer.submit(execute).result(10)


@pytest.mark.parametrize(("shortcut", "workload"), [("hand-over", "latency"), ("optimistic", "decider.turn")])
def test_it_compares_this_code_with_itself_without_a_shortcut(
    shortcut: str, workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.ground.check_folder", lambda *_: None)
    arguments = ["--without", shortcut, "--only", workload, "--backend", "sqlite", "--rounds", "1", "--scale", "0.001"]
    done = CliRunner().invoke(compare.main, arguments)
    assert done.exit_code == 0, done.output
    assert f"| without {shortcut} | this code |" in done.output
    assert re.search(
        rf"\| {re.escape(workload)} \| SQLite \| [\d.,]+ \| [\d.,]+ \| [\d.]+ \| [\d.]+ \|  \| 1 \|", done.output
    )
