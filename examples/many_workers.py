"""Three worker processes on one database: they need no coordinator, and one may leave at any time.

Run it:  python examples/many_workers.py
It uses a temporary SQLite file, or the store that STEPWELL_URL names (not Turso, which is for one process).
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from uuid import uuid4

from stepwell import Worker, connect, handler, sync

TABLE = Path(os.environ.get("TABLE", "."))  # a folder that all of them see; each leaves a card there
WORKERS = 3


@handler("example.meet", concurrency=1, retry=5)  # one at once in each worker: all three have to come
async def meet(party: str) -> None:
    write("meet", party)
    while cards(TABLE) < WORKERS:
        await asyncio.sleep(0.02)


@handler("example.press", retry=5)
async def press(shirt: int) -> None:
    await asyncio.sleep(0.005)
    write("press", shirt)


def write(what: str, which: object) -> None:
    with (TABLE / f"{what} {os.getpid()}").open("a") as card:
        card.write(f"{which}\n")


def cards(table: Path) -> int:
    return len(list(table.glob("meet *")))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("STEPWELL_URL") or f"sqlite:///{folder}/work.db"
        table = Path(folder) / "table"
        table.mkdir()
        with sync.connect(url) as store:
            workers = [start_worker(url, table) for _ in range(WORKERS)]  # equal; none is told of the others
            store.enqueue_many(meet, [str(uuid4()) for _ in range(WORKERS)])
            finish(store, "example.meet")
            print("met:", cards(table), "workers")

            store.enqueue_many(press, range(150))
            workers[0].send_signal(signal.SIGTERM)  # a deploy: it finishes or gives back what it has, and ends
            print("worker 1 has left, exit code", workers[0].wait())
            finish(store, "example.press")
        for worker in workers[1:]:
            worker.send_signal(signal.SIGTERM)
        print("the others have left, exit codes", [worker.wait() for worker in workers[1:]])
        pressed = Counter(line for card in table.glob("press *") for line in card.read_text().split())
        print(f"{len(pressed)} shirts are pressed, at most {max(pressed.values())} time each")


def start_worker(url: str, table: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, url], env={**os.environ, "TABLE": str(table)})


def finish(store: sync.Store, queue: str) -> None:
    while any(store.counts(queue).get(status) for status in ("PENDING", "RUNNING")):
        time.sleep(0.05)


async def work(url: str) -> None:
    async with connect(url) as store:
        await Worker(store, [meet, press], concurrency=5).run(signals=True)  # until SIGTERM or Ctrl-C


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(work(sys.argv[1]))
    else:
        main()
