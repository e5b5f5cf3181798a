"""Who makes a call of the context: the branch of a run, in the workflow's own code."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from stepwell.errors import NotInRun
from stepwell.runs.branches import Branch, other_colour
from stepwell.runs.call import current_attempt
from stepwell.runs.requests import Course, awaited
from stepwell.runs.turn import RunTurn
from stepwell.work.current import current_branch


def made(branch: Branch, course: Course, call: str) -> Coroutine[Any, Any, Any]:
    """The call of an async workflow; a missing `await` is reported when the run ends."""
    return branch.run.made.note(awaited(branch.run, course), call)


def branch_of(run: RunTurn, call: str, *, is_sync: bool | None = None) -> Branch:
    """The branch that makes the call; raises outside of the workflow's own code, or for a call of the other colour."""
    branch = current_branch.get()
    if not isinstance(branch, Branch) or branch.run is not run:
        where = "a step's body, which is recorded as a whole" if current_attempt() else "code that it does not execute"
        raise NotInRun(f"the context of run {run.task.id} was used in {where}; use it in the workflow itself")
    if is_sync is not None and is_sync != run.is_sync:
        raise other_colour(run, call)
    branch.check_caller(call)
    return branch
