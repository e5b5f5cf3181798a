"""Workers that are left to live for a while, and what was seen of them in the meantime."""

import signal
import time
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from stepwell import connect
from tests.crash.site import LONG, ROOT
from tests.crash.vitals import Sample, sample
from tests.crash.witness import Tables, Witness
from tests.ground.databases import run_apart
from tests.ground.processes import Crew
from tests.ground.waiting import wait_for

PROGRAM = "tests.crash.steady"
WORKING = 100  # messages that a busy worker has done before it is watched


@dataclass(frozen=True, slots=True)
class Spans:
    """Seconds: until nothing is new any more, from then to the end, and of the windows at both ends of that."""

    warm_up: float
    whole: float
    window: float
    every: float


@dataclass(slots=True)
class Life:
    """One worker, and what was seen of it in the first and in the last window."""

    backend: str
    busy: bool
    crew: Crew
    tables: Tables
    witness: Witness
    early: list[Sample] = field(default_factory=list)
    late: list[Sample] = field(default_factory=list)
    messages: int = 0

    def look(self) -> Sample:
        """How it is now."""
        [worker] = self.crew.alive
        return sample(worker.pid, self.tables, self.backend)

    def done(self) -> int:
        """How many messages it has done."""
        return self.tables.acknowledgements()

    def is_working(self) -> bool:
        """Whether it has begun, and if it is to be busy, is."""
        return bool(self.tables.sessions()) and (not self.busy or self.done() >= WORKING)

    def count_objects(self) -> None:
        """Have it count its objects, and wait until it has."""
        before = len(self.counts())
        self.crew.members[0].signal(signal.SIGUSR1)
        wait_for(lambda: len(self.counts()) > before, LONG, message=f"a count of objects\n{self.crew.complaints()}")

    def counts(self) -> list[dict[str, int]]:
        """Its objects by type, each time they were counted."""
        return [{**line["objects"], "blocks of memory": line["blocks"]} for line in self.witness.lines("objects")]


def begin(stack: ExitStack, backend: str, url: str, folder: Path, *, busy: bool) -> Life:
    """Start a worker, and if it is to be busy somebody who sends it messages."""
    run_apart(_install(url))
    ledger = folder / "ledger"
    worker = Crew(PROGRAM, "work", "--url", url, "--ledger", str(ledger), size=1, folder=folder, cwd=ROOT)
    life = Life(backend, busy, stack.enter_context(worker), Tables(url), Witness(ledger))
    if busy:
        beside = folder / "producer"
        beside.mkdir()
        stack.enter_context(Crew(PROGRAM, "produce", "--url", url, size=1, folder=beside, cwd=ROOT))
    return life


def watch(lives: Collection[Life], spans: Spans) -> None:
    """Let them all warm up, then look at them in the first window and in the last."""
    for life in lives:
        wait_for(life.is_working, LONG, message=f"a worker at work\n{life.crew.complaints()}")
    warm_at = time.monotonic() + spans.warm_up
    time.sleep(max(0.0, warm_at - time.monotonic()))
    for life in lives:
        life.count_objects()  # before the first window: to count takes memory too
    began = time.monotonic()
    done = [life.done() for life in lives]
    _look(lives, began + spans.window, spans.every, early=True)
    time.sleep(max(0.0, began + spans.whole - spans.window - time.monotonic()))
    _look(lives, began + spans.whole, spans.every, early=False)
    for life, before in zip(lives, done, strict=True):
        life.messages = life.done() - before
        life.count_objects()


def _look(lives: Collection[Life], until: float, every: float, *, early: bool) -> None:
    while (now := time.monotonic()) < until:
        for life in lives:
            (life.early if early else life.late).append(life.look())
        time.sleep(max(0.0, now + every - time.monotonic()))


async def _install(url: str) -> None:
    async with connect(url):
        pass
