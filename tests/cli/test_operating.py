"""What operators do by the command line, on every backend."""

import asyncio
import base64
import json
from pathlib import Path

import pytest

import stepwell
from stepwell.cli.command import person
from tests.cli.kit import APP, Cli


@pytest.mark.proves("MM-02", "MM-07")
def test_queues_are_listed_paused_and_purged(cli: Cli) -> None:
    cli("send", "emails", "ada@example.org")
    cli("send", "emails", "grace@example.org", "--delay", "1h")
    cli("queue", "pause", "emails")
    cli("worker", APP, "--once")
    [emails] = [one for one in cli("queue", "ls", "--json").json if one["queue"] == "emails"]
    assert emails["oldest"] >= 0
    del emails["oldest"]
    counts = {"ready": 1, "waiting": 1, "running": 0, "dead": 0, "suspects": 0, "scheduled": 1, "set_aside": 0}
    assert emails == {"queue": "emails", "paused": True, "draining": False, "unreadable": 0, **counts}
    assert "paused" in cli("queue", "ls").out
    assert "is claimed from again" in cli("queue", "resume", "emails").out
    assert "Nothing was done" in cli("queue", "purge", "emails", code=4).error
    assert "2 messages of emails deleted for good" in cli("queue", "purge", "emails", "--yes").out
    assert cli("queue", "drain", "emails", "--json").json == {"queue": "emails", "left": 0}
    assert "takes messages again" in cli("queue", "reopen", "emails").out


@pytest.mark.proves("arrivals-02", "arrivals-04")
def test_options_say_what_a_key_means(cli: Cli) -> None:
    key = ("--key", "ada", "--debounce", "1h", "--debounce-max", "2h", "--expires", "1d")
    first = cli("send", "emails", "ada@example.org", *key, "--json").json
    again = cli("send", "emails", "bob@example.org", *key)
    assert "it has the new input now" in again.out
    [waiting] = cli("message", "ls", "emails", "--state", "waiting", "--json").json["messages"]
    assert (waiting["id"], waiting["input"]) == (first["task"], "bob@example.org")
    words = ("send", "emails", "eve@example.org", "--key", "ada", "--on-conflict", "error")
    assert f"belongs to task {first['task']}" in cli(*words, code=4).error
    newest = ("--key", "n", "--newest", "--json")
    old, new = (cli("trigger", "welcome", "ada@example.org", *newest).json["run"] for _ in range(2))
    assert f"superseded by {new}" in cli("why", old).out


def test_messages_are_archived_deleted_and_restored_by_their_ids(cli: Cli) -> None:
    one, other = (cli("send", "emails", to, "--json").json["task"] for to in ("ada@example.org", "bob@example.org"))
    assert "is archived: never delivered again" in cli("message", "archive", one).out
    assert cli("message", "archive", one, "--json", code=4).json == [{"task": int(one), "done": False}]
    assert "is not taken by hand" in cli("message", "release", other, "--delay", "1m", code=4).out
    assert "can be restored" in cli("message", "delete", other, "--reason", "twice").out
    assert cli("message", "restore", other, "--json").json == [{"task": int(other), "done": True}]
    assert "was not deleted" in cli("message", "restore", other, code=4).out
    assert "is delivered again" in cli("message", "requeue", one).out
    listed = cli("message", "ls", "emails", "--json").json["messages"]
    assert [message["id"] for message in listed] == [int(other), int(one)]
    assert "bob@example.org" in (page := cli("message", "ls", "emails", "--limit", 1).out)
    assert "ada@example.org" in cli("message", "ls", "emails", "--after", page.split("--after ")[1].strip()).out
    assert "is cancelled" in cli("message", "cancel", other, "--reason", "twice").out
    assert "is finished" in cli("message", "cancel", other, code=4).out
    assert "CANCELLED" in cli("message", "ls", "emails", "--state", "finished").out
    assert "emails has no message that is running" in cli("message", "ls", "emails", "--state", "running").out
    assert cli("message", "requeue", one, "--json", code=4).json == [{"task": int(one), "done": False}]


def test_workers_are_listed(cli: Cli) -> None:
    assert "no worker lives" in cli("workers").out
    [ended] = cli("workers", "--all", "--json").json
    assert ended["handlers"] == ["fulfil", "welcome", "wait_long", "emails"]
    assert ended["stop_reason"] == "stopped"
    assert "stopped" in cli("workers", "--all").out


def test_a_worker_takes_what_app_names(cli: Cli) -> None:
    for app, served in (
        (f"{APP}:pair", ["welcome", "emails"]),
        (f"{APP}:chosen", ["welcome"]),
        (f"{APP}:chosen_later", ["welcome"]),
        (f"{APP}:send", ["emails"]),
    ):
        cli("worker", app, "--once")
        assert cli("workers", "--all", "--json").json[0]["handlers"] == served
    cli("worker", APP, "--once", "--queue", "emails:2", "--queue", "welcome")
    assert cli("workers", "--all", "--json").json[0]["handlers"] == ["welcome", "emails"]


def test_maintenance_stops_claiming(cli: Cli) -> None:
    cli("send", "emails", "ada@example.org")
    assert "nothing is claimed any more" in cli("maintenance", "begin", "--reason", "a new disk").out
    assert cli("worker", APP, "--once", "--json").json == {"attempts": 0}
    assert "a new disk" in cli("doctor", code=1).out
    assert cli("maintenance", "end", "--json").json == {"maintenance": None}
    assert cli("worker", APP, "--once", "--json").json == {"attempts": 1}


def test_old_tasks_are_pruned(cli: Cli) -> None:
    cli("send", "emails", "ada@example.org")
    cli("worker", APP, "--once")
    assert cli("prune", "--older-than", "0s", "--dry-run", "--json").json == {"count": 1, "dry_run": True}
    assert "1 task " in cli("prune", "--older-than", "0s").out
    assert "0 tasks" in cli("prune", "--older-than", "0s").out


@pytest.mark.proves("security-15")
def test_a_subject_is_forgotten(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"current": "a", "keys": {"a": base64.b64encode(bytes(32)).decode()}}))
    monkeypatch.setenv("STEPWELL_KEYS", str(keys))
    locked = Cli(f"{cli.url}{'&' if '?' in str(cli.url) else '?'}codec=encrypted")

    async def sent() -> None:
        async with stepwell.connect(locked.url) as store:
            with stepwell.headers({"subject": "customer/17"}):
                await store.enqueue("emails", "ada@example.org")

    cli("send", "emails", "bob@example.org")
    asyncio.run(sent())
    assert "ada@example.org" in locked("message", "ls", "emails").out
    assert "unreadable for good?" in locked("forget", "customer/17", code=4).error
    assert "is forgotten" in locked("forget", "customer/17", "--yes").out
    left = locked("message", "ls", "emails").out
    assert ("ada@" in left, "bob@" in left) == (False, True)
    assert locked("forget", "customer/17", "--yes", "--json", code=1).json["forgotten"] is False
    assert "without encryption" in cli("forget", "customer/17", "--yes", code=2).error


def test_what_the_store_keeps_is_what_is_pruned_unless_said_otherwise(cli: Cli) -> None:
    assert "finished more than 7 d ago would be removed" in cli("prune", "--dry-run").out
    own = Cli(f"{cli.url}{'&' if '?' in str(cli.url) else '?'}keep=2d")
    assert "finished more than 2 d ago would be removed" in own("prune", "--dry-run").out
    ever = Cli(f"{cli.url}{'&' if '?' in str(cli.url) else '?'}keep=forever")
    assert "say how old it must be" in ever("prune", code=2).error


def test_a_dead_letter_is_shown_by_the_number_that_is_listed(cli: Cli) -> None:
    cli("send", "emails", "nowhere")
    cli("worker", APP, "--once")
    [letter] = cli("dead", "ls", "--json").json["dead_letters"]
    shown = cli("show", letter["id"])
    assert f"message {letter['id']}" in shown.out
    assert "no mailbox nowhere" in shown.out
    names = {one["id"]: one["name"] for one in cli("workers", "--all", "--json").json}
    assert letter["last_worker_name"] == names[letter["last_worker"]]
    assert f"worker {letter['last_worker_name']} (session {letter['last_worker']})" in shown.out
    assert f"next: stepwell dead requeue {letter['id']}" in shown.out
    assert cli("show", letter["id"], "--json").json["queue"] == "emails"
    refused = cli("cancel", letter["id"], code=3)
    assert f"{letter['id']} is the message of that number in 'emails'" in refused.error


def test_runs_are_found_by_the_words_that_the_list_prints(cli: Cli) -> None:
    waits = cli("trigger", "wait_long", "1h", "--json").json["run"]
    cli("worker", APP, "--once")
    queued = cli("trigger", "welcome", "ada", "--json").json["run"]
    done = cli("trigger", "welcome", "bob", "--json").json["run"]
    for word, run in (("waiting", waits), ("queued", queued)):
        assert word in cli("runs").out
        assert run in [one["id"] for one in cli("runs", "--status", word, "--json").json["runs"]]
    assert waits not in [one["id"] for one in cli("runs", "--status", "queued", "--json").json["runs"]]
    cli("worker", APP, "--once")
    succeeded = [one["id"] for one in cli("runs", "--status", "succeeded", "--json").json["runs"]]
    assert {queued, done} <= set(succeeded)
    assert len(cli("runs", "--status", "waiting", "--limit", "1", "--json").json["runs"]) == 1


@pytest.mark.parametrize("word", ["Success", "SUCCESS", "succeeded", "Succeeded"])
def test_a_status_is_found_in_any_letter_case(cli: Cli, word: str) -> None:
    done = cli("trigger", "welcome", "bob", "--json").json["run"]
    cli("worker", APP, "--once")
    assert done in [one["id"] for one in cli("runs", "--status", word, "--json").json["runs"]]


def test_the_tables_are_made_and_compared(empty: Cli, backend: str) -> None:
    assert empty("migrate", "--json").json["backend"] == backend
    assert "this release's" in empty("migrate").out
    assert "exactly this release's" in empty("migrate", "--verify").out


def test_top_shows_queues_workers_and_runs(cli: Cli) -> None:
    cli("trigger", "welcome", "ada@example.org", "--key", "ada")
    shown = cli("top").out
    assert "ready 1   running 0   waiting 0   dead 0   workers 0" in shown
    assert "◌ queued" in shown
    frame = cli("top", "--json").json
    assert [run["key"] for run in frame["runs"]] == ["ada"]


def test_bench_measures_and_leaves_nothing_behind(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepwell.cli.metrics.ALONE", 20)
    queues = cli("queue", "ls", "--json").json
    figures = cli("bench", "--messages", "100", "--json").json
    assert figures["handled_per_s"] > 0
    assert figures["steps_per_s"] > 0
    assert cli("queue", "ls", "--json").json == queues


@pytest.mark.proves("security-11")
def test_the_audit_says_who_acted_and_is_verified(cli: Cli) -> None:
    own = Cli(f"{cli.url}{'&' if '?' in str(cli.url) else '?'}seal_audit=true")
    assert own("audit", "ls").out == "nothing was noted\n"
    task = own("send", "emails", "ada@example.org", "--json").json["task"]
    own("queue", "pause", "emails")
    own("message", "delete", task, "--reason", "twice")
    head = own("audit", "seal").out.strip()
    assert len(head) == 64
    [deleted, paused] = own("audit", "ls", "--json").json["notes"]
    assert (paused["note"]["what"], paused["task_id"], paused["note"]["detail"]) == ("queue paused", None, "emails")
    assert deleted["note"]["actor"] == paused["note"]["actor"] == person()
    assert person() in own("audit", "ls").out
    assert f"fit 1 seal over 2 notes\nhead {head}\n" in own("audit", "verify", "--head", head).out
    failed = own("audit", "verify", "--head", "0" * 64, "--json", code=1).json
    assert (failed["whole"], [one["seal"] for one in failed["verdict"]["faults"]]) == (False, [1])
    assert "✕ seal 1: no seal has the hash" in own("audit", "verify", "--head", "0" * 64, code=1).out
