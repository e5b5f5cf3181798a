"""Taking messages by hand: dequeue, archive, delete, extend, release, consume; and looking after queues."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import asyncpg
import pytest

import stepwell
from stepwell import (
    InvalidOption,
    QueueInUse,
    QueueNotFound,
    SerializationError,
    Store,
    TaskInUse,
    Worker,
    connect,
    handler,
    workflow,
)
from stepwell.base.clock import TestClock
from tests.ground.waiting import until
from tests.queue.raw import ask


@dataclass(frozen=True)
class Mail:
    """What is sent."""

    to: str


@pytest.fixture
async def store(store: Store) -> Store:
    await store.create_queue("q")
    return store


@pytest.mark.proves("Q-06", "Q-08")
async def test_what_is_taken_is_hidden_from_others_and_says_how_often_it_was_delivered(store: Store) -> None:
    await store.enqueue_many("q", [{"to": "ada"}, {"to": "bob"}, {"to": "eve"}])
    first, second = await store.dequeue("q", 2, type=Mail)
    assert [first.payload, second.payload] == [Mail("ada"), Mail("bob")]
    assert [message.payload for message in await store.dequeue("q", 10)] == [{"to": "eve"}]
    assert await store.dequeue("q", 10) == []
    assert (first.attempt, first.turn) == (1, 1)
    assert await first.release()
    [again] = await store.dequeue("q", 10)
    assert (again.id, again.attempt, again.turn) == (first.id, 1, 2), "given back: the attempt, not the delivery"


@pytest.mark.proves("Q-06")
async def test_many_takers_at_once_never_share_a_message(store: Store) -> None:
    await store.enqueue_many("q", range(60))
    taken = await asyncio.gather(*(store.dequeue("q", 7) for _ in range(12)))
    ids = [message.id for batch in taken for message in batch]
    assert len(ids) == len(set(ids)) == 60


@pytest.mark.proves("Q-06")
@pytest.mark.backends("postgres", reason="only there can a row be locked by a transaction beside the call")
async def test_what_another_is_taking_is_passed_over_without_waiting(
    store: Store, store_url: str, backend: str
) -> None:
    await store.enqueue_many("q", range(5))
    other = await asyncpg.connect(store_url)
    try:
        async with other.transaction():
            await other.fetch("select id from stepwell.task order by id limit 2 for update")
            assert [message.payload for message in await store.dequeue("q", 5)] == [2, 3, 4]
        assert [message.payload for message in await store.dequeue("q", 5)] == [0, 1]
    finally:
        await other.close()


@pytest.mark.proves("Q-07", "Q-12")
async def test_what_is_not_closed_in_time_comes_back_and_extending_counts_from_now(
    store: Store, clock: TestClock
) -> None:
    await store.enqueue("q", 1)
    [message] = await store.dequeue("q", visibility=30)
    clock.advance(20)
    assert await message.extend(30)
    clock.advance(29)
    assert await store.dequeue("q") == []
    clock.advance(1)
    [again] = await store.dequeue("q")
    assert (again.id, again.attempt) == (message.id, 2)


@pytest.mark.proves("Q-10")
@pytest.mark.parametrize("verb", ["archive", "delete", "extend", "release"])
async def test_a_message_that_is_no_longer_yours_is_left_alone(store: Store, clock: TestClock, verb: str) -> None:
    await store.enqueue("q", 1)
    [lost] = await store.dequeue("q", visibility=30)
    clock.advance(31)
    [held] = await store.dequeue("q", visibility=30)
    before = await ask(store, "select * from {task}")
    answer = await (lost.extend(60) if verb == "extend" else getattr(lost, verb)())
    assert answer is False
    assert await ask(store, "select * from {task}") == before
    assert await held.archive() is True
    assert await held.archive() is False
    assert await held.release() is False


@pytest.mark.proves("Q-09", "Q-11")
async def test_archived_is_kept_and_deleted_is_gone(store: Store) -> None:
    kept, removed = await store.enqueue_many("q", [1, 2])
    for message in await store.dequeue("q", 2):
        assert await (message.archive() if message.id == kept else message.delete())
    task = await store.get(kept)
    assert task is not None
    assert (task.status, task.finished_at is not None) == ("SUCCESS", True)
    assert [each.id for each in await store.messages("q", "finished")] == [kept]
    assert await store.get(removed) is None
    assert await store.dequeue("q", 2) == []


@pytest.mark.proves("Q-13")
async def test_a_released_message_may_be_given_back_for_later(store: Store, clock: TestClock) -> None:
    await store.enqueue("q", 1)
    [message] = await store.dequeue("q")
    assert await message.release(delay=60)
    clock.advance(59)
    assert await store.dequeue("q") == []
    clock.advance(1)
    assert [again.id for again in await store.dequeue("q")] == [message.id]


@pytest.mark.proves("Q-13")
async def test_what_is_not_closed_when_a_consumer_ends_is_given_back_at_once(store: Store) -> None:
    ids = await store.enqueue_many("q", range(4))
    async with store.consume("q", limit=4) as messages:
        first, second, third = [await anext(messages) for _ in range(3)]
        assert await first.archive()
        assert await second.extend(60)
    assert await store.counts("q") == {"PENDING": 3, "SUCCESS": 1}
    assert not await third.archive(), "it is not this consumer's any more"
    again = await store.dequeue("q", 10)
    assert [(message.id, message.attempt) for message in again] == [(one, 1) for one in ids[1:]]


@pytest.mark.proves("Q-13", "Q-07")
async def test_what_a_consumer_that_failed_has_seen_costs_a_delivery(store: Store, clock: TestClock) -> None:
    poison, innocent = await store.enqueue_many("q", range(2), max_attempts=1)
    with pytest.raises(ValueError, match="poison"):
        async with store.consume("q", limit=2, visibility=10) as messages:
            raise ValueError(f"poison {(await anext(messages)).id}")
    assert await store.counts("q") == {"PENDING": 1, "RUNNING": 1}
    clock.advance(11)
    assert [message.id for message in await store.dequeue("q", 10)] == [innocent]
    assert await store.dequeue("q", 10) == []
    assert [letter.id for letter in await store.dead_letters(queue="q")] == [poison]


@pytest.mark.proves("Q-10", "Q-13")
async def test_a_message_is_closed_elsewhere_by_its_id_and_turn(store: Store, clock: TestClock) -> None:
    await store.enqueue_many("q", [{"to": "ada"}, {"to": "bob"}])
    one, other = await store.dequeue("q", 2, visibility=10)
    found = await store.taken(one.id, one.turn, type=Mail)
    assert found is not None
    assert (found, found.payload, found.queue) == (replace(one, _type=Mail), Mail("ada"), "q")
    assert await found.archive()
    assert await store.taken(one.id, one.turn) is None
    clock.advance(11)
    [again] = await store.dequeue("q", 10)
    assert again.id == other.id
    assert await store.taken(other.id, other.turn) is None, "somebody else has it"
    assert not await other.release()
    assert await again.delete()
    assert await store.taken(again.id, again.turn) is None


@pytest.mark.proves("Q-09", "Q-10", "Q-13")
async def test_an_operator_gives_back_or_archives_what_somebody_holds(store: Store, clock: TestClock) -> None:
    ids = await store.enqueue_many("q", range(4))
    first, second, third = await store.dequeue("q", 3)
    assert await store.release(first.id)
    assert await store.release(second.id, delay=60)
    assert await store.archive(third.id)
    assert await store.archive(ids[3]), "one that nobody holds"
    assert [await message.archive() for message in (first, second, third)] == [False] * 3
    assert await store.counts("q") == {"PENDING": 2, "SUCCESS": 2}
    again = await store.dequeue("q", 10)
    assert [(message.id, message.attempt) for message in again] == [(first.id, 1)]
    assert await again[0].archive()
    clock.advance(60)
    assert [message.id for message in await store.dequeue("q", 10)] == [second.id]
    for task_id in (third.id, ids[3], 999_999):
        assert not await store.archive(task_id)
        assert not await store.release(task_id)
    if store.database.options.audit != "off":
        told = [(await store.history(one))[-1].what for one in (second.id, third.id, ids[3])]
        assert told == ["released", "archived", "archived"]


@pytest.mark.proves("Q-10")
async def test_an_operator_does_not_close_what_was_taken_since_it_was_looked_at(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.enqueue_many("q", range(2))
    [held] = await store.dequeue("q")
    look, meanwhile = store.database.taken_messages.look, []

    async def taken_meanwhile(task_id: int) -> Any:
        row = await look(task_id)
        await held.release()
        meanwhile.extend(await store.dequeue("q", 2))
        return row

    waiting = held.id + 1
    monkeypatch.setattr(store.database.taken_messages, "look", taken_meanwhile)
    assert not await store.archive(waiting)
    assert [await message.release() for message in meanwhile] == [True, True]
    [held] = await store.dequeue("q")
    meanwhile.clear()
    assert not await store.release(held.id)
    assert [await message.archive() for message in meanwhile] == [True, True]


async def test_an_operator_does_not_close_what_a_worker_executes_nor_a_run(live_store: Store) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @handler("q")
    async def work(number: int) -> None:
        begun.set()
        await go_on.wait()

    @workflow
    async def idle() -> None:
        """Do nothing."""

    run_id = await idle.trigger().options(require_worker="ignore").execute(live_store)
    with pytest.raises(InvalidOption, match="of kind RUN"):
        await live_store.archive(run_id)
    async with Worker(live_store, [work]) as worker:
        task_id = await live_store.enqueue(work, 1)
        await begun.wait()
        for close in (live_store.archive, live_store.release):
            with pytest.raises(TaskInUse, match=f"task {task_id} is being executed by worker session {worker.id}"):
                await close(task_id)
        go_on.set()
        await worker.drain()
    assert await live_store.counts("q") == {"SUCCESS": 1}


async def test_a_message_never_closed_ends_in_error_after_its_attempts(store: Store, clock: TestClock) -> None:
    await store.enqueue("q", 1, max_attempts=2)
    for _ in range(2):
        assert len(await store.dequeue("q", visibility=10)) == 1
        clock.advance(11)
    assert await store.dequeue("q") == []
    [dead] = await store.dead_letters(queue="q")
    assert dead.last_error == "VisibilityTimeout: not acknowledged in time"


async def test_a_payload_that_does_not_fit_spoils_no_other(store: Store) -> None:
    await store.enqueue_many("q", [{"to": "ada"}, 7])
    first, second = await store.dequeue("q", 2, type=Mail)
    assert first.payload == Mail("ada")
    with pytest.raises(SerializationError):
        _ = second.payload
    assert await second.archive()


@pytest.mark.proves("Q-21")
async def test_a_bounded_poll_ends_empty_and_an_unbounded_one_with_a_message(live_store: Store) -> None:
    await live_store.create_queue("q")
    assert await live_store.dequeue("q", until=0.2) == []
    waiting = asyncio.create_task(live_store.dequeue("q", until=None))
    await asyncio.sleep(0)
    assert not waiting.done()
    await live_store.enqueue("q", 5)
    [message] = await asyncio.wait_for(waiting, 10)
    assert message.payload == 5
    endless = asyncio.create_task(live_store.dequeue("q", until=None))
    await asyncio.sleep(0)
    endless.cancel()
    with pytest.raises(asyncio.CancelledError):
        await endless


@pytest.mark.proves("Q-22")
async def test_a_queue_is_an_iterator_and_what_was_not_looked_at_is_given_back(store: Store) -> None:
    await store.enqueue_many("q", range(5))
    seen = []
    async with store.consume("q", limit=3) as messages:
        async for message in messages:
            seen.append(message.payload)
            await message.archive()
            if len(seen) == 4:
                break
    assert seen == [0, 1, 2, 3]
    assert await store.counts("q") == {"PENDING": 1, "SUCCESS": 4}


async def test_several_queues_take_turns_in_coming_first(store: Store) -> None:
    await store.create_queue("r")
    await store.enqueue_many("q", range(10))
    await store.enqueue_many("r", range(10))
    first = [(await store.dequeue(["q", "r"]))[0].queue for _ in range(6)]
    assert first.count("q") == first.count("r") == 3


async def test_by_hand_and_by_worker_never_meet(store: Store) -> None:
    executed: list[int] = []

    @handler("q")
    async def work(number: int) -> None:
        executed.append(number)

    await store.enqueue_many("q", [1, 2, 3])
    [held] = await store.dequeue("q")
    assert await Worker(store, [work]).drain() == 2
    assert executed == [2, 3]
    assert await held.archive()


async def test_a_paused_queue_gives_nothing_by_hand_or_by_worker_until_resumed(live_store: Store) -> None:
    executed: list[int] = []

    @handler("q")
    async def work(number: int) -> None:
        executed.append(number)

    await live_store.create_queue("q")
    await live_store.pause_queue("q")
    await live_store.enqueue("q", 1)
    assert await live_store.dequeue("q") == []
    assert [queue.paused for queue in await live_store.queues()] == [True]
    async with Worker(live_store, [work]) as worker:
        assert await worker.drain() == 0
        await live_store.resume_queue("q")
        await until(lambda: executed == [1])
    with pytest.raises(QueueNotFound):
        await live_store.pause_queue("nowhere")


@pytest.mark.proves("Q-26")
async def test_a_purge_takes_one_queue_and_a_queue_in_use_is_not_deleted(store: Store) -> None:
    await store.create_queue("other")
    await store.enqueue_many("q", range(3))
    await store.enqueue("other", 1)
    with pytest.raises(QueueInUse, match="3 messages, 0 living workers"):
        await store.delete_queue("q")
    assert await store.purge("q") == 3
    assert await store.counts("other") == {"PENDING": 1}

    @handler("q")
    async def work(number: int) -> None:
        """Do nothing."""

    async with Worker(store, [work]):
        with pytest.raises(QueueInUse, match="0 messages, 1 living workers"):
            await store.delete_queue("q")
    await store.delete_queue("q")
    await store.create_workflow("flow")
    with pytest.raises(QueueInUse, match="0 messages, 0 living workers and 1 workflows"):
        await store.delete_queue("flow")
    with pytest.raises(QueueNotFound):
        await store.enqueue("q", 1)
    with pytest.raises(QueueNotFound):
        await store.delete_queue("q")


async def test_what_a_worker_executes_is_not_purged(live_store: Store) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @handler("q")
    async def work(number: int) -> None:
        begun.set()
        await go_on.wait()

    async with Worker(live_store, [work], concurrency=1) as worker:
        ids = [await live_store.enqueue(work, number) for number in range(3)]
        await begun.wait()
        assert await live_store.purge("q") == 2
        go_on.set()
        await worker.drain()
    left = [task for task in [await live_store.get(one) for one in ids] if task is not None]
    assert [task.status for task in left] == ["SUCCESS"]


def test_the_sync_face_takes_by_hand_too(store_url: str) -> None:
    with stepwell.sync.connect(store_url) as store:
        store.create_queue("q")
        store.enqueue_many("q", range(6))
        one, two, three, four = store.dequeue("q", 4)
        assert (one.archive(), two.delete(), three.extend(60), four.release(delay=60)) == (True, True, True, True)
        with store.consume("q", limit=2) as messages:
            assert next(messages).archive()
            assert next(messages).attempt == 1
        assert store.counts("q") == {"PENDING": 2, "RUNNING": 1, "SUCCESS": 2}
        with pytest.raises(ValueError, match="broken"), store.consume("q") as messages:
            raise ValueError(f"broken {next(messages).id}")
        assert store.counts("q") == {"PENDING": 1, "RUNNING": 2, "SUCCESS": 2}
        taken = store.taken(three.id, three.turn)
        assert taken is not None
        assert (store.release(three.id), taken.archive(), store.archive(three.id)) == (True, False, True)


async def test_two_stores_never_share_a_message(store_url: str, backend: str) -> None:
    async with connect(store_url) as one, connect(store_url) as other:
        await one.create_queue("q")
        await one.enqueue_many("q", range(40))
        takers = [store.dequeue("q", 5) for store in (one, other) for _ in range(4)]
        ids = [message.id for batch in await asyncio.gather(*takers) for message in batch]
        assert len(ids) == len(set(ids)) == 40
