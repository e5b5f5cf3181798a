"""Projections over older events: they are upcast before they are handled, and a split event counts as one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Never

import pytest

from stepwell import At, Decider, Decision, Engine, Store, Tx, Worker, projection, upcast


@dataclass(frozen=True)
class Sell:
    item: str


@dataclass(frozen=True)
class SoldAndShipped:
    item: str


@dataclass(frozen=True)
class Sold:
    item: str


@dataclass(frozen=True)
class Shipped:
    item: str


@upcast("SoldAndShipped", 1, to=(Sold, Shipped))
def _(data: Any) -> Any:
    return [(Sold, data), (Shipped, data)]


class OldShop(Decider[int, Sell, SoldAndShipped, Never]):
    type, route = "sale", "item"

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: SoldAndShipped) -> int:
        return state + 1

    def decide(self, state: int, input: Sell, now: datetime) -> Decision[SoldAndShipped, Never, Sell]:
        return Decision.event(SoldAndShipped(input.item))


class Shop(Decider[int, Sell, Sold | Shipped, Never]):
    type, route = "sale", "item"

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Sold | Shipped) -> int:
        return state + 1

    def decide(self, state: int, input: Sell, now: datetime) -> Decision[Sold | Shipped, Never, Sell]:
        return Decision.event(Sold(input.item))


class Parcels:
    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.seen: list[tuple[int, int, Any]] = []

    async def handle(self, event: Any, at: At, tx: Tx) -> None:
        self.seen.append((at.position, at.part, event))
        if isinstance(event, Shipped) and self.failures:
            self.failures -= 1
            raise RuntimeError("the second part fails")


@projection("shipped", events=[Shipped])
class OnlyShipped(Parcels):
    pass


@projection("both", events=[Sold, Shipped])
class Both(Parcels):
    pass


@pytest.mark.proves("PJ-10", "PJ-14", "U-02")
async def test_an_event_that_was_split_is_read_under_its_old_name_and_counts_as_one(store: Store) -> None:
    await Engine(store).register(OldShop()).execute(Sell("lamp"))
    shop = Engine(store).register(Shop())
    await shop.execute(Sell("desk"))
    shipped, both = OnlyShipped(), Both()
    shop.register(shipped)
    shop.register(both)
    await Worker(store, [shop]).drain()
    assert shipped.seen == [(1, 1, Shipped("lamp"))]
    assert both.seen == [(1, 0, Sold("lamp")), (1, 1, Shipped("lamp")), (2, 0, Sold("desk"))]
    feed = await shop.events_since(0, 10)
    assert [(one.at.position, one.at.part, one.event) for one in feed.events] == both.seen


@pytest.mark.proves("PJ-05", "U-02")
async def test_if_one_part_of_an_event_fails_all_parts_are_handled_again(store: Store) -> None:
    await Engine(store).register(OldShop()).execute(Sell("lamp"))
    both = Both(failures=2)
    await Worker(store, [Engine(store).register(Shop()).register(both)]).drain()
    assert [event for _, _, event in both.seen] == [Sold("lamp"), Shipped("lamp")] * 3
    [info] = await store.projections()
    assert (info.lag, info.handled, info.parked) == (0, 1, 0)


@dataclass(frozen=True)
class Weigh:
    item: str


@dataclass(frozen=True)
class Weighed1:
    __stepwell_name__ = "Weighed"
    item: str
    pounds: int


@dataclass(frozen=True)
class Weighed:
    __stepwell_version__ = 3
    item: str
    grams: int
    by: str


upcast(Weighed, 1)(lambda old: {"item": old["item"], "grams": 500 * old["pounds"]})
upcast(Weighed, 2)(lambda old: {**old, "by": "scale"})


class OldScale(Decider[int, Weigh, Weighed1, Never]):
    type, route = "scale", "item"

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Weighed1) -> int:
        return state + 1

    def decide(self, state: int, input: Weigh, now: datetime) -> Decision[Weighed1, Never, Weigh]:
        return Decision.event(Weighed1(input.item, 2))


class Scale(Decider[int, Weigh, Weighed, Never]):
    type, route = "scale", "item"

    def initial(self) -> int:
        return 0

    def evolve(self, state: int, event: Weighed) -> int:
        return state + event.grams

    def decide(self, state: int, input: Weigh, now: datetime) -> Decision[Weighed, Never, Weigh]:
        return Decision.event(Weighed(input.item, 7, "hand"))


@projection("weights", events=[Weighed])
class Weights(Parcels):
    pass


@pytest.mark.proves("U-02")
async def test_upcasters_are_chained_for_projections_and_the_feed_as_for_replay(store: Store) -> None:
    await Engine(store).register(OldScale()).execute(Weigh("lamp"))
    scale, weights = Engine(store).register(Scale()), Weights()
    await scale.execute(Weigh("lamp"))
    await Worker(store, [scale.register(weights)]).drain()
    expected = [Weighed("lamp", 1000, "scale"), Weighed("lamp", 7, "hand")]
    assert [event for _, _, event in weights.seen] == expected
    feed = await scale.events_since(0)
    assert [(one.event, one.at.event_version) for one in feed.events] == list(zip(expected, (1, 3), strict=True))
    assert await scale.state(Scale, "lamp") == 1007
