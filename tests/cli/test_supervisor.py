"""`stepwell worker` as two processes: signals, crashes, failed starts, and what is left when one of them is killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.kit import Cli
from tests.ground.waiting import wait_for

LONG = 60.0
APP = """
import ctypes, os, subprocess, sys
from stepwell import handler

@handler("work")
async def work(what):
    if what == "die":
        os._exit(0)
    if what == "hold":
        ctypes.PyDLL(None).usleep(30_000_000)
"""


class Command:
    """A `stepwell` command in a process of its own, and what it wrote."""

    def __init__(self, folder: Path, *words: str, options: str = "") -> None:
        self.folder = folder
        self.cli = Cli(f"sqlite:///{folder}/app.db")
        environment = {**os.environ, "STEPWELL_URL": f"sqlite:///app.db?{options}"}
        command = [sys.executable, "-m", "stepwell", *words]
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(command, cwd=folder, stderr=log, stdout=log, env=environment)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def workers(self) -> list[int]:
        """The process ids of the living sessions."""
        listed = self.cli("workers", "--json").json if "started" in self.log else []
        return [one["pid"] for one in listed if one["alive"]]

    def wait_for_workers(self, count: int = 1) -> list[int]:
        """Wait until so many sessions have a living process."""

        def there() -> list[int]:
            found = [pid for pid in self.workers() if is_there(pid)]
            return found if len(found) == count else []

        return wait_for(there, LONG, message=f"{count} workers\n{self.log}")

    def wait_for_end(self) -> int:
        return self.process.wait(LONG)


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def started(folder: Path, *words: str, options: str = "") -> Iterator[Command]:
    (folder / "app.py").write_text(APP)
    command = Command(folder, *words, options=options)
    try:
        yield command
    finally:
        command.process.terminate()
        command.process.wait(LONG)


@pytest.mark.proves("promise-13", "rule-34")
def test_a_crashed_worker_is_started_anew_and_a_signal_ends_both(tmp_path: Path) -> None:
    with started(tmp_path, "worker", "app") as command:
        [worker] = command.wait_for_workers()
        assert worker != command.process.pid
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: not Path(f"/proc/{worker}").exists(), LONG, message="the end of the worker, reaped")
        [another] = command.wait_for_workers()
        assert another != worker
        command.cli("send", "work", '"die"')
        wait_for(lambda: command.log.count("another is started") >= 2, LONG, message="a new start after an exit of 0")
        command.wait_for_workers()
        command.process.send_signal(signal.SIGTERM)
        assert command.wait_for_end() == 0
    assert "ended with signal 9 (SIGKILL); another is started in 0.1 s" in command.log
    assert command.workers() == []


def test_it_ends_with_the_exit_code_of_a_worker_that_fails_at_its_start(tmp_path: Path) -> None:
    with started(tmp_path, "worker", "nowhere") as command:
        assert command.wait_for_end() == 3
    assert command.log.count("there is no module nowhere") == 1
    assert "started" not in command.log


@pytest.mark.proves("rule-34")
@pytest.mark.parametrize("name", ["worker", "dev"])
def test_a_killed_supervisor_leaves_no_worker(tmp_path: Path, name: str) -> None:
    alone = ["--no-ui"] if name == "dev" else []
    with started(tmp_path, name, "app", *alone, options="lease=600") as command:  # no beat comes in between to tell it
        [worker] = command.wait_for_workers()
        command.process.kill()
        wait_for(lambda: not is_there(worker), LONG, message="the end of the worker")
    wait_for(lambda: command.workers() == [], LONG, message="the end of its session")


@pytest.mark.proves("L-05")
def test_a_hung_worker_is_aborted_with_its_stack_and_started_anew(tmp_path: Path) -> None:
    with started(tmp_path, "worker", "app", options="lease=2&hang_after=4") as command:
        [worker] = command.wait_for_workers()
        command.cli("send", "work", '"hold"')
        wait_for(lambda: "it is aborted" in command.log, LONG, message="an abort")
        wait_for(lambda: "(SIGABRT)" in command.log, LONG, message="the end of the worker")
        assert 'app.py", line 10 in work' in command.log, "where it stood"
        [another] = command.wait_for_workers()
        assert another != worker


def test_several_processes_are_started_and_all_are_ended(tmp_path: Path) -> None:
    with started(tmp_path, "worker", "app", "--processes", "3") as command:
        assert len(set(command.wait_for_workers(3))) == 3
        command.process.send_signal(signal.SIGINT)
        assert command.wait_for_end() == 0
    assert command.workers() == []


def test_whatever_ends_below_it_is_reaped(tmp_path: Path) -> None:
    """As the first process of a container must: here it is made the one that orphans come to."""
    program = (
        "import ctypes, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"
        "from stepwell.cli.main import main; sys.argv[1:] = ['worker', 'orphaned']; main()"
    )
    (tmp_path / "orphaned.py").write_text(
        APP + "subprocess.run(['sh', '-c', 'sleep 0.3 & echo $! > orphan'], check=True)\n"
    )
    with (tmp_path / "log").open("w") as log:
        environment = {**os.environ, "STEPWELL_URL": "sqlite:///app.db"}
        command = [sys.executable, "-c", program]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log, env=environment)
    try:
        wait_for(lambda: "started" in (tmp_path / "log").read_text(), LONG, message="a worker")
        orphan = Path("/proc") / (tmp_path / "orphan").read_text().strip()
        wait_for(lambda: not orphan.exists(), LONG, message="the orphan is reaped")
    finally:
        process.terminate()
        assert process.wait(LONG) == 0


def test_several_processes_are_no_matter_of_a_moment(tmp_path: Path) -> None:
    refused = Cli(f"sqlite:///{tmp_path}/app.db")("worker", "tests.cli.shop", "--once", "--processes", "2", code=2)
    assert "--once is the work of one process" in refused.error


@pytest.mark.proves("security-08")
def test_an_address_is_in_no_arguments(tmp_path: Path) -> None:
    with started(tmp_path, "dev", "app", "--no-ui") as command:
        [worker] = command.wait_for_workers()
        lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (command.process.pid, worker, _parent(worker))]
    assert [line for line in lines if b"app.db" in line] == []


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
