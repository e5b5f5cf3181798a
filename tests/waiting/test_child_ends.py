"""However a child ends, the transaction that ends it makes the parent that waits for it ready.

Nobody polls and nobody is notified here: no worker runs when a child ends, and what is proved is read from the table.
"""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from stepwell import RunStatus, Store, connect
from stepwell.base.clock import TestClock
from stepwell.store.rows import Settlement
from stepwell.work.outcome import Restarted, settlement_of
from tests.store.seam import AGAIN, DONE, FAILED, RELEASED, ask, do, row_of
from tests.waiting.family import child as child_workflow
from tests.waiting.family import (
    claimed,
    is_ready,
    mourned,
    mourner,
    parent,
    parent_of_mourned,
    waiting,
)
from tests.workflows.kit import die, drained

SUSPENDED = Settlement(RunStatus.PAUSED, attempt_back=True, wakes=0)
STOPPED = Settlement(RunStatus.CANCELLED)


@pytest.fixture
async def quiet(store_url: str, clock: TestClock, backend: str) -> AsyncIterator[Store]:
    """A store that neither listens nor notifies."""
    async with connect(store_url, clock=clock, listen=False) as opened:
        yield opened


async def _settled(store: Store, how: Settlement) -> None:
    [task] = await claimed(store)
    await store.database.tasks.settle(task.id, task.owner, task.turn, how, parent=task.parent_id)


async def _cancelled_then(store: Store, child: int, how: Settlement) -> None:
    """Asked to cancel while it runs; its worker has not heard of it and closes its turn in another way."""
    [task] = await claimed(store)
    assert await store.cancel(child)
    assert await store.database.tasks.settle(task.id, task.owner, task.turn, how, parent=task.parent_id) == "CANCELLED"


async def _lost(store: Store) -> None:
    await claimed(store)
    await die(store.database)


async def _lost_after_cancel(store: Store, child: int) -> None:
    await claimed(store)
    await store.cancel(child)
    await die(store.database)


async def _stranded(store: Store) -> None:
    [task] = await claimed(store)
    await do(store, f"delete from {{fence}} where worker_id = {task.owner}")
    assert await store.database.sessions.return_stranded()


async def _archived(store: Store) -> None:
    [message] = await store.dequeue("child")
    assert await message.archive()


async def _deleted_by_hand(store: Store) -> None:
    [message] = await store.dequeue("child")
    assert await message.delete()


async def _kept_too_long(store: Store, clock: TestClock) -> None:
    assert await store.dequeue("child", visibility="30s")
    clock.advance("31s")
    await store.database.tasks.wake_due()


async def _released_after_cancel(store: Store, child: int) -> None:
    [message] = await store.dequeue("child")
    await do(store, f"update {{task}} set cancel_requested_at = 1 where id = {child}")
    assert await message.release()


End = Callable[[Store, int, TestClock], Awaitable[object]]
ENDS: dict[str, End] = {
    "success": lambda store, _, __: drained(store, child_workflow),
    "settled as done": lambda store, _, __: _settled(store, DONE),
    "settled as failed": lambda store, _, __: _settled(store, FAILED),
    "cancelled idle": lambda store, child, _: store.cancel(child),
    "cancelled in bulk": lambda store, _, __: store.cancel_runs(workflow="child"),
    "cancelled running": lambda store, child, _: _cancelled_then(store, child, STOPPED),
    "cancelled, then done": lambda store, child, _: _cancelled_then(store, child, DONE),
    "cancelled, then failed": lambda store, child, _: _cancelled_then(store, child, AGAIN),
    "cancelled, then released": lambda store, child, _: _cancelled_then(store, child, RELEASED),
    "cancelled, then suspended": lambda store, child, _: _cancelled_then(store, child, SUSPENDED),
    "worker lost on the last attempt": lambda store, _, __: _lost(store),
    "worker lost after a cancel": lambda store, child, _: _lost_after_cancel(store, child),
    "stranded on the last attempt": lambda store, _, __: _stranded(store),
    "purged": lambda store, _, __: store.purge("child"),
    "deleted": lambda store, child, _: store.delete(child),
    "deleted in bulk": lambda store, _, __: store.delete_runs(workflow="child"),
    "archived by hand": lambda store, _, __: _archived(store),
    "deleted by hand": lambda store, _, __: _deleted_by_hand(store),
    "kept too long by hand": lambda store, _, clock: _kept_too_long(store, clock),
    "cancelled, then released by hand": lambda store, child, _: _released_after_cancel(store, child),
}


@pytest.mark.proves("R-21", "S-15")
async def test_every_end_of_a_child_makes_its_parent_ready(quiet: Store, clock: TestClock, backend: str) -> None:
    asleep: list[str] = []
    for name, end in ENDS.items():
        run_id, [child] = await waiting(quiet)
        await end(quiet, child, clock)
        if not await is_ready(quiet, run_id) or not await _in_one_transaction(quiet, backend, run_id, child):
            asleep.append(name)
        await quiet.purge("parent")
        await quiet.purge("child")
    assert asleep == []


async def _in_one_transaction(store: Store, backend: str, run_id: int, child: int) -> bool:
    """Whether one transaction wrote both rows last; only Postgres tells, and a row that is gone tells nothing."""
    if backend != "postgres":
        return True
    rows = await ask(store, f"select cast(xmin as text) as wrote from {{task}} where id in ({run_id}, {child})")
    return len({row["wrote"] for row in rows}) == 1


@pytest.mark.proves("R-21", "S-15")
async def test_a_child_whose_failure_is_told_to_another_workflow_makes_its_parent_ready(quiet: Store) -> None:
    run_id, [_] = await waiting(quiet, parent_of_mourned)
    await drained(quiet, mourned)
    assert await is_ready(quiet, run_id)
    await drained(quiet, parent_of_mourned, mourner)
    run = await quiet.get_run(run_id)
    assert (run.status, run.error["type"]) == ("ERROR", "ExecutionFailed")  # type: ignore[index]


@pytest.mark.proves("R-21", "S-15")
async def test_a_child_that_restarts_has_not_ended_for_its_parent(quiet: Store) -> None:
    run_id, [_] = await waiting(quiet)
    [task] = await claimed(quiet)
    before = await row_of(quiet, run_id)
    await quiet.database.tasks.settle(task.id, task.owner, task.turn, settlement_of(Restarted("2")), parent=run_id)
    assert await row_of(quiet, run_id) == before


@pytest.mark.proves("R-21", "S-15")
async def test_a_child_that_has_not_ended_leaves_its_parent_alone(quiet: Store) -> None:
    for how in (AGAIN, RELEASED, SUSPENDED):
        run_id, [_] = await waiting(quiet)
        before = await row_of(quiet, run_id)
        await _settled(quiet, how)
        assert await row_of(quiet, run_id) == before
        await quiet.purge("child")


@pytest.mark.proves("R-21", "S-16")
async def test_what_the_parent_is_told_of_it_is_recorded(quiet: Store, clock: TestClock) -> None:
    told = {
        "cancelled idle": "RunCancelled",
        "purged": "RunNotFound",
        "deleted": "RunCancelled",
        "kept too long by hand": "ExecutionFailed",
        "worker lost on the last attempt": "ExecutionFailed",
    }
    for end, error in told.items():
        run_id, [child] = await waiting(quiet)
        await ENDS[end](quiet, child, clock)
        await drained(quiet, parent)
        run = await quiet.get_run(run_id)
        [step] = await quiet.steps(run_id)
        assert (run.status, run.error["type"], step.status) == ("ERROR", error, "ERROR")  # type: ignore[index]
        assert step.error["run_id"] == child  # type: ignore[index]


@pytest.mark.proves("L-13", "L-14")
async def test_a_run_that_was_asked_to_cancel_while_it_paused_itself_is_cancelled(quiet: Store) -> None:
    run_id, [child] = await waiting(quiet)
    [task] = await claimed(quiet)
    await quiet.cancel(child)
    assert await quiet.database.tasks.settle(task.id, task.owner, task.turn, SUSPENDED, parent=run_id) == "CANCELLED"
    row = await row_of(quiet, child)
    assert (row["status"], row["run_at"]) == ("CANCELLED", task.run_at)
