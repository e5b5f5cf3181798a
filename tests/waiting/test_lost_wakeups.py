"""No end of a child is missed: not between the look and the suspension of its parent, and not in a flush with it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from stepwell import LeaseLost, RunStatus, Store, StoreUnavailable, Worker
from stepwell.store.driver import Call
from stepwell.store.rows import Claimed, StepRow
from stepwell.store.wait_query import AddChildren
from tests.ground.waiting import until
from tests.store.seam import DONE, RELEASED, Gate, claim, do, once, row_of, watched
from tests.waiting.family import (
    IGNORE,
    child,
    children_of,
    claimed,
    is_ready,
    looked_again,
    parent,
    parent_of_many,
    settled,
    suspension,
    waiting,
)
from tests.workflows.kit import begun, drained, statuses, task_of

LOST = StoreUnavailable("reset after the work was done")


# A child ends between the look and the suspension


@pytest.mark.proves("protocol-05", "R-21", "S-15")
async def test_an_end_between_the_look_and_the_suspension_is_seen_by_the_suspension(store: Store) -> None:
    run_id, _ = await waiting(store, parent_of_many, 3)
    turn = await looked_again(store, run_id)
    seen = (await row_of(store, run_id))["waiting"]
    for task in await claimed(store, limit=3):
        await settled(store, task)
        assert not (await row_of(store, run_id))["ready"]
    assert await settled(store, turn, suspension(3 - seen)) == "PENDING"
    assert await is_ready(store, run_id)


@pytest.mark.proves("protocol-05", "R-21", "S-15")
async def test_an_end_after_the_suspension_wakes_it_when_it_is_the_last(store: Store) -> None:
    run_id, _ = await waiting(store, parent_of_many, 3)
    turn = await looked_again(store, run_id)
    seen = (await row_of(store, run_id))["waiting"]
    first, *others = await claimed(store, limit=3)
    await settled(store, first)
    assert await settled(store, turn, suspension(3 - seen)) == "PAUSED"
    assert (await row_of(store, run_id))["waiting"] == 2
    for task in others:
        assert not await is_ready(store, run_id)
        await settled(store, task)
    assert await is_ready(store, run_id)


@pytest.mark.proves("protocol-05", "R-21")
@pytest.mark.parametrize("first", ["child", "parent"])
async def test_a_child_that_ends_while_its_parent_suspends_itself(store: Store, first: str) -> None:
    (left, of_parent), (right, of_child) = watched(store), watched(store)
    run_id = await begun(store, parent, 3)
    gate = Gate()

    async def hold(calls: Sequence[Call]) -> None:
        if any(call.statement == "settle" for call in calls):
            await gate([])

    (of_parent if first == "child" else of_child).before = hold
    async with Worker(left, [parent]), Worker(right, [child]):
        await until(lambda: gate.arrived)
        [child_id] = await children_of(store, run_id)
        if first == "child":
            await until(lambda: _has(store, child_id, "SUCCESS"))
        else:
            await until(lambda: _has(store, run_id, "PAUSED"))
        gate.open()
        assert await left.result(run_id, timeout=10) == 6
    assert (await task_of(store, run_id)).turn == 2


# In one flush


@pytest.mark.proves("protocol-04", "R-21")
@pytest.mark.parametrize("order", ["parent first", "child first"])
async def test_a_parent_and_its_child_are_never_changed_by_one_flush(store: Store, order: str) -> None:
    over, driver = watched(store)
    run_id, _ = await waiting(over, parent_of_many, 2)
    turn = await looked_again(over, run_id)
    seen = (await row_of(over, run_id))["waiting"]
    one, other = await claimed(over, limit=2)
    acts = [(turn, suspension(2 - seen)), (one, DONE), (other, DONE)]
    driver.forget()
    await asyncio.gather(*(settled(over, *act) for act in (acts if order == "parent first" else acts[::-1])))
    flushed = [set(ids) for ids in driver.ids("settle") if ids]
    assert len(flushed) > 1
    assert all(run_id not in ids or not ids & {one.id, other.id} for ids in flushed)
    assert await is_ready(over, run_id)


@pytest.mark.proves("protocol-04", "R-21")
async def test_children_that_end_in_one_flush_are_all_counted(store: Store) -> None:
    over, driver = watched(store)
    run_id, _ = await waiting(over, parent_of_many, 40)
    tasks = await claimed(over, limit=40)
    driver.forget()
    await asyncio.gather(*(settled(over, task) for task in tasks))
    assert max(len(ids) for ids in driver.ids("settle")) > 5, "they were not in one flush: void"
    row = await row_of(over, run_id)
    assert (row["waiting"], bool(row["ready"])) == (0, True)


@pytest.mark.proves("protocol-04", "R-21")
async def test_children_that_end_in_several_ways_in_one_flush_are_all_counted(store: Store) -> None:
    """One settled, one archived and one removed by hand: three parts of a statement, which may change a row once."""
    over, driver = watched(store)
    run_id, _ = await waiting(over, parent_of_many, 9)
    tasks = await claimed(over, limit=3)
    archived = await over.dequeue("child", limit=3)
    removed = await over.dequeue("child", limit=3)
    assert (len(archived), len(removed)) == (3, 3)
    driver.forget()
    acts: list[Any] = [settled(over, task) for task in tasks]
    await asyncio.gather(*acts, *(one.archive() for one in archived), *(one.delete() for one in removed))
    row = await row_of(over, run_id)
    assert (row["waiting"], bool(row["ready"])) == (0, True)


@pytest.mark.proves("protocol-05", "R-21")
async def test_two_that_are_waited_for_crosswise_end_at_once(store: Store, backend: str) -> None:
    """Lane by lane: one flush has a parent's suspension and a child of the other, the next one the reverse."""
    first, _ = await waiting(store, parent_of_many, 1)
    second, _ = await waiting(store, parent_of_many, 1)
    turns = [await looked_again(store, run_id) for run_id in (first, second)]
    children = {task.parent_id: task for task in await claimed(store, limit=2)}
    await asyncio.gather(
        *(settled(store, turn, suspension(0)) for turn in turns), *(settled(store, one) for one in children.values())
    )
    assert await is_ready(store, first)
    assert await is_ready(store, second)


@pytest.mark.proves("protocol-15", "R-21")
@pytest.mark.backends("postgres", reason="an embedded store writes one transaction at a time")
async def test_flushes_that_lock_crosswise_are_repeated_and_nobody_is_counted_twice(store: Store, backend: str) -> None:
    first, _ = await waiting(store, parent_of_many, 2)
    second, _ = await waiting(store, parent_of_many, 2)
    tasks = {task.parent_id: task for task in await claimed(store, limit=4)}
    left, right = watched(store)[0], watched(store)[0]
    turns = {run_id: await looked_again(store, run_id) for run_id in (first, second)}

    def both(over: Store, parent_id: int, child_of: int) -> list[Awaitable[str]]:
        return [settled(over, turns[parent_id], suspension(0)), settled(over, tasks[child_of])]

    await asyncio.gather(*both(left, first, second), *both(right, second, first))
    for run_id in (first, second):
        row = await row_of(store, run_id)
        assert (row["waiting"], row["status"]) == (1, "PAUSED")


# Lost replies and crashes


@pytest.mark.proves("rule-04", "R-21")
@pytest.mark.parametrize("lost", ["adding", "looking"])
async def test_a_question_whose_reply_is_lost_is_answered_once(store: Store, lost: str) -> None:
    over, driver = watched(store)
    run_id = await begun(over, parent_of_many, 5)
    if lost == "looking":
        await drained(over, parent_of_many)
        await drained(over, child)
    hit = 0

    async def lose(calls: Sequence[Call]) -> None:
        nonlocal hit
        asked = {"add_tasks_once"} if lost == "adding" else {"ends_of"}
        if not calls and hit == 0 and asked.intersection(driver.script):
            hit += 1
            raise LOST

    driver.forget()
    driver.after = lose
    await drained(over, parent_of_many)
    assert hit == 1, "no reply was lost: void"
    assert len(await children_of(store, run_id)) == 5
    await drained(over, parent_of_many, child)
    assert (await over.get_run(run_id)).output() == 20


@pytest.mark.proves("rule-04", "R-21")
async def test_a_settlement_of_a_child_whose_reply_is_lost_counts_it_once(store: Store) -> None:
    over, driver = watched(store)
    run_id, _ = await waiting(over, parent_of_many, 3)
    [task] = await claimed(over)
    driver.after = once(LOST)
    assert await settled(over, task) == "SUCCESS"
    assert (await row_of(over, run_id))["waiting"] == 2


@pytest.mark.proves("promise-05", "R-21")
async def test_a_parent_that_dies_before_it_suspends_itself_looks_again(store: Store) -> None:
    run_id, _ = await waiting(store, parent_of_many, 3)
    turn = await looked_again(store, run_id)
    tasks = await claimed(store, limit=3)
    for task in tasks[:2]:
        await settled(store, task)
    await do(store, f"delete from {{fence}} where worker_id = {turn.owner}")
    assert await store.database.sessions.return_stranded()
    assert await drained(store, parent_of_many) == 1
    assert (await row_of(store, run_id))["waiting"] == 1
    await settled(store, tasks[2])
    assert await is_ready(store, run_id)
    await drained(store, parent_of_many)
    assert (await task_of(store, run_id)).status == "SUCCESS"


@pytest.mark.proves("protocol-05", "R-21")
async def test_a_parent_that_was_claimed_for_another_reason_waits_for_what_is_left(store: Store) -> None:
    run_id, _ = await waiting(store, parent_of_many, 3)
    tasks = await claimed(store, limit=3)
    await settled(store, tasks[0])
    assert await store.pause(run_id)
    await settled(store, tasks[1])
    assert not (await row_of(store, run_id))["ready"]
    assert await store.unpause(run_id)
    assert await drained(store, parent_of_many) == 1
    row = await row_of(store, run_id)
    assert (row["status"], row["waiting"]) == ("PAUSED", 1)
    await settled(store, tasks[2])
    assert await is_ready(store, run_id)


@pytest.mark.proves("protocol-05", "R-21")
async def test_a_parent_that_is_held_back_or_deleted_is_not_ready_and_goes_on_after(store: Store) -> None:
    held, _ = await waiting(store, parent, 1)
    deleted, _ = await waiting(store, parent, 2)
    assert await store.pause(held)
    assert await store.delete(deleted)
    await drained(store, child)
    for run_id in (held, deleted):
        assert not (await row_of(store, run_id))["ready"]
    assert await store.unpause(held)
    assert await store.restore(deleted)
    await drained(store, parent)
    assert [(await store.get_run(run_id)).output() for run_id in (held, deleted)] == [2, 4]


# Who may ask


async def _cancelled(store: Store, turn: Claimed) -> None:
    await store.cancel(turn.id)


async def _taken_away(store: Store, turn: Claimed) -> None:
    await store.database.tasks.settle(turn.id, turn.owner, turn.turn, RELEASED)
    assert await claim(store, turn.owner, "parent_of_many")


async def _cut_off(store: Store, turn: Claimed) -> None:
    """Dead, and still standing in the row: its fence alone is down."""
    await do(store, f"delete from {{fence}} where worker_id = {turn.owner}")


@pytest.mark.proves("promise-04", "L-15", "R-21")
@pytest.mark.parametrize("what", [_cancelled, _taken_away, _cut_off])
async def test_a_turn_that_may_not_write_any_more_asks_for_no_children(
    store: Store, what: Callable[[Store, Claimed], Awaitable[None]]
) -> None:
    run_id = await begun(store, parent_of_many, 2)
    [turn] = await claimed(store, "parent_of_many")
    new = await store.database.new_tasks.draft_children([child.trigger(1).options(**IGNORE)], run_id, None)
    row = StepRow(run_id, 0, "child()#1", 1, RunStatus.SUCCESS)
    asking = AddChildren(turn, row, new.drafted, new.ids, new.queues, lambda _: row)
    await what(store, turn)
    with pytest.raises(LeaseLost):
        await store.database.run_waits.ask(asking)
    assert await children_of(store, run_id) == []
    assert await statuses(store, run_id) == {}


async def _has(store: Store, run_id: int, status: str) -> bool:
    return (await task_of(store, run_id)).status == status
