"""What the tests of children have in common: parents that wait, and how the table has them and their children."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from stepwell import Context, PermanentError, RunStatus, Store, workflow
from stepwell.store.rows import Claimed, Settlement
from tests.store.seam import DONE, begin, claim, do, row_of
from tests.workflows.kit import begun, drained

IGNORE: dict[str, Any] = {"require_worker": "ignore"}


@workflow
async def child(number: int) -> int:
    if number < 0:
        raise PermanentError(f"unlucky {number}")
    return 2 * number


@workflow(dead_letter="mourner")
async def mourned(number: int) -> int:
    raise PermanentError(f"unlucky {number}")


@workflow
async def mourner(letter: Any) -> None: ...


@workflow
async def parent(ctx: Context, number: int) -> int:
    return await child.trigger(number).options(max_attempts=1, **IGNORE).wait().execute(ctx)


@workflow
async def parent_of_mourned(ctx: Context, number: int) -> int:
    return await mourned.trigger(number).options(**IGNORE).wait().execute(ctx)


@workflow
async def parent_of_many(ctx: Context, count: int) -> int:
    ids = await ctx.trigger_many([child.trigger(number).options(**IGNORE) for number in range(count)])
    return sum(await ctx.results(ids))


async def waiting(store: Store, of: Any = parent, argument: Any = 3) -> tuple[int, list[int]]:
    """A parent that waits, and its children in order, none of which has begun; what the table says of it."""
    run_id = await begun(store, of, argument)
    await drained(store, of)
    row = await row_of(store, run_id)
    assert (row["status"], bool(row["ready"]), row["owner"], row["run_at"]) == ("PAUSED", False, None, None)
    children = await children_of(store, run_id)
    assert row["waiting"] == len(children)
    return run_id, children


async def children_of(store: Store, run_id: int) -> list[int]:
    """The children of a run, in the order in which they were asked for."""
    return sorted(run.id for run in await store.runs(limit=1000) if run.parent_id == run_id)


async def claimed(store: Store, workflow: str = "child", limit: int = 1) -> list[Claimed]:
    """Runs taken by a session of their own."""
    tasks = await claim(store, await begin(store), workflow, limit)
    assert len(tasks) == limit
    return tasks


async def is_ready(store: Store, run_id: int) -> bool:
    """Whether the table says that a run may be claimed now; its status has to agree."""
    row = await row_of(store, run_id)
    assert not row["ready"] or row["status"] == "PENDING"
    return bool(row["ready"])


def settled(store: Store, task: Claimed, how: Settlement = DONE) -> Awaitable[str]:
    """Close the turn of a run, also if it is a child."""
    return asyncio.create_task(store.database.tasks.settle(task.id, task.owner, task.turn, how, parent=task.parent_id))


def suspension(needed: int) -> Settlement:
    """How a parent suspends itself that needs so many ends more than it had seen."""
    return Settlement(RunStatus.PAUSED, attempt_back=True, needed=needed)


async def looked_again(store: Store, run_id: int) -> Claimed:
    """A turn of a parent that waits, taken by hand; it has looked, and not suspended itself yet."""
    await do(store, f"update {{task}} set ready = true, status = 'PENDING', run_at = 1 where id = {run_id}")
    [turn] = await claimed(store, "parent_of_many")
    assert turn.id == run_id
    return turn
