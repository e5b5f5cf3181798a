"""Everything that `stepwell show` tells of a run, read from the store: the run, its steps, children, and its past."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from stepwell.records import Run, StepInfo
from stepwell.store.store import Store
from stepwell.store.why import Why

MOST_CHILDREN: Final = 20  # of one run, newest first
MOST_FAMILIES: Final = 30  # runs whose children are looked for
DEEPEST: Final = 3


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened to a run while it went on: when, what, to which step (None: the whole run), and more."""

    at: datetime
    what: str
    step: str | None = None
    said: str = ""


@dataclass(frozen=True, slots=True)
class Child:
    """A run that another one asked for, and those it asked for itself; `more` if there are others beside those."""

    run: Run[Any]
    children: Sequence[Child] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """A run as it stood when it was looked at."""

    run: Run[Any]
    steps: Sequence[StepInfo] = ()
    why: Why | None = None  # of one that is not finished
    children: Sequence[Child] = ()
    more: bool = False  # children than those
    marks: Sequence[Mark] = field(default=())


async def look_at(store: Store, run: Run[Any]) -> Look:
    """Read what there is to show of a run."""
    why = None if run.status.finished and run.deleted_at is None else await store.why(run.id)
    children, more = await _children(store, run, 1, iter(range(MOST_FAMILIES)))
    return Look(run, await store.steps(run.id), why, children, more, await _marks(store, run))


async def _children(store: Store, run: Run[Any], depth: int, left: Iterator[int]) -> tuple[list[Child], bool]:
    """The runs that a run asked for, and theirs; `left` bounds how often the store is asked in all."""
    if depth > DEEPEST or next(left, None) is None:
        return [], False
    page = await store.runs(parent=run.id, limit=MOST_CHILDREN)
    children = [Child(each, *await _children(store, each, depth + 1, left)) for each in reversed(page)]
    return children, page.next is not None


async def _marks(store: Store, run: Run[Any]) -> list[Mark]:
    """What a store that keeps it has noted of a run: failed attempts, lost workers, what people did."""
    history = getattr(store, "history", None)
    return [] if history is None else [mark_of(one) for one in await history(run.id)]


def mark_of(noted: Any) -> Mark:
    """A note as a mark; of a step's failure the text begins with the step's key."""
    detail = "" if noted.detail is None else str(noted.detail)
    step = None
    if noted.what.startswith("step "):
        step, _, detail = detail.partition(": ")
    session = f"session {noted.worker}" if noted.worker is not None else ""
    tried = f"attempt {noted.attempt}" if noted.attempt is not None and step is not None else ""
    return Mark(noted.at, noted.what, step, ", ".join(part for part in (tried, session, detail) if part))
