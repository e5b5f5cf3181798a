"""The demo's story, in two acts.

First a worker is killed with SIGKILL at the worst moment: the bank has charged the card, and nothing of it is recorded.
Another worker finishes the order. Then the same for every point of the run: a worker for each is killed exactly there,
and another one finishes what all of them began. What happened is read from the service's books and from the stores.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from stepwell import sync
from stepwell.cli.demo.processes import Crew
from stepwell.cli.demo.service import OutsideService
from stepwell.cli.demo.shop import ACTS, fulfil
from stepwell.records import Run, RunStatus, StepInfo

PACE: Final = 1.0  # seconds that the service takes to answer in the first act
TRIES: Final = 3  # how often the first act is played until the kill comes in time
DEADLINE: Final = 30.0
TICK: Final = 0.05
AT_ONCE: Final = 3  # processes that are started together in the second act
POINTS: Final = tuple(f"{when} {act}" for act in ACTS for when in ("before", "after"))


class Point(Enum):
    """How far a point of the second act is."""

    AHEAD = "ahead"
    KILLED = "killed"  # the worker is; another one has to finish its order
    RIGHT = "right"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Frame:
    """What there is to see at one moment: the steps of the order, and how each point of the second act ended."""

    at: float
    steps: Sequence[StepInfo]
    points: Sequence[Point]


class View(Protocol):
    """What shows the story."""

    def say(self, at: float, what: str, more: str = "") -> None:
        """Tell an event, seconds after the start."""

    def show(self, frame: Frame) -> None:
        """Show how things stand."""


@dataclass(slots=True)
class Result:
    """What came of it. The counts are the outside service's."""

    backend: str
    order: str = ""
    killed: int = 0
    after_seconds: float = 0.0  # from the kill until another worker had the order
    done: dict[str, int] = field(default_factory=dict)  # of the order, how often each act was really done
    asked: dict[str, int] = field(default_factory=dict)  # ... and how often it was asked for
    points: dict[str, bool] = field(default_factory=dict)
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if everything was done exactly once, and the kills hit."""
        return not self.problems


class Story:
    """One performance of the demo in a folder of its own; `place` gives the address of a fresh store by its name."""

    def __init__(self, folder: Path, view: View, place: Callable[[str], str], backend: str = "SQLite") -> None:
        self._view = view
        self._place = place
        self._service = OutsideService(folder / "books.jsonl")
        self._crew = Crew(folder / "books.jsonl", folder / "workers.log")
        self._result = Result(backend)
        self._steps: Sequence[StepInfo] = ()
        self._points: list[Point] = []
        self._began = time.monotonic()

    def play(self) -> Result:
        """Play it to its end, or to its deadline."""
        with self._crew:
            try:
                self._first_act()
                self._second_act()
            except TimeoutError as error:
                self._result.problems += [f"{error} within {DEADLINE:g} s", self._crew.complaints()]
            self._crew.stop()
        self._result.seconds = round(self._at, 1)
        return self._result

    def _first_act(self) -> None:
        url = self._place("shop")
        with sync.connect(url) as store:
            workers = [self._crew.start([url], pace=PACE) for _ in range(2)]
            self._view.say(self._at, f"workers {workers[0]} and {workers[1]} started", "two processes, one database")
            for number in range(1, TRIES + 1):
                if self._kill_in_the_middle(store, f"order-{number}"):
                    self._judge_order()
                    return
                self._crew.start([url], pace=PACE)
        self._result.problems.append(f"{TRIES} kills came too late, so this shows nothing")

    def _kill_in_the_middle(self, store: sync.Store, order: str) -> bool:
        """Trigger an order and kill its worker when the card is charged; False if that was recorded before the kill."""
        run_id = fulfil.trigger(order).options(key=order, require_worker="ignore").execute(store)
        self._view.say(self._at, f"{order} is triggered", "five steps")
        self._until(lambda: self._charging(store, run_id, order), f"{order} is charged")
        victim = self._service.books().by(order, ACTS[1])[0]
        self._view.say(self._at, f"worker {victim}: charge_card", "the bank has charged, not answered")
        self._crew.kill(victim)
        killed_at = self._at
        self._result.order, self._result.killed = order, victim
        self._view.say(self._at, f"kill -9 {victim}", "by this demo, right now")
        recorded = {step.name: step.status for step in store.steps(run_id)}
        if recorded.get("charge_card") == RunStatus.SUCCESS:
            self._view.say(self._at, "too late", "it was recorded already; once more")
            self._until(lambda: self._look(store, run_id).status.finished, f"{order} is finished")
            return False
        self._until(lambda: len(self._service.books().by(order, ACTS[1])) > 1, "another worker goes on")
        self._result.after_seconds = round(self._at - killed_at, 1)
        heir = self._service.books().by(order, ACTS[1])[1]
        self._view.say(self._at, f"worker {heir} takes over {order}", f"{self._result.after_seconds} s after the kill")
        self._view.say(self._at, "reserve_stock is recorded", "it is not run again")
        self._view.say(self._at, "charge_card runs again", "same key: it is not charged twice")
        self._until(lambda: self._look(store, run_id).status.finished, f"{order} is finished")
        self._view.say(self._at, f"{order} is finished", store.get_run(run_id).status)
        return True

    def _charging(self, store: sync.Store, run_id: int, order: str) -> list[int]:
        self._look(store, run_id)
        return self._service.books().by(order, ACTS[1])

    def _look(self, store: sync.Store, run_id: int) -> Run[str]:
        """Read how the order stands, and show it."""
        self._steps = store.steps(run_id)
        self._show()
        return store.get_run(run_id)

    def _judge_order(self) -> None:
        books = self._service.books()
        result = self._result
        result.done, result.asked = dict(books.times(result.order)), dict(books.asked(result.order))
        if result.done != dict.fromkeys(ACTS, 1):
            result.problems.append(f"{result.order}: done {result.done}")
        if result.asked.get(ACTS[1], 0) < 2 or result.asked.get(ACTS[0], 0) != 1:
            result.problems.append(f"{result.order}: asked for {result.asked}")

    def _second_act(self) -> None:
        """Kill a worker at every point of a run of its own, then let one process finish what is left in all."""
        self._points = [Point.AHEAD] * len(POINTS)
        self._view.say(self._at, f"again: kill -9 at each of {len(POINTS)} points", "before and after each act")
        urls = [self._place(f"point_{number}") for number in range(len(POINTS))]
        self._show()
        for first in range(0, len(POINTS), AT_ONCE):
            self._kill_at(range(first, min(first + AT_ONCE, len(POINTS))), urls)
        self._crew.start(urls)
        for number, url in enumerate(urls):
            with sync.connect(url, listen=False) as store:
                self._until(partial(_is_finished, store), f"killed {POINTS[number]}, the order is finished")
                self._judge_point(number, store.runs(limit=1)[0])

    def _kill_at(self, numbers: range, urls: Sequence[str]) -> None:
        """For each point a store, an order in it, and a worker that is killed exactly there."""
        doomed = {}
        for number in numbers:
            with sync.connect(urls[number], listen=False) as store:
                fulfil.trigger(f"point-{number}").options(require_worker="ignore").execute(store)
            doomed[number] = self._crew.start([urls[number]], dies=POINTS[number])
        for number, pid in doomed.items():
            self._until(partial(self._crew.has_ended, pid), f"a worker is killed {POINTS[number]}")
            if self._crew.ending_of(pid) != -signal.SIGKILL:
                self._result.problems.append(f"{POINTS[number]}: the worker ended by itself: {self._crew.complaints()}")
            self._points[number] = Point.KILLED
            self._show()

    def _judge_point(self, number: int, run: Run[str]) -> None:
        done = dict(self._service.books().times(f"point-{number}"))
        right = run.status == RunStatus.SUCCESS and done == dict.fromkeys(ACTS, 1)
        self._points[number] = Point.RIGHT if right else Point.WRONG
        self._result.points[POINTS[number]] = right
        self._show()
        if not right:
            self._result.problems.append(f"killed {POINTS[number]}: the run is {run.status}, done {done}")

    def _until(self, fact: Callable[[], object], what: str) -> None:
        deadline = self._at + DEADLINE
        while not fact():
            if self._at > deadline:
                raise TimeoutError(f"not so: {what}")
            time.sleep(TICK)

    def _show(self) -> None:
        self._view.show(Frame(self._at, self._steps, tuple(self._points)))

    @property
    def _at(self) -> float:
        return time.monotonic() - self._began


def _is_finished(store: sync.Store) -> bool:
    return store.runs(limit=1)[0].status.finished
