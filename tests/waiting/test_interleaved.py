"""Ends of children and what their parents do, each meeting what the other has done and not committed yet."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import asyncpg
import pytest

from stepwell import Store, Worker
from stepwell.store.driver import Call
from tests.ground.waiting import until
from tests.store.seam import do, row_of, waiting_for_locks, watched
from tests.waiting.family import claimed, is_ready, looked_again, parent, parent_of_many, settled, suspension, waiting
from tests.workflows.kit import task_of

ENDS = (
    "update stepwell.task set status = 'SUCCESS', output = '0', owner = null, finished_at = 1 where id = {child}",
    "update stepwell.task set waiting = waiting - 1 where id = {parent}",
)
SUSPENDS = ("update stepwell.task set status = 'PAUSED', owner = null, waiting = waiting + 1 where id = {parent}",)


@contextlib.asynccontextmanager
async def uncommitted(url: str, acts: Sequence[str], **ids: int) -> AsyncIterator[None]:
    """Do this in a transaction that stays open meanwhile, and then commit it."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            for act in acts:
                await connection.execute(act.format(**ids))
            yield
    finally:
        await connection.close()


INTERLEAVED = pytest.mark.backends("postgres", reason="an embedded store writes one transaction at a time")


@INTERLEAVED
@pytest.mark.proves("protocol-05", "R-21", "S-15")
async def test_a_child_that_ends_behind_an_uncommitted_suspension_wakes_its_parent(
    store: Store, store_url: str, backend: str
) -> None:
    run_id, _ = await waiting(store, parent_of_many, 1)
    await looked_again(store, run_id)
    await do(store, f"update {{task}} set waiting = 0 where id = {run_id}")
    [task] = await claimed(store)
    async with uncommitted(store_url, SUSPENDS, parent=run_id):
        ending = settled(store, task)
        await until(lambda: waiting_for_locks(store), message="the end of the child to wait for its parent")
    assert await ending == "SUCCESS"
    assert await is_ready(store, run_id)


@INTERLEAVED
@pytest.mark.proves("protocol-05", "R-21", "S-15")
async def test_a_suspension_behind_an_uncommitted_end_stays_ready(store: Store, store_url: str, backend: str) -> None:
    run_id, _ = await waiting(store, parent_of_many, 1)
    turn = await looked_again(store, run_id)
    [task] = await claimed(store)
    async with uncommitted(store_url, ENDS, parent=run_id, child=task.id):
        suspending = settled(store, turn, suspension(0))
        await until(lambda: waiting_for_locks(store), message="the suspension to wait for the end of the child")
    assert await suspending == "PENDING"
    assert await is_ready(store, run_id)


@INTERLEAVED
@pytest.mark.proves("protocol-05", "R-21", "S-15")
async def test_a_look_behind_an_uncommitted_end_sees_it(store: Store, store_url: str, backend: str) -> None:
    run_id, _ = await waiting(store, parent, 3)
    [task] = await claimed(store)
    await do(store, f"update {{task}} set ready = true, status = 'PENDING', run_at = 1 where id = {run_id}")
    connection = await asyncpg.connect(store_url)
    over, driver = watched(store)
    locked = asyncio.Event()

    async def end(calls: Sequence[Call]) -> None:
        """As soon as the parent is claimed, its child ends, in a transaction that stays open."""
        if any(call.statement == "claim" for call in calls) and not locked.is_set():
            if await connection.fetchval(f"select owner from stepwell.task where id = {run_id}") is None:
                return
            await connection.execute("begin")
            for act in ENDS:
                await connection.execute(act.format(parent=run_id, child=task.id))
            locked.set()

    driver.after = end
    async with Worker(over, [parent]):
        await until(lambda: waiting_for_locks(store), message="the look to wait for the end of the child")
        await connection.execute("commit")
        assert await over.result(run_id, timeout=10) == 0
    assert (await task_of(store, run_id)).turn == 2
    await connection.close()


@INTERLEAVED
@pytest.mark.proves("protocol-15", "R-21")
async def test_a_cancel_of_the_parent_while_its_child_ends_locks_crosswise_and_both_are_done(
    store: Store, store_url: str, backend: str
) -> None:
    """The cancel has the parent and wants its child, the end has the child and wants its parent."""
    run_id, _ = await waiting(store, parent, 3)
    [task] = await claimed(store)
    connection = await asyncpg.connect(store_url)
    await connection.execute("begin")
    await connection.execute(f"select 1 from stepwell.task where id = {run_id} for update")
    ending = settled(store, task)
    await until(lambda: waiting_for_locks(store), message="the end of the child to wait for its parent")
    with contextlib.suppress(asyncpg.DeadlockDetectedError):  # either may be the victim
        await connection.execute(f"update stepwell.task set updated_at = 2 where id = {task.id}")
    await connection.execute("rollback")
    assert await ending == "SUCCESS"
    await connection.close()
    assert await is_ready(store, run_id)
    assert (await row_of(store, run_id))["waiting"] == 0
