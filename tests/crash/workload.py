"""The worker program that crash tests start, kill and freeze: `python -m tests.crash.workload --url ... --ledger ...`.

Each message says what its body does: `{"n": 7, "seconds": 0.2, "gates": ["first"]}` waits, at its first turn, for the
gate `first` to be opened, then works for 0.2 s. The body writes a line to the ledger when it starts, ends or is
cancelled; so do the log and every event of the engine, so that the test can hear them from outside.
"""

import argparse
import asyncio
import ctypes
import dataclasses
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from stepwell import Handler, Retry, Worker, connect
from stepwell.base.events import Event
from stepwell.base.telemetry import Telemetry
from stepwell.store.rows import Claimed
from stepwell.work.body import Slot
from stepwell.work.threads import Threads
from tests.ground.ledger import Ledger

QUEUE = "work"
ATTEMPTS = 20
LOOK_FOR_GATES = 0.02
HELD = "held"
LEDGER = "STEPWELL_TEST_LEDGER"  # for `app.py`

Payload = dict[str, Any]
_task: ContextVar[Claimed] = ContextVar("task")


class Told(Handler[Payload]):
    """A handler whose body can see the task it belongs to."""

    async def _body(self, tasks: Sequence[Claimed], threads: Threads, slot: Slot) -> Any:
        _task.set(tasks[0])
        return await super()._body(tasks, threads, slot)


def handler_of(body: Callable[[Payload], object], attempts: int = ATTEMPTS) -> Told:
    """The body as the handler of the queue."""
    return Told(body, QUEUE, retry=Retry(attempts), timeout=None, concurrency=None, batch=None)


class Bodies:
    """What may stand behind the queue: one public method a variant."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._gates = Gates(ledger)

    async def nap(self, message: Payload) -> None:
        """Wait as a good citizen of the loop does."""
        with self._told(message):
            await self._gates.passed(_gate_of(message))
            if message["seconds"]:
                await asyncio.sleep(message["seconds"])

    async def block(self, message: Payload) -> None:
        """Block the event loop: nothing else of this process's loop runs meanwhile."""
        with self._told(message):
            time.sleep(message["seconds"])  # noqa: ASYNC251 - the fault under test

    async def hold(self, message: Payload) -> None:
        """Hold the interpreter in a C call for `hold` seconds, if it says so: no thread of this process runs."""
        with self._told(message):
            if message.get("fork"):
                stay_behind()
            if message.get("hold"):
                ctypes.PyDLL(None).usleep(int(message["hold"] * 1_000_000))
            await self._gates.passed(_gate_of(message))
            await asyncio.sleep(message["seconds"])

    def thread(self, message: Payload) -> None:
        """Block, but in a thread of its own, as a sync handler does."""
        with self._told(message):
            time.sleep(message["seconds"])

    @contextmanager
    def _told(self, message: Payload) -> Iterator[None]:
        task = _task.get()
        who = {"n": message["n"], "task": task.id, "session": task.owner, "turn": task.turn, "attempt": task.attempt}
        self._ledger.write(phase="start", **who)
        try:
            yield
        except BaseException:
            self._ledger.write(phase="stopped", **who)
            raise
        self._ledger.write(phase="end", **who)


def stay_behind() -> None:
    """Fork a child that keeps every descriptor of this process open, and lives for as long as the test may take."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(60)
        os._exit(0)


class Gates:
    """Files that a test creates to let bodies pass; one look at the file serves all that wait for it.

    A gate that is opened and held lets them pass and then blocks the loop until the test lets go of it: all its bodies
    end in the loop's next turn, before anything that this process hears in the meantime.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._opened: dict[str, asyncio.Event] = {}
        self._looking: list[asyncio.Task[None]] = []

    async def passed(self, name: str | None) -> None:
        """Return when the gate is open; at once if there is none."""
        if name is None:
            return
        if name not in self._opened:
            self._opened[name] = asyncio.Event()
            self._looking.append(asyncio.create_task(self._look(name)))
        await self._opened[name].wait()

    async def _look(self, name: str) -> None:
        path = gate_path(self._ledger.path, name)
        while not path.exists():  # noqa: ASYNC110 - another process opens it
            await asyncio.sleep(LOOK_FOR_GATES)
        self._opened[name].set()
        if path.read_text() == HELD:
            self._ledger.write(phase="held", gate=name)
            while path.read_text() == HELD:
                time.sleep(LOOK_FOR_GATES)  # noqa: ASYNC251 - the loop is to stand still


def gate_path(ledger: Path, name: str) -> Path:
    """Where the file of a gate is."""
    return ledger.with_name(f"{ledger.name}.gate-{name}")


class LogToLedger(logging.Handler):
    """Every line that this process logs, of whatever logger, as a fact."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(logging.INFO)
        self._ledger = ledger

    def emit(self, record: logging.LogRecord) -> None:
        self._ledger.write(phase="log", logger=record.name, level=record.levelname, text=record.getMessage()[:300])


async def work(options: argparse.Namespace, ledger: Ledger) -> None:
    """Serve the queue until SIGTERM; with several workers, each has a store of its own."""
    telemetry = Telemetry()
    telemetry.subscribe(lambda event: tell(ledger, event))
    body = getattr(Bodies(ledger), options.body)
    async with AsyncExitStack() as stack:
        workers = []
        for _ in range(options.workers):
            opening = connect(
                options.url,
                lease=options.lease,
                hang_after=options.hang_after,
                helper=options.helper == "on",
                telemetry=telemetry,
            )
            store = await stack.enter_async_context(opening)
            workers.append(Worker(store, [handler_of(body)], concurrency=options.concurrency, grace=options.grace))
        if len(workers) == 1:
            await workers[0].run(signals=True)
            return
        # One loop has one handler of a signal, and that would stop one worker only.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _stop_all, workers)
        await asyncio.gather(*(worker.run() for worker in workers))


def _stop_all(workers: list[Worker]) -> None:
    for worker in workers:
        worker.stop()


def tell(ledger: Ledger, event: Event) -> None:
    ledger.write(phase="event", event=type(event).__name__, **dataclasses.asdict(event))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--ledger", required=True, type=Path)
    parser.add_argument("--lease", type=float, default=30.0)
    parser.add_argument("--concurrency", type=int, default=10)
    parser.add_argument("--grace", type=float, default=25.0)
    parser.add_argument("--body", choices=("nap", "block", "thread", "hold"), default="nap")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--hang_after", type=float, default=None)
    parser.add_argument("--helper", choices=("on", "off"), default="on")
    options = parser.parse_args()
    with Ledger(options.ledger) as ledger:
        logging.basicConfig(level=logging.INFO, handlers=[logging.StreamHandler(), LogToLedger(ledger)])
        asyncio.run(work(options, ledger))


def _gate_of(message: Payload) -> str | None:
    gates, turn = message.get("gates", []), _task.get().turn
    name: str | None = gates[turn - 1] if turn <= len(gates) else None
    return name


if __name__ == "__main__":
    main()
