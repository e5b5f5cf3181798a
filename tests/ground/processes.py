"""Worker processes that a test may kill, freeze and replace, and that never outlive the test run."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from tests.ground.waiting import NotInTimeError, until, wait_for

__all__ = ["Crew", "Member", "NotInTimeError", "spawn", "until", "wait_for"]

_CHILD = Path(__file__).with_name("child.py")

# The kernel tells a child of its parent's end when the *thread* that started it ends, so one thread that
# lives as long as this process starts them all.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")


def spawn(
    command: Sequence[str],
    *,
    stdout: IO[bytes],
    stderr: IO[bytes],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a child in its own process group, from a thread that ends only with this process."""

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )

    return _spawner.submit(start).result()


@dataclass(frozen=True, slots=True)
class Member:
    """One process of a crew and the files it writes to."""

    number: int
    process: subprocess.Popen[bytes]
    stdout: Path
    stderr: Path

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended; a frozen process is alive."""
        return self.process.poll() is None

    def signal(self, sig: signal.Signals) -> None:
        """Send `sig` if the process still runs, and reap it if that was SIGKILL."""
        if self.is_alive:
            self.process.send_signal(sig)
            if sig is signal.SIGKILL:
                self.process.wait()

    def end(self) -> None:
        """Kill the process and everything left in its group."""
        if self.is_alive:
            os.killpg(self.pid, signal.SIGKILL)
            self.process.wait()


class Crew:
    """`size` processes that run `python -m module *args`; all of them are gone when the `with` block ends.

    `seed` fixes whom `kill_random` picks. Every process writes to its own `.out` and `.err` file in `folder`.
    """

    def __init__(
        self,
        module: str,
        *args: str,
        size: int,
        folder: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        seed: int = 0,
    ) -> None:
        self.module = module
        self.args = args
        self.size = size
        self.folder = folder
        self.env = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        self.cwd = cwd
        self.members: list[Member] = []
        self.killed: list[Member] = []
        self._chance = random.Random(seed)

    def __enter__(self) -> Self:
        try:
            self.respawn()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> list[Member]:
        """The members that have not ended."""
        return [member for member in self.members if member.is_alive]

    def respawn(self) -> int:
        """Start as many processes as are missing from `size`, and return how many that were."""
        missing = self.size - len(self.alive)
        for _ in range(missing):
            self.members.append(self._start(len(self.members)))
        return missing

    def kill_random(self, sig: signal.Signals = signal.SIGKILL) -> Member:
        """Send `sig` to one living member picked by chance, and return it."""
        alive = self.alive
        if not alive:
            raise AssertionError(f"no process of the crew is alive\n{self.complaints()}")
        member = self._chance.choice(alive)
        member.signal(sig)
        self.killed.append(member)
        return member

    def stop(self, sig: signal.Signals = signal.SIGTERM, timeout: float = 10.0) -> list[int]:
        """Send `sig` to all, wait, and return the exit codes of those that were alive; raise if one did not end."""
        stopping = self.alive
        for member in stopping:
            member.signal(sig)
        wait_for(
            lambda: not self.alive,
            timeout,
            message=f"end of {len(stopping)} processes after {sig.name}",
        )
        return [member.process.returncode for member in stopping]

    def complaints(self, last: int = 2000) -> str:
        """Return the end of what each member wrote to its stderr, for the message of a failing test."""
        texts = ((member, member.stderr.read_text(errors="replace")[-last:]) for member in self.members)
        return "\n".join(f"--- {member.stderr.name}\n{text}" for member, text in texts if text)

    def close(self) -> None:
        """Kill whatever is left."""
        for member in self.members:
            member.end()

    def _start(self, number: int) -> Member:
        stdout = self.folder / f"{self.module}-{number}.out"
        stderr = self.folder / f"{self.module}-{number}.err"
        command = [sys.executable, str(_CHILD), str(os.getpid()), self.module, *self.args]
        with stdout.open("wb") as out, stderr.open("wb") as err:
            process = spawn(command, stdout=out, stderr=err, env=self.env, cwd=self.cwd)
        return Member(number, process, stdout, stderr)
