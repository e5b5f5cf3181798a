"""What a worker serves: a queue, and the body that is called for its tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from stepwell.base.backoff import Retry
from stepwell.base.program import UNKNOWN, Definition
from stepwell.errors import InvalidOption
from stepwell.store.broadcasts import Listening
from stepwell.store.database import Database
from stepwell.store.emission import Route
from stepwell.store.pending import LateWrite
from stepwell.store.rows import Claimed, StepRow
from stepwell.store.schedules import NewSchedule
from stepwell.work.deadline import Deadline
from stepwell.work.outcome import Again, Done, Ended, Failed, Outcome
from stepwell.work.session import Session
from stepwell.work.threads import Threads


class Slot(Protocol):
    """One of the places of a worker. It is free again when the body has ended: a thread cannot be stopped, so a body in
    a thread keeps its place after its timeout.
    """

    database: Database
    session: Session
    withheld: tuple[StepRow, ...]  # steps that wait, to be recorded in the transaction that gives the run back
    late: LateWrite | None  # nothing acts on it before it is written
    on_stop: Callable[[], None]  # called before the body is cancelled
    deadline: int | None  # by which the run has to be finished, by the database's clock
    ends_children: bool  # a run that was asked for in this turn ends with this one
    on_cancel: Callable[[], None] | None  # called when the task was cancelled, if the body handles that itself

    def clean_up(self, deadline: Deadline) -> None:
        """The task was cancelled, and its body cleans up until this deadline."""

    def hold(self) -> None:
        """Add a holder of the place."""

    def release(self) -> None:
        """Remove a holder of the place; it is free when it has none."""


class Beside(Protocol):
    """Work of a worker that is no task, such as a projection: it goes on until it is told to stop."""

    name: str

    async def forever(self, session: Callable[[], Session | None]) -> None:
        """Work in the name of the worker's session until `stop`; the session is None while there is none."""

    def stop(self) -> None:
        """Let `forever` end after what is under way."""

    async def caught_up(self) -> None:
        """Return when all that is there now is done."""


def distinct(beside: Iterable[Beside]) -> list[Beside]:
    """These, if each has a name of its own."""
    named: dict[str, Beside] = {}
    for one in beside:
        if named.setdefault(one.name, one) is not one:
            raise InvalidOption("serves", one.name, "two engines of one worker have a projection of this name")
    return list(named.values())


# Calls the body with the tasks and returns its outcome; an exception is judged by the caller. There are several tasks
# only if `batch` is more than 1.
Body = Callable[[Sequence[Claimed], Threads, Slot], Awaitable[Ended]]


def told_of(dead_letter: str | None, lifecycle: Iterable[str] = ()) -> tuple[type[Outcome], ...]:
    """The outcomes of which others are told."""
    told: list[type[Outcome]] = []
    if dead_letter is not None or set(lifecycle) - {"succeeded"}:
        told.append(Failed)
    if "failed" in lifecycle:
        told.append(Again)
    if "succeeded" in lifecycle:
        told.append(Done)
    return tuple(told)


@dataclass(frozen=True, slots=True)
class Served:
    """A queue and its body; a queue without a body was claimed by its prefix, and has no handler in this process."""

    queue: str
    body: Body | None
    retry: Retry
    timeout: float | None = None
    concurrency: int | None = None
    batch: int = 1
    limits: Mapping[str, Any] | None = None  # over all workers, as they are declared
    answers_each: bool = False  # with a batch, each of its tasks has an outcome of its own
    is_workflow: bool = False
    dead_letter: str | None = None  # the workflow that is triggered for a run that ended in ERROR
    lifecycle: tuple[str, ...] = ()  # what is emitted of the life of its runs
    told: tuple[type[Outcome], ...] = ()  # outcomes that are settled in a transaction which tells others of them
    run_timeout: float | None = None  # seconds that a run may take, from its first start
    cleanup: float | None = None  # seconds that a cancelled run may clean up
    while_served: Callable[[], AbstractContextManager[None]] = nullcontext  # held while a worker serves it
    open_while_served: Callable[[], AbstractAsyncContextManager[None]] = nullcontext  # the same of what is closed async
    lease: float | None = None  # seconds; None is the lease of the store
    route: Route | None = None  # of an outbox: which events are written for it
    schedules: tuple[NewSchedule, ...] = ()  # those that trigger it, as its code declares them
    events: tuple[Listening, ...] = ()  # broadcasts that trigger it
    in_order: bool = False  # its tasks may stand in ordered groups, which upkeep looks after
    definition: Definition = UNKNOWN  # what its callers get
    reads: tuple[str, ...] = ()  # the versions that its code reads, as `WorkerInfo.reads` has them; none if all are 1


async def declare(database: Database, served: Iterable[Served], *, looks: bool) -> dict[int, Served]:
    """Make what is missing of these queues, and say what code declares of them; by their numbers."""
    numbered = {await _number(database, one): one for one in served}
    for one in numbered.values():
        database.definitions.name(one.queue, one.definition)
    if routes := [one.route for one in numbered.values() if one.route is not None]:
        await database.outboxes.register(routes)
    limits = {queue_id: one.limits for queue_id, one in numbered.items() if one.body}
    await database.limiters.declared(limits, looks=looks)
    if scheduled := [each for one in numbered.values() for each in one.schedules]:
        await database.schedules.declare(scheduled)
    await database.broadcasts.declare({number: one.events for number, one in numbered.items() if one.is_workflow})
    return numbered


async def _number(database: Database, served: Served) -> int:
    if served.is_workflow:
        return await database.register_workflow(served.queue, served.dead_letter, served.cleanup, served.lifecycle)
    return await database.queue_id(served.queue, create=True, anew=True)
