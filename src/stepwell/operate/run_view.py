"""One run as it is shown: its steps, children and past, and the next command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from stepwell.records import Run, RunStatus, StepInfo
from stepwell.store.store import Store
from stepwell.store.why import Reason, Why

MOST_CHILDREN: Final = 20  # of one run, newest first
MOST_FAMILIES: Final = 30  # runs whose children are looked for
DEEPEST: Final = 3


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened to a run: when, what, to which step (None: to the whole run), and details."""

    at: datetime
    what: str
    step: str | None = None
    said: str = ""


@dataclass(frozen=True, slots=True)
class ChildRun:
    """A run that another run asked for, with its own children; `more` if there are children that are not listed."""

    run: Run[Any]
    children: Sequence[ChildRun] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class RunView:
    """A run and all that is shown of it, at one moment."""

    run: Run[Any]
    steps: Sequence[StepInfo] = ()
    why: Why | None = None  # None for a finished run
    children: Sequence[ChildRun] = ()
    more: bool = False  # there are children that are not listed
    marks: Sequence[Mark] = field(default=())


async def view_of(store: Store, run: Run[Any]) -> RunView:
    """Read all that is shown of a run."""
    why = None if run.status.finished and run.deleted_at is None else await store.why(run.id)
    children, more = await _children(store, run, 1, iter(range(MOST_FAMILIES)))
    return RunView(run, await store.steps(run.id), why, children, more, await _marks(store, run))


async def _children(store: Store, run: Run[Any], depth: int, left: Iterator[int]) -> tuple[list[ChildRun], bool]:
    """The children of a run, with theirs; `left` bounds how often the store is asked in all."""
    if depth > DEEPEST or next(left, None) is None:
        return [], False
    page = await store.runs(parent=run.id, limit=MOST_CHILDREN)
    children = [ChildRun(each, *await _children(store, each, depth + 1, left)) for each in reversed(page)]
    return children, page.next is not None


async def _marks(store: Store, run: Run[Any]) -> list[Mark]:
    """What the audit has recorded of a run: failed attempts, lost workers, what people did."""
    return [mark_of(one) for one in await store.history(run.id)]


def mark_of(noted: Any) -> Mark:
    """A line of the audit as a mark; the text of a step's failure begins with the step's key."""
    detail = "" if noted.detail is None else str(noted.detail)
    step = None
    if noted.what.startswith("step "):
        step, _, detail = detail.partition(": ")
    session = f"session {noted.worker}" if noted.worker is not None else ""
    tried = f"attempt {noted.attempt}" if noted.attempt is not None and step is not None else ""
    return Mark(noted.at, noted.what, step, ", ".join(part for part in (tried, session, detail) if part))


AGAIN: Final = "stepwell retry {run} --dry-run"
SERVE: Final = "stepwell worker APP --queue {workflow}"
WATCH: Final = "stepwell show {run} -f"
COMMANDS: Final[Mapping[Reason, str]] = {
    Reason.SUCCEEDED: "stepwell export run {run}",
    Reason.FAILED: AGAIN,
    Reason.WORKER_LOST: AGAIN,
    Reason.TIMED_OUT: AGAIN,
    Reason.NO_HANDLER: SERVE,
    Reason.CANCELLED: "stepwell export run {run}",
    Reason.DELETED: "stepwell restore {run}",
    Reason.RUNNING: WATCH,
    Reason.CANCELLING: WATCH,
    Reason.PAUSING: WATCH,
    Reason.WORKER_SILENT: "stepwell workers",
    Reason.TAKEN_BY_HAND: WATCH,
    Reason.HELD: "stepwell resume {run}",
    Reason.CODE_DIFFERS: "stepwell accept {run}",
    Reason.STEP_PAUSED: "stepwell resume {run} {step} DATA",
    Reason.WAITING_FOR_SIGNAL: "stepwell signal {run} {awaited} DATA",
    Reason.WAITING_FOR_CHILDREN: "stepwell runs --parent {run}",
    Reason.SCHEDULED: WATCH,
    Reason.BACKING_OFF: WATCH,
    Reason.SLEEPING: WATCH,
    Reason.QUEUE_PAUSED: "stepwell queue resume {workflow}",
    Reason.MAINTENANCE: "stepwell maintenance end",
    Reason.UNSERVED: SERVE,
    Reason.BUSY: SERVE,
    Reason.SUSPECT: SERVE,
    Reason.READY: WATCH,
}


def advice(run: Run[Any], why: Why, steps: Sequence[StepInfo]) -> str:
    """The next command: one that lets the run continue if there is one, else one that shows more."""
    awaited = why.waits_for[0] if why.waits_for else "NAME"
    return COMMANDS[why.reason].format(
        run=int(run.id), workflow=run.workflow, awaited=awaited, step=_paused_step(steps)
    )


def _paused_step(steps: Sequence[StepInfo]) -> str:
    """The name of the step that has paused the run."""
    paused = [step for step in steps if step.status == RunStatus.PAUSED and "resume_condition" in (step.error or {})]
    return paused[0].name if paused else "STEP"
