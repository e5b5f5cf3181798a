"""The next useful command about a run, by why it stands where it stands. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from stepwell.records import Run, RunStatus, StepInfo
from stepwell.store.why import Reason, Why

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
    """What to type next: the command that lets it go on where there is one, else the one that shows more."""
    awaited = why.waits_for[0] if why.waits_for else "NAME"
    return COMMANDS[why.reason].format(
        run=int(run.id), workflow=run.workflow, awaited=awaited, step=_paused_step(steps)
    )


def _paused_step(steps: Sequence[StepInfo]) -> str:
    """The name of the step that has paused the run."""
    paused = [step for step in steps if step.status == RunStatus.PAUSED and "resume_condition" in (step.error or {})]
    return paused[0].name if paused else "STEP"
