"""A worker whose receiver behaves badly: `python -m tests.crash.publisher --url ... --ledger ...`.

What an event meets at its first delivery goes by its number. The receiver is the ledger: what is written there has
arrived. `kill` ends the process between publishing and marking.
"""

import argparse
import asyncio
import os
import signal
from pathlib import Path

from stepwell import CloudEvent, Outbox, Retry, Worker, connect
from stepwell.base.telemetry import Telemetry
from tests.crash.workload import tell
from tests.ground.ledger import Ledger

SUBJECTS = 8
TYPE = "thing.done.v1"
TIMEOUT = 0.5
EVERY = 13  # of so many events each meets a fault of its own, the others none
FAULTS = {2: "fail", 5: "hang", 8: "lie", 11: "kill"}
UNMARKED = {"lie", "kill"}  # the event has arrived, and its worker does not know


def fault_of(n: int) -> str | None:
    """What happens when this event is first delivered."""
    return FAULTS.get(n % EVERY)


class Receiver:
    """Writes down what arrives, and who sent it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def __call__(self, event: CloudEvent) -> None:
        n = event.data
        tried = self._ledger.counts("n", phase="tried")[n]
        self._ledger.write(phase="tried", n=n, id=event.id, subject=event.subject)
        fault = None if tried else fault_of(n)
        if fault == "fail":
            raise OSError("the receiver is away")
        if fault == "hang":
            await asyncio.Event().wait()
        self._ledger.write(phase="arrived", n=n, id=event.id, subject=event.subject)
        if fault == "lie":
            raise ConnectionResetError("the receiver has answered 200, and reset the connection")
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


def outbox(ledger: Ledger) -> Outbox:
    """What publishes to the receiver."""
    return Outbox("crm", Receiver(ledger), types=TYPE, timeout=TIMEOUT, retry=Retry(50, base=0.05, cap=0.2))


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--ledger", required=True, type=Path)
    parser.add_argument("--lease", type=float, default=2.0)
    options = parser.parse_args()
    telemetry = Telemetry()
    with Ledger(options.ledger) as ledger:
        telemetry.subscribe(lambda event: tell(ledger, event))
        async with connect(options.url, lease=options.lease, telemetry=telemetry) as store:
            await Worker(store, [outbox(ledger)], concurrency=4).run(signals=True)


if __name__ == "__main__":
    asyncio.run(main())
