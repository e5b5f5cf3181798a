"""A worker process that dies in the middle of a run, after its first step: takes a store's URL and a ledger.

The first step is completed when its result is in the database, which the next body waits for and the code between them
does not. So the process dies where the next body would begin: nothing of that body has happened.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stepwell import connect, consumer, workflow
from tests.seeds.loading import loaded


def program(ledger: Path, *, dies: bool) -> Any:
    """The program, whose bodies write down that they ran; it kills its process, or goes on."""

    dying: list[bool] = []

    def ran(body: str, result: str) -> str:
        if dying:
            os.kill(os.getpid(), signal.SIGKILL)
        with ledger.open("a") as lines:
            lines.write(f"{body}\n")
        return result

    return loaded(
        "crash_recovery",
        s3=SimpleNamespace(download=lambda bucket, key: ran("download", f"{bucket}/{key}")),
        image=SimpleNamespace(resize=lambda data: ran("process", data[:4])),
        crash_here=lambda: dying.append(True) if dies else None,
    )


async def main(url: str, ledger: Path) -> None:
    store = await connect(url)
    handler = program(ledger, dies=True).process_file_handler
    worker = await consumer("worker-1", 8080, "process_file").handler(handler).create(store)
    await workflow("process_file").trigger({"bucket": "holidays", "key": "a.jpg"}).execute(store)
    await worker.poll_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
