"""The demo's story: orders are enqueued, workers work, one is killed with SIGKILL, the others finish what it held.

What happened to the orders is read from the outside service's books, who holds them from the store; nothing is
assumed. A kill that hit nothing is said to have hit nothing, and tried again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

from stepwell import sync
from stepwell.cli.demo.crew import Crew
from stepwell.cli.demo.service import Books, Service
from stepwell.cli.demo.shop import QUEUE, Order
from stepwell.records import Task, TaskId

ORDERS: Final = 40
WORKERS: Final = 3
KILLS: Final = 3  # at most; one is enough if it hits
DEADLINE: Final = 25.0
TICK: Final = 0.08


@dataclass(frozen=True, slots=True)
class Frame:
    """What there is to see at one moment."""

    at: float
    orders: int
    finished: int
    workers: dict[int, list[str]]  # pid -> the orders it holds, by the store's word
    killed: list[int]
    books: Books


class View(Protocol):
    """Whoever shows the story."""

    def say(self, at: float, what: str, more: str = "") -> None:
        """Tell an event, seconds after the start."""

    def show(self, frame: Frame) -> None:
        """Show how things stand."""


@dataclass(slots=True)
class Kill:
    """One SIGKILL, and the orders it hit: charged by the killed worker, not yet sent."""

    pid: int
    at: float
    in_flight: list[str]


@dataclass(slots=True)
class Result:
    """What came of it. The counts are the outside service's; `queue` is the store's own."""

    orders: int
    charged: int = 0
    charged_once: int = 0
    parcels_once: int = 0
    ran_again: list[str] = field(default_factory=list)
    interrupted: list[str] = field(default_factory=list)  # those of them that a killed worker had begun
    kills: list[Kill] = field(default_factory=list)
    queue: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if the counts are right and a kill really interrupted somebody."""
        return not self.problems


class Story:
    """One performance of the demo in a folder of its own."""

    def __init__(self, folder: Path, view: View) -> None:
        self._view = view
        self._service = Service(folder / "card-and-parcel-service.jsonl")
        self._url = f"sqlite:///{quote(str(folder / 'shop.db'))}"
        self._crew = Crew(self._url, folder / "card-and-parcel-service.jsonl", folder / "workers.log")
        self._kills: list[Kill] = []
        self._problems: list[str] = []
        self._tasks: dict[str, Task] = {}
        self._ids: dict[str, TaskId] = {}
        self._taken_over: set[str] = set()
        self._began = time.monotonic()

    def play(self) -> Result:
        """Play it to its end, or to its deadline."""
        with sync.connect(self._url) as store, self._crew:
            self._enqueue(store)
            self._start(WORKERS)
            while not self._is_over():
                time.sleep(TICK)
                self._look(store)
                self._strike()
            self._crew.stop()
            return self._result(store.counts(QUEUE))

    def _enqueue(self, store: sync.Store) -> None:
        orders = [Order(f"order-{number}", 1000 + number) for number in range(1, ORDERS + 1)]
        store.create_queue(QUEUE)
        keys = [order.key for order in orders]
        self._ids = dict(zip(keys, store.enqueue_many(QUEUE, orders, keys=keys), strict=True))
        self._view.say(self._at, f"{ORDERS} orders enqueued", "each: charge the card, pack, send the parcel")

    def _start(self, count: int) -> None:
        pids = [self._crew.start() for _ in range(count)]
        self._view.say(self._at, f"{'worker' if count == 1 else 'workers'} {_listed(pids)} started")

    def _look(self, store: sync.Store) -> None:
        """Read how things stand, show it, and tell what is new."""
        pids = {worker.id: worker.pid for worker in store.workers()}
        for key, task_id in self._ids.items():
            if key not in self._tasks or not self._tasks[key].status.finished:
                task = store.get(task_id)
                if task is not None:
                    self._tasks[key] = task
        holds: dict[int, list[str]] = {pid: [] for pid in self._crew.pids}
        for key, task in self._tasks.items():
            if task.owner is not None and not task.status.finished:
                holds.setdefault(pids.get(task.owner, 0), []).append(key)
        self._notice(holds)
        self._view.show(Frame(self._at, ORDERS, self._finished, holds, self._crew.killed, self._service.books()))

    def _notice(self, holds: dict[int, list[str]]) -> None:
        """Tell who took over what a killed worker held."""
        for kill in self._kills:
            for pid in self._crew.alive:
                for key in set(kill.in_flight).intersection(holds[pid]) - self._taken_over:
                    self._taken_over.add(key)
                    more = f"attempt {self._tasks[key].attempt}, same key, {self._at - kill.at:.1f} s after the kill"
                    self._view.say(self._at, f"worker {pid} takes over {key}", more)

    def _strike(self) -> None:
        """Kill the worker that is in the middle of most, once a third is done; again if that hit nothing."""
        if self._finished < ORDERS / 3 or any(kill.in_flight for kill in self._kills) or len(self._kills) == KILLS:
            return
        books = self._service.books()
        victim = max(self._crew.alive, key=lambda pid: len(books.unfinished_by(pid)), default=None)
        if victim is None or not books.unfinished_by(victim):
            return
        self._crew.kill(victim)
        # Read after its death, when it can write no more: what it held may have been finished in the last moment.
        hit = self._service.books().unfinished_by(victim)
        self._kills.append(Kill(victim, self._at, hit))
        if hit:
            self._view.say(self._at, f"kill -9 {victim}", f"by this demo: {_listed(hit)} charged, not sent")
        else:
            self._view.say(self._at, f"kill -9 {victim}", "hit nothing: it had just finished; once more")
            self._start(1)

    def _is_over(self) -> bool:
        if self._finished == ORDERS:
            return True
        if self._crew.fallen:
            self._problems.append(f"worker {_listed(self._crew.fallen)} ended by itself: {self._crew.complaints()}")
        if self._at > DEADLINE:
            self._problems.append(f"{self._finished} of {ORDERS} orders finished within {DEADLINE:g} s")
        return bool(self._problems)

    def _result(self, counts: dict[str, int]) -> Result:
        """The verdict, from the service's books and the store's counts."""
        books = self._service.books()
        charges, parcels = books.times("charge"), books.times("parcel")
        ran_again = [key for key, times in books.asked("charge").items() if times > 1]
        begun = {key for pid in self._crew.killed for key in books.begun_by(pid)}
        result = Result(
            orders=ORDERS,
            charged=charges.total(),
            charged_once=sum(charges[key] == 1 for key in self._ids),
            parcels_once=sum(parcels[key] == 1 for key in self._ids),
            ran_again=ran_again,
            interrupted=[key for key in ran_again if key in begun],
            kills=self._kills,
            queue=counts,
            seconds=round(self._at, 1),
            problems=self._problems,
        )
        if not charges.total() == result.charged_once == ORDERS:
            result.problems.append(f"{ORDERS} orders, {charges.total()} charges, {result.charged_once} charged once")
        if not parcels.total() == result.parcels_once == ORDERS:
            result.problems.append(f"{ORDERS} orders, {parcels.total()} parcels, {result.parcels_once} sent once")
        if counts != {"SUCCESS": ORDERS}:
            result.problems.append(f"the queue says {counts}")
        if not result.interrupted:
            result.problems.append(f"{len(self._kills)} kills interrupted nobody, so this run shows nothing")
        return result

    @property
    def _finished(self) -> int:
        return sum(task.status.finished for task in self._tasks.values())

    @property
    def _at(self) -> float:
        return time.monotonic() - self._began


def _listed(things: Iterable[object]) -> str:
    return ", ".join(map(str, things))
