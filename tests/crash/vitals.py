"""What a process uses, as the kernel and the database tell it: memory, files, threads, connections."""

import os
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.crash.witness import Tables

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment of a process."""

    memory: int
    files: int
    threads: int
    connections: int


def sample(pid: int, tables: Tables, backend: str) -> Sample:
    """How the process is now; `connections` are those that Postgres has with it."""
    folder = Path(f"/proc/{pid}")
    return Sample(
        memory=int((folder / "statm").read_text().split()[1]) * PAGE,
        files=len(list((folder / "fd").iterdir())),
        threads=len(list((folder / "task").iterdir())),
        connections=_connections(pid, tables) if backend == "postgres" else 0,
    )


def usual(samples: list[Sample]) -> Sample:
    """The middle of each number: what a single burst does not move."""
    return Sample(
        memory=int(median(one.memory for one in samples)),
        files=int(median(one.files for one in samples)),
        threads=int(median(one.threads for one in samples)),
        connections=int(median(one.connections for one in samples)),
    )


def _connections(pid: int, tables: Tables) -> int:
    """By the client's port, because the producer's connections have the same name."""
    asked = "select client_port from pg_stat_activity where application_name = 'stepwell' and client_port > 0"
    return len({port for [port] in tables.ask(asked)} & _ports(pid))


def _ports(pid: int) -> set[int]:
    links = (_target(link) for link in Path(f"/proc/{pid}/fd").iterdir())
    sockets = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in sockets:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""  # closed between the look at the folder and this one
