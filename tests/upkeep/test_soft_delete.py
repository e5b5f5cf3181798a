"""Deleting a task so that it can be restored: what it keeps, what it gives up, and what becomes of it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from stepwell import InvalidName, InvalidOption, KeyTaken, PermanentError, Store, Worker, connect, handler
from stepwell.base.clock import TestClock
from stepwell.store.rows import SeenWorker
from tests.queue.raw import ask
from tests.store.seam import begin, one, row_of
from tests.upkeep.rows import finished, put


@pytest.mark.proves("SD-01")
async def test_a_deleted_task_keeps_its_status_and_says_when_and_why(store: Store, clock: TestClock) -> None:
    unfinished = {1: "PENDING", 2: "RUNNING", 3: "PAUSED"}
    ended = {4: "SUCCESS", 5: "ERROR", 6: "CANCELLED"}
    for number, status in unfinished.items():
        await put(store, [number], status=status)
    for number, status in ended.items():
        await finished(store, [number], days_ago=1, status=status)
    clock.advance("1h")
    for number, status in {**unfinished, **ended}.items():
        assert await store.delete(number, f"asked for by customer {number}") is True
        task = await store.get(number, deleted=True)
        assert task is not None
        assert (task.status, task.delete_reason) == (status, f"asked for by customer {number}")
        assert task.deleted_at == datetime(2026, 1, 1, 1, tzinfo=UTC)
        assert await store.delete(number, "again") is False
        assert await store.restore(number) is True
        restored = await store.get(number)
        assert restored is not None
        assert (restored.status, restored.deleted_at, restored.delete_reason) == (status, None, None)
        assert await store.restore(number) is False


async def test_what_is_not_there_is_neither_deleted_nor_restored(
    store: Store, store_url: str, clock: TestClock
) -> None:
    assert await store.delete(404) is False
    assert await store.restore(404) is False
    await put(store, [1])
    async with connect(store_url, clock=clock, tenant="ann") as other:
        assert await other.delete(1) is False
        await store.delete(1)
        assert await other.restore(1) is False
        assert await other.get(1, deleted=True) is None
    for wrong in ("1", None, 1.5, True):
        with pytest.raises(InvalidOption):
            await store.delete(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidName):
        await store.delete(1, "a\0b")


@pytest.mark.proves("SD-02")
async def test_a_deleted_task_is_never_claimed_again(store: Store, clock: TestClock) -> None:
    seen: list[str] = []

    @handler("mail")
    async def send(payload: str) -> None:
        seen.append(payload)

    ready = await store.enqueue(send, "ready")
    due = await store.enqueue(send, "due", delay="1h")
    session = await begin(store)
    lost = await one(store, session, "mail", priority=9)
    for task in (ready, due, lost.id):
        assert await store.delete(task)
    # Its worker dies: the lease is over, the task comes back, and stays where it is.
    [living] = await store.database.sessions.living()
    assert await store.database.sessions.bury(SeenWorker(session, living.beat_at)) is not None
    clock.advance("2h")
    assert await Worker(store, [send]).drain() == 0
    assert await store.dequeue("mail", 10) == []
    assert seen == []
    row = await row_of(store, lost.id)
    assert (row["status"], bool(row["ready"]), row["owner"]) == ("PENDING", False, None)
    for task in (ready, due, lost.id):
        assert await store.restore(task)
    await Worker(store, [send]).drain()
    assert sorted(seen) == ["due", "ready", "work"]


@pytest.mark.proves("SD-03")
async def test_a_task_deleted_while_it_is_executed_may_finish(store: Store, clock: TestClock) -> None:
    @handler("mail", retry=3)
    async def send(payload: str) -> None:
        assert await store.delete(ids[payload])
        if payload == "bad":
            raise ValueError("no")

    ids: dict[str, int] = {name: await store.enqueue(send, name) for name in ("good", "bad")}
    assert await Worker(store, [send]).drain() == 2
    good, bad = [await store.get(ids[name], deleted=True) for name in ("good", "bad")]
    assert good is not None
    assert (good.status, good.attempt) == ("SUCCESS", 1)
    assert good.finished_at is not None
    assert bad is not None
    assert (bad.status, bad.attempt, bad.last_error) == ("PENDING", 1, "ValueError: no")
    clock.advance("1h")
    assert await Worker(store, [send]).drain() == 0


@pytest.mark.proves("SD-04")
async def test_what_lists_tasks_leaves_deleted_ones_out(store: Store) -> None:
    await put(store, [1, 2], ready=True)
    await finished(store, [3, 4], days_ago=1, status="ERROR")
    await store.delete(1)
    await store.delete(3)
    assert await store.get(1) is None
    assert (await store.get(1, deleted=True)) is not None
    assert (await store.get(2)) is not None
    assert await store.counts("q") == {"PENDING": 1, "ERROR": 1}
    assert [letter.id for letter in await store.dead_letters()] == [4]
    assert await ask(store, "select ready, dead from {queue_counts}") == [(1, 1)]
    assert await ask(store, "select state from {messages} where id = 1") == [("deleted",)]
    # Somebody put it aside: what is done with all dead letters is not done with it.
    assert await store.requeue(3) == await store.drop(3) == 0
    assert await store.drop(queue="q") == 1
    assert await store.restore(3)
    assert await store.requeue(3) == 1


@pytest.mark.proves("SD-05")
async def test_the_key_of_a_deleted_task_is_free_and_restoring_it_says_who_has_it(store: Store) -> None:
    await store.create_queue("mail")
    first = await store.enqueue("mail", "a", key="k")
    await store.delete(first)
    second = await store.enqueue("mail", "b", key="k")
    assert second.created
    with pytest.raises(KeyTaken, match=f"task {first} stays deleted.*belongs to task {second} now") as taken:
        await store.restore(first)
    told = taken.value
    assert (told.task_id, told.queue, told.key, told.existing) == (first, "mail", "k", second)
    assert await store.get(first) is None
    await store.delete(second)
    assert await store.restore(first) is True
    again = await store.enqueue("mail", "a", key="k")
    assert (again, again.created) == (first, False)


async def test_a_key_that_is_only_for_the_unfinished_is_no_obstacle_to_what_is_finished(store: Store) -> None:
    @handler("mail")
    async def send(payload: str) -> None: ...

    first = await store.enqueue(send, "a", key="k", unique="unfinished")
    await Worker(store, [send]).drain()
    await store.delete(first)
    second = await store.enqueue(send, "b", key="k", unique="unfinished")
    assert second.created
    assert await store.restore(first) is True


async def test_a_restored_task_is_ready_when_it_is_due_and_not_before(store: Store, clock: TestClock) -> None:
    @handler("mail")
    async def send(payload: str) -> None: ...

    now, later = await store.enqueue(send, "now"), await store.enqueue(send, "later", delay="1h")
    for task in (now, later):
        await store.delete(task)
        await store.restore(task)
    tasks = [await store.get(task) for task in (now, later)]
    assert [task.ready for task in tasks if task is not None] == [True, False]
    assert await Worker(store, [send]).drain() == 1
    clock.advance("2h")
    assert await Worker(store, [send]).drain() == 1


async def test_what_was_taken_by_hand_is_not_brought_back_by_the_sweep_once_deleted(
    store: Store, clock: TestClock
) -> None:
    await store.create_queue("photos")
    closed, left_open = [await store.enqueue("photos", name) for name in ("closed", "left open")]
    messages: list[Any] = await store.dequeue("photos", 2, visibility="30s")
    for task in (closed, left_open):
        assert await store.delete(task)
    clock.advance("1h")
    assert await store.dequeue("photos", 2) == []
    assert await messages[0].archive() is True
    archived = await store.get(closed, deleted=True)
    assert archived is not None
    assert archived.status == "SUCCESS"
    assert await store.restore(left_open)
    [again] = await store.dequeue("photos", 2)
    assert (again.id, again.attempt) == (left_open, 2)


async def test_a_dead_letter_that_is_deleted_is_kept_no_longer_than_other_deleted_tasks(
    store: Store, clock: TestClock
) -> None:
    @handler("mail")
    async def fail(payload: str) -> None:
        raise PermanentError("no")

    kept, deleted = [await store.enqueue(fail, "x") for _ in range(2)]
    await Worker(store, [fail]).drain()
    await store.delete(deleted)
    clock.advance("8d")
    await store.database.retention.round()
    assert await store.get(kept) is not None
    assert await store.get(deleted, deleted=True) is None
