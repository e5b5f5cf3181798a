"""A run as a timeline in text: its steps, attempts and waits as bars over one scale; or followed until it is finished.

A solid bar executes, a shaded bar waits on purpose, a cross is a failed attempt, and a broken line through all bars is
a lost worker.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from stepwell.cli.output import drawable, is_lively, say
from stepwell.operate.format import ago, short, span
from stepwell.operate.run_view import (
    WIDTH,
    Bar,
    ChildRun,
    Mark,
    RunView,
    Scale,
    bar_of,
    begin_of,
    length_of,
    scale_of,
    unrecorded,
    view_of,
)
from stepwell.operate.status import took, word_of
from stepwell.records import Run, RunStatus, StepInfo
from stepwell.store.reports import PROGRESS
from stepwell.store.store import Store

MOST_MARKS: Final = 12
LINE: Final = 80  # columns of a terminal, into which the picture of a run fits ...
NARROWEST: Final = 20  # ... unless its scale would be narrower than this
BESIDE: Final = 10  # columns of a line of the picture besides names, notes and the scale
LOST: Final = "worker lost"
PAUSE: Final = 0.2  # seconds between two looks at a run that is followed


def lines_of(look: RunView) -> list[str]:
    """The lines of the timeline of a run."""
    bars = [bar_of(step) for step in look.steps]
    scale = scale_of(look, bars)
    names = max([len(bar.name) for bar in bars], default=0)
    notes = max([len(bar.note) for bar in bars], default=0)
    width = max(NARROWEST, min(WIDTH, LINE - BESIDE - names - notes))
    pictures = [_drawn(bar, scale, look.marks, width) for bar in bars]
    drawn = [
        f"  {bar.glyph} {bar.name.ljust(names)}  {bar.note.ljust(notes)}  {picture}".rstrip()
        for bar, picture in zip(bars, pictures, strict=True)
    ]
    said = f"{span(scale.folded)} in which nothing executed are folded"
    told = [*unrecorded(look), *([said] if scale.gaps else [])]
    below = ["", *(f"note: {one}" for one in told)] if told else []
    picture = drawn or ["  no step is recorded yet"]
    return [*_head(look), "", *picture, *_past(look), *_family(look), *_error(look.run, look.steps), *below]


def _head(look: RunView) -> list[str]:
    run = look.run
    about = [f"{run.workflow} {run.key or ''}".strip(), f"run {run.id}", word_of(run)]
    if (seconds := length_of(look)) is not None:
        about.append(f"{'took' if run.finished_at else 'for'} {span(seconds)}")
    lines = ["   ".join(about), " · ".join(_facts(run))]
    if look.why is not None:
        lines.append(f"why    {look.why.message}")
    lines.append(f"input  {short(run.input(), 100)}")
    if run.progress is not None:
        lines.append(f"says   {short(run.progress, 100)}")
    lines += [f"value  {one.name} = {short(one.value, 100)}" for one in look.values if one.name != PROGRESS]
    if run.status == RunStatus.SUCCESS:
        lines.append(f"output {short(run.output(object), 100)}")
    return lines


def _facts(run: Run[Any]) -> list[str]:
    facts = [f"triggered {ago(run.created_at)}"]
    if run.attempt:  # the attempt of a waiting run was given back
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
    if run.headers:
        facts.append(f"headers {', '.join(f'{name}={value}' for name, value in run.headers.items())}")
    return facts


def _drawn(bar: Bar, scale: Scale, marks: Sequence[Mark], width: int) -> str:
    if bar.begin is None:
        return ""
    first = scale.column(bar.begin, width)
    last = width - 1 if bar.end is None else max(first, scale.column(bar.end, width))
    cells = [" "] * first + ["░" if bar.waiting else "█"] * (last - first + 1) + [" "] * (width - 1 - last)
    for mark in marks:
        if mark.what == LOST:
            cells[scale.column(mark.at, width)] = "╎"
        elif mark.step is not None and mark.step == bar.key:
            cells[scale.column(mark.at, width)] = "✕"
    return f"│{''.join(cells)}│"


def _past(look: RunView) -> list[str]:
    """What happened to the run, in words, with the time since its beginning."""
    begin = begin_of(look)
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


def _family(look: RunView) -> list[str]:
    """The children of the run, as a tree."""
    if not look.children:
        return []
    return ["", "runs it asked for", *_branches(look.children, "  ", look.run.id, more=look.more)]


def _branches(children: Sequence[ChildRun], indent: str, parent: int, *, more: bool) -> list[str]:
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
    """The last error, with the lines of its traceback that belong to the application."""
    failed = [step for step in steps if step.status == RunStatus.ERROR and step.error is not None]
    error = failed[-1].error if failed and run.status != RunStatus.SUCCESS else run.error
    if error is None or run.status == RunStatus.SUCCESS:
        return []
    where = f"{failed[-1].key}, attempt {failed[-1].attempt}: " if failed else ""
    said = f"✕ {where}{error.get('type', 'error')}: {short(error.get('message', ''), 200)}"
    return ["", said, *_traced(str(error.get("traceback") or ""))]


def _traced(traceback: str) -> list[str]:
    """The last place in the application's own code, and its line."""
    found: list[str] = []
    lines = traceback.splitlines()
    for at, line in enumerate(lines):
        if line.lstrip().startswith("File ") and "/stepwell/" not in line:
            code = lines[at + 1].strip() if at + 1 < len(lines) else ""
            found = [f"  {line.strip()}", *([f"    {code}"] if code else [])]
    return found


async def follow_run(store: Store, run: Run[Any], *, quiet: bool = False, until: float | None = None) -> Run[Any]:
    """The run when it is finished, or after `until` seconds; on a terminal it is redrawn meanwhile."""
    began = asyncio.get_running_loop().time()
    view = None if quiet or not is_lively(sys.stdout) else _Redrawn()
    told: set[tuple[str, str, int]] = set()
    try:
        while not run.status.finished:
            if until is not None and asyncio.get_running_loop().time() - began >= until:
                break
            if view is not None:
                view.show(lines_of(await view_of(store, run)))
            elif not quiet:
                await _tell_steps(store, run, told)
            await asyncio.sleep(PAUSE)
            run = await store.get_run(run.id)
    except asyncio.CancelledError:
        if view is not None:
            view.keep()
        say(f"no longer followed; run {run.id} itself goes on", to_stderr=True)
        say(f"next: stepwell show {run.id} -f", to_stderr=True, dim=True)
        raise
    finally:
        if view is not None:
            view.clear()
    return run


async def _tell_steps(store: Store, run: Run[Any], told: set[tuple[str, str, int]]) -> None:
    """Print the steps that changed since the last look: for a pipe or a log."""
    for step in await store.steps(run.id):
        seen = (step.key, str(step.status), step.attempt)
        if seen not in told:
            told.add(seen)
            say(f"  {step.key} {step.status.lower()}{f', attempt {step.attempt}' if step.attempt > 1 else ''}")


class _Redrawn:
    """Lines of a terminal that are redrawn, and removed at the end."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._encoding = sys.stdout.encoding  # read before rich replaces stdout
        self._live = Live(console=Console(file=sys.stdout, highlight=False), auto_refresh=False, transient=True)
        self._live.start()

    def show(self, lines: list[str]) -> None:
        from rich.text import Text

        shown = "\n".join(drawable(line, self._encoding) for line in lines)
        self._live.update(Text(shown, no_wrap=True, overflow="ellipsis"), refresh=True)

    def keep(self) -> None:
        """Keep the last lines on the screen."""
        self._live.transient = False
        self._live.stop()

    def clear(self) -> None:
        self._live.stop()
