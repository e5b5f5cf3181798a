"""A small shop whose values are of every kind, and codecs of its own."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from stepwell import Context, handler, step, workflow

taken: list[Any] = []
WHEN = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


@dataclass(frozen=True)
class Order:
    id: str
    photo: bytes = b""
    at: datetime = WHEN


class Coins:
    """A message as Protobuf's compiler makes them, as far as stepwell sees it."""

    def __init__(self, cents: int = 0) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Coins) and other.cents == self.cents

    __hash__ = None  # type: ignore[assignment]

    def SerializeToString(self) -> bytes:  # noqa: N802
        return b"" if not self.cents else b"\x08" + bytes([self.cents])

    @classmethod
    def FromString(cls, data: bytes) -> Coins:  # noqa: N802
        return cls(data[1] if data else 0)


@dataclass(frozen=True)
class Reversed:
    """A codec of the user."""

    name: str = "reversed"

    def encode(self, value: Any, /) -> bytes | None:
        return None if isinstance(value, int) else pickle.dumps(value)[::-1]

    def decode(self, data: bytes, type_: Any, /) -> Any:
        return pickle.loads(data[::-1])


@step
async def weigh(order: Order, coins: Coins) -> Order:
    return order


@step
async def look(order: Order) -> Any:
    return {"photo": order.photo, "count": 2}


@workflow
async def sell(ctx: Context, order: Order, coins: Coins) -> Coins:
    weighed = await weigh(order, coins)
    taken.append((weighed, await look(order), coins))
    more = await ctx.wait("more", Order)
    taken.append(more)
    return Coins(coins.cents + 1)


@handler("orders", retry=1)
async def take(order: Any) -> None:
    taken.append(order)


@handler("typed", retry=1)
async def take_typed(order: Order) -> None:
    taken.append(order)
