"""Events are written with what they report, once for each outbox that takes them, and kept until one does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from stepwell import InvalidName, InvalidOption, Outbox, SerializationError, Store, TaskKind, Worker, connect
from stepwell.base.clock import TestClock
from stepwell.base.durations import datetime_of
from stepwell.store.outbox import PIECE
from tests.outbox.kit import Batches, Sink, drained, outbox, statuses


@pytest.mark.proves("O-01", "O-02", "O-07")
async def test_an_event_is_published_with_all_that_was_said_of_it(store: Store, clock: TestClock) -> None:
    sink = Sink()
    await drained(store, outbox(sink, "order.*"))
    event_id = await store.emit(
        "order.placed.v1", {"total": 12, "lines": [1, 2]}, subject="order/42", extensions={"traceparent": "00-1-2-03"}
    )
    clock.advance(60)
    assert await drained(store, outbox(sink, "order.*")) == 1
    [event] = sink.events
    assert (event.id, event.type, event.subject, event.source) == (event_id, "order.placed.v1", "order/42", "/stepwell")
    assert event.data == {"total": 12, "lines": [1, 2]}
    assert event.extensions == {"traceparent": "00-1-2-03"}
    assert event.time == datetime_of((clock.now() or 0) - 60_000_000)
    told = json.loads(event.json())
    assert told.keys() == {
        *("specversion", "id", "source", "type", "time", "datacontenttype", "subject", "traceparent", "data")
    }
    assert told["data"] == {"total": 12, "lines": [1, 2]}
    assert await statuses(store) == {"SUCCESS": 1}
    assert await drained(store, outbox(sink, "order.*")) == 0


@pytest.mark.proves("O-01")
async def test_each_outbox_gets_the_types_that_it_takes_under_one_id(store: Store) -> None:
    orders, placed, everything = Sink(), Sink(), Batches()
    serves = [
        outbox(orders, "order.*", "orders"),
        outbox(placed, ["order.placed", "bill.sent"], "placed"),
        Outbox("all", everything, batch=10),
    ]
    await drained(store, *serves)
    ids = [await store.emit(one, one) for one in ("order.placed", "order.paid", "orders", "bill.sent")]
    await drained(store, *serves)
    assert sorted(orders.data) == ["order.paid", "order.placed"]
    assert sorted(placed.data) == ["bill.sent", "order.placed"]
    assert sorted(one.id for one in everything.events) == sorted(ids)
    assert {one.id for one in orders.events} == set(ids[:2])


@pytest.mark.proves("O-09", "O-01")
async def test_an_event_is_there_if_the_transaction_commits_and_never_was_if_not(store: Store) -> None:
    sink = Sink()
    with contextlib.suppress(RuntimeError):
        async with store.transaction() as tx:
            await store.emit("order.placed", "undone", tx=tx)
            raise RuntimeError
    async with store.transaction() as tx:
        await store.emit("order.placed", "kept", tx=tx)
        await store.emit("order.placed", "in order", subject="order/1", ordered=True, tx=tx)
    await drained(store, outbox(sink))
    async with store.transaction() as tx:
        await store.emit("order.placed", "routed", tx=tx)
    await drained(store, outbox(sink))
    assert sorted(sink.data) == ["in order", "kept", "routed"]


@pytest.mark.proves("O-14")
async def test_what_no_outbox_takes_is_kept_until_one_does_and_comes_in_its_order(
    store: Store, clock: TestClock
) -> None:
    sink, other = Sink(), Sink()
    ids = []
    for number in range(6):
        kind = "order.placed" if number % 2 else "order.paid"
        ids.append(await store.emit(kind, number, subject="order/1", ordered=True))
        clock.advance(1)
    await store.emit("bill.sent", "bill")
    assert await drained(store, outbox(other, "nothing.*", "other")) == 0
    assert await statuses(store, "outbox:order.placed") == {"PENDING": 3}
    before = datetime_of(clock.now() or 0)
    clock.advance(60)
    await drained(store, outbox(sink, "order.*"), outbox(other, "order.paid", "second"))
    assert sink.data == [0, 1, 2, 3, 4, 5]
    assert [one.id for one in sink.events] == ids
    assert all(one.time < before for one in sink.events)
    assert other.data == [0, 2, 4]
    assert await statuses(store, "outbox:bill.sent") == {"PENDING": 1}


@pytest.mark.proves("O-14")
async def test_many_kept_events_are_moved_in_pieces_and_none_is_lost(store: Store) -> None:
    many = PIECE + 20
    async with store.transaction() as tx:
        for number in range(many):
            await store.emit("tick", number, subject=f"s{number % 3}", ordered=True, tx=tx)
    sink = Batches()
    await drained(store, Outbox("ticks", sink, batch=100, types="tick"))
    assert sorted(sink.data) == list(range(many))
    for subject in range(3):
        assert [one for one in sink.data if one % 3 == subject] == list(range(subject, many, 3))


@pytest.mark.proves("O-14")
async def test_upkeep_moves_what_was_kept_after_an_outbox_was_there(store: Store) -> None:
    sink = Sink()
    await store.emit("late", 1)
    routes, store.database.outboxes.routes = store.database.outboxes.routes, _none  # type: ignore[method-assign]
    await drained(store, outbox(sink))
    await store.emit("late", 2)  # by a process that has not heard of the outbox
    store.database.outboxes.routes = routes  # type: ignore[method-assign]
    assert await statuses(store, "outbox:late") == {"PENDING": 1}
    assert not await store.database.outboxes.adopt()
    await drained(store, outbox(sink))
    assert sink.data == [1, 2]


async def _none(type: str) -> Any:
    return []


@pytest.mark.proves("O-14")
@pytest.mark.backends("sqlite", "turso", "postgres", reason="two processes share the store")
async def test_another_process_hears_of_an_outbox(store: Store, store_url: str, clock: TestClock) -> None:
    sink = Sink()
    async with connect(store_url, clock=clock) as other:
        await other.emit("a", 1)
        await drained(store, outbox(sink, "a"))
        await other.emit("a", 2)  # it knows of none that takes it, so it reads them again
        await drained(store, outbox(sink, "a"))
    assert sink.data == [1, 2]


@pytest.mark.proves("O-07", "O-06")
async def test_what_cannot_be_an_event_is_refused_before_anything_is_written(store: Store) -> None:
    for wrong in ("", "a b", "x" * 250, 7):
        with pytest.raises(InvalidName):
            await store.emit(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="by their subject"):
        await store.emit("a", ordered=True)
    for extensions in ({"Trace": "x"}, {"id": "x"}, {"sequence": "1"}, {"a" * 21: "x"}):
        with pytest.raises(InvalidOption, match="CloudEvents"):
            await store.emit("a", extensions=extensions)
    with pytest.raises(InvalidName):
        await store.emit("a", extensions={"a": ""})
    with pytest.raises(SerializationError):
        await store.emit("a", object())
    with pytest.raises(TypeError, match="emit takes no option 'tag'"):
        await store.emit("a", tag="x")  # type: ignore[call-arg]
    assert [one.name for one in await store.queues()] == []


def test_an_outbox_that_could_publish_nothing_is_refused() -> None:
    sink = Sink()
    options: dict[str, list[Any]] = {
        "types": [[], 7],
        "after_dead": ["wait"],
        "batch": [0],
        "timeout": [0],
        "source": [""],
    }
    for name, wrong in [(name, one) for name, several in options.items() for one in several]:
        with pytest.raises(InvalidOption):
            Outbox("crm", sink, **{name: wrong})
    for types in ("order.**", "a b", "*x"):
        with pytest.raises(InvalidName):
            Outbox("crm", sink, types=types)
    with pytest.raises(InvalidName):
        Outbox("a b", sink)
    with pytest.raises(InvalidOption):
        Outbox("crm", "sink")  # type: ignore[call-overload]


async def test_two_outboxes_of_one_name_are_refused(store: Store) -> None:
    with pytest.raises(InvalidOption, match="two outboxes with the name crm"):
        Worker(store, [outbox(Sink()), outbox(Sink())])


@pytest.mark.proves("O-01")
async def test_events_are_tasks_that_people_see(store: Store) -> None:
    await store.emit("order.placed", 1)
    await drained(store, outbox(Sink(), "other"))
    [queue] = [one.queue for one in await store.unserved()]
    assert queue == "outbox:order.placed"
    sink = Sink()
    sink.refuses[1] = ValueError("no")
    await drained(store, outbox(sink, retry=1))
    [letter] = await store.dead_letters(kind=TaskKind.OUTBOX)
    assert (letter.queue, letter.payload["type"], letter.payload["data"]) == ("outbox.crm", "order.placed", 1)
    assert letter.last_error == "ValueError: no"


@pytest.mark.proves("O-10")
async def test_many_at_once_are_written_and_published(store: Store) -> None:
    sink = Batches()
    await drained(store, Outbox("crm", sink, batch=50))
    await asyncio.gather(*(store.emit("a", number, subject="s", ordered=number % 2 == 0) for number in range(60)))
    await drained(store, Outbox("crm", sink, batch=50))
    assert sorted(sink.data) == list(range(60))
