"""What becomes of events whose sink fails: tried again under the same id, in the order of their subject, or dead."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from stepwell import CloudEvent, Outbox, PermanentError, Store, TransientError, Worker
from stepwell.base.clock import TestClock
from tests.outbox.kit import Batches, Sink, drained, outbox, statuses


@pytest.mark.proves("O-03", "O-05")
async def test_what_fails_is_published_again_after_a_while_under_the_same_id(store: Store, clock: TestClock) -> None:
    sink = Sink()
    sink.refuses["one"] = OSError("away")
    await drained(store, outbox(sink))
    event_id = await store.emit("a", "one")
    assert await drained(store, outbox(sink)) == 1
    assert await drained(store, outbox(sink)) == 0  # its time has not come
    sink.refuses.clear()
    clock.advance(10)
    await drained(store, outbox(sink))
    assert [one.id for one in sink.tried] == [event_id] * 2
    assert [one.attempt for one in sink.tried] == [1, 2]
    assert sink.tried[0].json() == sink.tried[1].json()
    assert sink.data == ["one"]
    assert await statuses(store) == {"SUCCESS": 1}


@pytest.mark.proves("O-03")
async def test_a_sink_says_when_to_try_again_and_when_not_to(store: Store, clock: TestClock) -> None:
    sink = Sink()
    sink.refuses = {"soon": TransientError("busy", retry_after=500), "never": PermanentError("gone")}
    await drained(store, outbox(sink))
    for said in sink.refuses:
        await store.emit("a", said)
    await drained(store, outbox(sink))
    assert await statuses(store) == {"PENDING": 1, "ERROR": 1}
    clock.advance(499)
    assert await drained(store, outbox(sink)) == 0
    clock.advance(2)
    assert await drained(store, outbox(sink)) == 1


@pytest.mark.proves("O-13", "O-12")
@pytest.mark.parametrize("batch", [None, 20], ids=["one by one", "in batches"])
async def test_a_subject_waits_for_its_first_event_and_no_other_subject_does(
    store: Store, clock: TestClock, batch: int | None
) -> None:
    sink = Sink() if batch is None else Batches()
    sink.refuses["a0"] = OSError("away")
    await drained(store, outbox(sink, batch=batch))
    for number in range(4):
        for subject in "ab":
            await store.emit("t", f"{subject}{number}", subject=subject, ordered=True)
    await store.emit("t", "c", subject="a")
    await drained(store, outbox(sink, batch=batch))
    assert sorted(sink.data) == ["b0", "b1", "b2", "b3", "c"]
    sink.refuses.clear()
    clock.advance(10)
    await drained(store, outbox(sink, batch=batch))
    assert [one for one in sink.data if one[0] == "a"] == ["a0", "a1", "a2", "a3"]
    assert [one for one in sink.data if one[0] == "b"] == ["b0", "b1", "b2", "b3"]
    numbers = [one.extensions["sequence"] for one in sink.events if one.extensions.get("partitionkey") == "a"]
    assert numbers == sorted(set(numbers))
    assert all(len(one) == 19 for one in numbers)


@pytest.mark.proves("O-12", "O-13")
async def test_a_dead_letter_stops_its_subject_until_it_is_requeued_or_dropped(store: Store) -> None:
    sink = Sink()
    sink.refuses = {0: PermanentError("no"), 10: PermanentError("no")}
    await drained(store, outbox(sink))
    for number in (0, 1, 10, 11, 20, 21):
        await store.emit("t", number, subject=f"s{number // 10}", ordered=True)
    await drained(store, outbox(sink))
    assert sink.data == [20, 21]
    [stats] = await store.ordered_groups()
    assert (stats.queue, stats.groups, stats.tasks, stats.stopped) == ("outbox.crm", 2, 4, 2)
    first, second = [one.id for one in await store.dead_letters()]
    sink.refuses.clear()
    assert await store.requeue(first) == 1
    assert await store.drop(second) == 1
    await drained(store, outbox(sink))
    assert sorted(sink.data[2:]) == [0, 1, 11]
    assert [one for one in sink.data if one < 10] == [0, 1]
    assert await store.ordered_groups() == [] or (await store.ordered_groups())[0].tasks == 0


@pytest.mark.proves("O-12")
async def test_a_subject_goes_on_without_a_dead_letter_where_the_outbox_says_so(store: Store, clock: TestClock) -> None:
    sink = Sink()
    sink.refuses = {0: OSError("away"), 2: PermanentError("no")}
    skips: dict[str, Any] = {"after_dead": "skip", "retry": 2}
    await drained(store, outbox(sink, **skips))
    for number in range(4):
        await store.emit("t", number, subject="s", ordered=True)
    await drained(store, outbox(sink, **skips))
    assert sink.data == []  # while the first is tried again, the others wait
    clock.advance(10)
    await drained(store, outbox(sink, **skips))
    assert sink.data == [1, 3]
    assert await statuses(store) == {"SUCCESS": 2, "ERROR": 2}
    sink.refuses.clear()
    await store.requeue(queue="outbox.crm")
    await drained(store, outbox(sink, **skips))
    assert sorted(sink.data) == [0, 1, 2, 3]


@pytest.mark.proves("O-02")
async def test_events_are_published_in_the_order_of_their_ids_up_to_a_batch_at_a_time(store: Store) -> None:
    sink = Batches()
    crm = outbox(sink, batch=20, concurrency=1)
    await drained(store, crm)
    async with store.transaction() as tx:
        for number in range(45):
            await store.emit("t", number, tx=tx)
    await drained(store, crm)
    assert sink.data == list(range(45))
    assert sink.sizes == [20, 20, 5]
    await drained(store, crm)
    assert sink.sizes == [20, 20, 5], "what was published is not published again"


@pytest.mark.proves("O-02", "O-12")
async def test_each_event_of_a_batch_has_its_own_answer(store: Store, clock: TestClock) -> None:
    sink = Batches()
    sink.refuses = {2: PermanentError("no"), 3: OSError("away")}
    crm = outbox(sink, batch=100, concurrency=1)
    await drained(store, crm)
    for number in range(6):
        await store.emit("t", number)
    await drained(store, crm)
    assert sorted(sink.data) == [0, 1, 4, 5]
    assert await statuses(store) == {"SUCCESS": 4, "ERROR": 1, "PENDING": 1}
    sink.refuses.clear()
    clock.advance(10)
    await drained(store, crm)
    assert sorted(sink.data) == [0, 1, 3, 4, 5]
    assert sink.sizes == [6, 1]


@pytest.mark.proves("O-12")
async def test_a_batch_that_is_refused_as_a_whole_is_published_one_by_one(store: Store) -> None:
    sink = Batches()
    sink.raises = PermanentError("one of them is bad")
    sink.refuses = {2: PermanentError("bad")}
    crm = outbox(sink, batch=100, concurrency=1)
    await drained(store, crm)
    for number in range(4):
        await store.emit("t", number)
    await drained(store, crm)
    assert sink.sizes == [4, 1, 1, 1, 1]
    assert sorted(sink.data) == [0, 1, 3]
    [letter] = await store.dead_letters()
    assert (letter.payload["data"], letter.attempt) == (2, 1)


@pytest.mark.proves("O-03")
async def test_a_batch_whose_receiver_is_away_comes_again_as_a_batch(store: Store, clock: TestClock) -> None:
    sink = Batches()
    sink.raises = OSError("away")
    crm = outbox(sink, batch=100, concurrency=1, retry=5)
    await drained(store, crm)
    for number in range(4):
        await store.emit("t", number)
    await drained(store, crm)
    sink.raises = None
    clock.advance(10)
    await drained(store, crm)
    assert sink.sizes == [4, 4]
    assert sorted(sink.data) == [0, 1, 2, 3]


async def test_a_sink_that_answers_for_other_events_than_it_was_given_has_published_none(store: Store) -> None:
    async def wrong(events: Sequence[CloudEvent]) -> Any:
        return [None] * (len(events) + 1)

    crm = Outbox("crm", wrong, batch=10, retry=1)
    await drained(store, crm)
    for number in range(2):
        await store.emit("t", number)
    await drained(store, crm)
    letters = await store.dead_letters()
    assert len(letters) == 2
    assert "for 2 events return None" in (letters[0].last_error or "")


@pytest.mark.proves("O-11")
async def test_a_sink_may_be_a_plain_function(store: Store) -> None:
    seen: list[Any] = []

    def plain(event: CloudEvent) -> None:
        seen.append(event.data)

    def plain_batch(events: Sequence[CloudEvent]) -> None:
        seen.extend(one.data for one in events)

    serves = [Outbox("one", plain, types="a"), Outbox("many", plain_batch, types="b", batch=5)]
    await drained(store, *serves)
    await store.emit("a", "a")
    await store.emit("b", "b")
    await drained(store, *serves)
    assert sorted(seen) == ["a", "b"]


@pytest.mark.proves("O-03", "O-10")
async def test_a_sink_that_hangs_is_stopped_and_holds_up_no_other_outbox(store: Store, clock: TestClock) -> None:
    async def hangs(event: CloudEvent) -> None:
        await asyncio.Event().wait()

    sink = Sink()
    serves = [Outbox("slow", hangs, timeout=0.05, retry=1), outbox(sink)]
    await drained(store, *serves)
    await store.emit("a", 1)
    await drained(store, *serves)
    assert sink.data == [1]
    [letter] = await store.dead_letters(queue="outbox.slow")
    assert letter.last_error == "Timeout: the sink of outbox slow took longer than 0.05 s"


@pytest.mark.proves("O-04")
async def test_two_workers_never_publish_one_event_at_the_same_time(live_store: Store) -> None:
    open_ids: set[str] = set()
    seen: list[int] = []
    done = asyncio.Event()

    async def sink(event: CloudEvent) -> None:
        assert event.id not in open_ids
        open_ids.add(event.id)
        await asyncio.sleep(0)
        open_ids.discard(event.id)
        seen.append(event.data)
        if len(seen) == 40:
            done.set()

    async with Worker(live_store, [outbox(sink)]), Worker(live_store, [outbox(sink)]):
        for number in range(40):
            await live_store.emit("a", number, subject=f"s{number % 4}", ordered=True)
        await asyncio.wait_for(done.wait(), 30)
    assert sorted(seen) == list(range(40))
    for subject in range(4):
        assert [one for one in seen if one % 4 == subject] == list(range(subject, 40, 4))


async def test_what_is_no_event_in_the_queue_of_an_outbox_is_a_dead_letter(store: Store) -> None:
    sink = Sink()
    await drained(store, outbox(sink))
    await store.enqueue("outbox.crm", [1, 2])
    await drained(store, outbox(sink))
    [letter] = await store.dead_letters()
    assert "is no event" in (letter.last_error or "")
