"""One run as it is shown: its steps, children and past, the next command, and its layout as bars or as a graph.

`view_of` reads the store; everything else is pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

from stepwell.base.durations import datetime_of
from stepwell.base.names import EVENT, REQUEST
from stepwell.operate.format import span
from stepwell.operate.status import glyph_of
from stepwell.records import Run, RunStatus, StepInfo
from stepwell.store.reports import ValueInfo
from stepwell.store.signals import RECEIVED
from stepwell.store.store import Store
from stepwell.store.why import Reason, Why

MOST_CHILDREN: Final = 20  # of one run, newest first
MOST_FAMILIES: Final = 30  # runs whose children are looked for
DEEPEST: Final = 3
WIDTH: Final = 40  # columns of the scale
LONGEST_NAME: Final = 28
SHORTEST_FOLD: Final = 1.0  # seconds
NARROWEST_FOLD: Final = 0.1  # seconds; a lower value would exaggerate the rest
FOLDED_FROM: Final = 4  # times the width of a fold: shorter times without work are drawn as they are
AT_ONCE: Final = ("sleep", "race()", "as_completed()", "trigger_many()")  # recorded in a moment; no wait that is over


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
    values: Sequence[ValueInfo] = ()


async def view_of(store: Store, run: Run[Any]) -> RunView:
    """Read all that is shown of a run."""
    why = None if run.status.finished and run.deleted_at is None else await store.why(run.id)
    children, more = await children_of(store, run, 1, iter(range(MOST_FAMILIES)))
    steps, values = await store.steps(run.id), await store.database.reports.values_in(run)
    return RunView(run, steps, why, children, more, await marks_of(store, run), values)


async def children_of(
    store: Store, run: Run[Any], depth: int, left: Iterator[int], *, whole: bool = True
) -> tuple[list[ChildRun], bool]:
    """The children of a run, with theirs; `left` bounds how often the store is asked in all."""
    if depth > DEEPEST or next(left, None) is None:
        return [], False
    page = await store.database.runs.page({}, parent=int(run.id), limit=MOST_CHILDREN, whole=whole)
    deeper = depth + 1
    children = [ChildRun(each, *await children_of(store, each, deeper, left, whole=whole)) for each in reversed(page)]
    return children, page.next is not None


async def marks_of(store: Store, run: Run[Any]) -> list[Mark]:
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
    by = f"by {noted.actor}" if noted.actor is not None else ""
    return Mark(noted.at, noted.what, step, ", ".join(part for part in (tried, session, by, detail) if part))


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
    Reason.STEP_IN_DOUBT: "stepwell resolve {run} {awaited} done",
    Reason.STEP_PAUSED: "stepwell resume {run} {step} DATA",
    Reason.WAITING_FOR_SIGNAL: "stepwell signal {run} {awaited} DATA",
    Reason.WAITING_FOR_REQUEST: "stepwell ask {run} {awaited} DATA",
    Reason.WAITING_FOR_EVENT: "stepwell broadcast {awaited} DATA",
    Reason.WAITING_FOR_CHILDREN: "stepwell runs --parent {run}",
    Reason.LIMITED: "stepwell limit show {workflow}",
    Reason.KEY_PAUSED: "stepwell limit show {workflow}",
    Reason.SCHEDULED: WATCH,
    Reason.BACKING_OFF: WATCH,
    Reason.SLEEPING: WATCH,
    Reason.QUEUE_PAUSED: "stepwell queue resume {workflow}",
    Reason.MAINTENANCE: "stepwell maintenance end",
    Reason.UNSERVED: SERVE,
    Reason.BUSY: SERVE,
    Reason.WAITS_FOR_PREVIOUS: "stepwell why {awaited}",
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


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of a run's timeline: its name, its beginning and end, and whether it executed or only waited."""

    glyph: str
    name: str
    note: str
    begin: datetime | None
    end: datetime | None
    waiting: bool
    key: str = ""  # the step's


def bar_of(step: StepInfo) -> Bar:
    """The bar of a step; a sleep has recorded its end as its output, and lasts until then."""
    begin, end = step.started_at, step.finished_at
    name = step.key if len(step.key) <= LONGEST_NAME else step.key[: LONGEST_NAME - 1] + "…"
    if step.name == "sleep" and isinstance(step.output, int):
        end = datetime_of(step.output)
        length = span((end - begin).total_seconds()) if begin else ""
        return Bar("◷" if end > datetime.now(UTC) else "✓", name, f"{length} asleep", begin, end, waiting=True)
    if step.status == RunStatus.PAUSED or (end is not None and end == begin):
        return _wait(step, name)
    if step.status == RunStatus.PENDING and step.attempt == 0:  # `retry` has it done again
        return Bar(glyph_of(step.status), name, "to be done again", None, None, False, step.key)
    lasted = (end or datetime.now(UTC)) - begin if begin else None
    tries = f", attempt {step.attempt}" if step.attempt > 1 else ""
    again = step.status == RunStatus.PENDING and step.attempt > 0
    glyph = "↻" if again else glyph_of(step.status)
    return Bar(
        glyph, name, f"{span(lasted.total_seconds()) if lasted else 'not begun'}{tries}", begin, end, False, step.key
    )


def _wait(step: StepInfo, name: str) -> Bar:
    """The bar of a wait for a signal, a resume or other runs; when it is over, only its end is recorded."""
    if step.status == RunStatus.PAUSED:
        begun = step.started_at
        lasted = "" if begun is None else f", for {span((datetime.now(UTC) - begun).total_seconds())}"
        return Bar("◷", name, f"waits for {_awaited(step)}{lasted}", begun, None, waiting=True)
    late = "nothing came in time" if (step.error or {}).get("type") == "Timeout" else ""
    return Bar(glyph_of(step.status), name, late, step.started_at, step.finished_at, waiting=True)


def _awaited(step: StepInfo) -> str:
    """What an open wait needs, according to its record."""
    if "resume_condition" in (step.error or {}):
        condition = (step.error or {}).get("resume_condition")
        return f"{condition}, or a resume" if condition else "a resume"
    if isinstance(step.output, dict) or (step.name.endswith("()") and step.name != RECEIVED):
        return "runs"
    if step.name.startswith(EVENT):
        return "an event"
    return "a request" if step.name.startswith(REQUEST) else "a signal"


def scale_of(look: RunView, bars: Sequence[Bar]) -> Scale:
    """The scale from the beginning of a run to its end, or to now."""
    ends = [bar.end for bar in bars if bar.end is not None]
    return Scale.over(begin_of(look), look.run.finished_at or max([datetime.now(UTC), *ends]), bars)


@dataclass(frozen=True, slots=True)
class Scale:
    """Moments as columns; a long time in which nothing executed is folded, so that it does not take all the room."""

    begin: float
    end: float
    gaps: Sequence[tuple[float, float]]  # begin and end of each long time in which nothing executed
    width: float  # what a gap is drawn as, in seconds

    @classmethod
    def over(cls, begin: datetime, end: datetime, bars: Sequence[Bar]) -> Scale:
        """The scale of a run from its beginning to its end."""
        first, last = begin.timestamp(), max(end, begin).timestamp()
        busy = sorted(
            (bar.begin.timestamp(), (bar.end or end).timestamp()) for bar in bars if bar.begin and not bar.waiting
        )
        gaps, at = [], first
        for start, stop in [*busy, (last, last)]:
            gaps.append((at, max(at, start)))
            at = max(at, stop)
        idle = sum(stop - start for start, stop in gaps)
        width = max((last - first - idle) / 8, NARROWEST_FOLD)
        least = max(SHORTEST_FOLD, FOLDED_FROM * width)
        return cls(first, last, [gap for gap in gaps if busy and gap[1] - gap[0] > least], width)

    @property
    def folded(self) -> float:
        """How many seconds are not drawn."""
        return sum(stop - start - self.width for start, stop in self.gaps)

    def column(self, moment: datetime, width: int = WIDTH) -> int:
        """In which of the columns a moment stands."""
        return min(width - 1, int(width * self.share(moment.timestamp())))

    def share(self, at: float) -> float:
        """Where a moment stands, from 0 at the beginning to 1 at the end."""
        whole = max(self.end - self.begin - self.folded, 0.000_001)
        hidden = 0.0
        for start, stop in self.gaps:
            part = min(1.0, max(0.0, (at - start) / (stop - start)))
            hidden += part * (stop - start - self.width)
        return min(1.0, max(0.0, (at - self.begin - hidden) / whole))


def begin_of(look: RunView) -> datetime:
    """When the run first began: what it recorded before a retry is older than its last start."""
    run = look.run
    known = [run.started_at, *(step.started_at for step in look.steps)]
    return min((one for one in known if one is not None), default=run.created_at)


def length_of(look: RunView) -> float | None:
    """Seconds from its first beginning to its end, or to now; None if it has not begun."""
    if look.run.started_at is None:
        return None
    return ((look.run.finished_at or datetime.now(UTC)) - begin_of(look)).total_seconds()


def unrecorded(look: RunView) -> list[str]:
    """Sentences about what the store has not recorded and a reader might miss."""
    run, steps, missing = look.run, look.steps, []
    if any(step.attempt > 1 for step in steps) and not any(mark.step for mark in look.marks):
        missing.append("of a step's attempts only the last is recorded")
    if any(step.started_at and step.started_at == step.finished_at for step in steps if step.name not in AT_ONCE):
        missing.append("of a wait only its end is recorded")
    if run.attempt > 1 and not look.marks:
        lost = "its worker was lost" if run.last_error == "worker_lost" else "it was lost with its worker, or failed"
        missing.append(f"{run.attempt - 1} earlier attempt(s) of the run ended because {lost}; when is not recorded")
    if run.generation:
        missing.append("what earlier generations recorded went as the run restarted")
    return missing


def ranks_of(steps: Sequence[StepInfo]) -> list[list[StepInfo]]:
    """The steps in order, those that overlapped in time together: the graph of a run."""
    ranks: list[list[StepInfo]] = []
    for step in steps:
        last = ranks[-1] if ranks else []
        ended = [each.finished_at for each in last]
        begun = step.started_at
        if last and (begun is None or any(end is None or begun < end for end in ended)):
            last.append(step)
        else:
            ranks.append([step])
    return ranks


def mermaid(workflow: str, ranks: Sequence[Sequence[StepInfo]]) -> list[str]:
    """The graph for Mermaid."""
    names = _numbered(ranks)
    nodes = [f'  {names[step.key]}["{_label(step)}"]' for rank in ranks for step in rank]
    edges = [f"  {names[a.key]} --> {names[b.key]}" for a, b in _edges(ranks)]
    return ["flowchart TD", f"  %% {workflow}: what one run did", *nodes, *edges]


def dot(workflow: str, ranks: Sequence[Sequence[StepInfo]]) -> list[str]:
    """The graph for Graphviz."""
    names = _numbered(ranks)
    nodes = [f'  {names[step.key]} [label="{_label(step)}"];' for rank in ranks for step in rank]
    edges = [f"  {names[a.key]} -> {names[b.key]};" for a, b in _edges(ranks)]
    return [f'digraph "{_quoted(workflow)}" {{', "  node [shape=box];", *nodes, *edges, "}"]


def _numbered(ranks: Sequence[Sequence[StepInfo]]) -> dict[str, str]:
    return {step.key: f"s{at}" for at, step in enumerate(step for rank in ranks for step in rank)}


def _edges(ranks: Sequence[Sequence[StepInfo]]) -> list[tuple[Any, Any]]:
    return [(one, other) for rank, following in pairwise(ranks) for one in rank for other in following]


def _label(step: StepInfo) -> str:
    return f"{_quoted(step.key)} {glyph_of(step.status)}"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', "'")
