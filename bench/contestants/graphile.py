"""graphile-worker, in a Node process that is told what to do line by line."""

import asyncio
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import asyncpg

from bench.contestants import QUEUE, State
from bench.peers import modules

CONCURRENCY: Final = 100
LOCAL: Final = 500  # jobs that a process takes from the database ahead of its workers
PROGRAM: Final = Path(__file__).with_suffix(".mjs")


async def connect(url: str) -> "Graphile":
    """Start the process, and a connection for what is read of its tables."""
    folder = modules("graphile")
    process = await asyncio.create_subprocess_exec(
        *("node", str(PROGRAM), url, QUEUE),
        env={**os.environ, "BENCH_MODULES": str(folder), "NO_LOG_SUCCESS": "1"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    told = json.loads((folder / "node_modules" / "graphile-worker" / "package.json").read_text(encoding="utf-8"))
    return Graphile(process, await asyncpg.connect(url), told["version"])


class Graphile:
    """The queue as graphile-worker serves it."""

    api = {  # noqa: RUF012 - nobody changes it
        "enqueue_many": "addJobs of 1,000",
        "drain": f"run with concurrentJobs={CONCURRENCY}, localQueue of {LOCAL}, no delay of completions; async task",
    }
    unfinished = "select count(*) from graphile_worker._private_jobs"
    # A job that is done is deleted; one that has failed stays. So what is done is what was numbered and is gone.
    finished = (
        "select (select case when is_called then last_value else 0 end from graphile_worker.jobs_id_seq1)"
        " - (select count(*) from graphile_worker._private_jobs)"
    )

    def __init__(self, process: asyncio.subprocess.Process, asking: Any, version: str) -> None:
        self._process = process
        self._asking = asking
        self.version = version

    async def install(self) -> None:
        """Make its tables."""
        await self._tell("install")

    def filling(self, state: State, count: int) -> Iterable[str]:
        """It keeps nothing that is finished."""
        raise NotImplementedError

    async def enqueue_many(self, numbers: range) -> None:
        """Add jobs by the thousand."""
        await self._tell("add", first=numbers.start, last=numbers.stop)

    async def drain(self, count: int) -> None:
        """Run until so many jobs are done."""
        await self._tell("drain", count=count, concurrency=CONCURRENCY, local=LOCAL)

    async def close(self) -> None:
        """Let the process end."""
        await self._tell("close")
        await self._process.wait()
        await self._asking.close()

    async def _tell(self, verb: str, **given: int) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"verb": verb, **given}).encode() + b"\n")
        if (said := await self._process.stdout.readline()) != b"done\n":
            raise RuntimeError(f"graphile-worker could not {verb}: {said.decode()}")
