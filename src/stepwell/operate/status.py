"""How things stand, as people read it: a run or a worker in a glyph and a word, the whole store in an overview."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, assert_never

from stepwell.records import QueueStats, Run, RunStatus, WorkerInfo
from stepwell.store.projections import ProjectionInfo
from stepwell.store.store import Store


def glyph_of(status: RunStatus) -> str:
    """The sign of a status."""
    match status:
        case RunStatus.PENDING:
            return "◌"
        case RunStatus.RUNNING:
            return "◐"
        case RunStatus.PAUSED:
            return "‖"
        case RunStatus.SUCCESS:
            return "✓"
        case RunStatus.ERROR:
            return "✕"
        case RunStatus.CANCELLED:
            return "⊘"
        case _:
            assert_never(status)


def word_of(run: Run[Any]) -> str:
    """Where a run stands, in a glyph and a word: what is PENDING waits to be tried again, for a moment, or in line."""
    if run.cancel_requested_at is not None and not run.status.finished:
        return f"{glyph_of(RunStatus.CANCELLED)} cancelling"
    match run.status:
        case RunStatus.PAUSED if run.held_at is None and run.error is None:
            return "◷ waiting"
        case RunStatus.PENDING if run.run_at is not None and run.run_at > datetime.now(UTC):
            return "↻ retrying" if run.last_error else "◷ waiting"
        case RunStatus.PENDING:
            return "◷ waiting" if run.run_at is None else "◌ queued"
        case RunStatus.SUCCESS:
            return "✓ succeeded"
        case RunStatus.ERROR:
            return "✕ failed"
        case _:
            return f"{glyph_of(run.status)} {run.status.lower()}"


def state_of(one: WorkerInfo) -> str:
    """The state of a worker's session in a word."""
    if one.stopped_at is not None:
        return one.stop_reason or "ended"
    return "silent" if (one.silent or 0.0) > one.lease else "alive" if one.alive else "gone"


def took(run: Run[Any]) -> float | None:
    """Seconds from its start to its end, or to now; None if it has not started."""
    if run.started_at is None:
        return None
    return ((run.finished_at or datetime.now(UTC)) - run.started_at).total_seconds()


def as_json(run: Run[Any]) -> dict[str, Any]:
    """A run for `--json`: its fields, and what it took and gave as JSON."""
    names = (
        "id",
        "workflow",
        "key",
        "status",
        "attempt",
        "max_attempts",
        "priority",
        "last_error",
        "tags",
        "headers",
        "parent_id",
        "cause",
        "generation",
        "progress",
    )
    moments = ("run_at", "created_at", "updated_at", "started_at", "paused_at", "held_at", "cancel_requested_at")
    ends = ("finished_at", "deleted_at")
    return {
        **{name: getattr(run, name) for name in (*names, "worker", *moments, *ends)},
        "input": run.input(),
        "output": run.output(object) if run.status == RunStatus.SUCCESS else None,
        "error": run.error,
    }


@dataclass(frozen=True, slots=True)
class Overview:
    """The queues, the workers that have not ended, the newest runs, and the projections."""

    queues: Sequence[QueueStats]
    workers: Sequence[WorkerInfo]
    runs: Sequence[Run[Any]]
    projections: Sequence[ProjectionInfo]


async def overview_of(store: Store, runs: int) -> Overview:
    """Read the queues, the workers, this number of runs, and the projections."""
    workers = [one for one in await store.workers() if one.stopped_at is None]
    queues, newest = await store.queue_stats(), await store.runs(limit=runs)
    return Overview(queues, workers, newest, await store.projections())
