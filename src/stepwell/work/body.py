"""What a worker serves: a queue, and the body that is called for its tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from stepwell.base.backoff import Retry
from stepwell.errors import InvalidOption
from stepwell.store.rows import Claimed, StepRow
from stepwell.store.store import Store
from stepwell.work.deadline import Deadline
from stepwell.work.outcome import Ended
from stepwell.work.session import Session
from stepwell.work.threads import Threads


class Slot(Protocol):
    """One of the places of a worker. It is free again when the body has ended: a thread cannot be stopped, so a body in
    a thread keeps its place after its timeout.
    """

    store: Store
    session: Session
    withheld: tuple[StepRow, ...]  # steps that wait, to be recorded in the transaction that gives the run back
    on_stop: Callable[[], None]  # called before the body is cancelled
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


@dataclass(frozen=True, slots=True)
class Served:
    """A queue and its body; a queue without a body was claimed by its prefix, and has no handler in this process."""

    queue: str
    body: Body | None
    retry: Retry
    timeout: float | None = None
    concurrency: int | None = None
    batch: int = 1
    is_workflow: bool = False
    dead_letter: str | None = None  # the workflow that is triggered for a run that ended in ERROR
    run_timeout: float | None = None  # seconds that a run may take, from its first start
    cleanup: float | None = None  # seconds that a cancelled run may clean up
    while_served: Callable[[], AbstractContextManager[None]] = nullcontext  # held while a worker serves it
    lease: float | None = None  # seconds; None is the lease of the store
    reads: tuple[str, ...] = ()  # the versions that its code reads, as `WorkerInfo.reads` has them; none if all are 1
