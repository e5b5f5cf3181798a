"""What the tests of workflows have in common: runs begun and executed, and workers that die in the middle of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from stepwell import Run, RunId, StepInfo, Store, Worker, Workflow
from stepwell.records import Task
from stepwell.store.database import Database
from stepwell.workload import Serves


async def begun(store: Store, workflow: Workflow[..., Any], *args: Any, **options: Any) -> RunId[Any]:
    """A run that waits for a worker."""
    options.setdefault("require_worker", "ignore")
    return await workflow.trigger(*args).options(**options).execute(store)


async def drained(store: Store, *serves: Serves, **options: Any) -> int:
    """Let a worker of its own do all that is due; how many turns that took."""
    return await asyncio.wait_for(Worker(store, serves, **options).drain(), 60)


async def executed(store: Store, workflow: Workflow[..., Any], *args: Any, **options: Any) -> Run[Any]:
    """A run as a worker leaves it that does all that is due."""
    run_id = await begun(store, workflow, *args, **options)
    await drained(store, workflow)
    return await store.get_run(run_id)


async def die(database: Database) -> None:
    """Declare every session dead: whoever calls this is from now on what is left of a process that was killed."""
    database.sessions.acquit = _acquits_nobody  # type: ignore[method-assign, assignment] # before a beat can hear of it
    for session in await database.sessions.living():
        assert await database.sessions.bury(session) is not None


async def _acquits_nobody(_: int) -> set[int]:
    """What is left of a killed process does not say that it lives."""
    return set()


async def steps_of(store: Store, run_id: int) -> dict[str, StepInfo]:
    """What a run has recorded, by key, in its order."""
    return {step.key: step for step in await store.steps(run_id)}


async def statuses(store: Store, run_id: int) -> dict[str, str]:
    """How each step of a run stands."""
    return {key: str(step.status) for key, step in (await steps_of(store, run_id)).items()}


async def task_of(store: Store, run_id: int) -> Task:
    """The task behind a run."""
    task = await store.get(run_id)
    assert task is not None
    return task


def names_in(keys: Sequence[str]) -> list[str]:
    """Keys without the place of the function in this file, which is no part of what is proved."""
    return [key.rpartition("<locals>.")[2] for key in keys]
