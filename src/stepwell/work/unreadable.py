"""Tasks that the code of this worker cannot read: left to other code for a time, or failed as an error of the sender.

One rule for messages, runs, effects, timers and inputs. A task is left to other code if something shows that other code
can read it: a run or a decider wrote the data, and both read back what they write; the data names a class, by name or
by tag, that this code does not have; or an earlier turn was given it. Any other data that was sent to a queue or a
workflow may never have been read by any code: that task fails for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from stepwell.errors import SerializationError, StoreBusy, StoreUnavailable, SubjectForgotten
from stepwell.records import TaskKind
from stepwell.store.database import Database
from stepwell.store.rows import Claimed
from stepwell.values.exceptions import error_of
from stepwell.work.outcome import Alone, Failed, Held, NotThisCode, judge_unreadable

BATCH: Final = "batch_claimed_at"  # in the error of a batch that could not be read


class Misfit(Exception):  # noqa: N818 - it is raised to be caught by the worker alone
    """Stored data does not fit the types of this code; raised before any code of the user has seen it.

    `was_read` is True if other code has read the data, or has the class that it names.
    """

    def __init__(self, error: SerializationError, *, was_read: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.was_read = was_read


async def may_be_read(database: Database, task: Claimed, misfit: Misfit) -> bool:
    """True if something shows that other code can read the data that this code cannot."""
    if isinstance(misfit.error, SubjectForgotten):
        return False
    if misfit.was_read or task.generation > 0:  # a run has read the input that it restarts with
        return True
    if task.started_at == task.claimed_at:
        return False
    # An earlier turn may have called the body; not the turn in a batch that ended for this very reason.
    latest: int = (await _error_of(database, task)).get(BATCH, task.claimed_at)
    return task.started_at < latest


def each_alone(tasks: Sequence[Claimed], misfit: Misfit) -> Alone:
    """Offer each task of a batch alone; the error says when the batch was claimed, so that earlier turns still show."""
    return Alone(0.0, {**error_of(misfit.error), BATCH: min(task.claimed_at for task in tasks)})


async def left_to_other_code(database: Database, task: Claimed, misfit: Misfit) -> NotThisCode | Failed | Held:
    """Offer the task to other code; when its time is over, hold a run, and make a dead letter of any other task."""
    error = await _error_of(database, task)
    since = error.get("since") if error.get("type") == NotThisCode.__name__ else None
    outcome = judge_unreadable(misfit.error, since, task.claimed_at, database.options.unreadable_after)
    return _held(task, misfit.error, outcome) if isinstance(outcome, Failed) and task.kind is TaskKind.RUN else outcome


def _held(task: Claimed, error: SerializationError, outcome: Failed) -> Held:
    """Hold the run. The error has no `since`: a run that is released is offered as if for the first time."""
    ways = f"Deploy code that can read it, then `stepwell accept {task.id}`; or `stepwell fork {task.id} --at STEP`"
    message = f"{outcome.error['message']}. No code that was offered the run could read that. {ways}"
    return Held({"type": NotThisCode.__name__, "message": message, "names": [error.what]})


async def _error_of(database: Database, task: Claimed) -> dict[str, Any]:
    """The error that the previous turn has stored; empty if it stored none, or if the database is away.

    Then the task is left to other code as if for the first time: an outage must not cost it an attempt.
    """
    if task.turn == 1:
        return {}
    try:
        return await database.tasks.earlier_error(task.id)
    except (StoreBusy, StoreUnavailable):
        return {}
