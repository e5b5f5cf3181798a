"""What `stepwell doctor` says in each situation, and the next command it names.

Those that can be made here are made for real; what a database says of itself, or a clock, is told to it.
"""

import dataclasses
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import Count, sync
from stepwell.base.count import NONE
from stepwell.operate.doctor import Finding, findings
from stepwell.operate.facts import Facts
from stepwell.records import Aside, Health, QueueStats, WorkerInfo
from stepwell.workload import Serves
from tests.cli.kit import APP, Cli
from tests.cli.shop import fulfil, send, wait_long, welcome
from tests.ground.waiting import wait_for

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def said(cli: Cli, about: str, *, problems: bool) -> list[dict[str, Any]]:
    """The findings about something that are not good."""
    # The Postgres of these tests does not flush to the disk, and doctor says so every time.
    unsafe = cli.url is not None and cli.url.startswith("postgres")
    found = cli("doctor", "--json", code=1 if problems or unsafe else 0).json["findings"]
    assert any(one["level"] == "problem" and one["about"] != "durability" for one in found) is problems
    assert all(one["next"] for one in found if one["level"] != "good"), "every one names what to do"
    return [one for one in found if one["about"] == about and one["level"] != "good"]


@contextmanager
def working(cli: Cli, *serves: Serves) -> Iterator[sync.Store]:
    with ExitStack() as stack:
        store = stack.enter_context(sync.connect(cli.url))
        stack.enter_context(sync.Worker(store, serves))
        yield store


class TestMadeForReal:
    def test_an_idle_store_with_no_worker(self, cli: Cli) -> None:
        [finding] = said(cli, "workers", problems=False)
        assert finding == {
            "level": "warning",
            "about": "workers",
            "said": "no worker lives; 0 tasks wait",
            "next": "stepwell worker APP",
        }

    def test_work_and_no_worker(self, cli: Cli) -> None:
        cli("send", "emails", "ada@example.org")
        [finding] = said(cli, "workers", problems=True)
        assert finding["said"] == "no worker lives; 1 task waits"
        assert cli("doctor", "--quiet", code=1).out

    @pytest.mark.backends("sqlite", "postgres", reason="Turso serves one process, and one store in it at a time here")
    def test_a_workflow_that_no_worker_serves(self, cli: Cli) -> None:
        cli("trigger", "fulfil", "cents:=1", "parcels:=[]")
        with working(cli, send):
            [finding] = said(cli, "queue", problems=True)
        assert finding["said"] == "fulfil has 1 task and no living worker serves it"
        assert finding["next"] == "stepwell worker APP --queue fulfil"

    @pytest.mark.backends("sqlite", "postgres", reason="Turso serves one process, and one store in it at a time here")
    def test_all_is_well(self, cli: Cli) -> None:
        with working(cli, fulfil, welcome, wait_long, send):
            assert said(cli, "workers", problems=False) == said(cli, "queue", problems=False) == []

    @pytest.mark.proves("L-05")
    @pytest.mark.backends("sqlite", "postgres", reason="Turso serves one process, and one store in it at a time here")
    def test_which_sessions_have_a_helper_and_which_have_none(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        with working(cli, send):
            assert said(cli, "helpers", problems=False) == []
            found = cli("doctor", "--json", code=None).json["findings"]
            [finding] = [one for one in found if one["about"] == "helpers"]
            assert finding["said"].endswith("by a child")
        monkeypatch.setattr(sys, "executable", "/usr/bin/uwsgi")
        with working(cli, send):
            [finding] = said(cli, "helpers", problems=False)
        assert "has no helper: sys.executable of its program is no Python" in finding["said"]

    def test_a_paused_queue(self, cli: Cli) -> None:
        cli("send", "emails", "ada@example.org")
        cli("queue", "pause", "emails")
        [finding] = said(cli, "queue", problems=True)
        assert finding["next"] == "stepwell queue resume emails"

    def test_a_drained_queue(self, cli: Cli) -> None:
        cli("queue", "drain", "emails")
        [finding] = said(cli, "queue", problems=False)
        assert finding["next"] == "stepwell queue reopen emails"

    def test_maintenance(self, cli: Cli) -> None:
        cli("maintenance", "begin", "--reason", "a new disk")
        [finding] = said(cli, "maintenance", problems=True)
        assert "maintenance (a new disk)" in finding["said"]
        assert finding["next"] == "stepwell maintenance end"

    def test_dead_letters(self, cli: Cli) -> None:
        cli("send", "emails", "nobody")
        cli("worker", APP, "--once")
        [finding] = said(cli, "dead letters", problems=False)
        assert finding == {
            "level": "warning",
            "about": "dead letters",
            "said": "1 in emails",
            "next": "stepwell dead ls",
        }

    def test_runs_that_wait_for_somebody(self, desk: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        runs = [desk("trigger", "purchase", "lamp", "--json").json["run"] for _ in range(3)]
        desk.serve()
        assert said(desk, "runs", problems=True) == [], "a signal may take its time"
        desk("pause", runs[0])
        monkeypatch.setattr("stepwell.operate.doctor.LONG_WAITING", 0.0)
        held, waiting = said(desk, "runs", problems=True)
        assert held["said"].startswith("1 are held back, the first for ")
        assert waiting["said"].startswith("2 wait for a signal without an end")

    @pytest.mark.backends(
        "postgres", reason="only there a transaction of somebody else keeps rows from being cleaned up"
    )
    def test_a_transaction_that_is_open_for_long(self, cli: Cli, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
        import psycopg  # noqa: PLC0415 - only for this

        monkeypatch.setattr("stepwell.operate.doctor.LONG_HELD", 0.05)
        assert cli.url is not None
        with psycopg.connect(cli.url) as other:
            other.execute("select pg_current_xact_id()")
            wait_for(lambda: said(cli, "transactions", problems=False), 10, message="the finding")

    def test_a_server_that_does_not_flush(self, cli: Cli, backend: str) -> None:
        code = 1 if backend == "postgres" else 0
        database, durability = cli("doctor", "--json", code=code).json["findings"][:2]
        assert "schema" in database["said"]
        if backend == "postgres":
            assert durability["level"] == "problem"
            assert "fsync=off" in durability["said"]
        else:
            assert durability["said"] == "journal_mode=wal, synchronous=full"
            assert cli("doctor", "--quiet").out == ""


def facts(**changes: Any) -> Facts:
    health = Health("postgres", "18.0", 4, {"fsync": "on", "synchronous_commit": "on"}, NOW, 0.001, 0.0)
    told = {name: changes.pop(name) for name in list(changes) if name in Health.__slots__}
    whole = Facts("somewhere", 4, dataclasses.replace(health, **told), (), (worker(),), None, NOW)
    return dataclasses.replace(whole, **changes)


def worker(**changes: Any) -> WorkerInfo:
    from stepwell import __version__  # noqa: PLC0415

    whole = WorkerInfo(7, "host-1", "host", os.getpid(), None, __version__, ("q",), 30.0, True, 0.5, NOW, None, None)
    return dataclasses.replace(whole, **changes)


def queue(**changes: Any) -> QueueStats:
    return dataclasses.replace(QueueStats("q", False, False, NONE, NONE, NONE, NONE, None), **changes)


SQLITE = {"backend": "sqlite", "held": None}
TOLD: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "fsync off": ({"settings": {"fsync": "off"}}, "problem", "fsync=off", "set fsync"),
    "commits that are not waited for": (
        {"settings": {"synchronous_commit": "off"}},
        "problem",
        "synchronous_commit=off",
        "set synchronous_commit",
    ),
    "SQLite without its log": (
        {**SQLITE, "version": "3.51.3", "settings": {"journal_mode": "delete"}},
        "problem",
        "delete",
        "set",
    ),
    "SQLite that does not wait for the disk": (
        {**SQLITE, "version": "3.51.3", "settings": {"synchronous": "normal"}},
        "problem",
        "synchronous=normal",
        "set synchronous",
    ),
    "SQLite with the bug": ({**SQLITE, "version": "3.51.2", "settings": {}}, "warning", "3.51.2", "wal_autocheckpoint"),
    "a clock ahead": ({"clock": NOW + timedelta(seconds=3)}, "warning", "3.0 s ahead of", "NTP"),
    "a clock behind": ({"clock": NOW - timedelta(seconds=90)}, "warning", "1.5 m behind", "NTP"),
    "a long transaction": ({"held": 600.0}, "warning", "open for 10 m", "pg_stat_activity"),
    "a slow database": ({"took": 0.4}, "warning", "400 ms", "stepwell bench"),
    "a silent session": ({"workers": (worker(silent=90.0),)}, "problem", "silent for 1.5 m", "stepwell worker APP"),
    "tasks that no code can read": (
        {"queues": (queue(queue="order:effects", waiting=2, unreadable=2, paused=True),)},
        "problem",
        "2 tasks of order:effects cannot be read",
        "last_error",
    ),
    "a frozen worker beside a living one": (
        {"workers": (worker(), worker(id=8, silent=90.0))},
        "problem",
        "session 8",
        "see what holds up process",
    ),
    "a killed worker": (
        {"workers": (worker(alive=False),)},
        "problem",
        "its process was killed",
        "stepwell worker APP",
    ),
    "lost workers": (
        {"workers": (worker(), worker(id=6, alive=False, silent=None, stop_reason="lost", stopped_at=NOW))},
        "warning",
        "1 session lost",
        "stepwell workers --all",
    ),
    "another release": ({"workers": (worker(version="0.0.1"),)}, "warning", "stepwell 0.0.1", "same release"),
    "runs that are held back": (
        {"aside": (Aside("unpause", Count(2), 7200.0),)},
        "warning",
        "2 are held back, the first for 2.0 h",
        "stepwell runs --status paused",
    ),
    "a run that nobody signals": (
        {"aside": (Aside("signal", Count(1), 8 * 86_400.0),)},
        "warning",
        "1 wait for a signal without an end, the first for 8 d",
        "stepwell why RUN",
    ),
    "effects that nobody carries out": (
        {"queues": (queue(queue="order:effects", ready=3),)},
        "problem",
        "3 effects of the decider order wait",
        "stepwell worker APP --queue order",
    ),
    "a served queue that is behind": (
        {"queues": (queue(ready=9, oldest=300.0),)},
        "warning",
        "9 ready tasks has waited for 5.0 m",
        "stepwell worker APP --queue q",
    ),
}


@pytest.mark.parametrize("situation", TOLD)
def test_a_situation_and_its_answer(situation: str) -> None:
    changes, level, words, next_ = TOLD[situation]
    bad = [one for one in findings(facts(**changes)) if one.level != "good"]
    found = [one for one in bad if words in one.said]
    assert len(found) == 1, bad
    assert found[0].level == level
    assert found[0].next is not None
    assert next_ in found[0].next


def test_nothing_is_wrong_with_a_store_that_is_well() -> None:
    well = [
        facts(),
        facts(**SQLITE, version="3.51.3", settings={"journal_mode": "wal", "synchronous": "full"}),
        facts(aside=(Aside("signal", Count(5), 6 * 86_400.0),)),
        facts(queues=(queue(ready=5, oldest=1.0), queue(queue="other", paused=True))),
    ]
    assert all(one.level == "good" for each in well for one in findings(each))


def test_findings_are_frozen_values() -> None:
    assert Finding("good", "a", "b") == Finding("good", "a", "b", None)
