"""A worker whose tasks may kill it: `python -m tests.crash.deadly --url ... --ledger ... --lease 2 --concurrency 15`.

Each task says what it does: nothing but wait (`None`), or end the process in one of the ways below.
"""

import argparse
import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from stepwell import Worker, connect, handler, step, workflow
from tests.ground.ledger import Ledger

QUEUE = "deadly"
MUCH = 256 * 1024 * 1024  # bytes, above what a worker needs and far below what this machine has
PIECE = 16 * 1024 * 1024


async def _exit() -> None:
    os._exit(3)


async def _abort() -> None:
    os.abort()


async def _eat() -> None:
    """Take memory that is really used, until the process is killed for it.

    The kernel would do that when all of the machine's memory is gone; here the process does it to itself, with the same
    signal, as soon as it has grown by so much.
    """
    before, eaten = _resident(), list[bytearray]()
    while _resident() - before < MUCH:
        eaten.append(bytearray(os.urandom(4096)) * (PIECE // 4096))
        await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGKILL)


def _resident() -> int:
    """How many bytes of memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


DEATHS = {"exit": _exit, "abort": _abort, "memory": _eat}


def served(ledger: Ledger) -> tuple[Any, Any]:
    """The handler of the queue, and the workflow of that name with an end on `_run`: both do what they are told."""

    async def execute(task: dict[str, Any]) -> None:
        ledger.write(phase="start", n=task["n"])
        await asyncio.sleep(task["seconds"])
        if task["death"] is not None:
            await DEATHS[task["death"]]()
        ledger.write(phase="end", n=task["n"])

    @step
    async def act(task: dict[str, Any]) -> None:
        await execute(task)

    @workflow(name=f"{QUEUE}_run")
    async def run(task: dict[str, Any]) -> None:
        await act(task)

    @handler(QUEUE)
    async def deadly(task: dict[str, Any]) -> None:
        await execute(task)

    return deadly, run


async def work(options: argparse.Namespace, ledger: Ledger) -> None:
    """Serve both until SIGTERM, or until a task kills this process."""
    async with connect(options.url, lease=options.lease) as store:
        await Worker(store, served(ledger), concurrency=options.concurrency).run(signals=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--ledger", required=True, type=Path)
    parser.add_argument("--lease", type=float, required=True)
    parser.add_argument("--concurrency", type=int, required=True)
    options = parser.parse_args()
    with Ledger(options.ledger) as ledger:
        asyncio.run(work(options, ledger))


if __name__ == "__main__":
    main()
