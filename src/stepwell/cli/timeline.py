"""A run as a timeline: its steps, attempts and waits as bars over one scale, and what the store has not recorded.

Solid is executing, shaded is waiting on purpose, a cross an attempt that failed, a broken line through all bars a
worker that was lost. Values in, lines out: nothing here asks a store or prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from stepwell.cli.looking import Child, Look, Mark
from stepwell.cli.output import ago, short, span
from stepwell.cli.status import glyph_of, took, word_of
from stepwell.durations import datetime_of
from stepwell.records import Run, RunStatus, StepInfo

WIDTH: Final = 40
LONGEST_NAME: Final = 28
SHORTEST_FOLD: Final = 1.0  # seconds
MOST_MARKS: Final = 12
LOST: Final = "worker lost"
AT_ONCE: Final = ("sleep", "race()", "trigger_many()")  # what is recorded in a moment, and is no wait that is over
NARROWEST_FOLD: Final = 0.1  # seconds: or what is drawn in full beside it would look long
FOLDED_FROM: Final = 4  # times the width of a fold: shorter times without work are drawn as they are


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of the picture: what it is, from when to when, and whether something executed or only waited."""

    glyph: str
    name: str
    note: str
    begin: datetime | None
    end: datetime | None
    waiting: bool
    key: str = ""  # the step's


def lines_of(look: Look) -> list[str]:
    """The whole picture of a run."""
    run, steps = look.run, look.steps
    bars = [_bar(step) for step in steps]
    begin = begin_of(look)
    end = run.finished_at or max([datetime.now(UTC), *(bar.end for bar in bars if bar.end is not None)])
    scale = Scale.over(begin, end, bars)
    names = max([len(bar.name) for bar in bars], default=0)
    notes = max([len(bar.note) for bar in bars], default=0)
    drawn = [
        f"  {bar.glyph} {bar.name.ljust(names)}  {bar.note.ljust(notes)}  {_drawn(bar, scale, look.marks)}".rstrip()
        for bar in bars
    ]
    said = f"{span(scale.folded)} in which nothing executed are folded"
    told = [*_unrecorded(look), *([said] if scale.gaps else [])]
    below = ["", *(f"note: {one}" for one in told)] if told else []
    picture = drawn or ["  no step is recorded yet"]
    return [*_head(look), "", *picture, *_past(look, begin), *_family(look), *_error(run, steps), *below]


@dataclass(frozen=True, slots=True)
class Scale:
    """Moments as columns; long times in which nothing executed are folded to a few, or they would be all there is."""

    begin: float
    end: float
    gaps: Sequence[tuple[float, float]]  # from when to when nothing executed, for long
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
        """How long before this moment something is drawn for."""
        hidden = 0.0
        for start, stop in self.gaps:
            share = min(1.0, max(0.0, (at - start) / (stop - start)))
            hidden += share * (stop - start - self.width)
        return at - self.begin - hidden


def begin_of(look: Look) -> datetime:
    """When the run first began: what was recorded before a retry is older than its last start."""
    run = look.run
    known = [run.started_at, *(step.started_at for step in look.steps)]
    return min((one for one in known if one is not None), default=run.created_at)


def _lasted(look: Look) -> float | None:
    """Seconds from its first beginning to its end, or to now; None if it has not begun."""
    if took(look.run) is None:
        return None
    return ((look.run.finished_at or datetime.now(UTC)) - begin_of(look)).total_seconds()


def _head(look: Look) -> list[str]:
    run = look.run
    about = [f"{run.workflow} {run.key or ''}".strip(), f"run {run.id}", word_of(run)]
    if (seconds := _lasted(look)) is not None:
        about.append(f"{'took' if run.finished_at else 'for'} {span(seconds)}")
    lines = ["   ".join(about), " · ".join(_facts(run))]
    if look.why is not None:
        lines.append(f"why    {look.why.message}")
    lines.append(f"input  {short(run.input(), 100)}")
    if run.progress is not None:
        lines.append(f"says   {short(run.progress, 100)}")
    if run.status == RunStatus.SUCCESS:
        lines.append(f"output {short(run.output(object), 100)}")
    return lines


def _facts(run: Run[Any]) -> list[str]:
    facts = [f"triggered {ago(run.created_at)}"]
    if run.attempt:  # a run that waits has had its attempt given back
        facts.append(f"attempt {run.attempt} of {run.max_attempts}")
    if run.worker is not None:
        facts.append(f"held by worker session {run.worker}")
    if run.status == RunStatus.PENDING and run.run_at is not None and run.run_at > datetime.now(UTC):
        facts.append(f"goes on {ago(run.run_at)}")
    if run.generation:
        facts.append(f"generation {run.generation}")
    if run.parent_id is not None:
        facts.append(f"child of run {run.parent_id}")
    if run.cause is not None:
        facts.append(run.cause)
    if run.deleted_at is not None:
        facts.append(f"deleted {ago(run.deleted_at)}")
    if run.tags:
        facts.append(f"tags {', '.join(run.tags)}")
    return facts


def _bar(step: StepInfo) -> Bar:
    """One step; a sleep has its end as what it returned, and lasts until then."""
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
    """A wait, for a signal, a resume or other runs; of one that is over only the end is recorded."""
    if step.status == RunStatus.PAUSED:
        begun = step.started_at
        lasted = "" if begun is None else f", for {span((datetime.now(UTC) - begun).total_seconds())}"
        return Bar("◷", name, f"waits for {_awaited(step)}{lasted}", begun, None, waiting=True)
    late = "nothing came in time" if (step.error or {}).get("type") == "Timeout" else ""
    return Bar(glyph_of(step.status), name, late, step.started_at, step.finished_at, waiting=True)


def _awaited(step: StepInfo) -> str:
    """What an open wait needs: the recorded step says it."""
    if "resume_condition" in (step.error or {}):
        condition = (step.error or {}).get("resume_condition")
        return f"{condition}, or a resume" if condition else "a resume"
    if step.name.endswith("()") or isinstance(step.output, dict):
        return "runs"
    return "a signal"


def _drawn(bar: Bar, scale: Scale, marks: Sequence[Mark]) -> str:
    if bar.begin is None:
        return ""
    first = scale.column(bar.begin)
    last = WIDTH - 1 if bar.end is None else max(first, scale.column(bar.end))
    cells = [" "] * first + ["░" if bar.waiting else "█"] * (last - first + 1) + [" "] * (WIDTH - 1 - last)
    for mark in marks:
        if mark.what == LOST:
            cells[scale.column(mark.at)] = "╎"
        elif mark.step is not None and mark.step == bar.key:
            cells[scale.column(mark.at)] = "✕"
    return f"│{''.join(cells)}│"


def _past(look: Look, begin: datetime) -> list[str]:
    """What happened to it while it went on, in words, with the time since its beginning."""
    if not look.marks:
        return []
    shown = look.marks[-MOST_MARKS:]
    lines = [f"  … {len(look.marks) - MOST_MARKS} earlier"] if len(look.marks) > MOST_MARKS else []
    for mark in shown:
        sign = "╎" if mark.what == LOST else "✕" if "fail" in mark.what or "gave up" in mark.what else "·"
        after = span(max(0.0, (mark.at - begin).total_seconds()))
        said = f" ({short(mark.said, 90)})" if mark.said else ""
        lines.append(f"  {sign} after {after}: {f'{mark.step} ' if mark.step else ''}{mark.what}{said}")
    return ["", *lines]


def _family(look: Look) -> list[str]:
    """The runs it asked for, as a tree."""
    if not look.children:
        return []
    return ["", "runs it asked for", *_branches(look.children, "  ", look.run.id, more=look.more)]


def _branches(children: Sequence[Child], indent: str, parent: int, *, more: bool) -> list[str]:
    lines = [f"{indent}… and more: stepwell runs --parent {int(parent)}"] if more else []
    for child in children:
        run = child.run
        seconds = took(run)
        length = "" if seconds is None else f"  {span(seconds)}"
        error = f"  {short(run.last_error, 60)}" if run.last_error and run.status != RunStatus.SUCCESS else ""
        lines.append(
            f"{indent}{word_of(run)}  {run.workflow} {run.key or ''}".rstrip() + f"  run {run.id}{length}{error}"
        )
        lines += _branches(child.children, f"{indent}    ", run.id, more=child.more)
    return lines


def _error(run: Run[Any], steps: Sequence[StepInfo]) -> list[str]:
    """What went wrong last, with the lines of the traceback that are not stepwell's."""
    failed = [step for step in steps if step.status == RunStatus.ERROR and step.error is not None]
    error = failed[-1].error if failed and run.status != RunStatus.SUCCESS else run.error
    if error is None or run.status == RunStatus.SUCCESS:
        return []
    where = f"{failed[-1].key}, attempt {failed[-1].attempt}: " if failed else ""
    said = f"✕ {where}{error.get('type', 'error')}: {short(error.get('message', ''), 200)}"
    return ["", said, *_traced(str(error.get("traceback") or ""))]


def _traced(traceback: str) -> list[str]:
    """The last place in the user's own code, and its line."""
    found: list[str] = []
    lines = traceback.splitlines()
    for at, line in enumerate(lines):
        if line.lstrip().startswith("File ") and "/stepwell/" not in line:
            code = lines[at + 1].strip() if at + 1 < len(lines) else ""
            found = [f"  {line.strip()}", *([f"    {code}"] if code else [])]
    return found


def _unrecorded(look: Look) -> list[str]:
    """What a reader might look for here and the store does not keep."""
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
