"""Time and CPU: of this process, and of a Postgres server on the same machine, which /proc tells."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_TICK = 1_000_000 / os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Reading:
    """Seconds on the clock, and microseconds of CPU used so far; the server's are None where nobody can see them."""

    seconds: float
    client: float
    server: float | None

    def __sub__(self, before: Self) -> "Reading":
        server = None if self.server is None or before.server is None else self.server - before.server
        return Reading(self.seconds - before.seconds, self.client - before.client, server)


@dataclass(frozen=True, slots=True)
class Meter:
    """Reads the clock and the CPU; `postmaster` is the process id of the server, None if it is not on this machine."""

    postmaster: int | None

    def read(self) -> Reading:
        """Read everything now."""
        server = None if self.postmaster is None else _server_microseconds(self.postmaster)
        return Reading(time.perf_counter(), time.process_time() * 1_000_000, server)


def parent_of(process: int) -> int | None:
    """The parent of a process called postgres on this machine, None if there is no such process."""
    with suppress(OSError):
        name, fields = _stat(process)
        if name == "postgres":
            return int(fields[1])
    return None


def _server_microseconds(postmaster: int) -> float:
    """All that the server has used: its living processes to the nanosecond, those that ended in clock ticks."""
    ended = sum(int(ticks) for ticks in _stat(postmaster)[1][13:15]) * _TICK
    return ended + sum(_scheduled(process) for process in (postmaster, *_children(postmaster)))


def _children(parent: int) -> Iterator[int]:
    for folder in _PROC.iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                if int(_stat(int(folder.name))[1][1]) == parent:
                    yield int(folder.name)


def _scheduled(process: int) -> float:
    with suppress(OSError):
        return int((_PROC / str(process) / "schedstat").read_text().split()[0]) / 1000
    return 0.0


def _stat(process: int) -> tuple[str, list[str]]:
    """The name of a process and what follows it in its stat line: state, parent, ..."""
    line = (_PROC / str(process) / "stat").read_text()
    name, _, rest = line.partition("(")[2].rpartition(")")
    return name, rest.split()
