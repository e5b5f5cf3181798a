"""Version 3: one event split in two, one dropped, a field renamed, and a currency beside every price."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

import msgspec
import pydantic

from stepwell import Context, Decider, Decision, EffectContext, handler, step, upcast, workflow
from tests.versions.shop_2 import in_cents

sent: list[str] = []
told: list[str] = []


class Letter(pydantic.BaseModel, frozen=True):
    __stepwell_version__: ClassVar[int] = 3
    to: str
    cents: int
    currency: str


@handler("letters")
async def letters(letter: Letter) -> None:
    sent.append(f"{letter.to} {letter.cents} {letter.currency}")


class Order(msgspec.Struct, frozen=True):
    __stepwell_version__ = 3
    id: str
    cents: int
    currency: str


@dataclass(frozen=True)
class Charge:
    __stepwell_version__: ClassVar[int] = 3
    order: str
    cents: int
    currency: str


@dataclass(frozen=True)
class Approval:
    __stepwell_version__: ClassVar[int] = 2
    approver: str


@step
async def charge(order: Order) -> Charge:
    return Charge(order.id, order.cents, order.currency)


@workflow(name="sale")
async def sale(ctx: Context, order: Order, note: str = "") -> Charge:
    charged = await charge(order)
    approval = await ctx.wait("approved", Approval)
    await ctx.sleep("1d")
    return Charge(f"{charged.order} by {approval.approver}{note}", charged.cents, charged.currency)


@workflow(name="basket")
async def basket(ctx: Context, order: Order) -> Charge:
    return await sale.trigger(order).wait().execute(ctx)


@dataclass(frozen=True)
class Open:
    __stepwell_version__: ClassVar[int] = 3
    id: str
    cents: int
    currency: str


@dataclass(frozen=True)
class Buy:
    __stepwell_version__: ClassVar[int] = 3
    id: str
    cents: int
    currency: str
    by: str = "bike"


@dataclass(frozen=True)
class AccountOpened:
    __stepwell_version__: ClassVar[int] = 2
    cents: int
    currency: str


@dataclass(frozen=True)
class Paid:
    cents: int


@dataclass(frozen=True)
class Shipped:
    by: str


@dataclass(frozen=True)
class Tell:
    __stepwell_version__: ClassVar[int] = 3
    id: str
    cents: int
    currency: str


def in_euros(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "currency": "EUR"}


for changed in (Letter, Order, Charge, Open, Buy, Tell):
    upcast(changed, 1)(in_cents)
    upcast(changed, 2)(in_euros)
upcast("Opened", 1, to=AccountOpened)(in_cents)
upcast(AccountOpened, 1)(in_euros)


@upcast(Approval, 1)
def _(old: dict[str, Any]) -> dict[str, Any]:
    return {"approver": old["by"]}


upcast("PaidAndShipped", 1, decider="account")(in_cents)


@upcast("PaidAndShipped", 2, to=(Paid, Shipped))
def _(old: dict[str, Any]) -> list[tuple[type, dict[str, Any]]]:
    return [(Paid, {"cents": old["cents"]}), (Shipped, {"by": old["by"]})]


@upcast("Noted", 1, to=(), decider="account")
def _(old: object) -> list[Any]:
    return []


upcast("Remind", 1, decider="account")(in_cents)


@upcast("Remind", 2, to=Buy)
def _(old: dict[str, Any]) -> dict[str, Any]:
    """A reminder is a purchase now, in the form that it had in version 1."""
    return {"id": old["id"], "euros": old["cents"] / 100, "by": "reminder"}


@dataclass(frozen=True)
class State:
    cents: int = 0
    shipped: tuple[str, ...] = ()


Input = Open | Buy
Event = AccountOpened | Paid | Shipped


class Account(Decider[State, Input, Event, Tell]):
    type = "account"
    route = "id"

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event) -> State:
        match event:
            case AccountOpened(cents):
                return State(cents)
            case Paid(cents):
                return State(state.cents - cents, state.shipped)
            case Shipped(by):
                return State(state.cents, (*state.shipped, by))

    def decide(self, state: State, input: Input, now: datetime) -> Decision[Event, Tell, Input]:
        match input:
            case Open(id, cents, currency):
                opened: Decision[Event, Tell, Input] = Decision.event(AccountOpened(cents, currency))
                return opened.with_timer_after("2d", Buy(id, 150, currency, "reminder"), key="remind")
            case Buy(id, cents, currency, by):
                return Decision.event(Paid(cents)).and_event(Shipped(by)).with_effect(Tell(id, cents, currency))

    async def handle(self, effect: Tell, ctx: EffectContext) -> Input | None:
        told.append(f"{effect.id} {effect.cents} {effect.currency}")
        return None
