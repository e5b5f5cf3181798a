"""kill -9 of a worker in the middle of a run: another one continues it, and the bank's own file says what was done.

Run it:  python examples/crash_recovery.py
It uses a temporary SQLite file, or the store that STEPWELL_URL names.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from stepwell import Worker, connect, current, step, sync, workflow

LEDGER = Path(os.environ.get("LEDGER", "ledger.txt"))  # the bank's, which stepwell knows nothing of
UNLUCKY = "UNLUCKY" in os.environ


@step
async def transfer(month: int) -> str:
    """At least once: if the outcome is unknown, the bank is asked again with the same key."""
    ask_the_bank(f"{current().key} month {month}\n")
    if UNLUCKY and month == 3:
        await asyncio.sleep(60)  # the money has moved, and nothing is recorded yet: here the process is killed
    return f"receipt {month}"


@workflow(name="example.rent")
async def pay_rent(months: int) -> list[str]:
    return [await transfer(month) for month in range(1, months + 1)]


def ask_the_bank(line: str) -> None:
    with LEDGER.open("a") as ledger:
        ledger.write(line)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("STEPWELL_URL") or f"sqlite:///{folder}/rent.db"
        ledger = Path(folder) / "ledger.txt"
        with sync.connect(url) as store:
            run_id = pay_rent.trigger(5).options(require_worker="ignore").execute(store)

        first = start_worker(url, ledger, run_id, UNLUCKY="1")
        wait_until(lambda: "month 3" in (ledger.read_text() if ledger.exists() else ""))
        first.send_signal(signal.SIGKILL)
        print("worker 1 was killed, exit code", first.wait())
        with sync.connect(url) as store:
            print("recorded by then:", [one.key for one in store.steps(run_id) if one.status == "SUCCESS"])

        print("worker 2 ended, exit code", start_worker(url, ledger, run_id).wait())
        with sync.connect(url) as store:
            print("the run returned", store.result(run_id))

        asked = [line.split(maxsplit=1) for line in ledger.read_text().splitlines()]
        print("the bank was asked for", [words for _, words in asked])
        print("and has moved money", len({key for key, _ in asked}), "times, by its keys")


def start_worker(url: str, ledger: Path, run_id: int, **environment: str) -> subprocess.Popen[bytes]:
    """A worker process; usually it is `stepwell worker`, and there are several."""
    environment = {**os.environ, "LEDGER": str(ledger), **environment}
    return subprocess.Popen([sys.executable, __file__, url, str(run_id)], env=environment)


def wait_until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not fact():
        if time.monotonic() > deadline:
            raise TimeoutError("the worker did not get to month 3")
        time.sleep(0.02)


async def work_until_finished(url: str, run_id: int) -> None:
    async with connect(url, lease="1s") as store, Worker(store, [pay_rent]):
        await store.result(run_id)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(work_until_finished(sys.argv[1], int(sys.argv[2])))
    else:
        main()
