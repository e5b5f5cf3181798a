"""A run as a timeline: lanes with segments, ticks, folds and marks, each placed in percent of the width. Pure.

One grammar everywhere: thin is queued, solid executes, hatched waits on purpose, dotted backs off, red has failed, a
dashed line is a lost worker, and a grey block is idle time that is folded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from stepwell.operate.format import ago, many, span
from stepwell.operate.run_page import RunPage
from stepwell.operate.run_view import Bar, Mark, Scale, bar_of, begin_of, length_of
from stepwell.operate.status import word_of
from stepwell.records import Run, RunStatus, StepInfo
from stepwell.store.excerpts import StepSpan

NARROWEST: Final = 0.6  # percent
WIDEST_LABEL: Final = 10.0  # percent
TICKS: Final = 6
STEPS_OF_A_TICK: Final = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
)
WORDS: Final[Mapping[RunStatus, str]] = {
    RunStatus.PENDING: "queued",
    RunStatus.RUNNING: "running",
    RunStatus.PAUSED: "waiting",
    RunStatus.SUCCESS: "succeeded",
    RunStatus.ERROR: "failed",
    RunStatus.CANCELLED: "cancelled",
}


Failures = Mapping[str, Sequence[Mark]]  # the attempts that failed, by the key of their step


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a lane, of a kind: it begins at `x` and is `width` wide, in percent."""

    x: float
    width: float
    kind: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class TimelineLane:
    """A line of the timeline: a step, a wait, or the run itself."""

    glyph: str
    word: str
    name: str
    key: str
    depth: int
    note: str
    length: str
    segments: Sequence[Segment]


@dataclass(frozen=True, slots=True)
class Line:
    """A vertical line with a label."""

    x: float
    kind: str
    label: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """What is drawn of a run."""

    whole: TimelineLane
    lanes: Sequence[TimelineLane]
    ticks: Sequence[Line]
    folds: Sequence[tuple[float, float, str]]
    fold_labels: Sequence[Line]  # `kind` is how each is anchored
    marks: Sequence[Line]


class Ruler:
    """Moments as percent of the width."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale

    def at(self, moment: datetime) -> float:
        """Where a moment stands."""
        return round(100 * self.scale.share(moment.timestamp()), 2)

    def segment(self, begin: datetime, end: datetime, kind: str, title: str = "") -> Segment:
        """The piece between two moments, wide enough to be seen."""
        x = min(self.at(begin), 100 - NARROWEST)
        return Segment(x, round(max(NARROWEST, self.at(end) - x), 2), kind, title)


def timeline_of(page: RunPage, now: datetime, *, fold: bool = True) -> Timeline:
    """The timeline of a page of a run."""
    run, view = page.run, page.view
    bars = _waits_drawn([bar_of(step) for step in page.steps], begin_of(view))
    ends = [bar.end for bar in bars if bar.end is not None]
    begin = min(begin_of(view), run.created_at)
    by_step = _failures(page.marks)
    scale = Scale.over(begin, run.finished_at or max([now, *ends]), list(_tried_since(bars, page.steps, by_step)))
    if not fold:
        scale = Scale(scale.begin, scale.end, [], scale.width)
    ruler = Ruler(scale)
    names = shown_names([step.key for step in page.steps])
    lanes = [
        _lane(step, bar, by_step.get(step.key, ()), ruler, now=now, name=names[step.key])
        for step, bar in zip(page.steps, bars, strict=True)
    ]
    folds = [_fold(ruler, *gap) for gap in scale.gaps]
    return Timeline(
        whole=_whole(page, ruler, begin_of(view), now),
        lanes=lanes,
        ticks=_ticks(ruler),
        folds=folds,
        fold_labels=list(_fold_labels(folds)),
        marks=list(_marks(page, ruler)),
    )


def _whole(page: RunPage, ruler: Ruler, begin: datetime, now: datetime) -> TimelineLane:
    run = page.run
    glyph, _, word = word_of(run).partition(" ")
    segments = []
    if run.created_at < begin:
        segments.append(ruler.segment(run.created_at, begin, "queued", f"queued for {_length(run.created_at, begin)}"))
    if run.started_at is not None:
        segments.append(ruler.segment(begin, run.finished_at or now, "whole", word))
    return TimelineLane(glyph, word, run.workflow, "", 0, "", span(length_of(page.view)) or "—", segments)


def _lane(
    step: StepInfo, bar: Bar, failures: Sequence[Mark], ruler: Ruler, *, now: datetime, name: str
) -> TimelineLane:
    retries = step.status is RunStatus.PENDING and step.attempt > 0
    word = "retrying" if retries else WORDS[step.status]
    if bar.begin is None:
        return TimelineLane(bar.glyph, word, name, step.key, step.key.count("/"), bar.note, "—", ())
    end = bar.end or now
    kind = "wait" if bar.waiting else {"failed": "failed", "retrying": "failed"}.get(word, word)
    segments = list(_attempts(failures, bar.begin, end, retries=retries, ruler=ruler))
    if not retries:
        title = f"{step.key}: {word}, {_length(bar.begin, end)}"
        segments.append(ruler.segment(bar.begin, end, kind, title))
    note = f"{step.attempt} attempts" if step.attempt > 1 else "waits" if word == "waiting" else ""
    length = span((end - bar.begin).total_seconds())
    return TimelineLane(bar.glyph, word, name, step.key, step.key.count("/"), note, length, segments)


def _waits_drawn(bars: Sequence[Bar], begin: datetime) -> list[Bar]:
    """The bars; of a wait that is over only its end is recorded: it began when what was asked for before had ended."""
    drawn: list[Bar] = []
    for bar in bars:
        if bar.waiting and bar.end is not None and bar.begin == bar.end:
            before = [one.end for one in drawn if one.end is not None and one.end <= bar.end]
            bar = replace(bar, begin=max(before, default=begin))  # noqa: PLW2901 - drawn otherwise
        drawn.append(bar)
    return drawn


def _tried_since(bars: Sequence[Bar], steps: Sequence[StepInfo], failures: Failures) -> Iterator[Bar]:
    """The bars, each from its first attempt that failed: the time between attempts is not idle."""
    for bar, step in zip(bars, steps, strict=True):
        first = min([mark.at for mark in failures.get(step.key, ())], default=bar.begin)
        yield bar if bar.begin is None or first is None else replace(bar, begin=min(bar.begin, first))


def shown_names(keys: Sequence[str]) -> Mapping[str, str]:
    """Each key as it is shown: without its number where that says nothing."""
    return {key: key[:-2] if key.endswith("#1") and f"{key[:-2]}#2" not in keys else key for key in keys}


def _attempts(
    failures: Sequence[Mark], begin: datetime, end: datetime, *, retries: bool, ruler: Ruler
) -> Iterator[Segment]:
    """The attempts before the last one: the end of each is known, and that it backed off until the next."""
    before = [mark for mark in failures if mark.at < end]
    if not before:
        return
    following = [*(mark.at for mark in before[1:]), end if retries else max(begin, before[-1].at)]
    for mark, then in zip(before, following, strict=True):
        yield ruler.segment(mark.at, then, "backing-off", "backs off")
        yield ruler.segment(mark.at, mark.at, "failed", f"{mark.what}: {mark.said}")


def _failures(marks: Sequence[Mark]) -> Failures:
    found: dict[str, list[Mark]] = defaultdict(list)
    for mark in marks:
        if mark.step is not None and mark.what == "step failed":
            found[mark.step].append(mark)
    return found


def _marks(page: RunPage, ruler: Ruler) -> Iterator[Line]:
    """Lost workers, and when the run went on after each; what people did."""
    begun = sorted(step.started_at for step in page.steps if step.started_at is not None)
    for mark in page.marks:
        if mark.what == "worker lost":
            yield Line(ruler.at(mark.at), "lost", f"{mark.said.partition(',')[0]} lost")
            then = next((at for at in begun if at >= mark.at), None)
            if then is not None:
                yield Line(ruler.at(then), "back", f"went on {_length(mark.at, then)} later")
        elif mark.what in ("retried", "requeued", "cancel requested", "unpaused", "accepted"):
            yield Line(ruler.at(mark.at), "person", mark.what)


def _ticks(ruler: Ruler) -> list[Line]:
    """Round moments since the beginning, none of them inside of a fold."""
    scale = ruler.scale
    drawn = max(scale.end - scale.begin - scale.folded, 0.001)
    size = next((one for one in STEPS_OF_A_TICK if drawn / one <= TICKS), max(3600, drawn / TICKS))
    ticks, offset, last = [], 0.0, scale.begin
    for start, stop in [*scale.gaps, (scale.end, scale.end)]:
        at = last
        while at < start:
            ticks.append(Line(round(100 * scale.share(at), 2), "tick", _tick(at - last, offset)))
            at += size
        offset, last = stop - scale.begin, stop
    kept: list[Line] = []
    for tick in ticks[:40]:
        if (not kept or tick.x - kept[-1].x >= 9) and tick.x < 94:
            kept.append(tick)
    return kept


def _tick(seconds: float, offset: float) -> str:
    if seconds == 0:
        return f"+{span(offset)}" if offset else "0"
    return f"+{span(seconds)}" if offset else span(seconds)


def _fold(ruler: Ruler, start: float, stop: float) -> tuple[float, float, str]:
    x = round(100 * ruler.scale.share(start), 2)
    return x, round(100 * ruler.scale.share(stop) - x, 2), f"{span(stop - start)} idle"


def _fold_labels(folds: Sequence[tuple[float, float, str]]) -> Iterator[Line]:
    """The labels of the folds, within the width, and none over another."""
    free = 0.0  # from here on there is no label
    for x, width, said in folds:
        middle, half = x + width / 2, WIDEST_LABEL / 2
        if middle + half > 100:
            label, begin = Line(x + width, "end", said), x + width - WIDEST_LABEL
        elif middle - half < free:
            label, begin = Line(x, "start", said), x
        else:
            label, begin = Line(middle, "middle", said), middle - half
        if begin >= free:
            yield label
            free = begin + WIDEST_LABEL


def _length(begin: datetime, end: datetime) -> str:
    return span(max(0.0, (end - begin).total_seconds()))


@dataclass(frozen=True, slots=True)
class Strip:
    """A run in a list: its steps as pieces of one line, and where it is."""

    segments: Sequence[Segment]
    at: str
    word: str


def strip_of(run: Run[Any], spans: Sequence[StepSpan], now: datetime) -> Strip:
    """The line of a run in a list."""
    if run.started_at is None or not spans:
        return Strip((), _place(run, spans), word_of(run))
    known = [one.started_at for one in spans if one.started_at is not None]
    begin = min([run.started_at, *known])
    bars = [Bar("", "", "", one.started_at, one.finished_at, _waits(one)) for one in spans]
    ends = [one.finished_at for one in spans if one.finished_at is not None]
    ruler = Ruler(Scale.over(begin, run.finished_at or max([now, *ends]), bars))
    segments = []
    for one in sorted(spans, key=lambda one: one.started_at or begin):
        if one.started_at is not None:
            kind = "wait" if _waits(one) else "failed" if one.status is RunStatus.PENDING else WORDS[one.status]
            segments.append(_wide(ruler.segment(one.started_at, one.finished_at or now, kind, one.key)))
    return Strip(segments, _place(run, spans), standing_of(run, spans))


def standing_of(run: Run[Any], steps: Sequence[StepSpan | StepInfo]) -> str:
    """Where a run stands, in a glyph and a word: one that waits only to try a step again is retrying."""
    word = word_of(run)
    open_steps = [one for one in steps if one.status in (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.PAUSED)]
    backs_off = all(one.status is RunStatus.PENDING and one.attempt > 0 for one in open_steps)
    return "↻ retrying" if word == "◷ waiting" and open_steps and backs_off else word


def _wide(one: Segment) -> Segment:
    return Segment(min(one.x, 96.0), max(4.0, one.width), one.kind, one.title)


def _waits(one: StepSpan) -> bool:
    return one.status is RunStatus.PAUSED or (one.started_at is not None and one.started_at == one.finished_at)


def _place(run: Run[Any], spans: Sequence[StepSpan]) -> str:
    """Where a run is, in a few words."""
    done = sum(1 for one in spans if one.status is RunStatus.SUCCESS)
    if run.status is RunStatus.SUCCESS:
        return many(done, "step") if done else "done"
    order = (RunStatus.ERROR, RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.PENDING, RunStatus.CANCELLED)
    for status in order:
        found = [one for one in spans if one.status is status]
        if found:
            tries = f", attempt {found[-1].attempt}" if found[-1].attempt > 1 else ""
            return f"{found[-1].key.removesuffix('#1')}{tries}"
    if run.run_at is not None and run.run_at > datetime.now(UTC):
        return f"due {ago(run.run_at)}"
    return "not begun" if run.started_at is None else many(done, "step")
