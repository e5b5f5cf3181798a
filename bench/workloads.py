"""The workloads: one registry, the same for every contestant. A later kind of work adds functions and entries."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from bench import decider_work, queue_work, workflow_work
from bench.contestants import Kind, State
from bench.stage import Figures, Stage

CREWS: Final = {"one": 1, "two": 2, "four": 4, "eight": 8}
Unit = Literal["rate", "latency", "rest"]  # so many a second, or ms, or statements a minute


@dataclass(frozen=True, slots=True)
class Workload:
    """One thing that is measured, in a fresh database for each of its states."""

    name: str
    words: str
    kind: Kind  # only for those that do this
    unit: Unit
    verb: str  # of the contestant's `api`, the call that is measured
    size: int
    least: int
    play: Callable[[Stage[Any]], Awaitable[Figures]]
    state: State = "empty"  # what else is in the database; anything but empty is compared with empty
    present: int = 0
    backends: tuple[str, ...] = ("postgres", "sqlite")
    rounds: int | None = None  # how often at most: some say the same every time

    def count(self, scale: float) -> int:
        """How many messages, runs or seconds a measurement of this scale takes."""
        return max(self.least, round(self.size * scale))


def _crews(name: str, words: str, *, verb: str, size: int) -> Iterator[Workload]:
    """The same drain by one, two, four and eight worker processes."""
    for word, processes in CREWS.items():
        yield Workload(
            f"{name}.{word}",
            f"{words}, {word} worker {'process' if processes == 1 else 'processes'}",
            kind="crews",
            unit="rate",
            verb=verb,
            size=size,
            least=40,
            play=partial(queue_work.drain_together, processes),
        )


WORKLOADS: Final = {
    one.name: one
    for one in (
        Workload(
            "enqueue.single",
            "one caller, one message a call",
            kind="queue",
            unit="rate",
            verb="enqueue",
            size=2_000,
            least=50,
            play=queue_work.enqueue_single,
        ),
        Workload(
            "enqueue.bulk",
            "many messages a call",
            kind="queue",
            unit="rate",
            verb="enqueue_many",
            size=40_000,
            least=50,
            play=queue_work.enqueue_bulk,
        ),
        Workload(
            "drain",
            "no-op handlers, one process",
            kind="queue",
            unit="rate",
            verb="drain",
            size=20_000,
            least=50,
            play=queue_work.drain,
        ),
        Workload(
            "drain.batch",
            "the same, many a call",
            kind="batches",
            unit="rate",
            verb="drain_batches",
            size=20_000,
            least=50,
            play=queue_work.drain_batches,
        ),
        *_crews("crew", "no-op handlers", verb="drain", size=20_000),
        *_crews("busy", "handlers that compute for a millisecond", verb="drain_busy", size=4_000),
        Workload(
            "latency",
            "enqueue to handler, idle, one process",
            kind="queue",
            unit="latency",
            verb="serving",
            size=50,
            least=5,
            play=queue_work.latency,
        ),
        Workload(
            "latency.two",
            "enqueue to handler, idle, two processes",
            kind="queue",
            unit="latency",
            verb="serving",
            size=50,
            least=5,
            play=queue_work.latency_two,
        ),
        Workload(
            "growth",
            "drain beside a million finished",
            kind="queue",
            unit="rate",
            verb="drain",
            size=20_000,
            least=50,
            play=queue_work.drain,
            state="finished",
            present=1_000_000,
        ),
        Workload(
            "scheduled",
            "latency beside 100,000 scheduled",
            kind="queue",
            unit="latency",
            verb="serving",
            size=50,
            least=5,
            play=queue_work.latency,
            state="scheduled",
            present=100_000,
        ),
        Workload(
            "workflow.many",
            "no-op workflows of five steps, one process",
            kind="workflows",
            unit="rate",
            verb="execute",
            size=10_000,
            least=20,
            play=workflow_work.many,
        ),
        Workload(
            "workflow.few",
            "the same, 16 at once",
            kind="workflows",
            unit="rate",
            verb="execute_few",
            size=4_000,
            least=20,
            play=workflow_work.few,
        ),
        Workload(
            "workflow.one",
            "the same, one after the other, with its result",
            kind="workflows",
            unit="rate",
            verb="here",
            size=300,
            least=10,
            play=workflow_work.one,
        ),
        Workload(
            "workflow.latency",
            "trigger to result of one step, idle, one process",
            kind="workflows",
            unit="latency",
            verb="here",
            size=50,
            least=5,
            play=workflow_work.latency,
        ),
        Workload(
            "workflow.latency.two",
            "trigger to result of one step, idle, two processes",
            kind="workflows",
            unit="latency",
            verb="elsewhere",
            size=50,
            least=5,
            play=workflow_work.latency_two,
        ),
        Workload(
            "decider.many",
            "inputs to 50 instances, one process",
            kind="deciders",
            unit="rate",
            verb="decide",
            size=20_000,
            least=100,
            play=decider_work.many,
        ),
        Workload(
            "decider.one",
            "inputs to one instance, one process",
            kind="deciders",
            unit="rate",
            verb="decide",
            size=20_000,
            least=100,
            play=decider_work.one,
        ),
        Workload(
            "decider.turn",
            "inputs to 50 instances, one caller",
            kind="deciders",
            unit="rate",
            verb="decide_in_turn",
            size=500,
            least=50,
            play=decider_work.in_turn,
        ),
        Workload(
            "decider.observed",
            "the same as decider.many, each input observed",
            kind="observes",
            unit="rate",
            verb="decide_observed",
            size=20_000,
            least=100,
            play=decider_work.observed,
        ),
        Workload(
            "decider.inline",
            "the same, with a row of a read model in each commit",
            kind="inline",
            unit="rate",
            verb="decide_inline",
            size=20_000,
            least=100,
            play=decider_work.inline,
        ),
        Workload(
            "decider.replay",
            "the events of 50 instances read into their states by somebody who knows none",
            kind="upcasts",
            unit="rate",
            verb="replay",
            size=100_000,
            least=100,
            play=decider_work.replayed,
        ),
        Workload(
            "decider.upcast",
            "the same events, each read through two upcasters",
            kind="upcasts",
            unit="rate",
            verb="replay_old",
            size=100_000,
            least=100,
            play=decider_work.upcast,
        ),
        Workload(
            "model.follow",
            "events handled by a read model with a row for each of 50 instances",
            kind="follows",
            unit="rate",
            verb="follow",
            size=20_000,
            least=100,
            play=decider_work.followed,
        ),
        Workload(
            "model.sql",
            "the same, by a class with a statement of its own for each event",
            kind="observes",
            unit="rate",
            verb="follow_in_sql",
            size=20_000,
            least=100,
            play=decider_work.followed_in_sql,
        ),
        Workload(
            "model.rebuild",
            "a million events once more, beside the rows that are read, and swapped",
            kind="observes",
            unit="rate",
            verb="rebuild",
            size=1_000_000,
            least=100,
            play=decider_work.rebuilt,
            rounds=1,
        ),
        Workload(
            "asleep",
            "an idle worker for a minute, beside 10,000 sleeping runs",
            kind="sleeps",
            unit="rest",
            verb="sleep",
            size=60,
            least=1,
            play=workflow_work.asleep,
            state="sleeping",
            present=10_000,
            backends=("postgres",),
            rounds=1,
        ),
    )
}
