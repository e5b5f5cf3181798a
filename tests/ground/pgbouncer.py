"""A real PgBouncer in transaction mode before the run's Postgres server.

It is not a package of Python, so a machine may not have it; the tests that need it are then skipped and say so.
"""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import asyncpg
import pytest

from tests.ground.databases import host_and_port, run_apart, with_port
from tests.ground.ports import free_port
from tests.ground.postgres import _mortal, _unprivileged
from tests.ground.processes import spawn

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")

_CONFIGURATION = """
[databases]
* = host={host} port={port} user=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = any
admin_users = postgres
pool_mode = transaction
default_pool_size = {pool}
max_client_conn = 500
server_idle_timeout = 3600
{more}
"""


class PgBouncer:
    """One pooler with `pool` server connections for each database; a context manager that leaves nothing behind."""

    def __init__(self, server: str, *, pool: int = 2, settings: Mapping[str, str] | None = None) -> None:
        host, port = host_and_port(server)
        more = "\n".join(f"{name} = {value}" for name, value in (settings or {}).items())
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="stepwell-pgbouncer-"))
        self.folder.chmod(0o755)
        (self.folder / "pgbouncer.ini").write_text(
            _CONFIGURATION.format(host=host, port=port, own_port=self.port, pool=pool, more=more)
        )
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        assert PROGRAM is not None
        command = [*_unprivileged(), *_mortal(), PROGRAM, str(self.folder / "pgbouncer.ini")]
        with (self.folder / "log").open("ab") as log:
            self._process = spawn(command, stdout=log, stderr=log, cwd=self.folder)
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def url(self, url: str) -> str:
        """Return the address `url` as it is reached through this pooler."""
        return with_port(url, "127.0.0.1", self.port)

    def log(self) -> str:
        """Return what it wrote so far."""
        return (self.folder / "log").read_text(errors="replace")

    def close(self) -> None:
        """End it, without a farewell to anyone, and remove its folder."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + 10
        while not run_apart(self._answers()):
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PgBouncer did not start:\n{self.log()[-2000:]}")
            time.sleep(0.02)

    async def _answers(self) -> bool:
        try:
            connection = await asyncpg.connect(
                f"postgresql://postgres@127.0.0.1:{self.port}/pgbouncer", statement_cache_size=0, ssl=False
            )
        except OSError:
            return False
        connection.terminate()
        return True


needs_pgbouncer = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed")


# What a driver asks of a session and this pooler does not know: it refuses each, unless told to ignore it.
SETTINGS = (
    "plan_cache_mode, jit, enable_seqscan, lock_timeout, statement_timeout, idle_in_transaction_session_timeout,"
    " tcp_keepalives_idle, tcp_user_timeout, stepwell.mark"
)


@pytest.fixture
def pooled_url(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[str]:
    """Through a pooler with two server connections.

    It refuses the settings of a session; with the parameter `ignored` it drops them unsaid.
    """
    settings = {"ignore_startup_parameters": SETTINGS} if getattr(request, "param", "") == "ignored" else {}
    with PgBouncer(postgres_url, settings=settings) as pooler:
        yield pooler.url(postgres_url)
