"""A failed run stays failed until somebody asks; then it is the same run, and what succeeded stays done."""

import pytest

from stepwell import Store, sync
from stepwell.base.clock import TestClock
from stepwell.runs.journal import Due, GaveUp, Journal, Replay
from tests.runs.kit import FAILED, Order, failed_at, fulfil, record, recorded, settle, tick
from tests.store.seam import begin, claim, count, row_of
from tests.upkeep.rows import count as rows_in

DONE, GONE, CAUGHT = ("fetch#1", "SUCCESS"), ("pay#1", "ERROR"), ("ask#1", "ERROR")


@pytest.mark.proves("R-20")
async def test_a_failed_run_is_retried_only_when_asked_and_keeps_its_steps(store: Store, clock: TestClock) -> None:
    run_id = await fulfil.trigger(Order("a")).options(key="k").execute(store)
    await record(store, run_id, DONE, CAUGHT, GONE)
    await settle(store, "fulfil", failed_at("pay#1"))
    clock.advance("30d")
    await store.database.tasks.wake()
    worker = await begin(store)
    assert await claim(store, worker, "fulfil") == []
    assert await store.retry(run_id) is True
    run = await store.get_run(run_id)
    assert (run.status, run.attempt, run.error, run.last_error, run.finished_at) == ("PENDING", 0, None, None, None)
    assert (run.key, run.input(Order)) == ("k", Order("a"))
    assert await recorded(store, run_id) == [("fetch#1", "SUCCESS", 3), ("ask#1", "ERROR", 3), ("pay#1", "PENDING", 0)]
    [task] = await claim(store, worker, "fulfil")
    assert (task.id, task.attempt, task.turn) == (run_id, 1, 2)
    journal = Journal(run_id, await store.database.steps.of(run_id, 0))
    assert [journal.answer(key, "[1]") for key in ("fetch#1", "ask#1")] == [Replay("2"), GaveUp('{"type": "E"}')]
    again = journal.answer("pay#1", "[1]")
    assert isinstance(again, Due)
    assert again.attempt == 1  # with all its attempts


@pytest.mark.proves("R-20")
async def test_requeueing_dead_letters_does_the_same(store: Store) -> None:
    kept = [await fulfil.trigger(Order(name)).execute(store) for name in "abc"]
    for run_id in kept:
        await record(store, run_id, DONE, GONE)
        await settle(store, "fulfil", failed_at("pay#1"))
    await store.create_queue("mail")
    message = await store.enqueue("mail", 1)
    await settle(store, "mail", FAILED)
    assert await store.requeue(kept[0], message) == 2
    assert await recorded(store, kept[0]) == [("fetch#1", "SUCCESS", 3), ("pay#1", "PENDING", 0)]
    assert await recorded(store, kept[1]) == [("fetch#1", "SUCCESS", 3), ("pay#1", "ERROR", 3)]
    assert await store.requeue(queue="fulfil") == 2
    assert await recorded(store, kept[2]) == [("fetch#1", "SUCCESS", 3), ("pay#1", "PENDING", 0)]


@pytest.mark.proves("R-20")
async def test_nothing_else_is_retried(store: Store) -> None:
    pending = await fulfil.trigger(Order("a")).execute(store)
    assert await store.retry(pending) is False
    await settle(store, "fulfil")
    await store.create_queue("mail")
    message = await store.enqueue("mail", 1)
    await settle(store, "mail", FAILED)
    before = [await row_of(store, one) for one in (pending, message)]
    for one in (pending, message, 10**9):
        assert await store.retry(one) is False
    assert [await row_of(store, one) for one in (pending, message)] == before
    deleted = await tick.trigger().execute(store)
    await settle(store, "tick", FAILED)
    await store.delete(deleted)
    assert await store.retry(deleted) is False


async def test_a_run_whose_key_was_taken_meanwhile_stays_failed_and_so_do_its_steps(store: Store) -> None:
    trigger = tick.trigger().options(key="k", unique="unfinished")
    first = await trigger.execute(store)
    await record(store, first, GONE)
    await settle(store, "tick", failed_at("pay#1"))
    await trigger.execute(store)
    assert await store.retry(first) is False
    assert (await store.get_run(first)).status == "ERROR"
    assert await recorded(store, first) == [("pay#1", "ERROR", 3)]


async def test_a_retried_run_is_told_to_workers_at_once(store: Store) -> None:
    run_id = await tick.trigger().execute(store)
    await settle(store, "tick", FAILED)
    hinted: list[set[int]] = []
    store.database.tasks.on_added(hinted.append)
    assert await store.retry(run_id)
    assert {
        await store.database.workflow_id("tick")
    } in hinted  # whoever begins to listen meanwhile hears of every queue


@pytest.mark.proves("R-17")
async def test_whatever_removes_a_run_removes_its_steps(store: Store, clock: TestClock) -> None:
    async def failed(**options: object) -> int:
        run_id = await tick.trigger().execute(store)
        await record(store, run_id, DONE, GONE)
        await settle(store, "tick", failed_at("pay#1"))
        return run_id

    assert await store.drop(await failed()) == 1
    assert await rows_in(store, "step") == 0
    await failed()
    assert await store.purge("tick") == 1
    assert await rows_in(store, "step") == 0
    await failed()
    clock.advance("40d")
    assert await store.prune("30d", dead_letters=True) == 1
    assert await rows_in(store, "step") == 0
    await store.delete(await failed())
    assert await rows_in(store, "step") == 2  # it can be restored, until it is pruned
    clock.advance("40d")
    assert await store.prune("30d") == 1
    assert (await rows_in(store, "step"), await count(store)) == (0, 0)


@pytest.mark.proves("R-20")
def test_a_sync_store_retries_too(store_url: str) -> None:
    with sync.connect(store_url) as store:
        run_id = tick.trigger().execute(store)
        store.wait_for(lambda: settle(store.async_store, "tick", failed_at()))
        assert (store.retry(run_id), store.retry(run_id)) == (True, False)
        assert store.get_run(run_id).status == "PENDING"
