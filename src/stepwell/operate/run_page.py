"""A run as a page shows it: a part of its steps without payloads, its past, its children, and one chosen step.

However much a run has recorded, a page of it is read with a bounded number of statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from stepwell.operate.run_view import ChildRun, Mark, RunView, children_of, marks_of
from stepwell.records import Run, RunStatus, StepInfo, Task
from stepwell.store.excerpts import Awaited, StepCounts, StepRecord
from stepwell.store.reports import ValueInfo
from stepwell.store.run_log import LastLines, last_lines
from stepwell.store.store import Store
from stepwell.store.why import Why

STEPS: Final = 200  # of a page
MOST_FAMILIES: Final = 8  # runs whose children are looked for
MOST_MARKS: Final = 400
MOST_STREAMS: Final = 12
LINES: Final = 100  # that were logged, the newest


@dataclass(frozen=True, slots=True)
class RunPage:
    """A run and what a page shows of it; `first` is how many steps stand on the pages before."""

    run: Run[Any]
    task: Task | None
    why: Why
    steps: Sequence[StepInfo]
    counts: StepCounts
    first: int
    children: Sequence[ChildRun]
    more_children: bool
    marks: Sequence[Mark]
    awaited: Sequence[Awaited]
    chosen: StepRecord | None
    values: Sequence[ValueInfo]
    streams: Sequence[tuple[str, int]]  # each with the number of its chunks
    logged: LastLines  # by the chosen step, or else by the run
    logged_by: str | None

    @property
    def view(self) -> RunView:
        """The same as `stepwell show` has it."""
        return RunView(self.run, self.steps, self.why, self.children, self.more_children, self.marks)

    @property
    def failed(self) -> StepInfo | None:
        """The first step on this page that failed for good."""
        return next((step for step in self.steps if step.status is RunStatus.ERROR), None)


async def page_of(
    store: Store, run: Run[Any], *, first: int | None, chosen: str | None, choose: bool = True, all_logs: bool = False
) -> RunPage:
    """Read a page of a run: from the step with this number on, or where the chosen or the first failed one stands.

    If no step is chosen, the one that a person probably came for is, unless `choose` is False.
    """
    excerpts = store.database.excerpts
    counts = await excerpts.step_counts(run)
    record = None if chosen is None else await excerpts.step(run, chosen)
    if first is None:
        at = counts.first_failed if record is None else record.place
        before = 0 if at is None or counts.total <= STEPS else await excerpts.before(run, at)
        first = before - before % STEPS
    steps = await excerpts.steps(run, skip=first, limit=STEPS)
    if record is None and choose and (key := _worth_a_look(run, steps)) is not None:
        record = await excerpts.step(run, key)
    children, more = await children_of(store, run, 1, iter(range(MOST_FAMILIES)), whole=False)
    by, logged = await _logged(store, run, None if all_logs or record is None else record.step.key)
    return RunPage(
        run=run,
        task=await store.get(run.id, deleted=True),
        why=await store.why(run.id),
        steps=steps,
        counts=counts,
        first=first,
        children=children,
        more_children=more,
        marks=(await marks_of(store, run))[-MOST_MARKS:],
        awaited=() if run.status.finished else await excerpts.awaited(run),
        chosen=record,
        values=await store.database.reports.values_in(run),
        streams=await store.database.reports.streams_in(int(run.id), MOST_STREAMS),
        logged=logged,
        logged_by=by,
    )


async def _logged(store: Store, run: Run[Any], step: str | None) -> tuple[str | None, LastLines]:
    """What a step has logged, or if that is nothing, what the run has."""
    found = await last_lines(store.database, int(run.id), step=step, limit=LINES)
    if found.lines or step is None:
        return step, found
    return await _logged(store, run, None)


def _worth_a_look(run: Run[Any], steps: Sequence[StepInfo]) -> str | None:
    """The step that a person probably came for: the one that failed, else the one that is under way."""
    if run.status is RunStatus.SUCCESS:
        return None
    for status in (RunStatus.ERROR, RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.PENDING):
        found = [step.key for step in steps if step.status is status]
        if found:
            return found[0] if status is not RunStatus.ERROR else found[-1]
    return None
