"""`stepwell dev`: a worker and the dashboard, each in a child process, restarted when a Python file changes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from stepwell import sync
from stepwell.base.telemetry import Telemetry
from stepwell.cli.command import OK, USAGE, Stop
from stepwell.cli.open import check_there
from stepwell.cli.output import say
from stepwell.cli.supervisor import PARENT
from stepwell.connect import Config
from stepwell.errors import StepwellError
from stepwell.operate.format import many, short, span
from stepwell.operate.status import took, word_of
from stepwell.records import Run, RunStatus

PAUSE: Final = 0.3
GRACE: Final = 2.0  # seconds for bodies when the code has changed; unfinished tasks are given back
PASSED_OVER: Final = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})

Seen = dict[str, tuple[int, int]]  # the modification time and size of each file


def run_reloaded(app: str, url: str | None, concurrency: int, folders: Sequence[str], port: int | None = None) -> int:
    """Run the worker until Ctrl-C or SIGTERM, and the dashboard beside it if there is a `port` for it."""
    if missing := [folder for folder in folders if not Path(folder).is_dir()]:
        raise Stop(USAGE, f"there is no folder {missing[0]} to watch")
    signal.signal(signal.SIGTERM, _leave)
    files = seen(folders)
    say(f"watching {many(len(files), 'Python file')}; Ctrl-C ends it", to_stderr=True)
    words = ["worker", app, "--grace", f"{GRACE:g}s", "--concurrency", str(concurrency)]
    children = {"worker": Child(words, url)}
    news = News(url)
    if port is not None and news.is_shared:
        _make_tables(url)
        children["dashboard"] = Child(["ui", "--app", app, "--port", str(port)], url)
    try:
        while True:
            time.sleep(PAUSE)
            for line in news.lines():
                say(line, to_stderr=True, hang=9)
            now = seen(folders)
            if changed := changes(files, now):
                files = now
                say(f"↻ {changed[0]} changed: starting anew", to_stderr=True)
                for child in children.values():
                    child.restart()
            for name in [name for name, child in children.items() if child.has_ended_now()]:
                say(f"the {name} has ended; it is started anew when a file changes", to_stderr=True, fg="red")
    except (KeyboardInterrupt, SystemExit):
        return OK
    finally:
        for child in children.values():
            child.stop()
        news.close()


def _make_tables(url: str | None) -> None:
    """Create the tables if they are missing: the dashboard does not, and may be there before the worker has."""
    with contextlib.suppress(StepwellError):  # the worker waits for the database, and says so
        sync.Store(Config(url, listen=False, timeout=PATIENCE, telemetry=Telemetry(log=False))).close()


class Child:
    """A process of ours; it has ended when `stop` returns."""

    def __init__(self, words: Sequence[str], url: str | None) -> None:
        self._command = [sys.executable, "-m", "stepwell", *words]
        # Not as an argument, which every user of the machine can read: the URL may have a password.
        self._environment = {**os.environ, PARENT: str(os.getpid()), **({"STEPWELL_URL": url} if url else {})}
        self._process = self._started()
        self._told = False

    def restart(self) -> None:
        """End it and start another."""
        self.stop()
        self._process = self._started()
        self._told = False

    def has_ended_now(self) -> bool:
        """True once after the process has ended by itself."""
        ended = self._process.poll() is not None and not self._told
        self._told = self._told or ended
        return ended

    def stop(self) -> None:
        """Ask the process to end, and kill it if it does not."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(GRACE + 5)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        # In its own session: only this process gets Ctrl-C, and asks it to end once, not twice.
        return subprocess.Popen(  # noqa: S603 - our own command, no shell
            self._command, start_new_session=True, env=self._environment
        )


def seen(folders: Sequence[str]) -> Seen:
    """The Python files below these folders, with their time and size; hidden folders are skipped."""
    return {str(path): (found.st_mtime_ns, found.st_size) for folder in folders for path, found in _files(folder)}


def changes(before: Seen, now: Seen) -> list[str]:
    """The files that were added, removed or changed."""
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


def _files(folder: str) -> Iterator[tuple[Path, os.stat_result]]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in PASSED_OVER]
        for name in names:
            if name.endswith(".py"):
                path = Path(place) / name
                try:
                    yield path, path.stat()
                except FileNotFoundError:
                    continue  # it was removed meanwhile


def _leave(number: int, _: object) -> None:
    raise SystemExit(128 + number)


MOST: Final = 50  # newest runs that are read
PATIENCE: Final = 2.0  # seconds: a restart must not wait for a database that hangs
SHARED: Final = ("sqlite:", "postgres")  # the backends that a second process may open


class News:
    """The runs of a store that have ended since the last call; none while the database does not answer."""

    def __init__(self, url: str | None) -> None:
        self._config = Config(url, install=False, listen=False, timeout=PATIENCE, telemetry=Telemetry(log=False))
        self._store: sync.Store | None = None
        self._since = datetime.now(UTC)
        self._told: set[tuple[int, datetime | None]] = set()  # a run that is retried ends again

    @property
    def is_shared(self) -> bool:
        """True if a second process may open the store."""
        return self._config.url.startswith(SHARED)

    def lines(self) -> list[str]:
        """A line for each ended run, in the order in which they ended."""
        if not self.is_shared:
            return []
        try:
            ended = [run for run in self._opened().runs(limit=MOST) if self._is_new(run)]
        except (StepwellError, Stop):
            self.close()
            return []
        self._told.update((run.id, run.finished_at) for run in ended)
        return [_line(run) for run in sorted(ended, key=lambda run: run.finished_at or self._since)]

    def close(self) -> None:
        """Close the store; the next call opens it again."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _opened(self) -> sync.Store:
        if self._store is None:
            check_there(self._config, install=False)
            self._store = sync.Store(self._config)
        return self._store

    def _is_new(self, run: Run[Any]) -> bool:
        ended = run.finished_at
        return ended is not None and ended > self._since and (run.id, ended) not in self._told


def _line(run: Run[Any]) -> str:
    ended = (run.finished_at or datetime.now(UTC)).astimezone()
    what = f"{ended:%H:%M:%S} {word_of(run)}  {run.workflow} {run.key or int(run.id)}  {span(took(run))}"
    if run.status != RunStatus.ERROR:
        return what
    return f"{what}  {short(run.last_error or '', 80)}\n         next: stepwell show {int(run.id)}"
