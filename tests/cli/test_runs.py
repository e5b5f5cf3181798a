"""Runs and messages by the command line, on every backend: trigger, list, show, retry, cancel, send, export."""

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from stepwell.operate.format import span
from tests.cli.kit import APP, Cli


def test_a_triggered_run_is_found_by_number_key_and_place(cli: Cli) -> None:
    run = cli("trigger", "fulfil", "cents:=1900", 'parcels:=["lamp","desk"]', "--key", "order-7", "--json").json
    assert run["created"]
    assert run["served"] is False
    again = cli("trigger", "fulfil", "cents:=1900", 'parcels:=["lamp","desk"]', "--key", "order-7")
    assert "nothing was written" in again.out
    cli.work()
    for name in (run["run"], "order-7", "fulfil:order-7"):
        assert cli("show", name, "--json").json["id"] == run["run"]
    shown = cli("show", "@last", "--json").json
    assert shown["id"] == run["run"]
    assert shown["output"] == ["receipt over 1900", "lamp", "desk"]
    assert [(step["key"], step["attempt"]) for step in shown["steps"]] == [
        ("charge#1", 2),
        ("sleep#1", 1),
        ("ship#1", 1),
        ("ship#2", 1),
    ]


@pytest.mark.proves("MM-10")
def test_runs_are_listed_and_filtered(cli: Cli) -> None:
    cli("trigger", "welcome", "ada@example.org", "--tag", "new")
    cli("trigger", "welcome", "unicorn")
    cli.work()
    listed = cli("runs")
    assert "✓ succeeded" in listed.out
    assert "no unicorn is left" in listed.out, "by `last_error`, without a look into its JSON"
    assert [
        run["last_error"] is None for run in cli("runs", "welcome", "--status", "success", "--json").json["runs"]
    ] == [True]
    assert len(cli("runs", "--status", "failed", "--since", "1h", "--json").json["runs"]) == 1
    assert len(cli("runs", "--tag", "new", "--ids").out.split()) == 1
    page = cli("runs", "--limit", "1", "--json").json
    assert len(cli("runs", "--limit", "1", "--after", page["next"], "--json").json["runs"]) == 1
    assert "no runs fit" in cli("runs", "--key", "nobody").out


def test_a_failed_run_is_shown_with_its_line_and_retried_from_its_step(cli: Cli, sold_out: set[str]) -> None:
    cli("trigger", "fulfil", "cents=5", 'parcels=["unicorn"]', "--key", "order-8", "--app", APP)
    cli.work()
    shown = cli("show", "@failed")
    assert "✕ ship#1, attempt 1: PermanentError: no unicorn is left" in shown.out
    assert "shop.py" in shown.out
    # A store that notes them tells of failed attempts, any other that it does not.
    assert "charge#1 step failed (attempt 1" in shown.out or "only the last is recorded" in shown.out
    planned = cli("retry", "order-8", "--dry-run")
    assert "would go on from ship#1" in planned.out
    assert "recorded, will not run again: charge#1, sleep#1" in planned.out
    assert cli("show", "order-8", "--json").json["status"] == "ERROR"
    sold_out.clear()
    assert (
        cli("retry", "-", given=cli("runs", "--status", "failed", "--ids").out, code=0).out.count("goes on from") == 1
    )
    cli.work()
    assert cli("show", "order-8", "--json").json["output"] == ["receipt over 5", "unicorn"]
    refused = cli("retry", "order-8", code=4)
    assert "only failed and cancelled runs are retried" in refused.out


def test_after_a_retry_a_run_is_summed_up_from_its_first_beginning(cli: Cli, sold_out: set[str]) -> None:
    run = cli("trigger", "fulfil", "cents:=5", 'parcels:=["unicorn"]', "--json").json["run"]
    cli.work()
    sold_out.clear()
    cli("retry", run)
    queued = cli("show", run)
    assert "◌ queued" in queued.out.splitlines()[0]
    assert "took" not in queued.out.splitlines()[0]
    assert [line.split()[1] for line in queued.out.splitlines() if "to be done again" in line] == ["ship#1"]
    cli.work()
    done = cli("show", run, "--json").json
    at = {name: datetime.fromisoformat(done[name]) for name in ("created_at", "started_at", "finished_at")}
    begun = datetime.fromisoformat(min(step["started_at"] for step in done["steps"]))
    assert at["created_at"] <= begun < at["started_at"], "its last start is that of the retry"
    took = (at["finished_at"] - begun).total_seconds()
    shown = cli("show", run).out.splitlines()
    assert f"✓ succeeded   took {span(took)}" in shown[0]
    assert [line for line in shown if "to be done again" in line] == []


def test_a_number_that_is_also_a_key_is_refused_to_another_process_with_both_readings(cli: Cli) -> None:
    first = cli("trigger", "wait_long", "1h", "--json").json["run"]
    second = cli("trigger", "wait_long", "2h", "--key", first, "--json").json["run"]
    environment = {**os.environ, "STEPWELL_URL": str(cli.url), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "stepwell", "cancel"]
    refused = subprocess.run([*command, str(first)], env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 4, refused
    both = f"{first} is run {first} (wait_long), and the key of run {second} (wait_long {first})"
    assert both in refused.stderr
    assert f"@{first}, or wait_long:{first}" in refused.stderr
    assert {run["status"] for run in cli("runs", "--json").json["runs"]} == {"PENDING"}, "nothing was done"
    subprocess.run([*command, f"@{first}"], env=environment, capture_output=True, text=True, check=True)
    ended = {run["id"]: run["status"] for run in cli("runs", "--json").json["runs"]}
    assert ended == {first: "CANCELLED", second: "PENDING"}


def test_a_waiting_run_is_cancelled_once(cli: Cli) -> None:
    run = cli("trigger", "wait_long", "1h", "--json").json["run"]
    cli("worker", APP, "--once")
    assert "◷ waiting" in cli("show", run).out
    assert "is cancelled" in cli("cancel", run, "--reason", "no longer wanted").out
    assert cli("cancel", run, "--json", code=4).json == [{"run": run, "answer": "TOO_LATE"}]
    assert cli("show", run, "--json").json["status"] == "CANCELLED"


def test_a_run_is_waited_for(cli: Cli) -> None:
    run = cli("trigger", "wait_long", "1h", "--wait", "--timeout", "10ms", code=1)
    assert "goes on without us" in run.out
    assert "no living worker serves wait_long: waiting for one" in run.error
    assert (
        cli("trigger", "wait_long", "1h", "--wait", "--timeout", "10ms", "--json", code=1).json["status"] == "PENDING"
    )


def test_a_message_is_sent_and_dies(cli: Cli) -> None:
    sent = cli("send", "emails", "nobody", "--json").json
    assert sent["created"]
    cli("send", "emails", "ada@example.org", "--key", "a")
    assert "nothing was written" in cli("send", "emails", "ada@example.org", "--key", "a").out
    cli("worker", APP, "--once")
    assert "no mailbox nobody" in cli("dead", "ls").out
    assert [one["id"] for one in cli("dead", "ls", "--queue", "emails", "--json").json["dead_letters"]] == [
        sent["task"]
    ]
    assert "1 task is queued again" in cli("dead", "requeue", "--error", "PermanentError").out
    cli("worker", APP, "--once")
    assert "there is no terminal to ask at" in cli("dead", "drop", sent["task"], code=4).error
    assert cli("dead", "drop", sent["task"], "--yes", "--json").json == {"count": 1}
    assert "no dead letters" in cli("dead", "ls").out
    cli("dead", "requeue", code=2)
    cli("dead", "requeue", sent["task"], code=4)


def test_a_run_is_exported(cli: Cli) -> None:
    cli("trigger", "fulfil", "cents:=1", 'parcels:=["lamp","desk"]', "--key", "order-7")
    cli.work()
    whole = cli("export", "run", "order-7").json
    assert whole["format"] == 1
    assert len(whole["steps"]) == 4
    mermaid = cli("export", "graph", "order-7").out
    assert 's0["charge#1 ✓"]' in mermaid
    assert "s1 --> s2\n  s1 --> s3" in mermaid, "what overlapped stands side by side"
    assert "s0 -> s1;" in cli("export", "graph", "order-7", "--format", "dot").out
    assert cli("export", "graph", "order-7", "--json").json["ranks"][-1] == ["ship#1", "ship#2"]


@pytest.mark.proves("VR-01", "VR-05", "VR-06")
def test_versions_are_names_and_none_is_the_latest(empty: Cli) -> None:
    names = ["pay_v1", "pay.1.4.2", "pay-2026-01-31", "pay-3f2a9c1", "pay:staging"]
    empty("migrate")
    empty("worker", "tests.cli.versions", "--once")
    for name in names:
        empty("trigger", name, "5")
    empty("worker", "tests.cli.versions", "--once")
    ended = {run["workflow"]: run["output"] for run in empty("runs", "--json").json["runs"]}
    assert ended == {name: f"5 by {name}" for name in names}
    assert {one["queue"] for one in empty("queue", "ls", "--json").json} == set(names), "a queue of its own for each"
    assert "no workflow is named pay" in empty("trigger", "pay", "5", code=3).error


@pytest.mark.proves("VR-02", "VR-03")
def test_what_began_on_one_version_ends_on_it(empty: Cli) -> None:
    empty("worker", "tests.cli.versions", "--once")
    empty("trigger", "pay_v1", "1")
    empty("trigger", "pay.1.4.2", "2")
    assert "1 to go" in empty("queue", "drain", "pay_v1").out
    empty("worker", "tests.cli.versions:newer", "--once")
    assert empty("queue", "drain", "pay_v1", "--wait", "10ms", "--json", code=1).json["left"] == 1
    empty("worker", "tests.cli.versions", "--once")
    assert "its workers may go" in empty("queue", "drain", "pay_v1", "--wait", "1s").out
    outputs = {run["workflow"]: run["output"] for run in empty("runs", "--json").json["runs"]}
    assert outputs == {"pay_v1": "1 by pay_v1", "pay.1.4.2": "2 by pay.1.4.2"}
    assert "is being drained" in empty("trigger", "pay_v1", "3", code=4).error


def test_input_comes_from_a_file_and_from_standard_input(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "input.json"
    file.write_text(json.dumps({"cents": 3, "parcels": []}))
    first = cli("trigger", "fulfil", f"@{file}", "--json").json["run"]
    second = cli("trigger", "fulfil", "-", "--json", given='{"cents": 3, "parcels": []}').json["run"]
    assert [cli("show", run, "--json").json["input"] for run in (first, second)] == [{"cents": 3, "parcels": []}] * 2
