"""A message that the code of its worker cannot read: left to other code if that can, else the sender's error."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import pytest

from stepwell import Handler, Store, Worker, handler
from stepwell.base.clock import TestClock
from stepwell.base.events import Event, TaskFailed, TaskUnreadable
from tests.store.seam import row_of


class Placed(msgspec.Struct, tag=True):
    order: int


class Paid(msgspec.Struct, tag=True):
    order: int


class Order(msgspec.Struct):
    id: int


class NewerOrder(msgspec.Struct):
    id: int
    cents: int  # without a default: what was written before does not have it


QUEUE: Final = "orders"


async def wrote_newer(store: Store) -> tuple[int, Handler[Any]]:
    """New code has sent a class that the old does not have."""
    return await store.enqueue(taking(Placed | Paid), Paid(7)), taking(Placed)


async def changed_between_attempts(store: Store) -> tuple[int, Handler[Any]]:
    """Old code has read the message, and failed; the new code has changed the class."""
    old = taking(Order, fails=True)
    task_id = await store.enqueue(old, Order(7))
    await Worker(store, [old]).drain()
    return task_id, taking(NewerOrder)


async def given_back(store: Store) -> tuple[int, Handler[Any]]:
    """Old code has read the message, and was stopped; it gave the attempt back."""
    begun = asyncio.Event()

    @handler(QUEUE)
    async def old(order: Order) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with Worker(store, [old], grace=0):
        task_id = await store.enqueue(old, Order(7))
        await asyncio.wait_for(begun.wait(), 10)
    return task_id, taking(NewerOrder)


def taking(type_: Any, *, fails: bool = False) -> Handler[Any]:
    async def take(payload: Any) -> None:
        if fails:
            raise ValueError("not now")

    take.__annotations__ = {"payload": type_}
    return handler(QUEUE, retry=5)(take)


BEGINNINGS = pytest.mark.parametrize("begin", [wrote_newer, changed_between_attempts, given_back])
Beginning = Callable[[Store], Awaitable[tuple[int, Handler[Any]]]]


@pytest.mark.proves("W-11", "DP-06", "F-15")
@BEGINNINGS
async def test_a_message_for_other_code_is_left_to_it_and_says_so(
    store: Store, clock: TestClock, begin: Beginning
) -> None:
    told: list[Event] = []
    store.database.telemetry.subscribe(lambda event: told.append(event) if isinstance(event, TaskUnreadable) else None)
    task_id, takes = await begin(store)
    spent, spans = (await row_of(store, task_id))["attempt"], []
    for _ in range(4):
        clock.advance("1m")
        assert await Worker(store, [takes]).drain() == 1
        row = await row_of(store, task_id)
        assert (row["status"], row["attempt"]) == ("PENDING", spent), "it costs no attempt"
        assert row["last_error"].startswith("NotThisCode: payload refused at `$")
        spans.append((row["run_at"] - clock.now()) / 1_000_000)
    assert spans == [1, 60, 60, 60]
    [stats] = await store.queue_stats()
    assert (stats.queue, stats.unreadable) == (QUEUE, 1)
    assert len(told) == 4, "once for each worker"
    assert f"task {task_id} of {QUEUE} is left to other code: payload refused at" in str(told[0])


@pytest.mark.proves("W-11", "F-15")
@BEGINNINGS
async def test_a_message_that_no_code_can_read_for_a_week_is_a_dead_letter(
    store: Store, clock: TestClock, begin: Beginning
) -> None:
    _, takes = await begin(store)
    clock.advance("30d")
    for after in ("6d", "2d"):
        await Worker(store, [takes]).drain()
        assert await store.dead_letters() == []
        clock.advance(after)
    await Worker(store, [takes]).drain()
    [letter] = await store.dead_letters()
    assert str(letter.last_error).startswith("NotThisCode: payload refused at `$")


@pytest.mark.proves("DP-06", "DP-07")
@BEGINNINGS
async def test_a_message_goes_on_when_code_comes_that_reads_it(
    store: Store, clock: TestClock, begin: Beginning
) -> None:
    _, takes = await begin(store)
    clock.advance("1m")
    await Worker(store, [takes]).drain()
    clock.advance("1m")
    await Worker(store, [taking(Any)]).drain()
    assert await store.counts(QUEUE) == {"SUCCESS": 1}
    assert await store.dead_letters() == []


@pytest.mark.proves("W-11")
@pytest.mark.parametrize("batch", [None, 3])
async def test_a_payload_that_no_code_has_read_is_its_senders_error(
    store: Store, clock: TestClock, batch: int | None
) -> None:
    """Nothing shows that other code could: also not that it stood beside others in a batch, or was requeued."""
    seen: list[Any] = []
    # What comes again is not claimed at the moment of its first claim.
    store.database.telemetry.subscribe(lambda event: clock.advance(1) if isinstance(event, TaskFailed) else None)

    async def take(payloads: Any) -> None:
        seen.append(payloads)

    take.__annotations__ = {"payloads": Order if batch is None else list[Order]}
    takes: Handler[Any] = (handler(QUEUE, retry=5) if batch is None else handler(QUEUE, retry=5, batch=batch))(take)
    await store.create_queue(QUEUE)
    await store.enqueue_many(QUEUE, [{"id": 1}, {"id": "seven"}, {"id": 3}])
    for requeued in (False, True):
        clock.advance("1s")
        await Worker(store, [takes]).drain()
        [letter] = await store.dead_letters(error="SerializationError")
        assert letter.attempt == 1
        assert (await store.counts(QUEUE))["SUCCESS"] == 2
        if not requeued:
            await store.requeue(letter.id)


@pytest.mark.proves("DP-06", "Q-20")
async def test_one_of_a_batch_that_is_for_other_code_spoils_the_others_once(store: Store, clock: TestClock) -> None:
    seen: list[int] = []

    @handler(QUEUE, batch=10)
    async def take(orders: list[Placed]) -> None:
        seen.extend(one.order for one in orders)

    _, left, _ = await store.enqueue_many(taking(Placed | Paid), [Placed(1), Paid(2), Placed(3)])
    since: list[int] = []
    for number in (4, 5):
        await Worker(store, [take]).drain()
        await store.enqueue(take, Placed(number))
        clock.advance("1m")
        row = await row_of(store, left)
        assert (row["status"], row["attempt"]) == ("PENDING", 0)
        since.append(msgspec.json.decode(row["error"])["since"])
    await Worker(store, [take]).drain()
    assert sorted(seen) == [1, 3, 4, 5], "each once"
    assert len(set(since)) == 1, "a batch beside it does not begin its week anew"


@pytest.mark.proves("DP-06", "Q-20")
async def test_a_batch_that_old_code_gave_back_is_left_to_it(store: Store, clock: TestClock) -> None:
    """The new code cannot read it as a batch either; that must not hide the turn in which the old code had it."""
    begun = asyncio.Event()

    @handler(QUEUE, batch=10)
    async def old(orders: list[Order]) -> None:
        begun.set()
        await asyncio.Event().wait()

    @handler(QUEUE, batch=10)
    async def new(orders: list[NewerOrder]) -> None:
        pass

    task_ids = await store.enqueue_many(old, [Order(7), Order(8)])
    async with Worker(store, [old], grace=0):
        await asyncio.wait_for(begun.wait(), 10)
    for _ in range(3):
        clock.advance("1m")
        await Worker(store, [new]).drain()
    for task_id in task_ids:
        row = await row_of(store, task_id)
        assert (row["status"], row["attempt"]) == ("PENDING", 0)
        assert row["last_error"].startswith("NotThisCode: payload refused at `$")


@pytest.mark.proves("DP-06", "Q-20")
async def test_a_message_that_was_left_joins_no_batch(store: Store, clock: TestClock) -> None:
    """A batch would fail with it, and forget since when it could not be read."""
    seen: list[int] = []

    @handler(QUEUE, batch=10)
    async def new(orders: list[NewerOrder]) -> None:
        seen.append(len(orders))

    task_id, _ = await given_back(store)
    errors: list[Any] = []
    for _ in range(2):
        clock.advance("1m")
        await Worker(store, [new]).drain()
        row = await row_of(store, task_id)
        assert (row["status"], row["attempt"]) == ("PENDING", 0)
        errors.append(msgspec.json.decode(row["error"]))
        await store.enqueue_many(new, [NewerOrder(1, 2), NewerOrder(2, 3)])
    assert errors[0] == errors[1]
    assert seen == [2], "the others went together"
