"""The command line: what it says, what it loads, and the demo from end to end."""

import ast
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepwell import __version__
from stepwell.cli.demo.live import Live
from stepwell.cli.demo.service import Service
from stepwell.cli.demo.story import ORDERS, Frame, Kill, Result, Story
from stepwell.cli.demo.words import Plain, Silent, drawable, verdict
from tests.ground.processes import wait_for

DRIVERS = {"rich", "sqlite3", "asyncpg", "turso"}


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Where the command makes its temporary folders."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def started(temporary: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "stepwell", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=temporary.parent,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONIOENCODING": "utf-8", **environment},
    )


def run(temporary: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    process = started(temporary, *arguments, **environment)
    out, error = process.communicate(timeout=60)
    return process.returncode, out, error


def workers_in(temporary: Path) -> Iterator[int]:
    """The living processes that were told a path below this folder."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_text(errors="replace")
                state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            except OSError:
                continue  # gone while we looked
            if str(temporary) in command and state != "Z":
                yield int(entry.name)


def test_help_names_the_commands(temporary: Path) -> None:
    code, out, error = run(temporary, "--help")
    assert (code, error) == (0, "")
    assert "demo" in out
    assert run(temporary, "demo", "--help")[0] == 0


def test_version(temporary: Path) -> None:
    assert run(temporary, "--version") == (0, f"stepwell, version {__version__}\n", "")


def test_a_misspelt_command_is_a_usage_error(temporary: Path) -> None:
    code, out, error = run(temporary, "dmeo")
    assert (code, out) == (2, "")
    assert "demo" in error


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["demo", "--help"]], ids=" ".join)
def test_help_loads_neither_drivers_nor_rich(arguments: list[str]) -> None:
    program = f"""
import atexit, sys
atexit.register(lambda: print(sorted({{name.partition('.')[0] for name in sys.modules}})))
from stepwell.cli.main import main
main({arguments!r})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    loaded = set(ast.literal_eval(done.stdout.splitlines()[-1]))
    assert "click" in loaded
    assert not loaded & DRIVERS


def check_counts(result: dict[str, Any]) -> None:
    assert result["ok"], result
    assert result["problems"] == []
    assert result["orders"] == result["charged"] == result["charged_once"] == result["parcels_once"] == ORDERS
    assert result["queue"] == {"SUCCESS": ORDERS}
    landed = [kill for kill in result["kills"] if kill["in_flight"]]
    assert len(landed) == 1, "a kill hit somebody at work"
    assert set(landed[0]["in_flight"]) <= set(result["interrupted"]) <= set(result["ran_again"])


@pytest.mark.timeout(60)
def test_demo_kills_a_worker_and_charges_every_card_once(temporary: Path) -> None:
    began = time.monotonic()
    code, out, error = run(temporary, "demo", "--json")
    assert time.monotonic() - began < 30
    check_counts(json.loads(out))
    assert (code, error) == (0, "")
    assert not list(workers_in(temporary))
    assert not list(temporary.iterdir())


@pytest.mark.timeout(60)
def test_demo_tells_its_story_in_plain_lines(temporary: Path) -> None:
    code, out, error = run(temporary, "demo", PYTHONIOENCODING="ascii")
    assert (code, error) == (0, "")
    assert "\x1b" not in out
    assert "kill -9 " in out
    assert "takes over order-" in out
    assert f"{ORDERS} orders, {ORDERS} charged exactly once, {ORDERS} parcels sent exactly once" in out
    assert "ok nothing lost, nothing charged twice" in out


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_no_worker_outlives_the_demo(temporary: Path, number: signal.Signals, code: int) -> None:
    process = started(temporary, "demo", "--json")
    workers = wait_for(lambda: set(workers_in(temporary)) if len(set(workers_in(temporary))) == 3 else None, 20)
    assert workers
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == code
    wait_for(lambda: not list(workers_in(temporary)), 10, message="end of the workers")
    assert number is signal.SIGKILL or not list(temporary.iterdir())


class FlawedService(Service):
    """Forgets what it did for one order, as a service without idempotency keys would."""

    def _serve(self, act: Any, key: str, details: dict[str, int]) -> bool:
        path = self._path
        if key == "order-1" and act == "charge":
            with path.open("a") as file:
                for _ in range(2):
                    file.write(json.dumps({"act": act, "key": key, "pid": os.getpid(), "done": True}) + "\n")
            return True
        return super()._serve(act, key, details)


def story_with(tmp_path: Path, service: type[Service]) -> Story:
    """A story of which the service has everything in its books, and nobody was killed."""
    story = Story(tmp_path, Silent())
    story._service = service(tmp_path / "books.jsonl")
    for number in range(1, ORDERS + 1):
        story._ids[f"order-{number}"] = Any  # type: ignore[assignment]
        story._service.charge(1, key=f"order-{number}")
        story._service.send_parcel(key=f"order-{number}")
    return story


def test_a_card_charged_twice_fails_the_demo(tmp_path: Path) -> None:
    story = story_with(tmp_path, FlawedService)
    story._crew.killed.append(os.getpid())
    result = story._result({"SUCCESS": ORDERS})
    assert not result.ok
    assert result.charged == ORDERS + 1
    assert result.problems == [f"{ORDERS} orders, {ORDERS + 1} charges, {ORDERS - 1} charged once"]


def test_a_kill_that_hit_nothing_fails_the_demo(tmp_path: Path) -> None:
    story = story_with(tmp_path, Service)
    story._kills.append(Kill(1, 1.0, []))
    result = story._result({"SUCCESS": ORDERS})
    assert result.problems == ["1 kills interrupted nobody, so this run shows nothing"]


def test_a_message_left_in_the_queue_fails_the_demo(tmp_path: Path) -> None:
    result = story_with(tmp_path, Service)._result({"SUCCESS": ORDERS - 1, "PENDING": 1})
    assert any("the queue says" in problem for problem in result.problems)


def test_the_service_does_a_thing_once_for_a_key(tmp_path: Path) -> None:
    service = Service(tmp_path / "books.jsonl")
    assert [service.charge(5, key="a"), service.charge(5, key="a"), service.charge(5, key="b")] == [True, False, True]
    assert service.books().unfinished_by(os.getpid()) == ["a", "a", "b"]
    assert service.send_parcel(key="a")
    assert service.books().unfinished_by(os.getpid()) == ["b"]
    assert service.books().times("charge") == {"a": 1, "b": 1}
    assert service.books().asked("charge") == {"a": 2, "b": 1}


def test_a_failed_demo_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    Plain(sys.stdout).tell(Result(orders=ORDERS, problems=["39 of 40 orders finished"]))
    assert "error: 39 of 40 orders finished" in capsys.readouterr().out
    assert all(drawable(text, "ascii").isascii() for _, text in verdict(Result(orders=ORDERS)))


def test_the_live_view_shows_workers_orders_and_events(tmp_path: Path) -> None:
    service = Service(tmp_path / "books.jsonl")
    for _ in range(2):
        service.charge(5, key="order-7")
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with Live(out) as live:
        live.say(0.1, "kill -9 4121", "by this demo")
        live.show(Frame(1.0, ORDERS, 10, {4121: ["order-9"], 4130: ["order-7"], 4133: []}, [4121], service.books()))
        live.tell(Result(orders=ORDERS, charged_once=ORDERS, parcels_once=ORDERS, interrupted=["order-7"]))
    out.flush()
    text = out.buffer.getvalue().decode()
    for shown in (
        "✕ killed",
        "◐ order-7",
        "again",
        "· waiting",
        f"10 of {ORDERS} finished",
        "kill -9 4121",
        "✓ nothing",
    ):
        assert shown in text
