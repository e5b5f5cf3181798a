"""A small order decider that the pure tests share: an e-mail, a payment timer, an end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from stepwell import Decider, Decision, EffectContext


@dataclass(frozen=True)
class Create:
    order_id: str
    cents: int


@dataclass(frozen=True)
class Pay:
    order_id: str


@dataclass(frozen=True)
class Expire:
    order_id: str


@dataclass(frozen=True)
class Created:
    cents: int


@dataclass(frozen=True)
class Paid:
    pass


@dataclass(frozen=True)
class Expired:
    at: datetime


@dataclass(frozen=True)
class Ignored:
    why: str


@dataclass(frozen=True)
class SendEmail:
    to: str


Input = Create | Pay | Expire
Event = Created | Paid | Expired | Ignored


@dataclass(frozen=True)
class State:
    status: str = "new"


class Orders(Decider[State, Input, Event, SendEmail]):
    type = "order"
    route = "order_id"

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event) -> State:
        match event:
            case Created():
                return replace(state, status="created")
            case Paid():
                return replace(state, status="paid")
            case Expired():
                return replace(state, status="expired")
            case Ignored():
                return state

    def decide(self, state: State, input: Input, now: datetime) -> Decision[Event, SendEmail, Input]:
        match input:
            case Create(id, cents) if state.status == "new":
                decision = Decision.event(Created(cents)).with_effect(SendEmail(id))
                return decision.with_timer_after("1h", Expire(id), key="payment")
            case Pay() if state.status == "created":
                return Decision.event(Paid()).cancel_timer("payment")
            case Expire() if state.status == "created":
                return Decision.event(Expired(now))
            case _:
                return Decision.event(Ignored(type(input).__name__))

    def is_terminal(self, state: State) -> bool:
        return state.status == "expired"

    async def handle(self, effect: SendEmail, ctx: EffectContext) -> Input | None:
        return None
