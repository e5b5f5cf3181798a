"""What a worker serves: a queue, and how to call whatever stands behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from stepwell.base.backoff import Retry
from stepwell.store.rows import Claimed, StepRow
from stepwell.store.store import Store
from stepwell.work.deadline import Deadline
from stepwell.work.outcome import Ended
from stepwell.work.session import Session
from stepwell.work.threads import Threads


class Slot(Protocol):
    """One place among those a worker fills. Freed when the body has ended: a thread cannot be stopped, so a body that
    outlived its timeout still takes up its place.
    """

    store: Store
    session: Session
    withheld: tuple[StepRow, ...]  # steps that wait, to be recorded in the transaction that gives the run back
    on_stop: Callable[[], None]  # told before the body is cancelled
    on_cancel: Callable[[], None] | None  # told that somebody has cancelled the task, if the body sees to that itself

    def clean_up(self, deadline: Deadline) -> None:
        """The task was cancelled, and its body cleans up: until then at the latest."""

    def hold(self) -> None:
        """Keep the place for one more user of it."""

    def release(self) -> None:
        """Give the place up; it is free when everybody has."""


# Calls the body with the payloads of the tasks and returns what came of it; what it raises is judged. Several tasks
# come together only where `batch` says so.
Body = Callable[[Sequence[Claimed], Threads, Slot], Awaitable[Ended]]


@dataclass(frozen=True, slots=True)
class Served:
    """A queue and its body; a queue without one was claimed by its prefix, and nobody here can execute it."""

    queue: str
    body: Body | None
    retry: Retry
    timeout: float | None = None
    concurrency: int | None = None
    batch: int = 1
    is_workflow: bool = False
    dead_letter: str | None = None  # the workflow that is told of a run that ended in ERROR
    run_timeout: float | None = None  # seconds that a run has in all, from its first start
    cleanup: float | None = None  # seconds that a run has to clean up after it was cancelled
    while_served: Callable[[], AbstractContextManager[None]] = nullcontext  # entered while a worker serves it
    lease: float | None = None  # seconds that a worker which executes it may be silent; None is the store's
