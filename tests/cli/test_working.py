"""Workers as processes of their own: signals, probes, logs, and a new start when the code changes."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepwell.cli.dev import changes, seen
from tests.cli.kit import Cli
from tests.ground.ports import free_port
from tests.ground.waiting import wait_for

CODE = """
from stepwell import workflow

@workflow
async def greet(name: str) -> str:
    return f"{greeting}, {{name}}"
"""

LOGGED = """
import logging
import warnings
from stepwell import Context, Retry, current, step, workflow

log = logging.getLogger("shop")

@step(retry=Retry(2, base=0.01))
async def charge(cents: int) -> int:
    log.info("charging %d", cents)
    if cents < 0 or current().attempt == 1:
        raise ValueError("no money")
    return cents

@step
def ship() -> None:
    log.warning("shipping")
    warnings.warn("of Python's own")

@workflow
async def order(ctx: Context, cents: int) -> int:
    log.info("ordered")
    await ctx.step(ship)
    return await charge(cents)

@workflow
async def asks(ctx: Context) -> int:
    return await ctx.wait("word", int)
"""

IMPORTING = """
from flows import greet
from stepwell import workflow

@workflow
async def own() -> None: ...
"""

LOOPED = """
import asyncio
from stepwell import workflow

@workflow
async def which() -> str:
    return type(asyncio.get_running_loop()).__module__
"""

FROZEN = """
import gc
from stepwell import workflow

@workflow
async def frozen() -> list[int]:
    return [gc.get_freeze_count(), gc.get_threshold()[0]]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(CODE.format(greeting="hello"))
    return tmp_path


@contextmanager
def started(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a process of its own, in this folder; gone at the end."""
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "stepwell", *words],
            cwd=folder,
            stderr=log,
            stdout=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "STEPWELL_URL": "sqlite:///app.db"},
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def asked(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except OSError as error:
        return 0, str(error)


def test_a_worker_answers_probes_logs_json_and_ends_in_order(folder: Path) -> None:
    port = free_port()
    with started(folder, "worker", "app", "--health", str(port), "--json-logs") as process:
        wait_for(lambda: asked(port, "/readyz")[0] == 200, 60, message="readiness")
        assert asked(port, "/healthz") == (200, "ok\n")
        assert asked(port, "/readyz")[1].startswith("session ")
        assert asked(port, "/else")[0] == 404
        cli = Cli(f"sqlite:///{folder}/app.db")
        done = cli("trigger", "greet", "ada", "--wait", "--timeout", "60s", "--json").json
        assert done["output"] == "hello, ada"
        code, told = asked(port, "/metrics")
        ended = 'stepwell_workflow_runs_ended{workflow="greet",base="greet",status="SUCCESS"} 1'
        assert (code, ended in told.splitlines()) == (200, True), told
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    logged = [json.loads(line) for line in (folder / "log").read_text().splitlines()]  # and nothing else
    assert any("serving greet" in line["message"] for line in logged)
    assert any("session" in line["message"] and line["level"] == "info" for line in logged)
    assert cli("workers").out.startswith("no worker lives")


def test_a_line_that_a_body_logs_says_of_which_run_step_and_attempt_it_is(folder: Path) -> None:
    (folder / "logged.py").write_text(LOGGED)
    port = free_port()
    with started(folder, "worker", "logged", "--health", str(port), "--json-logs"):
        wait_for(lambda: asked(port, "/readyz")[0] == 200, 60, message="readiness")
        done = Cli(f"sqlite:///{folder}/app.db")("trigger", "order", "5", "--wait", "--timeout", "60s", "--json").json
    logged = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    where = {"run": done["id"], "workflow": "order", "attempt": 1}
    said = [(line["message"], _about(line)) for line in logged if line["logger"] == "shop"]
    assert [one for place, one in enumerate(said) if one not in said[:place]] == [
        ("ordered", where),
        ("shipping", {**where, "step": "ship#1"}),
        ("charging 5", {**where, "step": "charge#1"}),
        ("charging 5", {**where, "step": "charge#1", "attempt": 2}),
    ]
    [warned] = [_about(line) for line in logged if "of Python's own" in line["message"]]
    assert warned == {**where, "step": "ship#1"}, "and no plain line of it"


def test_a_line_that_stepwell_logs_says_of_which_run_and_attempt_it_is(folder: Path) -> None:
    (folder / "logged.py").write_text(LOGGED)
    cli = Cli(f"sqlite:///{folder}/app.db")
    port = free_port()
    with started(folder, "worker", "logged", "--health", str(port), "--json-logs"):
        wait_for(lambda: asked(port, "/readyz")[0] == 200, 60, message="readiness")
        failed = cli("trigger", "order", "cents:=-5", "--json").json["run"]
        waits = cli("trigger", "asks", "--json").json["run"]
        wait_for(lambda: cli("show", waits, "--json").json["status"] == "PAUSED", 60, message="it to wait")
        cli("signal", waits, "word", "no number", "--no-check")
        wait_for(lambda: "failed for good" in (folder / "log").read_text(), 60, message="the end of it")
        wait_for(lambda: "set aside" in (folder / "log").read_text(), 60, message="the signal to be looked at")
    own = [
        one for line in (folder / "log").read_text().splitlines() if (one := json.loads(line))["logger"] == "stepwell"
    ]
    [died] = [line for line in own if "failed for good" in line["message"]]
    assert (died["task"], died["queue"], died["level"]) == (failed, "order", "error")
    [aside] = [line for line in own if "set aside" in line["message"]]
    assert _about(aside) == {"run": waits, "workflow": "asks", "attempt": 1}


def _about(line: dict[str, object]) -> dict[str, object]:
    """What a line is of."""
    return {name: line[name] for name in ("run", "workflow", "step", "attempt") if name in line}


def test_what_keeps_a_worker_from_starting_is_a_line_of_json_too(folder: Path) -> None:
    with started(folder, "worker", "nowhere", "--json-logs") as process:
        assert process.wait(60) == 3
    [line] = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    assert line["level"] == "error"
    assert line["message"].startswith("there is no module nowhere in ")


def test_a_worker_says_what_its_module_only_imports(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "flows.py").write_text(CODE.format(greeting="hello"))
    (folder / "importing.py").write_text(IMPORTING)
    (folder / "only.py").write_text("from flows import greet\n")
    package = folder / "shelf"
    package.mkdir()
    (package / "__init__.py").write_text("from shelf.inner import greet\n")
    (package / "inner.py").write_text(CODE.format(greeting="hello"))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    for name in ("flows", "importing", "only", "shelf", "shelf.inner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    cli = Cli(f"sqlite:///{folder}/app.db")
    assert "note: importing only imports flows:greet: not served here" in cli("worker", "importing", "--once").error
    refused = cli("worker", "only", "--once", code=3).error
    assert "flows:greet is only imported there" in refused
    assert "only imports" not in cli("worker", "shelf", "--once").error, "a package's own modules are its own"
    assert cli("workers", "--all", "--json").json[0]["handlers"] == ["greet"]


def test_a_worker_leaves_what_was_imported_to_no_garbage_collector_and_the_rest_to_a_rare_one(folder: Path) -> None:
    (folder / "kept.py").write_text(FROZEN)
    port = free_port()
    with started(folder, "worker", "kept", "--health", str(port)):
        wait_for(lambda: asked(port, "/readyz")[0] == 200, 60, message="readiness")
        done = Cli(f"sqlite:///{folder}/app.db")("trigger", "frozen", "--wait", "--timeout", "60s", "--json").json
    count, threshold = done["output"]
    assert (count > 10_000, threshold) == (True, 10_000)


@pytest.mark.parametrize(
    ("words", "installed", "module"),
    [((), True, "uvloop"), ((), False, "asyncio"), (("--loop", "asyncio"), True, "asyncio")],
)
def test_a_worker_runs_on_uvloop_where_that_is_installed_unless_told_otherwise(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], installed: bool, module: str
) -> None:
    (folder / "looped.py").write_text(LOOPED)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "looped", raising=False)
    if not installed:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    cli = Cli(f"sqlite:///{folder}/app.db")
    cli("worker", "looped", "--once")  # makes the store
    cli("trigger", "which")
    cli("worker", "looped", "--once", *words)
    [run] = cli("runs", "--json").json["runs"]
    assert cli("show", run["id"], "--json").json["output"].partition(".")[0] == module


def test_uvloop_that_is_not_installed_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    refused = Cli(f"sqlite:///{folder}/app.db")("worker", "app", "--loop", "uvloop", code=2)
    assert "pip install uvloop" in refused.error


def test_dev_starts_anew_when_a_file_changes(folder: Path) -> None:
    cli = Cli(f"sqlite:///{folder}/app.db")
    with started(folder, "dev", "app", "--port", str(port := free_port())):
        wait_for(lambda: "session 1 started" in (folder / "log").read_text(), 60, message="a worker")
        assert cli("trigger", "greet", "ada", "--wait", "--timeout", "60s", "--json").json["output"] == "hello, ada"
        wait_for(lambda: "greet" in page_at(f"http://127.0.0.1:{port}/trigger"), 60, message="the dashboard")
        (folder / "app.py").write_text(CODE.format(greeting="good morning"))
        wait_for(lambda: "session 2 started" in (folder / "log").read_text(), 60, message="another worker")
        run = cli("trigger", "greet", "ada", "--wait", "--timeout", "60s", "--json").json
        assert run["output"] == "good morning, ada"
        wait_for(lambda: (folder / "log").read_text().count("succeeded  greet") == 2, 10, message="both runs are told")
        (folder / "app.py").write_text("this is no Python")
        wait_for(lambda: "the worker has ended" in (folder / "log").read_text(), 60, message="the end of the worker")
    wait_for(lambda: cli("workers").out.startswith("no worker lives"), 10, message="no worker left")


def page_at(address: str) -> str:
    """What is there; nothing if nobody answers."""
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def test_what_changed_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    for hidden in (".venv", "__pycache__"):
        (tmp_path / hidden).mkdir()
        (tmp_path / hidden / "b.py").write_text("1")
    before = seen([str(tmp_path)])
    assert list(before) == [str(tmp_path / "a.py")]
    (tmp_path / "a.py").write_text("12")
    (tmp_path / "c.py").write_text("1")
    (tmp_path / "notes.txt").write_text("1")
    assert changes(before, seen([str(tmp_path)])) == [str(tmp_path / "a.py"), str(tmp_path / "c.py")]
    (tmp_path / "a.py").unlink()
    assert str(tmp_path / "a.py") in changes(before, seen([str(tmp_path)]))


def test_a_port_in_use_is_said(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with started(folder, "worker", "app", "--health", str(port)) as process:
            assert process.wait(60) == 2
    assert f"cannot listen at 127.0.0.1:{port}" in (folder / "log").read_text()


@pytest.mark.parametrize("words", [("top", "--every", "0.1"), ("show", "@last", "-f")], ids=" ".join)
def test_a_terminal_is_redrawn(folder: Path, words: tuple[str, ...]) -> None:
    """In a real terminal: what `top` and `show -f` draw again and again, with the signs it can show."""
    cli = Cli(f"sqlite:///{folder}/app.db")
    (folder / "app.py").write_text(CODE.format(greeting="hello"))
    with started(folder, "worker", "app", "--once") as process:
        process.wait(60)
    cli("trigger", "greet", "ada")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "stepwell", *words]
    environment = {**os.environ, "STEPWELL_URL": f"sqlite:///{folder}/app.db", "TERM": "xterm", "COLUMNS": "120"}
    environment |= {"PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = ""
        while "◌ queued" not in shown or "greet" not in shown:
            shown += os.read(ours, 4096).decode(errors="replace")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    os.close(ours)
