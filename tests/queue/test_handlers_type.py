"""A payload is checked against the type of the handler it is for, before anything is written."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from stepwell import SerializationError, Store, handler, sync
from tests.queue.raw import everything_written
from tests.workflows.kit import drained

taken: list[Any] = []


@dataclass
class Order:
    id: str
    total: Decimal


@dataclass
class Special(Order):
    why: str


@handler("orders")
async def ship(order: Order) -> None:
    taken.append(order)


@handler("bulk", batch=10)
async def ship_many(orders: list[Order]) -> None:
    taken.extend(orders)


WRONG: list[Any] = [
    "1",
    None,
    {"id": "1"},
    {"id": 1, "total": "1"},
    Order(1, Decimal(1)),  # type: ignore[arg-type]
    Special("1", Decimal(1), "gift"),
]


@pytest.mark.proves("W-11")
@pytest.mark.parametrize("payload", WRONG, ids=repr)
async def test_a_payload_that_its_handler_could_not_read_is_refused_at_the_sender(store: Store, payload: Any) -> None:
    await store.create_queue("orders")
    await store.create_queue("bulk")
    good, before = Order("1", Decimal(1)), await everything_written(store)
    for takes in (ship, ship_many):
        with pytest.raises(SerializationError, match=f"payload of {takes.queue} refused"):
            await store.enqueue(takes, payload)
        with pytest.raises(SerializationError, match=f"payload of {takes.queue} refused"):
            await store.enqueue_many(takes, [good, payload], keys=["a", "b"])
    assert await everything_written(store) == before


def test_so_it_is_without_asyncio(store_url: str) -> None:
    with sync.connect(store_url) as store:
        store.create_queue("orders")
        wrong: Any = {"id": "1"}
        with pytest.raises(SerializationError, match="payload of orders refused"):
            store.enqueue(ship, wrong)
        assert not any(store.counts("orders").values())


async def test_what_fits_is_taken_as_the_type_of_its_handler_also_where_it_is_given_as_json(store: Store) -> None:
    taken.clear()
    await store.enqueue(ship, Order("1", Decimal("1.10")))
    as_json: Any = {"id": "2", "total": "2.20"}
    await store.enqueue(ship, as_json)
    await store.enqueue("orders", Order("3", Decimal("3.30")))
    await drained(store, ship)
    totals = [Decimal("1.10"), Decimal("2.20"), Decimal("3.30")]
    assert sorted(taken, key=lambda one: one.id) == [Order(str(n + 1), total) for n, total in enumerate(totals)]
