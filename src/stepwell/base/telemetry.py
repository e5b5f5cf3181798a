"""Passes events to subscribers; the log is the first subscriber.

An exception of a subscriber never reaches the code that emits the event. The sentences of the log and its rate limit
are here; no other module writes a log line.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final, assert_never, get_args

from stepwell.base.events import (
    BuildKept,
    ConditionUnanswered,
    Event,
    HelperLost,
    InstanceParked,
    InternalTaskFailed,
    LateWriteRefused,
    ListenerBack,
    ListenerLost,
    LoopBlocked,
    NoHelper,
    NotifyFailed,
    NoWorker,
    OrderRepaired,
    OrphansReleased,
    PoolerFound,
    ProjectionFailed,
    ProjectionInlined,
    ProjectionSwapped,
    ProjectionUnreadable,
    RunHeld,
    ScheduleKept,
    SessionLost,
    SessionsRecovered,
    SessionStarted,
    SignalSetAside,
    StepInDoubt,
    StepsUnasked,
    StoreBack,
    StoreLost,
    TaskDied,
    TaskFailed,
    TaskUnreadable,
    WorkUnserved,
    listed,
)

logger: Final = logging.getLogger("stepwell")
Subscriber = Callable[[Event], object]
# The attributes of a log record, for formatters that write JSON.
_SHOWN_AS: Final = {
    "run_id": "run",
    "task_id": "task",
    "worker_id": "worker",
    "workflow": "workflow",
    "queue": "queue",
    "attempt": "attempt",
}
_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Telemetry:
    """Counts every event and passes it to the subscribers; safe from any thread."""

    def __init__(self, *, log: bool = True) -> None:
        self.counts: Counter[type[Event]] = Counter()
        self.tells: Callable[[str], str] | None = None  # what may be told of an error; None: all of it
        self._lock = threading.Lock()
        self._subscribers: tuple[Subscriber, ...] = (write_log,) if log else ()

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` with every event, in the emitting thread, until the returned function is called.

        A subscriber must be quick: the emitting code waits for it.
        """
        # Wrapped, so that one function subscribed twice is two subscriptions.
        entry: Subscriber = lambda event: subscriber(event)  # noqa: E731, PLW0108
        with self._lock:
            self._subscribers += (entry,)

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers = tuple(each for each in self._subscribers if each is not entry)

        return unsubscribe

    def emit(self, event: Event) -> None:
        """Count the event and pass it to every subscriber; never raises."""
        is_own = isinstance(event, TaskUnreadable)  # it names code, no value
        if self.tells is not None and not is_own and isinstance(said := getattr(event, "error", None), str):
            event = dataclasses.replace(event, error=self.tells(said))  # type: ignore[arg-type]
        with self._lock:
            self.counts[type(event)] += 1
            subscribers = self._subscribers
        for subscriber in subscribers:
            try:
                subscriber(event)
            except Exception as error:  # noqa: BLE001 - a listener's fault is not the engine's
                _report(error, event)

    def totals(self) -> dict[str, int]:
        """How often each kind of event was emitted since the store was opened, including those that never were."""
        with self._lock:
            counts = Counter(self.counts)
        return {_WORD.sub("_", kind.__name__).lower(): counts[kind] for kind in get_args(Event)}


class LogBudget:
    """At most one line a second for each cause; suppressed lines are counted for the next one."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._last: dict[Hashable, tuple[float, int]] = {}

    def spend(self, cause: Hashable) -> int | None:
        """The number of lines suppressed since the last one, or None if this one is suppressed too."""
        now = self._monotonic()
        with self._lock:
            since, held = self._last.get(cause, (-1.0, 0))
            if cause in self._last and now - since < 1.0:
                self._last[cause] = (since, held + 1)
                return None
            if len(self._last) >= 1_000:  # causes contain names; forgetting them all costs a few extra lines
                self._last.clear()
            self._last[cause] = (now, 0)
            return held


def write_log(event: Event) -> None:
    """Write the event to the logger "stepwell", within the rate limit; no line contains a payload."""
    level, cause, words = words_of(event)
    if not logger.isEnabledFor(level):
        return
    held = _budget.spend((type(event), cause))
    if held is not None:
        about = {_SHOWN_AS[name]: getattr(event, name) for name in _SHOWN_AS if hasattr(event, name)}
        logger.log(level, "%s (%d more)" if held else "%s", *((words, held) if held else (words,)), extra=about)


# These say their sentence themselves.
TELLING: Final = (
    HelperLost, NoHelper, LoopBlocked, TaskUnreadable, ProjectionFailed, InstanceParked, ProjectionUnreadable,
    OrderRepaired, ProjectionSwapped, ProjectionInlined, BuildKept, ScheduleKept,
)  # fmt: skip
CALM: Final = (ProjectionSwapped, ProjectionInlined)


def words_of(event: Event) -> tuple[int, str, str]:  # noqa: C901, PLR0912 - one case an event
    """The level of the event, the cause by which its rate is limited, and its sentence."""
    if isinstance(event, TELLING):
        return logging.INFO if isinstance(event, CALM) else logging.WARNING, "", str(event)
    match event:
        case StoreLost(why):
            return logging.WARNING, "", f"the database does not answer ({why}); trying again"
        case StoreBack(after_seconds):
            return logging.WARNING, "", f"the database answers again, after {after_seconds:.1f} s"
        case SessionStarted(worker_id):
            return logging.INFO, "", f"worker session {worker_id} started"
        case SessionLost(worker_id, held):
            return logging.WARNING, "", f"worker session {worker_id} was declared dead while it held {held} tasks"
        case LateWriteRefused(worker_id, task_id, turn):
            return logging.WARNING, "", f"session {worker_id} wrote to task {task_id} after turn {turn} ended: refused"
        case TaskFailed(task_id, queue, attempt, error):
            return logging.WARNING, queue, f"task {task_id} of {queue} failed at attempt {attempt}: {error}"
        case TaskDied(task_id, queue, error):
            return logging.ERROR, queue, f"task {task_id} of {queue} failed for good: {error}"
        case SessionsRecovered(worker_ids, tasks):
            level = logging.WARNING if tasks else logging.INFO
            return level, "", _recovered(worker_ids, tasks)
        case OrphansReleased(worker_id, task_ids):
            return logging.WARNING, "", f"session {worker_id} gave back tasks it did not hold: {listed(task_ids)}"
        case WorkUnserved(queues):
            names = listed(tuple(f"{name} ({waiting} waiting)" for name, waiting in queues))
            return logging.WARNING, "", f"no living worker serves {names}: start one that does, or take them by hand"
        case NoWorker(workflow):
            words = f"no living worker serves the workflow {workflow}: what is triggered waits until one starts"
            return logging.WARNING, workflow, words
        case StepsUnasked() | RunHeld() | StepInDoubt() | SignalSetAside():
            return logging.WARNING, event.workflow, str(event)
        case ConditionUnanswered(run_id, workflow, condition, why):
            words = f"run {run_id} of {workflow} waits for the condition {condition}, which could not be asked: {why}"
            return logging.WARNING, condition, f"{words}; it stays paused"
        case InternalTaskFailed(name, error):
            return logging.ERROR, name, f"the internal task {name} failed and is started again: {error}"
        case PoolerFound():
            return logging.INFO, "", "a pooler stands before the database: no settings, no prepared statements"
        case ListenerLost(why):
            return logging.WARNING, "", f"what other processes add is not heard of: {why}; polling finds it meanwhile"
        case ListenerBack(after_seconds):
            return logging.WARNING, "", f"what other processes add is heard of again, after {after_seconds:.1f} s"
        case NotifyFailed(why):
            return logging.INFO, "", f"other processes were not told what came or ended: {why}; their polling finds it"
        case _:
            assert_never(event)


_budget: Final = LogBudget()  # one for the process, however many stores it opens


def _report(error: Exception, event: Event) -> None:
    if _budget.spend((type(error), type(event))) is None:
        return
    with suppress(Exception):  # the log itself is broken
        logger.error("a telemetry subscriber raised at %s", type(event).__name__, exc_info=error)


def _recovered(worker_ids: tuple[int, ...], tasks: int) -> str:
    count = "1 task" if tasks == 1 else f"{tasks} tasks"
    whose = "session {}, which died" if len(worker_ids) == 1 else "sessions that died: {}"
    return f"recovered {count} of worker {whose.format(listed(worker_ids))}"
