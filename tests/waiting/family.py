"""What the tests of children have in common: parents that wait, and how the table has them and their children."""

from __future__ import annotations

from typing import Any

from stepwell import Context, PermanentError, Store, workflow
from stepwell.records import Claimed
from tests.store.seam import begin, claim, row_of
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
