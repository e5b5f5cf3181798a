"""The helper: beats for a worker whose interpreter is blocked, and notes at once when the worker's process is gone.

It runs in another process: a child of a program with an embedded worker (`python -I helper_process.py PID`), or the
parent of the workers of `stepwell worker`. It imports only the standard library, and the database's driver when it
first has to write to the database. While the worker's own thread beats, the helper has no connection.

The worker writes lines: `{"place": ...}` first and when its leases change, `{"beat": ..., "gone": ...}` when its
sessions change, `.` after every beat, `!` when its event loop has been blocked for too long, `q` at its end. All
secrets are in these lines, and none in the arguments of a process.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

FILE: Final = __file__
SIGN: Final = b"."
BLOCKED: Final = b"!"
END: Final = b"q"
PATIENCE: Final = 1.2  # times the pause between two beats: then the worker's own beat is late
LONGEST_ANSWER: Final = 5.0  # seconds for a statement: meanwhile the helper sees nothing else
LOOK_EVERY: Final = 0.25  # seconds between two checks for the parent, if the kernel does not report its end
LAST_LINE: Final = 1.0  # seconds from the end of the lines to the end of the process, if that is why they ended
TURN_WITHIN: Final = 0.5  # seconds that a beat queues behind a file's other writers
STOPPED: Final = frozenset("TtZXx")  # states of a process in /proc that mean it is not busy
LINUX: Final = sys.platform == "linux"

QUIET, BEAT, HUNG = "quiet", "beat", "hung"
Statement = tuple[str, Any]  # its text and its values


class Place(NamedTuple):
    """Where the database is, and for how long a worker's sessions may be silent: each has its lease."""

    kind: str
    address: str
    lock: str | None  # the file on which the writers of an SQLite file queue
    lease: float  # the shortest of its leases: each beat is for all sessions
    longest_lease: float
    hang_after: float
    path: Sequence[str]  # where the driver is found


class Silence:
    """How long a worker that was not stopped has given no sign of life, and what to do about it."""

    def __init__(self, lease: float, hang_after: float, now: float) -> None:
        self.every = lease / 3
        # If the system cannot tell a stopped worker from a busy one, the help must end soon.
        self.hang_after = hang_after if LINUX else min(hang_after, lease)
        self._longest_pause = max(lease, 2 * PATIENCE * self.every)
        self._beaten = now - self.every
        self.sign(now)

    def sign(self, now: float) -> None:
        """The worker gave a sign of life."""
        self._heard = self._looked = now
        self._excused = 0.0  # seconds since then in which it, or this process, was stopped

    def judge(self, now: float, *, stopped: bool) -> str:
        """Leave the worker alone, beat for it, or give it up."""
        unseen, self._looked = now - self._looked, now
        if stopped or unseen > self._longest_pause:
            self._excused += unseen
        if stopped:
            self._beaten = now  # so that the next check comes after the time of a beat
            return QUIET
        if now - self._heard - self._excused >= self.hang_after:
            return HUNG
        if now - self._heard < PATIENCE * self.every or now - self._beaten < self.every:
            return QUIET
        self._beaten = now
        return BEAT

    def pause(self, now: float) -> float:
        """Seconds until the next check."""
        beat = max(self._heard + PATIENCE * self.every, self._beaten + self.every)
        return max(0.01, min(beat, self._heard + self._excused + self.hang_after) - now)


class Helper:
    """Watches one worker's process to its end.

    `gone` is a descriptor that can be read when the process has ended; `hung` is called when the worker has been silent
    for too long; `is_there` is called now and then, for systems without such a descriptor; `leaving` is called when the
    process is gone, before that is noted. With `stays` only that ends the helper, not the end of the lines.
    """

    def __init__(
        self,
        pid: int,
        lines: int,
        gone: int | None,
        *,
        hung: Callable[[float], object],
        is_there: Callable[[], bool] = lambda: True,
        leaving: Callable[[], object] = lambda: None,
        stays: bool = False,
    ) -> None:
        os.set_blocking(lines, False)
        self._pid = pid
        self._lines = lines
        self._gone = gone
        self._hung = hung
        self._is_there = is_there
        self._leaving = leaving
        self._stays = stays
        self._unread = b""
        self._closed_at: float | None = None
        self._given_up = self._ended = False
        self._place: Place | None = None
        self._silence = Silence(3600, 3600, time.monotonic())
        self._database: Postgres | SQLite | None = None
        self._beat: list[Statement] = []
        self._note_gone: list[Statement] = []
        self.sessions = 0  # that the worker has now ...
        self.begun = False  # ... and whether it ever had one
        self._poll = select.poll()
        self._poll.register(lines, select.POLLIN)
        if gone is not None:
            self._poll.register(gone, select.POLLIN)

    def watch(self) -> None:
        """Return when the worker has sent its last line, or is gone and that has been noted."""
        try:
            while not self._ended:
                now = time.monotonic()
                if self._wait(self._pause(now)) or not self._is_there():
                    self._tell_gone()
                    return
                self._look(time.monotonic())
        finally:
            self._let_go()

    def _pause(self, now: float) -> float:
        pause = self._silence.pause(now) if self._is_asked else 3600.0
        if self._gone is None:
            pause = min(pause, LOOK_EVERY)
        return pause if self._closed_at is None or self._stays else min(pause, LAST_LINE)

    @property
    def _is_asked(self) -> bool:
        """Whether there is a session to beat for."""
        return self.sessions > 0 and self._place is not None and not self._given_up and self._closed_at is None

    def _wait(self, seconds: float) -> bool:
        """Wait for a line; True if the process has ended."""
        ready = {descriptor for descriptor, _ in self._poll.poll(seconds * 1000)}
        if self._lines in ready:
            self._read_on()
        return self._gone in ready

    def _look(self, now: float) -> None:
        if self._closed_at is not None:
            # The end of the lines is no proof: a program may close what it did not open, or exec another program.
            self._ended = now - self._closed_at >= LAST_LINE and not self._stays
        elif self._is_asked:
            match self._silence.judge(now, stopped=is_stopped(self._pid)):
                case "beat":
                    self._run(self._beat)
                case "hung":
                    self._give_up()

    def _give_up(self) -> None:
        self._given_up = True
        self._let_go()
        self._hung(self._silence.hang_after)

    def _read_on(self) -> None:
        """Read all lines that were written so far."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._lines, 65_536):
                *whole, self._unread = (self._unread + data).split(b"\n")
                for line in whole:
                    self._hear(line)
            self._closed_at = time.monotonic()
            self._poll.unregister(self._lines)

    def _hear(self, line: bytes) -> None:
        if line == BLOCKED:
            if not self._given_up:
                self._give_up()
            return
        self._given_up = False
        self._silence.sign(time.monotonic())
        self._let_go()
        if line == END:
            self._ended = True
        elif line != SIGN:
            self._told(json.loads(line))

    def _told(self, said: dict[str, Any]) -> None:
        if "place" in said:
            self._place = Place(**said["place"])
            self._silence = Silence(self._place.lease, self._place.hang_after, time.monotonic())
        else:
            self._beat, self._note_gone, self.sessions = said["beat"], said["gone"], said["sessions"]
            self.begun = self.begun or self.sessions > 0

    def _tell_gone(self) -> None:
        """Note it, and try again until it is written or the longest lease is over, which tells the same."""
        if self._closed_at is None:
            self._read_on()  # its last lines may say that no session is left
        self._leaving()
        if self._place is None or not self.sessions:
            return
        until, pause = time.monotonic() + self._place.longest_lease, 0.1
        while not self._run(self._note_gone) and time.monotonic() + pause < until:
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_ANSWER)

    def _run(self, statements: list[Statement]) -> bool:
        assert self._place is not None
        try:
            if self._database is None:
                self._database = SQLite(self._place) if self._place.kind == "sqlite" else Postgres(self._place)
            self._database.run(statements, min(self._silence.every, LONGEST_ANSWER))
        except Exception:  # noqa: BLE001 - whatever it is: the next try has a new connection, and the lease decides
            self._let_go()
            return False
        return True

    def _let_go(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            with contextlib.suppress(Exception):
                database.close()


class Postgres:
    """A connection to Postgres, opened when it is needed; nothing is kept on it, so that a pooler may be in between."""

    def __init__(self, place: Place) -> None:
        import asyncio  # noqa: PLC0415 - half of what this process weighs, and most of them never need it

        self._place = place
        self._asyncio = asyncio
        self._loop = asyncio.new_event_loop()
        self._connection: Any = None

    def run(self, statements: Sequence[Statement], within: float) -> None:
        """Run the statements, each in a transaction of its own."""
        self._loop.run_until_complete(self._asyncio.wait_for(self._run(statements), max(1.0, within)))

    async def _run(self, statements: Sequence[Statement]) -> None:
        if self._connection is None:
            sys.path[:] = list(dict.fromkeys([*sys.path, *self._place.path]))
            import asyncpg  # noqa: PLC0415

            settings = {"application_name": "stepwell helper"}
            self._connection = await asyncpg.connect(
                self._place.address, statement_cache_size=0, server_settings=settings
            )
        for text, values in statements:
            await self._connection.fetch(text, *values)

    def close(self) -> None:
        """Drop the connection; the server notices."""
        if self._connection is not None:
            self._connection.terminate()
            self._loop.run_until_complete(self._asyncio.sleep(0))
        self._loop.close()


class SQLite:
    """A connection to an SQLite file, opened when it is needed."""

    def __init__(self, place: Place) -> None:
        import sqlite3  # noqa: PLC0415 - when it is needed

        if not os.path.exists(place.address):  # noqa: PTH110 - opening it would make it; no pathlib in this process
            raise FileNotFoundError(place.address)
        self._lock = place.lock
        self._connection = sqlite3.connect(place.address, isolation_level=None)
        self._connection.execute("pragma synchronous = full")
        self._connection.execute("pragma wal_autocheckpoint = 0")  # see `store/embedded/sqlite.py`

    def run(self, statements: Sequence[Statement], within: float) -> None:
        """Run the statements in one transaction; the times in them are those of this moment."""
        self._connection.execute(f"pragma busy_timeout = {int(within * 1000)}")
        lock = _turn(self._lock)
        try:
            self._connection.execute("begin immediate")
            for text, values in statements:
                self._connection.execute(text, {**values, "now": _wall(), "beat_now": _boot()}).fetchall()
            self._connection.execute("commit")
        finally:
            if lock is not None:
                os.close(lock)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _turn(path: str | None) -> int | None:
    """Queue for the file as its other writers do, but not for long: the blocked worker may itself be the first."""
    if path is None:
        return None
    import fcntl  # noqa: PLC0415 - not everywhere

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + TURN_WITHIN
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                os.close(descriptor)
                return None
            time.sleep(0.005)
        else:
            return descriptor


def _wall() -> int:
    return time.time_ns() // 1_000


def _boot() -> int:
    """As `clock.boot_microseconds`, the clock of beats in an embedded store."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return (time.monotonic_ns() if boot is None else time.clock_gettime_ns(boot)) // 1_000


def can_start() -> bool:
    """True if this program can start Python processes: not if it is frozen, or a Python inside something else."""
    name = os.path.basename(sys.executable or "").lower()  # noqa: PTH119 - as above
    is_python = name.startswith(("python", "pypy")) and not getattr(sys, "frozen", False)
    return is_python and os.name == "posix" and os.path.isfile(FILE)  # noqa: PTH113 - as above


def is_stopped(pid: int) -> bool:
    """True if the process was stopped, or has ended: then it is silent for another reason than being busy."""
    if not LINUX:
        return False
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
            return file.read().rpartition(")")[2].split()[0] in STOPPED
    except (OSError, IndexError):
        return True


def _ending_of(pid: int) -> int | None:
    """A descriptor that can be read when the process has ended, if the kernel has that."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def main(pid: int) -> None:
    """Help the process that started this one."""
    said = f"stepwell: the worker of process {pid} has given no sign of life for {{:g}} s: it is not helped any more\n"
    ending = _ending_of(pid)
    helper = Helper(
        pid,
        sys.stdin.fileno(),
        ending if os.getppid() == pid else None,  # gone already: another process may have its number
        hung=lambda seconds: sys.stderr.write(said.format(seconds)),
        is_there=lambda: os.getppid() == pid,
        leaving=_be_quiet,
    )
    helper.watch()


def _be_quiet() -> None:
    """Close standard error: a program that reads it to its end must not wait for this process."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)


if __name__ == "__main__":
    main(int(sys.argv[1]))
    os._exit(0)  # at once: the worker waits for it
