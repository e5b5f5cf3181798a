"""Version 1 of a shop: prices in euros, one event for two things, and notes that are not needed later."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import msgspec
import pydantic

from stepwell import Context, Decider, Decision, EffectContext, handler, step, workflow

sent: list[str] = []
told: list[str] = []


class Letter(pydantic.BaseModel, frozen=True):
    to: str
    euros: float


@handler("letters")
async def letters(letter: Letter) -> None:
    sent.append(f"{letter.to} {letter.euros}")


class Order(msgspec.Struct, frozen=True):
    id: str
    euros: float


@dataclass(frozen=True)
class Charge:
    order: str
    euros: float


@dataclass(frozen=True)
class Approval:
    by: str


@step
async def charge(order: Order) -> Charge:
    return Charge(order.id, order.euros)


@workflow(name="sale")
async def sale(ctx: Context, order: Order, note: str = "") -> Charge:
    charged = await charge(order)
    approval = await ctx.wait("approved", Approval)
    await ctx.sleep("1d")
    return Charge(f"{charged.order} by {approval.by}{note}", charged.euros)


@workflow(name="basket")
async def basket(ctx: Context, order: Order) -> Charge:
    return await sale.trigger(order).wait().execute(ctx)


@dataclass(frozen=True)
class Open:
    id: str
    euros: float


@dataclass(frozen=True)
class Buy:
    id: str
    euros: float
    by: str = "bike"


@dataclass(frozen=True)
class Remind:
    id: str
    euros: float


@dataclass(frozen=True)
class Opened:
    euros: float
    branch: str


@dataclass(frozen=True)
class PaidAndShipped:
    euros: float
    by: str


@dataclass(frozen=True)
class Noted:
    text: str


@dataclass(frozen=True)
class Tell:
    id: str
    euros: float


@dataclass(frozen=True)
class State:
    euros: float = 0.0
    shipped: tuple[str, ...] = ()


Input = Open | Buy | Remind
Event = Opened | PaidAndShipped | Noted


class Account(Decider[State, Input, Event, Tell]):
    type = "account"
    route = "id"

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event) -> State:
        match event:
            case Opened(euros):
                return State(euros)
            case PaidAndShipped(euros, by):
                return State(state.euros - euros, (*state.shipped, by))
            case Noted():
                return state

    def decide(self, state: State, input: Input, now: datetime) -> Decision[Event, Tell, Input]:
        match input:
            case Open(id, euros):
                opened: Decision[Event, Tell, Input] = Decision.event(Opened(euros, "north"))
                return opened.with_timer_after("2d", Remind(id, 1.5), key="remind")
            case Buy(id, euros, by):
                return Decision.event(PaidAndShipped(euros, by)).and_event(Noted("bought")).with_effect(Tell(id, euros))
            case Remind(_, euros):
                return Decision.event(PaidAndShipped(euros, "reminder"))

    async def handle(self, effect: Tell, ctx: EffectContext) -> Input | None:
        told.append(f"{effect.id} {effect.euros}")
        return None
