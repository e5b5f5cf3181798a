"""The fence: a write counts only under a living session and its current turn; the end of a claim clears the owner."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stepwell import Store
from stepwell.base.clock import TestClock
from stepwell.errors import LeaseLost
from stepwell.records import RunStatus
from stepwell.store.recovery import Recovery
from stepwell.store.rows import Claimed, SeenWorker, Settlement
from tests.store.seam import (
    AGAIN,
    DONE,
    FAILED,
    RELEASED,
    Gate,
    ask,
    beat,
    begin,
    claim,
    claim_alone,
    do,
    one,
    row_of,
    watched,
)


async def refused(store: Store, task_id: int, worker: int, turn: int, settlement: Settlement = DONE) -> None:
    """The settle raises, and the row is as it was."""
    before = await row_of(store, task_id)
    with pytest.raises(LeaseLost) as raised:
        await store.database.tasks.settle(task_id, worker, turn, settlement)
    assert (raised.value.worker_id, raised.value.task_id) == (worker, task_id)
    assert await row_of(store, task_id) == before


async def bury(store: Store, worker: int) -> list[Any]:
    [row] = await ask(store, f"select beat_at from {{beat}} where worker_id = {worker}")
    returned = await store.database.sessions.bury(SeenWorker(worker, row["beat_at"]))
    assert returned is not None
    return returned


# What is refused


@pytest.mark.proves("protocol-03", "L-09", "rule-01")
@pytest.mark.parametrize("settlement", [DONE, FAILED, AGAIN, RELEASED], ids=["done", "failed", "again", "released"])
async def test_a_settle_with_another_turn_changes_nothing(store: Store, settlement: Settlement) -> None:
    worker = await begin(store)
    task = await one(store, worker)
    await refused(store, task.id, worker, task.turn - 1, settlement)
    await refused(store, task.id, worker, task.turn + 1, settlement)
    assert await store.database.tasks.settle(task.id, worker, task.turn, settlement) == settlement.status


@pytest.mark.proves("protocol-03", "L-09")
async def test_a_settle_by_another_living_session_changes_nothing(store: Store) -> None:
    worker, other = await begin(store), await begin(store)
    task = await one(store, worker)
    await refused(store, task.id, other, task.turn)


@pytest.mark.proves("protocol-03", "L-09", "promise-04")
async def test_an_overtaken_thread_of_the_same_session_changes_nothing(store: Store) -> None:
    worker = await begin(store)
    first = await one(store, worker)
    await store.database.tasks.settle(first.id, worker, first.turn, RELEASED)
    [second] = await claim(store, worker, "q")
    assert (second.id, second.turn, second.owner) == (first.id, first.turn + 1, first.owner)
    await refused(store, first.id, worker, first.turn)
    assert await store.database.tasks.settle(second.id, worker, second.turn, DONE) == "SUCCESS"
    await refused(store, second.id, worker, second.turn)


@pytest.mark.proves("protocol-03", "L-09", "rule-02")
@pytest.mark.parametrize("how", ["ended", "buried"])
async def test_a_dead_session_writes_and_claims_nothing(store: Store, how: str) -> None:
    worker = await begin(store)
    task = await one(store, worker)
    await (store.database.sessions.end(worker, "stopped") if how == "ended" else bury(store, worker))
    await refused(store, task.id, worker, task.turn)
    assert await claim(store, worker, "q") == []
    assert await beat(store, worker) == set()
    other = await begin(store)
    [again] = await (claim if how == "ended" else claim_alone)(store, other, "q")
    assert (again.id, again.turn) == (task.id, task.turn + 1)
    await refused(store, task.id, worker, task.turn)


@pytest.mark.proves("protocol-03", "rule-02")
async def test_the_fence_alone_stops_a_dead_session_that_still_stands_as_owner(store: Store) -> None:
    worker = await begin(store)
    task = await one(store, worker)
    await do(store, f"delete from {{fence}} where worker_id = {worker}")
    await refused(store, task.id, worker, task.turn)


@pytest.mark.proves("protocol-03", "L-09", "protocol-15")
async def test_refused_settles_do_not_touch_the_others_of_their_flush(store: Store) -> None:
    store, driver = watched(store)
    worker, dead = await begin(store), await begin(store)
    await store.create_queue("q")
    await store.enqueue_many("q", range(30))
    mine = await claim(store, worker, "q", 20)
    theirs = await claim(store, dead, "q", 10)
    await bury(store, dead)
    gate = driver.before = Gate()

    def settle(task: Claimed, turn: int = 0) -> Awaitable[str]:
        return asyncio.create_task(store.database.tasks.settle(task.id, task.owner, task.turn + turn, DONE))

    late = [settle(task) for task in theirs]
    stale = [settle(task, turn=1) for task in mine[:5]]
    good = [settle(task) for task in mine[5:]]
    for _ in range(30):
        await asyncio.sleep(0)
    gate.open()
    answers = await asyncio.gather(*late, *stale, *good, return_exceptions=True)
    assert [type(answer) for answer in answers[:15]] == [LeaseLost] * 15
    assert answers[15:] == ["SUCCESS"] * 15
    sizes = [len(ids) for ids in driver.ids("settle")]
    assert max(sizes) >= 10, "they were not in one flush: void"
    counts = await ask(store, "select status, count(*) as number from {task} group by status")
    assert {row["status"]: row["number"] for row in counts} == {"SUCCESS": 15, "RUNNING": 5, "PENDING": 10}


# Whatever ends a claim clears the owner


async def _by(store: Store, task: Claimed, settlement: Settlement) -> None:
    await store.database.tasks.settle(task.id, task.owner, task.turn, settlement)


async def _cancelled(store: Store, task: Claimed) -> None:
    await do(store, f"update {{task}} set cancel_requested_at = 1 where id = {task.id}")
    await _by(store, task, AGAIN)


async def _deleted(store: Store, task: Claimed) -> None:
    await do(store, f"update {{task}} set deleted_at = 1 where id = {task.id}")
    await _by(store, task, RELEASED)


async def _stranded(store: Store, task: Claimed) -> None:
    await do(store, f"delete from {{fence}} where worker_id = {task.owner}")
    await Recovery(store.database).look()


EXITS: dict[str, Callable[[Store, Claimed], Awaitable[object]]] = {
    "done": lambda store, task: _by(store, task, DONE),
    "failed": lambda store, task: _by(store, task, FAILED),
    "again": lambda store, task: _by(store, task, AGAIN),
    "released": lambda store, task: _by(store, task, RELEASED),
    "cancelled": _cancelled,
    "deleted": _deleted,
    "session ended": lambda store, task: store.database.sessions.end(task.owner, "stopped"),
    "session buried": lambda store, task: bury(store, task.owner),
    "stranded": _stranded,
}


@pytest.mark.proves("L-17", "L-03")
@pytest.mark.parametrize("way", EXITS)
async def test_every_end_of_a_claim_clears_the_owner(store: Store, way: str) -> None:
    worker = await begin(store)
    task = await one(store, worker)
    row = await row_of(store, task.id)
    assert (row["status"], row["owner"]) == ("RUNNING", worker)
    await EXITS[way](store, task)
    row = await row_of(store, task.id)
    assert row["owner"] is None
    assert row["status"] != "RUNNING"
    assert (row["finished_at"] is None) == (row["status"] == "PENDING")


# Attempts


@pytest.mark.proves("rule-06", "Q-08")
async def test_an_attempt_is_counted_when_it_is_claimed(store: Store) -> None:
    worker = await begin(store)
    task = await one(store, worker)
    assert (task.attempt, task.turn) == (1, 1)
    assert (await row_of(store, task.id))["attempt"] == 1
    await store.database.tasks.settle(task.id, worker, task.turn, Settlement(RunStatus.PENDING))
    [again] = await claim(store, worker, "q")
    assert (again.attempt, again.turn) == (2, 2)


@pytest.mark.proves("rule-06")
async def test_a_release_gives_the_attempt_back_and_not_the_turn(store: Store) -> None:
    worker = await begin(store)
    task = await one(store, worker)
    for turn in range(1, 6):
        await store.database.tasks.settle(task.id, worker, turn, RELEASED)
        row = await row_of(store, task.id)
        assert (row["attempt"], row["turn"], bool(row["ready"])) == (0, turn, True)
        [again] = await claim(store, worker, "q")
        assert (again.attempt, again.turn) == (1, turn + 1)


@pytest.mark.proves("rule-06", "Q-15")
async def test_a_task_that_kills_its_workers_ends_in_error_after_its_attempts(store: Store) -> None:
    await store.create_queue("q")
    task_id = await store.enqueue("q", "poison", max_attempts=3)
    for attempt in (1, 2, 3):
        worker = await begin(store)
        [task] = await (claim if attempt == 1 else claim_alone)(store, worker, "q")
        assert task.attempt == attempt
        returned = await bury(store, worker)
        assert [row["id"] for row in returned] == [task_id]
    row = await row_of(store, task_id)
    assert (row["status"], bool(row["ready"]), row["attempt"], bool(row["suspect"])) == ("ERROR", False, 3, True)
    assert row["last_error"] == "worker_lost"
    [letter] = await store.dead_letters(error="WorkerLost")
    assert letter.id == task_id
    assert await claim(store, await begin(store), "q") == await claim_alone(store, await begin(store), "q") == []


@pytest.mark.proves("L-13", "L-14")
@pytest.mark.parametrize("settlement", [DONE, FAILED, AGAIN, RELEASED], ids=["done", "failed", "again", "released"])
async def test_a_task_somebody_asked_to_cancel_ends_cancelled_whatever_came_of_it(
    store: Store, settlement: Settlement
) -> None:
    worker = await begin(store)
    task = await one(store, worker)
    await do(store, f"update {{task}} set cancel_requested_at = 1 where id = {task.id}")
    assert await store.database.tasks.settle(task.id, worker, task.turn, settlement) == "CANCELLED"
    row = await row_of(store, task.id)
    assert (row["status"], bool(row["ready"]), row["finished_at"] is None) == ("CANCELLED", False, False)
    assert await claim(store, worker, "q") == []


@pytest.mark.proves("L-15")
async def test_a_task_somebody_asked_to_cancel_is_not_executed_again_when_its_worker_dies(store: Store) -> None:
    worker = await begin(store)
    task = await one(store, worker)
    await do(store, f"update {{task}} set cancel_requested_at = 1 where id = {task.id}")
    await bury(store, worker)
    assert (await row_of(store, task.id))["status"] == "CANCELLED"
    assert await claim(store, await begin(store), "q") == []


@pytest.mark.proves("protocol-05")
@pytest.mark.parametrize("how", ["released", "later", "buried"])
async def test_a_task_deleted_while_it_runs_can_be_settled_and_is_not_made_ready(
    store: Store, clock: TestClock, how: str
) -> None:
    worker = await begin(store)
    task = await one(store, worker)
    await do(store, f"update {{task}} set deleted_at = 1 where id = {task.id}")
    if how == "buried":
        await bury(store, worker)
    else:
        await store.database.tasks.settle(task.id, worker, task.turn, RELEASED if how == "released" else AGAIN)
    clock.advance("1h")
    await store.database.tasks.wake_due()
    row = await row_of(store, task.id)
    assert (row["owner"], bool(row["ready"])) == (None, False)
    assert await claim(store, await begin(store), "q") == []


@pytest.mark.proves("L-14")
async def test_a_settled_task_is_settled_once(store: Store) -> None:
    worker = await begin(store)
    task = await one(store, worker)
    answers = await asyncio.gather(
        *(store.database.tasks.settle(task.id, worker, task.turn, how) for how in (DONE, FAILED, AGAIN, RELEASED)),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers].count(LeaseLost) == 3
    assert (await row_of(store, task.id))["status"] == "SUCCESS"
