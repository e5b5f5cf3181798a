"""A subscription as a decider: one timer under its own key renews it every month, asks again, and ends it.

Run it:  python examples/subscription_decider.py
It uses a temporary SQLite file, or the store that STEPWELL_URL names.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import uuid4

from stepwell import Decider, Decision, EffectContext, Engine, Worker, connect
from stepwell.testing import given

LIMIT = 2  # refused payments in a row

# ---- inputs: what is asked


@dataclass(frozen=True)
class Subscribe:
    subscription: str
    card: str
    period: timedelta = timedelta(days=30)
    patience: timedelta = timedelta(days=3)


@dataclass(frozen=True)
class PaymentDue:
    subscription: str


@dataclass(frozen=True)
class Charged:
    subscription: str
    receipt: str


@dataclass(frozen=True)
class Declined:
    subscription: str


@dataclass(frozen=True)
class Cancel:
    subscription: str


Input = Subscribe | PaymentDue | Charged | Declined | Cancel

# ---- events: what happened


@dataclass(frozen=True)
class SubscriptionStarted:
    card: str
    period: timedelta
    patience: timedelta


@dataclass(frozen=True)
class PaymentAsked:
    pass


@dataclass(frozen=True)
class PaymentReceived:
    receipt: str


@dataclass(frozen=True)
class PaymentRefused:
    pass


@dataclass(frozen=True)
class SubscriptionEnded:
    why: str


@dataclass(frozen=True)
class InputIgnored:
    input: str


Event = SubscriptionStarted | PaymentAsked | PaymentReceived | PaymentRefused | SubscriptionEnded | InputIgnored


@dataclass(frozen=True)
class ChargeCard:
    """The one effect."""

    subscription: str
    card: str


@dataclass(frozen=True)
class State:
    status: str = "new"
    card: str = ""
    period: timedelta = timedelta()
    patience: timedelta = timedelta()
    refused: int = 0


class Subscriptions(Decider[State, Input, Event, ChargeCard]):
    type = "subscription"
    route = "subscription"

    def initial(self) -> State:
        return State()

    def decide(self, state: State, input: Input, now: datetime) -> Decision[Event, ChargeCard, Input]:
        match state.status, input:
            case "new", Subscribe(name, card, period, patience):
                started = SubscriptionStarted(card, period, patience)
                return asked(Decision.event(started, PaymentAsked()), name, card, period)
            case "active", PaymentDue() if state.refused >= LIMIT:
                return Decision.event(SubscriptionEnded("not paid"))
            case "active", PaymentDue(name):
                return asked(Decision.event(PaymentAsked()), name, state.card, state.period)
            case "active", Charged(_, receipt):
                return Decision.event(PaymentReceived(receipt))
            case "active", Declined(name):  # the same key: the timer of the next month makes place for a sooner one
                return Decision.event(PaymentRefused()).with_timer_after(
                    state.patience, PaymentDue(name), key="payment"
                )
            case "active", Cancel():
                return Decision.event(SubscriptionEnded("cancelled")).cancel_timer("payment")
            case _:  # a rejection is an event with a name of its own; nothing is raised
                return Decision.event(InputIgnored(type(input).__name__))

    def evolve(self, state: State, event: Event) -> State:
        match event:
            case SubscriptionStarted(card, period, patience):
                return State("active", card, period, patience)
            case PaymentReceived():
                return replace(state, refused=0)
            case PaymentRefused():
                return replace(state, refused=state.refused + 1)
            case SubscriptionEnded():
                return replace(state, status="ended")
            case PaymentAsked() | InputIgnored():
                return state

    def is_terminal(self, state: State) -> bool:
        return state.status == "ended"

    async def handle(self, effect: ChargeCard, ctx: EffectContext) -> Input:
        """A declined card is an answer, which is decided once; an exception would be tried again."""
        return Charged(effect.subscription, ctx.key) if effect.card == "good" else Declined(effect.subscription)


def asked(
    decision: Decision[Event, ChargeCard, Input], name: str, card: str, period: timedelta
) -> Decision[Event, ChargeCard, Input]:
    """Ask for the money now, and again when the period is over: the timer sets itself anew, always under one key."""
    return decision.with_effect(ChargeCard(name, card)).with_timer_after(period, PaymentDue(name), key="payment")


def test_by_calling() -> None:
    """A year in a few lines: no store, no worker, no waiting."""
    ada = given(Subscriptions()).when(Subscribe("ada", "good"))
    ada.then_effects(ChargeCard("ada", "good")).then_timers(payment="30d")
    year = ada.after("365d")
    year.then(*[PaymentAsked()] * 12).then_timers(payment="25d")
    year.when(Cancel("ada")).then(SubscriptionEnded("cancelled")).then_timers()
    ada.when(Declined("ada")).then(PaymentRefused()).then_timers(payment="3d")


async def main() -> None:
    test_by_calling()
    print("a year is tested by calling")
    with tempfile.TemporaryDirectory() as folder:
        async with connect(os.environ.get("STEPWELL_URL") or f"sqlite:///{folder}/subscriptions.db") as store:
            engine = Engine(store).register(Subscriptions())
            async with Worker(store, [engine]):  # usually a process of its own
                await a_card_that_is_declined(engine, f"bob {uuid4()}")


async def a_card_that_is_declined(engine: Engine, name: str) -> None:
    await engine.execute(Subscribe(name, "bad", patience=timedelta(milliseconds=100)))
    while (await engine.state(Subscriptions, name)).status != "ended":
        await asyncio.sleep(0.02)
    for recorded in await engine.events("subscription", name):
        print(f"  {recorded.version} {type(recorded.event).__name__}")
    print("cancelled too late:", (await engine.execute(Cancel(name))).outcome)


if __name__ == "__main__":
    asyncio.run(main())
