"""A run as bars over one scale: its steps and waits, and what the store has not recorded of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from stepwell.base.durations import datetime_of
from stepwell.operate.format import span
from stepwell.operate.run_view import RunView
from stepwell.operate.status import glyph_of
from stepwell.records import RunStatus, StepInfo

WIDTH: Final = 40  # columns of the scale
LONGEST_NAME: Final = 28
SHORTEST_FOLD: Final = 1.0  # seconds
NARROWEST_FOLD: Final = 0.1  # seconds; a lower value would exaggerate the rest
FOLDED_FROM: Final = 4  # times the width of a fold: shorter times without work are drawn as they are
AT_ONCE: Final = ("sleep", "race()", "trigger_many()")  # recorded in a moment; not a wait that is over


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of the picture: its name, its beginning and end, and whether it executed or only waited."""

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
    if step.name.endswith("()") or isinstance(step.output, dict):
        return "runs"
    return "a signal"


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

    def column(self, moment: datetime) -> int:
        """Where a moment stands."""
        whole = max(self.end - self.begin - self.folded, 0.000_001)
        return min(WIDTH - 1, max(0, int(WIDTH * self._drawn(moment.timestamp()) / whole)))

    def _drawn(self, at: float) -> float:
        """Seconds before this moment that are drawn."""
        hidden = 0.0
        for start, stop in self.gaps:
            share = min(1.0, max(0.0, (at - start) / (stop - start)))
            hidden += share * (stop - start - self.width)
        return at - self.begin - hidden


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
