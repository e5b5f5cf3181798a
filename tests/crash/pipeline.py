"""The workflow program that kill tests start: `python -m tests.crash.pipeline --url ... --ledger ...`.

A run makes five steps, one after the other. The body of each writes to the ledger when it starts and when it ends,
with a mark that is new for every execution; the mark is what the step returns, and what the next step is given.
"""

import argparse
import asyncio
import secrets
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from stepwell import Step, Worker, connect, step, workflow
from stepwell.base.telemetry import Telemetry
from tests.crash.workload import tell
from tests.ground.ledger import Ledger

WORKFLOW = "pipeline"
STEPS = 5


def pipeline(ledger: Ledger) -> Any:
    """The workflow, whose steps tell the ledger."""
    execute = _body(ledger)

    @workflow(name=WORKFLOW, retry=20)
    async def run(n: int, seconds: float) -> list[str]:
        marks = ["begin"]
        for place in range(STEPS):
            marks.append(await execute(n, place, marks[-1], seconds))
        return marks[1:]

    return run


def _body(ledger: Ledger) -> Step[[int, int, str, float], Coroutine[Any, Any, str]]:
    @step
    async def execute(n: int, place: int, before: str, seconds: float) -> str:
        mark = secrets.token_hex(8)
        ledger.write(phase="start", n=n, place=place, before=before, mark=mark)
        await asyncio.sleep(seconds)
        ledger.write(phase="end", n=n, place=place, mark=mark)
        return mark

    return execute


async def work(options: argparse.Namespace, ledger: Ledger) -> None:
    """Serve the workflow until SIGTERM."""
    telemetry = Telemetry()
    telemetry.subscribe(lambda event: tell(ledger, event))
    async with connect(options.url, lease=options.lease, telemetry=telemetry) as store:
        await Worker(store, [pipeline(ledger)], concurrency=options.concurrency).run(signals=True)


def main(work: Callable[[argparse.Namespace, Ledger], Coroutine[Any, Any, None]] = work) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--ledger", required=True, type=Path)
    parser.add_argument("--lease", type=float, default=30.0)
    parser.add_argument("--concurrency", type=int, default=10)
    options = parser.parse_args()
    with Ledger(options.ledger) as ledger:
        asyncio.run(work(options, ledger))


if __name__ == "__main__":
    main()
