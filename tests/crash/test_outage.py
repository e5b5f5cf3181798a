"""The database goes away under working workers and comes back: nobody is taken for dead, nothing runs again."""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from tests.crash.conftest import Scale
from tests.crash.site import LONG, Site, messages, pids, void_unless
from tests.crash.witness import Line
from tests.ground.postgres import PostgresServer
from tests.ground.processes import Crew
from tests.ground.waiting import wait_for

PROCESSES = 3
BACK_WITHIN = 5.0
LONG_BODIES = 3
LONG_BODY = 4.0  # seconds: under way when the database goes, and ended before it is back


class Outage(Protocol):
    """How a database goes away and comes back."""

    def begin(self) -> None:
        """From here on no write succeeds."""

    def end(self) -> None:
        """The database answers when this returns."""


class ServerKilled:
    """Postgres is SIGKILLed and started again."""

    def __init__(self, server: PostgresServer) -> None:
        self.begin, self.end = server.kill, server.start


class FileLocked:
    """Another process, this one, holds SQLite's write lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._holder: sqlite3.Connection | None = None

    def begin(self) -> None:
        self._holder = sqlite3.connect(self._path, isolation_level=None, timeout=30)
        self._holder.execute("begin exclusive")

    def end(self) -> None:
        assert self._holder is not None
        self._holder.execute("rollback")
        self._holder.close()


@pytest.fixture
def place(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Site, Outage]:
    """A store, and the way to take it away."""
    if backend == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        return Site(server.url(), tmp_path), ServerKilled(server)
    return Site(f"sqlite:///{tmp_path}/store.db", tmp_path), FileLocked(tmp_path / "store.db")


@pytest.mark.proves("promise-14", "promise-03", "protocol-09", "protocol-02", "rule-04", "rule-19", "rule-21")
@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process: nobody else can take its file away")
@pytest.mark.parametrize(
    "lease",
    [pytest.param(30.0, id="longer-lease", marks=pytest.mark.soak), pytest.param(3.0, id="shorter-lease")],
)
def test_workers_hold_on_and_go_on(
    place: tuple[Site, Outage], lease: float, scale: Scale, measured: Callable[..., None]
) -> None:
    site, outage = place
    seconds = scale.of(6.0, 20.0)
    naps = messages(count := 800, seconds=0.1)
    site.enqueue([{**nap, "seconds": LONG_BODY} if nap["n"] < LONG_BODIES else nap for nap in naps])
    with site.crew(PROCESSES, lease=lease, concurrency=4) as crew:
        site.wait_for_sessions(crew)
        sessions = site.tables.sessions()
        wait_for(lambda: _all_at_work(site, crew), LONG, message=f"everybody at work\n{crew.complaints()}")
        went = _now()
        outage.begin()
        gone = _now()
        time.sleep(seconds)
        ending = _now()  # from here on it may be back before we hear of it
        outage.end()
        back = _now()
        wait_for(lambda: _all_work_since(site, crew, back), LONG, message=f"work to go on\n{crew.complaints()}")
        site.wait_for_success(crew, count)
        assert site.tables.sessions() == sessions, "a session was lost, or a new one begun"
        assert len(crew.alive) == PROCESSES, crew.complaints()
        assert crew.stop() == [0] * PROCESSES, crew.complaints()
    site.assert_each_acknowledged_once(count)
    assert set(site.witness.executions().values()) == {1}, "a message was executed again"
    assert {row.attempt for row in site.tables.rows()} == {1}
    for event in ("SessionLost", "SessionsRecovered", "LateWriteRefused", "InternalTaskFailed", "TaskFailed"):
        assert site.witness.events(event) == []
    resumed = max(min(_starts_since(site, pid, back)) for pid in pids(crew.members)) - back
    assert resumed <= BACK_WITHIN
    most = max(_lines_while_away(site, pid, went, back) for pid in pids(crew.members))
    # And a word of its own each for the listener that was lost, for telling that failed, and for both to be back.
    assert most <= back - went + 4, "more than a line a second"
    finished = [line for line in site.witness.ends() if gone < line["at"] < back]
    void_unless(len(finished) >= PROCESSES, f"only {len(finished)} bodies ended while the database was away")
    begun = [line for line in site.witness.starts() if gone + 1 < line["at"] < ending]
    void_unless(not begun, f"the database was not away: {len(begun)} bodies were begun")
    measured(
        "outage",
        lease=lease,
        seconds=back - gone,
        messages=count,
        finished_meanwhile=len(finished),
        executed_again=0,
        resumed_after=resumed,
        lines=most,
    )


def _all_at_work(site: Site, crew: Crew) -> bool:
    """Whether the long bodies are under way and every process has finished something."""
    started = {line["n"] for line in site.witness.starts()}
    return started >= set(range(LONG_BODIES)) and all(site.witness.ends(pid=pid) for pid in pids(crew.members))


def _all_work_since(site: Site, crew: Crew, back: float) -> bool:
    return all(_starts_since(site, pid, back) for pid in pids(crew.members))


def _starts_since(site: Site, pid: int, moment: float) -> list[float]:
    return [line["at"] for line in site.witness.starts(pid=pid) if line["at"] > moment]


def _lines_while_away(site: Site, pid: int, went: float, back: float) -> int:
    """How many lines a process has logged, all of them by stepwell's logger."""
    lines: list[Line] = site.witness.lines("log", pid=pid)
    assert {line["logger"] for line in lines} == {"stepwell"}, lines
    return sum(1 for line in lines if went <= line["at"] <= back)


def _now() -> float:
    """The ledger's clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
