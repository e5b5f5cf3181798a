"""What goes wrong: one clear sentence, the documented exit code, and a command that helps."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell import sync
from stepwell.store.schema import latest
from stepwell.store.sql import Statements
from tests.cli.kit import APP, Cli
from tests.cli.shop import welcome
from tests.store.place import NextRelease

DOORS = "tests.cli.doors"


@pytest.fixture
def here(seen: Callable[[str, Path], Cli], tmp_path: Path) -> Cli:
    """A store in a file."""
    return seen(APP, tmp_path)


@pytest.mark.parametrize(
    ("words", "code", "said", "tried"),
    [
        (["show", "12345"], 3, "there is no run 12345", "stepwell runs"),
        (["show", "order-404"], 3, "no run has the key 'order-404'", "stepwell runs"),
        (["show", "@last"], 3, "there are no runs", "stepwell runs"),
        (["show", "@failed"], 3, "no run has failed", "stepwell runs"),
        (["show", "@newest"], 2, "@newest names no run", "@last"),
        (["runs", "nope"], 3, "no workflow is named nope", "stepwell worker APP"),
        (["trigger", "nope"], 3, "no workflow is named nope", "stepwell worker APP"),
        (["trigger", "nope", "--app", APP], 3, "defines no workflow nope", "fulfil, welcome"),
        (["trigger", "fulfil", "cents=5", "--app", APP], 2, "fulfil needs parcels", "fulfil cents:=JSON parcels:=JSON"),
        (["trigger", "fulfil", "cents=ten", "parcels=[]", "--app", APP], 2, "cents of fulfil", None),
        (["trigger", "fulfil", "cents:=ten"], 2, "cents:= takes JSON", None),
        (["trigger", "fulfil", "1", "2"], 2, "only one value can stand alone", None),
        (["trigger", "fulfil", "cents=1", "2"], 2, "'2' is neither name=text nor name:=json", None),
        (["trigger", "fulfil", "cents=1", "cents=2"], 2, "cents is given twice", None),
        (["trigger", "fulfil", "@nowhere.json"], 2, "cannot read nowhere.json", None),
        (["trigger", "fulfil", "1", "--delay", "soon"], 2, "delay", None),
        (["trigger", "fulfill", "1"], 3, "no workflow is named fulfill", "the same with fulfil"),
        (["send", "email", "1"], 3, "no queue is named email", "the same with emails"),
        (["send", "nope", "1"], 3, "no queue is named nope", "stepwell queue ls"),
        (["why", "12345"], 3, "there is no run 12345", "stepwell runs"),
        (["pause", "12345"], 3, "there is no run 12345", "stepwell runs"),
        (["resume", "12345"], 3, "there is no run 12345", "stepwell runs"),
        (["resume", "12345", "approval", "1"], 3, "there is no run 12345", "stepwell runs"),
        (["signal", "12345", "approved"], 3, "there is no run 12345", "stepwell runs"),
        (["fork", "12345", "--at", "charge"], 3, "there is no run 12345", "stepwell runs"),
        (["delete", "12345"], 3, "there is no run 12345", "stepwell runs"),
        (["restore", "12345"], 3, "there is no run 12345", "stepwell runs"),
        (["restore", "order-404"], 3, "no deleted run has the key 'order-404'", "stepwell runs --deleted"),
        (["runs", "--parent", "12345"], 3, "there is no run 12345", "stepwell runs"),
        (["cancel"], 2, "no run was named", "--workflow"),
        (["cancel", "1", "--workflow", "fulfil"], 2, "give one of the two", None),
        (["cancel", "--workflow", "nope", "--yes"], 3, "no workflow is named nope", None),
        (["cancel", "--workflow", "fulfil"], 4, "Nothing was done: there is no terminal to ask at", "--yes"),
        (["delete", "--all"], 4, "Nothing was done: there is no terminal to ask at", "--yes"),
        (["retry", "--workflow", "fulfil", "--from", "a"], 2, "--from goes on with one run", "retry RUN --from a"),
        (["decider", "show", "door", "front"], 3, "there is no door front", "stepwell decider ls door"),
        (["decider", "graph", "door", "--app", APP], 3, f"{APP} defines no decider", "a class of Decider"),
        (["decider", "graph", "gate", "--app", DOORS], 3, "no decider of type 'gate'", "--app"),
        (["decider", "send", "door", "Nope", "--app", DOORS], 2, "door has no input Nope", "Push, Close, Lock"),
        (["decider", "send", "door", "Push", "force=1", "--app", DOORS], 2, "door", None),
        (["decider", "send", "door", "{", "--app", DOORS], 2, "say which input it is", None),
        (["queue", "pause", "nope"], 3, "no queue is named nope", "stepwell queue ls"),
        (["worker", "tests.cli.nowhere"], 3, "there is no module tests.cli.nowhere", "in the folder that has"),
        (["worker", "tests.cli.broken"], 2, "tests.cli.broken cannot be imported: ZeroDivision", "python -c"),
        (["worker", "tests/cli/shop.py"], 2, "APP is a module, not a file", "tests.cli.shop"),
        (["worker", f"{APP}:nope"], 3, f"module {APP} has no nope", f"{APP}:fulfil"),
        (["worker", f"{APP}:nothing"], 2, "a worker serves what is decorated", None),
        (["worker", "tests.cli.flaws"], 3, "defines no workflow, handler or decider", "@workflow"),
        (["worker", APP, "--queue", "nope"], 3, "APP serves no queue nope", "--queue fulfil"),
        (["worker", APP, "--health", "everywhere", "--once"], 2, "--health takes a port", "--health 8081"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_one_sentence_and_the_exit_code(here: Cli, words: list[str], code: int, said: str, tried: str | None) -> None:
    answer = here(*words, code=code)
    assert answer.out == ""
    first, *rest = answer.error.splitlines()
    assert first.startswith("error: ")
    assert said in answer.error
    assert "Traceback" not in answer.error
    if tried is not None:
        assert rest[-1].startswith("try:   ")
        assert tried in rest[-1]
    told = json.loads(here(*words, "--json", code=code).error)
    assert told["exit_code"] == code
    assert said in told["error"]


def test_a_key_of_two_workflows_is_refused_with_both(here: Cli) -> None:
    here("trigger", "welcome", "a", "--key", "twice")
    here("trigger", "wait_long", "1h", "--key", "twice")
    refused = here("show", "twice", code=4)
    assert "is the key of 2 runs" in refused.error
    assert "wait_long:twice or welcome:twice" in refused.error
    assert here("show", "welcome:twice", "--json").json["workflow"] == "welcome"


def test_a_key_that_was_used_again_means_its_newest_run(here: Cli) -> None:
    with sync.connect(here.url) as store:
        first, second = [
            _triggered_and_done(here, store, welcome.trigger("a").options(key="daily", unique="unfinished"))
            for _ in range(2)
        ]
    assert first < second
    assert here("show", "daily", "--json").json["id"] == second


def _triggered_and_done(here: Cli, store: sync.Store, trigger: Any) -> int:
    run_id: int = trigger.options(require_worker="ignore").execute(store)
    here.work()
    return run_id


def test_another_payload_under_a_key_is_refused(here: Cli) -> None:
    run = here("trigger", "welcome", "a", "--key", "k", "--json").json["run"]
    refused = here("trigger", "welcome", "b", "--key", "k", code=4)
    assert f"try:   stepwell show {run}" in refused.error


def test_a_missing_file_is_not_made_by_looking(tmp_path: Path) -> None:
    cli = Cli(f"sqlite:///{tmp_path}/nowhere.db")
    for words in (["runs"], ["doctor"], ["top"], ["send", "q", "1"]):
        assert "there is no store at sqlite:///" in cli(*words, code=5).error
    assert not list(tmp_path.iterdir())


def test_a_database_without_our_tables(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "theirs.db").execute("create table theirs (id int)").connection.close()
    refused = Cli(f"sqlite:///{tmp_path}/theirs.db")("runs", code=5)
    assert "no stepwell tables" in refused.error
    assert "try:   stepwell migrate" in refused.error


def test_an_older_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli = Cli(f"sqlite:///{tmp_path}/old.db")
    cli("migrate")
    known = latest(Statements("sqlite", "stepwell"))
    monkeypatch.setattr(Statements, "migrations", NextRelease.migrations)
    refused = cli("doctor", code=5)
    assert f"the store has schema {known}, this release needs {known + 1}" in refused.error
    assert "try:   stepwell migrate" in refused.error
    cli("migrate")
    cli("doctor")


def test_a_newer_schema(here: Cli, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "store.db") as raw:
        raw.execute("insert into stepwell_migration (number, name, applied_at) values (99, 'later', 1)")
    raw.close()
    for words in (["runs"], ["migrate"], ["doctor"], ["worker", APP]):
        refused = here(*words, code=5)
        assert "schema 99" in refused.error
        assert "upgrade" in refused.error


def test_no_database_answers() -> None:
    refused = Cli("postgresql://ada:secret@127.0.0.1:1/shop")("doctor", code=5)
    assert "cannot open postgresql://ada:***@127.0.0.1:1/shop" in refused.error
    assert "secret" not in refused.error
    assert "try:   start the database" in refused.error


@pytest.mark.parametrize("url", ["mysql://x", "sqlite:///a.db?colour=red", "nonsense", "memory:"])
def test_a_wrong_address_is_a_usage_error(url: str) -> None:
    assert Cli(url)("runs", code=2).error.startswith("error: ")


def test_a_program_that_begins_when_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "unguarded.py").write_text("import asyncio\nasync def main(): pass\nasyncio.run(main())\n")
    command = [sys.executable, "-m", "stepwell", "worker", "unguarded", "--url", "sqlite:///x.db"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    said, tried = done.stderr.splitlines()
    assert said.startswith("error: unguarded does its work when it is imported")
    assert 'if __name__ == "__main__":' in tried


def test_interrupted(here: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("stepwell.cli.open.check_there", lambda *_, **__: interrupt())
    assert here("runs", code=130).out == ""
