"""Who takes part. One file for each; what is said here must be known without importing any of them."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Literal, Protocol, runtime_checkable

State = Literal["empty", "finished", "scheduled", "sleeping"]
# What a contestant can do; "observes" is what only stepwell does beside decisions.
Kind = Literal[
    "queue", "batches", "crews", "workflows", "sleeps", "deciders", "upcasts", "inline", "follows", "observes"
]
QUEUE: Final = "bench"
BULK: Final = 10_000  # messages a call of `enqueue_many`


class Queue(Protocol):
    """A contestant's queue as the workloads use it: messages {"i": number} in a queue called `bench`."""

    api: Mapping[str, str]  # for `enqueue`, `enqueue_many`, `drain`, `serving`: the call that is measured, its settings
    unfinished: str  # SQL: how many messages wait or are under way, without reading what is finished
    finished: str  # SQL: how many messages are finished

    async def install(self) -> None:
        """Make tables and queue; raises `NotDurable` if its commits would not survive."""

    def filling(self, state: State, count: int) -> Iterable[str]:
        """SQL that makes `count` copies of one finished, or one scheduled, message, which is there already."""

    async def schedule(self, number: int) -> None:
        """Enqueue a message that is due in a day."""

    async def enqueue(self, number: int) -> None:
        """Enqueue one message; it is committed when this returns."""

    async def enqueue_many(self, numbers: range) -> None:
        """Enqueue messages the fastest way there is, in as many calls as that takes; then all are committed."""

    async def drain(self, count: int) -> None:
        """Handle `count` messages with a handler that does nothing; each is acknowledged by itself."""

    def serving(self, arrived: Callable[[int], None]) -> AbstractAsyncContextManager[None]:
        """Handle messages as they come; the handler calls `arrived` with the number, first thing."""

    async def close(self) -> None:
        """Let go of everything."""


@runtime_checkable
class Batches(Protocol):
    """A queue that can hand out and acknowledge many messages together."""

    async def drain_batches(self, count: int) -> None:
        """Handle `count` messages with a handler that does nothing with many at once."""


@runtime_checkable
class Notifies(Protocol):
    """A queue that wakes its workers only when it was asked to."""

    def notify(self) -> None:
        """From now on, tell whoever serves the queue of each message."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """What the parent has to know of one."""

    name: str
    backends: tuple[str, ...]
    distribution: str | None = None  # its package, whose version is reported
    peer: bool = True
    most: int = 1_000_000_000  # messages a drain, and ...
    most_runs: int = 1_000_000_000  # ... runs of a workflow; fewer for those that would take minutes
    does: tuple[Kind, ...] = ("queue",)
    on_uvloop: bool = False
    only: tuple[str, ...] = ()  # the workloads that it takes part in, if not in all of what it does
    lacks: tuple[tuple[str, Kind], ...] = ()  # of what it does, what it does not do on a backend
    program: str | None = None  # what it needs besides Python; it is left out where that is not found
    note: str = ""

    @property
    def is_here(self) -> bool:
        """Whether what it needs is found on this machine."""
        return self.program is None or shutil.which(self.program) is not None


def chunks(numbers: range, size: int) -> Iterator[range]:
    """The numbers in pieces of at most this size."""
    return (numbers[first : first + size] for first in range(0, len(numbers), size))


CONTESTANTS: Final = {
    one.name: one
    for one in (
        Contestant(
            "stepwell",
            ("postgres", "sqlite"),
            "stepwell",
            peer=False,
            does=(
                "queue",
                "batches",
                "crews",
                "workflows",
                "sleeps",
                "deciders",
                "upcasts",
                "inline",
                "follows",
                "observes",
            ),
            on_uvloop=True,
            note="runs on uvloop (`stepwell[uvloop]`), as `stepwell worker` does where that is installed.",
        ),
        Contestant(
            "raw",
            ("postgres", "sqlite"),
            peer=False,
            does=("queue", "workflows", "deciders", "upcasts", "inline", "follows"),
            on_uvloop=True,
            note="runs on uvloop. Hand-written SQL on a table of five columns: no retries, lease, fence, keys, queues "
            "or types. It says what the database can do with as many commits, not what a library could. Of a workflow "
            "it writes the same step rows as stepwell: for *workflow.many* 500 a commit, for *workflow.few* 16, "
            "otherwise one. Of a decider it writes the instance's version and the event, and of a read model a row for "
            "each instance, with the position of the last event, 500 events a commit.",
        ),
        Contestant(
            "pgqrs",
            ("postgres",),
            "pgqrs",
            does=("queue", "batches", "workflows"),
            most_runs=500,
            note="its core is compiled. Draining is a loop of the benchmark's own around dequeue and archive, or in "
            "batches archive_many: there is no worker, so no retry, timeout or error to be looked after. It has "
            "no notification: its latency is its polling interval. Messages are kept, as stepwell's are. Its own wait "
            "for the result of a workflow looks every 500 ms; here the benchmark asks the database every millisecond "
            "instead.",
        ),
        Contestant(
            "pgqueuer",
            ("postgres",),
            "pgqueuer",
            on_uvloop=True,
            note="runs on uvloop, as it recommends. Its handlers get bytes, which are not decoded. Jobs leave the "
            "queue table and are kept as log rows, without their payload.",
        ),
        Contestant("procrastinate", ("postgres",), "procrastinate", most=2_000),
        Contestant(
            "graphile",
            ("postgres",),
            only=("enqueue.bulk", "drain"),
            program="node",
            note="is graphile-worker with its local queue, a library for Node: measured where that is found, in a "
            "process of its own that is told what to do over a pipe, so only where a call is about many jobs. A job "
            "that is done is deleted.",
        ),
        Contestant(
            "chancy",
            ("postgres",),
            "chancy",
            most=2_000,
            note="writes completions on a timer (50 ms here, 1 s by default), so a crash runs again what had finished. "
            "The drain is timed until the last is written.",
        ),
        Contestant(
            "dbos",
            ("postgres", "sqlite"),
            "dbos",
            does=("workflows",),
            most_runs=200,
            note="polls, by default every second; here every 5 ms. One at a time it is called directly, without a "
            "queue, which is its fastest way. On SQLite its file is in WAL mode, which it does not ask for itself and "
            "which makes it faster.",
        ),
        Contestant(
            "eventsourcing",
            ("postgres", "sqlite"),
            "eventsourcing",
            does=("deciders", "upcasts", "follows"),
            most=1_000,
            note="has aggregates instead of deciders, and neither effects nor timers. They stay in its cache and are "
            "taken from there without a copy and without asking the database, which is its fastest way. Its "
            "projections commit each event by itself, and follow Postgres only.",
            lacks=(("sqlite", "follows"),),
        ),
    )
}
