"""The scene of a crash test: a store, a ledger, crews of workers, and the way to enqueue from outside of them."""

import os
import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepwell import connect
from tests.crash import workload
from tests.crash.witness import Tables, Witness
from tests.ground.databases import run_apart
from tests.ground.processes import Crew, Member
from tests.ground.waiting import wait_for

ROOT = Path(__file__).parents[2]
CHUNK = 200  # messages of one transaction: what the slowest backend writes well within its deadline
LONG = 90.0  # seconds that a test waits for what takes a few on a quiet machine


class Site:
    """One store with its witness. Everything a test does to it goes through here."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.ledger = folder / "ledger"
        self.witness = Witness(self.ledger)
        self.tables = Tables(url)
        self._crews = 0

    def enqueue(self, messages: Sequence[dict[str, Any]], *, attempts: int = workload.ATTEMPTS) -> None:
        """Write the messages from this process."""

        async def write() -> None:
            queue = workload.handler_of(_no_body, attempts)
            async with connect(self.url) as store:
                for first in range(0, len(messages), CHUNK):
                    await store.enqueue_many(queue, messages[first : first + CHUNK])

        run_apart(write())

    def crew(self, size: int = 1, *, seed: int = 1, module: Any = "tests.crash.workload", **options: Any) -> Crew:
        """Worker processes with these options of the workload, started when the crew is entered."""
        self._crews += 1
        folder = self.folder / f"crew-{self._crews}"
        folder.mkdir()
        named = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        return Crew(
            module,
            *("--url", self.url, "--ledger", str(self.ledger), *named),
            size=size,
            folder=folder,
            cwd=ROOT,
            seed=seed,
        )

    def open_gate(self, name: str, *, hold: bool = False) -> None:
        """Let the bodies pass that wait for this gate; with `hold`, only after it is opened a second time without."""
        path = workload.gate_path(self.ledger, name)
        whole = path.with_suffix(".new")
        whole.write_text(workload.HELD if hold else "")
        whole.rename(path)

    def wait_for_sessions(self, crew: Crew, each: int = 1) -> None:
        """Wait until every process of the crew has begun its session, or sessions."""
        wait_for(
            lambda: all(len(self.witness.events("SessionStarted", pid=one.pid)) >= each for one in crew.alive),
            LONG,
            message=f"sessions of {len(crew.alive)} processes\n{crew.complaints()}",
        )

    def wait_for_success(self, crew: Crew, count: int, timeout: float = LONG) -> None:
        """Wait until the database says that this many messages are acknowledged."""
        wait_for(
            lambda: self.tables.statuses()["SUCCESS"] >= count,
            timeout,
            every=0.25,
            message=f"{count} messages acknowledged, but {self.tables.statuses()}\n{crew.complaints()}",
        )

    def freeze(self, member: Member) -> None:
        """SIGSTOP a worker, though not while it holds an embedded store's write lock: then nobody could go on."""
        for _ in range(100):
            member.signal(signal.SIGSTOP)
            wait_for(lambda: _is_stopped(member.pid), 10, every=0.001, message="the process is stopped")
            if not _writes(self.url):
                return
            member.signal(signal.SIGCONT)
            time.sleep(0.01)
        void("the worker could not be frozen outside of a write")

    def assert_each_acknowledged_once(self, count: int) -> None:
        """Fail unless all messages ended in SUCCESS, once, by a turn whose body the ledger saw come to its end."""
        rows = self.tables.rows()
        assert self.tables.statuses() == {"SUCCESS": count}
        assert sorted(row.n for row in rows) == list(range(count)), "a message was lost or is there twice"
        assert self.tables.acknowledgements() == count, "a message was acknowledged twice"
        assert [row for row in rows if row.owner is not None] == []
        ended = {(line["task"], line["turn"]) for line in self.witness.ends()}
        assert [row for row in rows if (row.id, row.turn) not in ended] == [], "acknowledged, but never executed"
        turns = {row.id: row.turn for row in rows}
        late = [line for line in self.witness.starts() if line["turn"] > turns[line["task"]]]
        assert late == [], "executed again after it was acknowledged"


def messages(count: int, seconds: float, **more: Any) -> list[dict[str, Any]]:
    """Messages 0 to count - 1, each with a body of so many seconds."""
    return [{"n": n, "seconds": seconds, **more} for n in range(count)]


def void(why: str) -> None:
    """Fail: a test whose fault did not happen proves nothing, whatever else held."""
    pytest.fail(f"VOID: {why}", pytrace=False)


def void_unless(landed: object, why: str) -> None:
    """Fail unless the fault landed."""
    if not landed:
        void(why)


def pids(members: Iterable[Member]) -> list[int]:
    """Their process ids."""
    return [member.pid for member in members]


def helpers_of(pid: int) -> list[int]:
    """The helpers that a worker's process has started."""
    return children_of(pid, "stepwell/store/helper_process.py")


def children_of(pid: int, what: str) -> list[int]:
    """The living child processes of a process whose command line holds this."""
    facts = {int(place.name): _facts(place) for place in Path("/proc").glob("[0-9]*")}
    return [child for child, (parent, command) in facts.items() if parent == pid and what in command]


def _facts(place: Path) -> tuple[int, str]:
    """The parent of a process and its command line; neither if it has ended."""
    try:
        state, parent, *_ = (place / "stat").read_text().rpartition(")")[2].split()
        command = (place / "cmdline").read_text().replace("\0", " ")
    except OSError:
        return 0, ""
    return (0, "") if state == "Z" else (int(parent), command)


def _no_body(message: dict[str, Any]) -> None:
    raise AssertionError("this handler only names the queue")


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _writes(url: str) -> bool:
    """Whether some process holds the right to write an embedded store."""
    kind, _, path = url.partition(":///")
    lock = Path(f"{path}-stepwell") / "writer.lock"
    if kind != "sqlite" or not lock.exists():
        return False
    import fcntl  # noqa: PLC0415 - only where there is an embedded store with locks

    descriptor = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
