"""Version 2: prices in cents (a type change), an event renamed and a field of it removed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

import msgspec
import pydantic

from stepwell import Context, Decider, Decision, EffectContext, handler, step, upcast, workflow

sent: list[str] = []
told: list[str] = []


class Letter(pydantic.BaseModel, frozen=True):
    __stepwell_version__: ClassVar[int] = 2
    to: str
    cents: int


@handler("letters")
async def letters(letter: Letter) -> None:
    sent.append(f"{letter.to} {letter.cents}")


class Order(msgspec.Struct, frozen=True):
    __stepwell_version__ = 2
    id: str
    cents: int


@dataclass(frozen=True)
class Charge:
    __stepwell_version__: ClassVar[int] = 2
    order: str
    cents: int


@dataclass(frozen=True)
class Approval:
    by: str


@step
async def charge(order: Order) -> Charge:
    return Charge(order.id, order.cents)


@workflow(name="sale")
async def sale(ctx: Context, order: Order, note: str = "") -> Charge:
    charged = await charge(order)
    approval = await ctx.wait("approved", Approval)
    await ctx.sleep("1d")
    return Charge(f"{charged.order} by {approval.by}{note}", charged.cents)


@workflow(name="basket")
async def basket(ctx: Context, order: Order) -> Charge:
    return await sale.trigger(order).wait().execute(ctx)


@dataclass(frozen=True)
class Open:
    __stepwell_version__: ClassVar[int] = 2
    id: str
    cents: int


@dataclass(frozen=True)
class Buy:
    __stepwell_version__: ClassVar[int] = 2
    id: str
    cents: int
    by: str = "bike"


@dataclass(frozen=True)
class Remind:
    __stepwell_version__: ClassVar[int] = 2
    id: str
    cents: int


@dataclass(frozen=True)
class AccountOpened:
    cents: int


@dataclass(frozen=True)
class PaidAndShipped:
    __stepwell_version__: ClassVar[int] = 2
    cents: int
    by: str


@dataclass(frozen=True)
class Noted:
    text: str


@dataclass(frozen=True)
class Tell:
    __stepwell_version__: ClassVar[int] = 2
    id: str
    cents: int


def in_cents(old: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in old.items() if name not in ("euros", "branch")}
    return {**rest, "cents": round(old["euros"] * 100)}


for changed in (Letter, Order, Charge, Open, Buy, Remind, PaidAndShipped, Tell):
    upcast(changed, 1)(in_cents)
upcast("Opened", 1, to=AccountOpened)(in_cents)


@dataclass(frozen=True)
class State:
    cents: int = 0
    shipped: tuple[str, ...] = ()


Input = Open | Buy | Remind
Event = AccountOpened | PaidAndShipped | Noted


class Account(Decider[State, Input, Event, Tell]):
    type = "account"
    route = "id"

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event) -> State:
        match event:
            case AccountOpened(cents):
                return State(cents)
            case PaidAndShipped(cents, by):
                return State(state.cents - cents, (*state.shipped, by))
            case Noted():
                return state

    def decide(self, state: State, input: Input, now: datetime) -> Decision[Event, Tell, Input]:
        match input:
            case Open(id, cents):
                opened: Decision[Event, Tell, Input] = Decision.event(AccountOpened(cents))
                return opened.with_timer_after("2d", Remind(id, 150), key="remind")
            case Buy(id, cents, by):
                return Decision.event(PaidAndShipped(cents, by)).and_event(Noted("bought")).with_effect(Tell(id, cents))
            case Remind(_, cents):
                return Decision.event(PaidAndShipped(cents, "reminder"))

    async def handle(self, effect: Tell, ctx: EffectContext) -> Input | None:
        told.append(f"{effect.id} {effect.cents}")
        return None
