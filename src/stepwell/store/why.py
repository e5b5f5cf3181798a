"""Why a run or an input does not go on. Pure: one judgement over what was read of it, its queue and its workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from stepwell.base.durations import datetime_of
from stepwell.base.names import EVENT, REQUEST
from stepwell.records import RunStatus, TaskKind
from stepwell.store.broadcasts import broadcast_of
from stepwell.store.limits_info import LimitedPlace
from stepwell.store.rows import IN_DOUBT, NEVER, OUTSIDE
from stepwell.store.run_facts import OpenStep, RunFacts
from stepwell.store.ticks import tick_of


class Reason(StrEnum):
    """Why a run stands where it stands, for programs."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    WORKER_LOST = "WORKER_LOST"
    TIMED_OUT = "TIMED_OUT"
    NO_HANDLER = "NO_HANDLER"
    CANCELLED = "CANCELLED"
    DELETED = "DELETED"
    RUNNING = "RUNNING"
    CANCELLING = "CANCELLING"
    PAUSING = "PAUSING"
    WORKER_SILENT = "WORKER_SILENT"
    TAKEN_BY_HAND = "TAKEN_BY_HAND"
    HELD = "HELD"
    CODE_DIFFERS = "CODE_DIFFERS"
    STEP_IN_DOUBT = "STEP_IN_DOUBT"
    STEP_PAUSED = "STEP_PAUSED"
    WAITING_FOR_SIGNAL = "WAITING_FOR_SIGNAL"
    WAITING_FOR_REQUEST = "WAITING_FOR_REQUEST"
    WAITING_FOR_EVENT = "WAITING_FOR_EVENT"
    WAITING_FOR_CHILDREN = "WAITING_FOR_CHILDREN"
    SCHEDULED = "SCHEDULED"
    BACKING_OFF = "BACKING_OFF"
    SLEEPING = "SLEEPING"
    QUEUE_PAUSED = "QUEUE_PAUSED"
    MAINTENANCE = "MAINTENANCE"
    UNSERVED = "UNSERVED"
    WAITS_FOR_PREVIOUS = "WAITS_FOR_PREVIOUS"
    SUSPECT = "SUSPECT"
    LIMITED = "LIMITED"
    KEY_PAUSED = "KEY_PAUSED"
    BUSY = "BUSY"
    READY = "READY"


@dataclass(frozen=True, slots=True)
class Why:
    """Why a run stands where it stands: for programs, in words, until when, for what it waits, and what comes next."""

    reason: Reason
    message: str
    until: datetime | None = None  # when it goes on by itself, if it does
    waits_for: tuple[str, ...] = ()  # names of signals, steps, conditions or workers
    next: str = ""

    def __str__(self) -> str:
        return f"{self.message}; {self.next}" if self.next else self.message


def why(run: RunFacts) -> Why:
    """The one reason, the strongest first, and what has triggered the run, if that was no program that asked for it."""
    told, origin = _why(run), origin_of(run.task["key"])
    return told if origin is None else replace(told, message=f"{told.message} ({origin})")


def origin_of(key: str | None) -> str | None:
    """The schedule with the moment of its tick, or the event, that has triggered a run, by its key."""
    if (tick := tick_of(key)) is not None:
        return f"triggered by schedule {tick[0]} for {tick[1]:%Y-%m-%d %H:%M:%S} UTC"
    event = broadcast_of(key)
    return None if event is None else f"triggered by event {event[0]}, task {event[1]}"


def _why(run: RunFacts) -> Why:
    """What ended it, who executes it, who holds it back, what it waits for."""
    task = run.task
    if task["deleted_at"] is not None:
        said = f": {task['delete_reason']}" if task["delete_reason"] else ""
        return Why(Reason.DELETED, f"it was deleted{said}", next="`store.restore` brings it back until it is pruned")
    match RunStatus(task["status"]):
        case RunStatus.SUCCESS:
            return Why(Reason.SUCCEEDED, "it has ended well", next="its result is kept until it is pruned")
        case RunStatus.ERROR:
            return _failed(run)
        case RunStatus.CANCELLED:
            return Why(Reason.CANCELLED, task["last_error"] or "it was cancelled", next="nothing: trigger it again")
        case RunStatus.RUNNING:
            return _running(run)
        case RunStatus.PENDING | RunStatus.PAUSED if task["cancel_requested_at"] is not None:
            return _cleans_up(run)
        case RunStatus.PENDING | RunStatus.PAUSED if task["waits_for_previous"]:
            return _behind(run)
        case RunStatus.PENDING | RunStatus.PAUSED:
            return _held(run) or (_due(run) if run.is_due else _waiting(run))


def _behind(run: RunFacts) -> Why:
    """Others were submitted before it, and it is decided after them."""
    task = run.task
    first = f"input {task['first_id']}"
    message, names = f"it waits for {first} before it", (str(task["first_id"]),)
    if task["first_status"] == RunStatus.ERROR:
        message = f"{message}, which failed for good: {task['first_error']}"
        after = f"`store.requeue({task['first_id']})` tries that again, `store.drop` goes on without it"
        return Why(Reason.WAITS_FOR_PREVIOUS, message, None, names, after)
    return Why(Reason.WAITS_FOR_PREVIOUS, message, None, names, "it is decided when that is done")


def _failed(run: RunFacts) -> Why:
    error = run.error
    kind, said = error.get("type"), run.task["last_error"] or "it failed"
    again = "nothing by itself: `store.retry` goes on where it failed, `store.fork` at an earlier step"
    if run.task["kind"] == TaskKind.INPUT:
        again = "nothing by itself: `store.requeue` tries it again, `store.drop` removes it"
    match kind:
        case "WorkerLost":
            lost = f"its worker was lost {run.task['losses'] or run.task['attempt']} times, as often as it is tried"
            return Why(Reason.WORKER_LOST, lost, next="look for what kills the process, then `store.retry`")
        case "Timeout" if "limit" in error:
            return Why(Reason.TIMED_OUT, said, next=again)
        case "NoHandler":
            return Why(Reason.NO_HANDLER, said, next="start a worker that has the workflow, then `store.retry`")
        case _:
            return Why(Reason.FAILED, said, waits_for=tuple(error.get("steps", ())), next=again)


def _running(run: RunFacts) -> Why:
    task = run.task
    if task["owner"] is None:
        soon = "it comes back if it is not settled by then"
        return Why(Reason.TAKEN_BY_HAND, "a consumer has taken it with `dequeue`", run.until, next=soon)
    worker = f"{task['worker_name']} (session {task['owner']}, process {task['worker_pid']} on {task['worker_host']})"
    names = (str(task["worker_name"]),)
    if task["silent"] or task["silent"] is None:
        message = f"its worker {worker} is not heard of any more"
        lease = f"the lease of {task['worker_lease'] / 1_000_000:g} s"
        return Why(Reason.WORKER_SILENT, message, None, names, f"another worker takes it over when {lease} is over")
    if task["cancel_requested_at"] is not None:
        return Why(Reason.CANCELLING, f"{worker} was asked to stop it", run.cleanup_until, names, "it ends CANCELLED")
    if task["held_at"] is not None:
        return Why(Reason.PAUSING, f"{worker} was asked to give it back", None, names, "it is PAUSED until `unpause`")
    busy = [step.key for step in run.steps if step.status is RunStatus.RUNNING and step.key != OUTSIDE]
    if (outside := [step for step in run.steps if step.key == OUTSIDE]) and not busy:
        message = f"{worker} executes it; for some time it has waited for {outside[0].error.get('message')}"
        after = "it keeps its place until that comes: a wait that is to outlast a restart is `ctx.wait` or a step"
        return Why(Reason.RUNNING, message, None, names, after)
    at = f", at {', '.join(busy)}" if busy else ""
    return Why(Reason.RUNNING, f"{worker} executes it{at}", None, names, "it ends, or waits, by itself")


def _cleans_up(run: RunFacts) -> Why:
    """It was cancelled, and a worker has to clean up for it."""
    waiting = _due(run) if run.is_due else _waiting(run)
    message = f"it was cancelled and is to clean up; {waiting.message}"
    return Why(Reason.CANCELLING, message, run.cleanup_until, waiting.waits_for, "it ends CANCELLED when that is done")


def _held(run: RunFacts) -> Why | None:
    if run.task["held_at"] is None:
        return _aside(run)
    said = f": {run.task['held_reason']}" if run.task["held_reason"] else ""
    return Why(Reason.HELD, f"an operator holds it back{said}", next="`store.unpause` lets it go on")


def _aside(run: RunFacts) -> Why | None:
    """It has paused itself, outside of its steps; or its code cannot read it, or asks for steps that may be done."""
    if run.task["status"] == RunStatus.PAUSED and run.task["run_at"] == NEVER:
        names = tuple(run.error.get("names", ()))
        said = str(run.error.get("message") or "its code is another")
        return Why(Reason.CODE_DIFFERS, f"it is held for its code: {said}", None, names, "`store.accept` lets it go on")
    if run.error.get("type") == "NotThisCode" and not run.is_due:
        message = f"no code that was offered it could read it: {run.error.get('message')}"
        after = "it is offered again then: deploy code that can read it"
        return Why(Reason.CODE_DIFFERS, message, run.until, next=after)
    if run.task["status"] != RunStatus.PAUSED or run.error.get("type") != "Paused":
        return None
    said = run.error.get("message") or "it gave no reason"
    return Why(Reason.HELD, f"it has paused itself: {said}", run.until, next="`store.unpause` lets it go on")


def _due(run: RunFacts) -> Why:
    """Only a worker is missing."""
    task = run.task
    name = task["workflow"]
    if task["maintenance_at"] is not None:
        said = f": {task['maintenance_reason']}" if task["maintenance_reason"] else ""
        return Why(Reason.MAINTENANCE, f"the store is in maintenance{said}", next="`store.end_maintenance` ends it")
    if task["queue_paused"]:
        return Why(Reason.QUEUE_PAUSED, f"the queue of {name} is paused", next=f"`store.resume_queue({name!r})`")
    if not run.servers:
        return Why(Reason.UNSERVED, f"no living worker serves {name}", next=f"start a worker that serves {name}")
    names = tuple(sorted(server.name for server in run.servers))
    if task["losses"] > 0:
        message = "its worker was lost, perhaps by its doing, so it is executed alone"
        return Why(Reason.SUSPECT, message, None, names, "a worker begins it as soon as it has nothing else under way")
    if run.place is not None and (limited := _limited(run, run.place, names)) is not None:
        return limited
    if all(server.holds for server in run.servers):
        executed = sum(server.holds for server in run.servers)
        message = f"every worker that serves {name} is at work, on {executed} tasks in all"
        return Why(Reason.BUSY, message, None, names, "it is claimed when a place is free; more workers would help")
    return Why(Reason.READY, "it is ready", None, names, "a worker claims it in a moment")


def _limited(run: RunFacts, place: LimitedPlace, names: tuple[str, ...]) -> Why | None:
    """The limits of its queue or its key hold it back."""
    name, of_key = run.task["workflow"], f"key {place.key!r}" if place.key else "no key"
    if place.is_paused:
        said = f": {place.reason}" if place.reason else ""
        after = f"`store.limits.resume({name!r}, {place.key!r})`"
        return Why(Reason.KEY_PAUSED, f"{of_key} of {name} is paused{said}", None, names, after)
    in_line = f"it is number {place.before + 1} of {place.waiting} in line for {of_key}"
    if place.most_of_key is not None and place.of_key >= place.most_of_key:
        message = f"{in_line}: {place.of_key} of {place.most_of_key} places of that are taken"
    elif place.most is not None and place.running >= place.most:
        message = f"{in_line}: {place.running} of {place.most} places of {name} are taken"
    elif place.rate is not None:
        whose = of_key if place.of_key_rate else name
        message = f"{in_line}: the rate of {whose} is {place.rate}, and allows what it costs in {_seconds(place.wait)}"
        until = datetime_of(run.task["now"] + place.wait)
        return Why(Reason.LIMITED, message, until, names, "it is claimed then, if it is first in line by that time")
    else:
        return None
    return Why(Reason.LIMITED, message, None, names, "it is claimed when a place is free, the keys in turns")


def _seconds(wait: int) -> str:
    """A span in seconds, with as many digits as say something."""
    return f"{max(wait, 1_000) / 1_000_000:.3g} s"


def _waiting(run: RunFacts) -> Why:
    """It cannot go on yet: it waits for a step or a signal, for other runs, or for a moment."""
    waits = [step for step in run.steps if step.status is RunStatus.PAUSED]
    if aside := next((step for step in waits if "resume_condition" in step.error), None):
        return _step_paused(run, aside)
    if doubts := tuple(str(step.error["step"]) for step in waits if step.error.get("type") == IN_DOUBT):
        message = f"step {doubts[0]} has begun and is not known to have ended{_misfit_in(waits)}"
        after = f"`store.resolve(run, {doubts[0]!r}, done=...)` says whether it is done"
        return Why(Reason.STEP_IN_DOUBT, message, run.until, doubts, after)
    if sent := [step for step in waits if not step.awaits_runs]:
        return _told(run, sent)
    if calls := tuple(step.name for step in waits):
        count = f"{run.task['waiting']} of the {run.task['children']} unfinished runs it asked for"
        message = f"it waits for {count if run.task['waiting'] > 0 else 'runs that others asked for'}"
        return Why(Reason.WAITING_FOR_CHILDREN, message, run.until, calls, "it goes on when they have ended")
    return _timed(run)


def _told(run: RunFacts, waits: Sequence[OpenStep]) -> Why:
    """It waits for what others send: to it alone, or to all who wait."""
    names = [name for step in waits for name in step.names]
    signals = tuple(name for name in names if not name.startswith((REQUEST, EVENT)))
    requests = tuple(name.removeprefix(REQUEST) for name in names if name.startswith(REQUEST))
    events = tuple(step.name.removeprefix(EVENT) for step in waits if step.name.startswith(EVENT))
    chosen = [f"{step.name.removeprefix(EVENT)}{step.choice}" for step in waits if step.name.startswith(EVENT)]
    kinds = (("the signal", signals), ("the request", requests), ("the event", chosen))
    said = " or ".join(f"{kind} {', '.join(names)}" for kind, names in kinds if names)
    message = f"it waits for {said}{_misfit_in(waits)}"
    if signals:
        return Why(Reason.WAITING_FOR_SIGNAL, message, run.until, signals, f"`store.signal(run, {signals[0]!r}, data)`")
    if requests:
        return Why(Reason.WAITING_FOR_REQUEST, message, run.until, requests, f"`store.ask(run, {requests[0]!r}, data)`")
    return Why(Reason.WAITING_FOR_EVENT, message, run.until, events, f"`store.broadcast({events[0]!r}, data)`")


def _misfit_in(waits: Sequence[OpenStep]) -> str:
    """That a signal came and could not be read, in words; or nothing."""
    found = [str(step.error["misfit"]) for step in waits if "misfit" in step.error]
    return f"; one that it could not read is set aside: {found[-1]}"[:500] if found else ""


def _step_paused(run: RunFacts, step: OpenStep) -> Why:
    condition = step.error.get("resume_condition")
    said = (step.error.get("message") or "it gave no reason") + _misfit_in([step])
    waits_for, after = step.name, f"`store.resume(run, {step.name!r}, data)`"
    if condition is not None:
        waits_for, after = condition, f"the condition {condition} is asked again, or {after}"
    return Why(Reason.STEP_PAUSED, f"step {step.key} has paused it: {said}", run.until, (waits_for,), after)


def _timed(run: RunFacts) -> Why:
    task = run.task
    if task["turn"] == 0:
        return Why(Reason.SCHEDULED, "it is scheduled for later", run.until, next="it is executed then")
    if failed := [step for step in run.steps if step.status is RunStatus.PENDING and step.error]:
        step = failed[0]
        said = f"{step.error.get('type')}: {step.error.get('message')}"[:200]
        message = f"step {step.key} failed in attempt {step.attempt} with {said}"
        return Why(Reason.BACKING_OFF, message, run.until, (step.name,), "the step is tried again then")
    if task["last_error"] is not None:
        message = f"attempt {task['attempt']} of {task['max_attempts']} failed with {task['last_error']}"
        return Why(Reason.BACKING_OFF, message, run.until, next="it is tried again then")
    return Why(Reason.SLEEPING, "it sleeps", run.until, next="it goes on then")
