"""A worker that may be frozen in the middle of a transaction of a step: `python -m tests.crash.zombie --url ...`.

A step writes a row and a message in one transaction of the store. With `--stop`, its body waits at that point, where
the test freezes the process, until the gate is there.
"""

import argparse
import asyncio
from pathlib import Path
from typing import Any

from stepwell import Store, Worker, connect, step, workflow
from tests.ground.ledger import Ledger

WORKFLOW = "zombie"
OUT = "out"
POINTS = ("before the transaction", "before the first row", "before the commit")


def zombie(store: Store | None, ledger: Ledger, stop: str, gate: Path) -> Any:
    """The workflow, whose one step writes once."""

    async def at(point: str, n: int) -> None:
        if point == stop:
            ledger.write(phase="at", n=n)
            while not gate.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it, and looking is quick
                await asyncio.sleep(0.01)

    async def write(n: int) -> None:
        assert store is not None
        mark = "$1" if store.database.driver.name == "postgres" else "?"
        await at(POINTS[0], n)
        async with store.transaction() as tx:
            await at(POINTS[1], n)
            await tx.execute(f"insert into written (n) values ({mark})", n)
            await store.enqueue(OUT, n, tx=tx)
            await at(POINTS[2], n)

    @step(retry=1)
    async def act(n: int) -> None:
        ledger.write(phase="start", n=n)
        try:
            await write(n)
        except BaseException as error:
            ledger.write(phase="refused", n=n, error=type(error).__name__)
            raise
        ledger.write(phase="end", n=n)

    @workflow(name=WORKFLOW, retry=5)
    async def run(n: int) -> None:
        await act(n)

    return run


async def work(options: argparse.Namespace, ledger: Ledger) -> None:
    """Serve the workflow until SIGTERM."""
    async with connect(options.url, lease=options.lease) as store:
        served = zombie(store, ledger, options.stop, options.gate)
        await Worker(store, [served], concurrency=options.concurrency).run(signals=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--ledger", required=True, type=Path)
    parser.add_argument("--lease", type=float, required=True)
    parser.add_argument("--concurrency", type=int, required=True)
    parser.add_argument("--stop", default="")
    parser.add_argument("--gate", type=Path, default=Path("/nowhere"))
    options = parser.parse_args()
    with Ledger(options.ledger) as ledger:
        asyncio.run(work(options, ledger))


if __name__ == "__main__":
    main()
