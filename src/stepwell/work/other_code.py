"""What the code of this worker cannot read: left to other code if other code can, for a time; else the sender's error.

One rule for messages, runs, effects, timers and inputs. One of these shows that other code can read something: a run or
a decider wrote it, which read back what they write; it names a class, by name or tag, that is not here; or an earlier
turn had it. What was sent to a queue or a workflow and no turn has had, no code may ever have read: it fails for good.
"""

from __future__ import annotations

import json
from typing import Any

from stepwell.errors import SerializationError
from stepwell.records import RunStatus, TaskKind
from stepwell.runs.program import program
from stepwell.store.rows import HELD, Claimed, StepRow
from stepwell.store.store import Store
from stepwell.work.outcome import Failed, Held, NotThisCode, judge_unreadable


class Misfit(Exception):  # noqa: N818 - it is raised to be caught by the worker alone
    """What is stored does not fit the types of this code; raised before code of the user has seen anything of it.

    `was_read` says that other code has read it, or has the class it names.
    """

    def __init__(self, error: SerializationError, *, was_read: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.was_read = was_read


async def may_be_read(store: Store, task: Claimed, misfit: Misfit) -> bool:
    """True if something shows that other code can read what this code cannot."""
    if misfit.was_read or task.generation > 0:  # a run has read the input that it restarts with
        return True
    # The turn before this one may have called the body; not if it ended for this very reason, in a batch.
    return task.started_at < task.claimed_at and (await _error_of(store, task)).get("type") != "SerializationError"


async def left_to_other_code(store: Store, task: Claimed, misfit: Misfit) -> NotThisCode | Failed | Held:
    """Offer it to other code; in the end a run is held, and everything else is a dead letter."""
    error = await _error_of(store, task)
    since = error.get("since") if error.get("type") == NotThisCode.__name__ else None
    outcome = judge_unreadable(misfit.error, since, task.claimed_at, store.options.unreadable_after)
    return _held(task, misfit.error, outcome) if isinstance(outcome, Failed) and task.kind is TaskKind.RUN else outcome


async def mark_of(task: Claimed) -> StepRow:
    """Notes which code has held a run: workers with the same do not let it go by themselves."""
    return StepRow(task.id, task.generation, HELD + (await program()).code, 0, RunStatus.SUCCESS)


def _held(task: Claimed, error: SerializationError, outcome: Failed) -> Held:
    """Without `since`: let go, it is offered as if for the first time."""
    ways = f"Deploy code that can read it, then `stepwell accept {task.id}`; or `stepwell fork {task.id} --at STEP`"
    message = f"{outcome.error['message']}. No code that was offered the run could read that. {ways}"
    return Held({"type": NotThisCode.__name__, "message": message, "names": [error.what]})


async def _error_of(store: Store, task: Claimed) -> dict[str, Any]:
    """What is stored of the turn before this one."""
    if task.turn == 1:
        return {}
    again = await store.decisions.task_again(task.id)
    error: dict[str, Any] = {} if again is None else json.loads(again["error"] or "{}")
    return error
