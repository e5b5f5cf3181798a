"""The demo from end to end: what it does, what it counts, what it says, and that it leaves nothing behind."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from stepwell import sync
from stepwell.cli.demo.command import SAID, Live, Plain, Silent, source, verdict
from stepwell.cli.demo.processes import PostgresServer
from stepwell.cli.demo.service import OutsideService
from stepwell.cli.demo.shop import ACTS, fulfil
from stepwell.cli.demo.story import POINTS, Frame, Point, Result, Story
from stepwell.cli.main import main
from stepwell.cli.output import drawable
from stepwell.records import Run, RunStatus, StepInfo
from tests.ground.postgres import find_binaries
from tests.ground.processes import wait_for


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Where the command makes its temporary folders."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def started(temporary: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "stepwell", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=temporary.parent,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONIOENCODING": "utf-8", **environment},
    )


def run(temporary: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    process = started(temporary, *arguments, **environment)
    out, error = process.communicate(timeout=80)
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


def check(result: dict[str, object]) -> None:
    assert result["ok"], result
    assert result["done"] == dict.fromkeys(ACTS, 1)
    asked = result["asked"]
    assert isinstance(asked, dict)
    assert asked["charge card"] == 2, "the kill came between the charge and its record"
    assert asked["reserve stock"] == 1, "what was recorded did not run again"
    assert result["points"] == dict.fromkeys(POINTS, True)


@pytest.mark.timeout(100)
def test_it_tells_its_story_in_plain_lines(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepwell.cli.demo.story.PACE", 0.2)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    done = CliRunner(charset="ascii").invoke(main, ["demo"])
    assert (done.exit_code, done.stderr) == (0, "")
    check_story(done.stdout)
    assert not list(workers_in(temporary))
    assert not list(temporary.iterdir())


@pytest.mark.soak
@pytest.mark.timeout(100)
def test_it_tells_its_story_at_its_own_pace(temporary: Path) -> None:
    code, out, error = run(temporary, PYTHONIOENCODING="ascii")
    assert (code, error) == (0, "")
    check_story(out)
    assert not list(workers_in(temporary))
    assert not list(temporary.iterdir())


def check_story(out: str) -> None:
    assert "\x1b" not in out
    for line in out.splitlines():  # the live view has each in columns, and a margin of one
        what, _, more = line[7:].partition("   (")
        assert len(line) < 80, "cut by a narrow terminal"
        assert not (more and re.match(r" *\d+\.\d  ", line)) or (len(what) <= SAID and len(more) <= 80 - 8 - SAID), line
    for said in (
        "async def fulfil(order: str)",
        "kill -9 ",
        "takes over order-",
        "reserve_stock is recorded   (it is not run again)",
        "reserve stock 1x, charge card 1x, pack lamp 1x, pack desk 1x, send receipt 1x",
        "killed at each of 10 points: 10 of 10 orders done exactly once",
        "ok nothing lost, nothing charged twice, on SQLite",
    ):
        assert said in out


@pytest.mark.backends("postgres", reason="its server is the demo's own")
def test_its_server_keeps_what_was_committed_and_goes_with_its_folder(
    temporary: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPWELL_PG_BIN", str(find_binaries()))
    with PostgresServer(temporary / "server") as server:
        with sync.connect(server.url("shop")) as store, sync.connect(server.url("point_0")) as other:
            assert store.health().settings["fsync"] == "on"
            fulfil.trigger("order-1").options(require_worker="ignore").execute(store)
            assert (len(store.runs()), len(other.runs())) == (1, 0), "each store in a schema of its own"
        process = server._process
    assert process is not None
    assert process.poll() is not None


@pytest.mark.soak
@pytest.mark.timeout(100)
@pytest.mark.backends("postgres", reason="its server is the demo's own")
def test_it_brings_a_postgres_of_its_own(temporary: Path, backend: str) -> None:
    code, out, error = run(temporary, "--postgres", "--json", STEPWELL_PG_BIN=str(find_binaries()))
    assert (code, error) == (0, "")
    check(json.loads(out))
    assert not list(temporary.iterdir())


def test_without_postgres_it_says_so(temporary: Path) -> None:
    code, _, error = run(temporary, "--postgres", STEPWELL_PG_BIN=str(temporary / "nowhere"))
    assert code != 0
    assert error.startswith("error: ")
    assert "Traceback" not in error
    assert not list(temporary.iterdir())


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_no_worker_outlives_it(temporary: Path, number: signal.Signals, code: int) -> None:
    process = started(temporary, "--json")
    wait_for(lambda: len(set(workers_in(temporary))) >= 2, 60, message="two workers")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == code
    wait_for(lambda: not list(workers_in(temporary)), 10, message="end of the workers")
    assert number is signal.SIGKILL or not list(temporary.iterdir())


def story(tmp_path: Path) -> Story:
    return Story(tmp_path, Silent(), lambda name: f"sqlite:///{tmp_path}/{name}.db")


def played(story: Story, *acts: str) -> Result:
    """A story in which these acts were asked for."""
    story._result.order = "order-1"
    for act in acts:
        story._service.do("order-1", act)
    story._judge_order()
    return story._result


def test_an_act_that_was_not_done_fails_it(tmp_path: Path) -> None:
    result = played(story(tmp_path), *ACTS[:4], ACTS[1])
    assert not result.ok
    assert result.done == dict.fromkeys(ACTS[:4], 1)


def test_a_card_charged_twice_fails_it(tmp_path: Path) -> None:
    told = story(tmp_path)
    with (tmp_path / "books.jsonl").open("a") as books:
        for _ in range(2):
            books.write(json.dumps({"order": "order-1", "act": ACTS[1], "pid": 1, "done": True}) + "\n")
    assert "'charge card': 2" in played(told, *ACTS).problems[0]


def test_a_kill_that_interrupted_nothing_fails_it(tmp_path: Path) -> None:
    assert played(story(tmp_path), *ACTS).problems == [f"order-1: asked for {dict.fromkeys(ACTS, 1)}"]


def test_a_recorded_step_that_ran_again_fails_it(tmp_path: Path) -> None:
    assert not played(story(tmp_path), *ACTS, ACTS[1], ACTS[0]).ok


def test_a_point_that_ended_otherwise_fails_it(tmp_path: Path) -> None:
    told = story(tmp_path)
    told._points = [Point.KILLED] * len(POINTS)
    told._judge_point(3, _run(RunStatus.SUCCESS))
    assert told._result.points == {POINTS[3]: False}
    assert "killed after charge card" in told._result.problems[0]


def test_the_service_does_a_thing_once(tmp_path: Path) -> None:
    service = OutsideService(tmp_path / "books.jsonl")
    assert [service.do("a", "charge"), service.do("a", "charge"), service.do("b", "charge")] == [True, False, True]
    assert service.books().times("a") == {"charge": 1}
    assert service.books().asked("a") == {"charge": 2}
    assert service.books().by("a", "charge") == [os.getpid()] * 2


def test_a_failed_demo_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    Plain(sys.stdout).tell(Result("SQLite", problems=["order-1: done {}"]))
    assert "error: order-1: done {}" in capsys.readouterr().out
    assert all(drawable(text, "ascii").isascii() for _, text in verdict(Result("SQLite")))


def test_the_running_line_is_lit() -> None:
    lines = source([_step("reserve_stock#1", RunStatus.SUCCESS), _step("charge_card#1", RunStatus.RUNNING)])
    [lit] = [line for style, line in lines if style == "strong"]
    assert lit.startswith(" ▸")
    assert "await charge_card(order)" in lit
    assert [line[:2] for style, line in lines if style == "good"] == [" ✓"]


def test_the_live_view_shows_source_events_and_points() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with Live(out) as live:
        live.say(0.1, "kill -9 4121", "by this demo")
        live.show(
            Frame(1.0, [_step("pack#1", RunStatus.RUNNING)], [Point.RIGHT, Point.WRONG, Point.KILLED, Point.AHEAD])
        )
        live.tell(Result("SQLite"))
    out.flush()
    text = out.buffer.getvalue().decode()
    for shown in (
        "▸  ",
        "async def fulfil",
        "kill -9 4121",
        "✓✕╎·",
        "another worker finishes what they began",
        "✓ nothing lost",
    ):
        assert shown in text


def _step(key: str, status: RunStatus) -> StepInfo:
    return StepInfo(key, key.partition("#")[0], status, 1, None, None, None, None, None)


def _run(status: RunStatus) -> Run[str]:
    fields = dict.fromkeys(Run.__slots__)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return Run(**{**fields, "status": status, "created_at": moment, "updated_at": moment})  # type: ignore[arg-type]
