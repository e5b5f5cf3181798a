"""Where a measurement takes place: a fresh database for each, copied from one that was filled once where it has to be.

The Postgres server is the benchmark's own, from the wheel the tests use; `STEPWELL_BENCH_POSTGRES` names another one,
on which databases are made and dropped.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from bench.durability import POSTGRES, check_folder, check_postgres
from bench.meter import parent_of
from tests.ground.databases import create_database, drop_database, run_sql
from tests.ground.postgres import PostgresServer

SERVER: Final = {"shared_buffers": "1GB", "max_wal_size": "8GB"}
SHOWN: Final = ("server_version", *POSTGRES, "shared_buffers", "max_wal_size", "wal_compression", "autovacuum")


class Ground(Protocol):
    """One kind of database."""

    @property
    def settings(self) -> Mapping[str, str]:
        """What it runs with."""

    @property
    def postmaster(self) -> int | None:
        """Whose CPU is the server's; None if the database is in the client or out of sight."""

    def fresh(self, template: str | None = None) -> str:
        """The URL of a new database: empty, or a copy of the one at `template`, which nobody is connected to."""

    def drop(self, url: str) -> None:
        """Remove it."""


@contextlib.contextmanager
def ground_of(backend: str) -> Iterator[Ground]:
    """The ground for one kind of database, gone at the end."""
    with contextlib.ExitStack() as stack:
        if (mounts := Path("/proc/mounts")).exists() and not _named(backend):
            check_folder(Path(tempfile.gettempdir()).resolve(), mounts.read_text())
        if backend == "sqlite":
            yield SqliteGround(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stepwell-bench-"))))
        elif named := _named(backend):
            yield PostgresGround(named)
        else:
            yield PostgresGround(stack.enter_context(PostgresServer(durable=True, **SERVER)).url())


def _named(backend: str) -> str | None:
    return os.environ.get("STEPWELL_BENCH_POSTGRES") if backend == "postgres" else None


class PostgresGround:
    """Databases on one server; refuses a server that does not flush its commits."""

    def __init__(self, server: str) -> None:
        self._server = server
        self.settings = postgres_settings(server)
        check_postgres(self.settings)
        self.postmaster = _postmaster(server)

    def fresh(self, template: str | None = None) -> str:
        """Make a database; the server writes its checkpoint now and not while somebody is measured."""
        url = create_database(self._server, "template1" if template is None else urlsplit(template).path[1:])
        run_sql(self._server, "checkpoint")
        return url

    def drop(self, url: str) -> None:
        """Drop it."""
        drop_database(url, self._server)


class SqliteGround:
    """Files in a folder."""

    postmaster = None

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0
        self.settings = {"journal_mode": "wal", "synchronous": "full"}  # whoever plays proves it, or is refused

    def fresh(self, template: str | None = None) -> str:
        """Name a file that is not there, or copy one that was closed."""
        self._made += 1
        path = self._folder / f"{self._made}.db"
        if template is not None:
            for end in ("", "-wal"):
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(f"{_file(template)}{end}", f"{path}{end}")
        return f"sqlite:///{path}"

    def drop(self, url: str) -> None:
        """Remove the file and what stands beside it."""
        for path in self._folder.glob(f"{_file(url).name}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def postgres_settings(url: str) -> dict[str, str]:
    """What the server says of itself to whoever connects with this address."""
    return dict(zip(SHOWN, run_sql(url, *(f"show {name}" for name in SHOWN)), strict=True))


def _postmaster(server: str) -> int | None:
    """The server's first process, if it is on this machine: the parent of one that lives as long as it does."""
    [process] = run_sql(
        server,
        "select pid from pg_stat_activity where backend_type = 'checkpointer'"
        " and coalesce(inet_server_addr() <<= '127.0.0.0/8', true)",
    )
    return None if process is None else parent_of(process)


def _file(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))
