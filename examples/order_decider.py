"""An order as a decider: events are what happened, effects what is to be done, a timer ends an unpaid order.

Run it: `python examples/order_decider.py` (or with STEPWELL_URL set, on that store).
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from stepwell import Decider, Decision, EffectContext, Engine, StateInfo, StateMachine, Transition, Worker, connect
from stepwell.testing import given

# ---- what may be asked


@dataclass(frozen=True)
class Create:
    order_id: str
    customer: str
    cents: int
    patience: timedelta = timedelta(hours=1)


@dataclass(frozen=True)
class Pay:
    order_id: str
    receipt: str


@dataclass(frozen=True)
class GiveUp:
    order_id: str


@dataclass(frozen=True)
class Shipped:
    order_id: str
    parcel: str


Input = Create | Pay | GiveUp | Shipped

# ---- what may have happened


@dataclass(frozen=True)
class OrderCreated:
    customer: str
    cents: int


@dataclass(frozen=True)
class PaymentReceived:
    receipt: str


@dataclass(frozen=True)
class OrderShipped:
    parcel: str


@dataclass(frozen=True)
class OrderExpired:
    pass


@dataclass(frozen=True)
class InputIgnored:
    input: str
    status: str


Event = OrderCreated | PaymentReceived | OrderShipped | OrderExpired | InputIgnored

# ---- what may be to be done


@dataclass(frozen=True)
class SendEmail:
    to: str
    text: str


@dataclass(frozen=True)
class Ship:
    order_id: str


Effect = SendEmail | Ship


@dataclass(frozen=True)
class State:
    status: str = "new"
    customer: str = ""
    cents: int = 0


class Orders(Decider[State, Input, Event, Effect]):
    """`decide` and `evolve` are pure; only `handle` touches the world."""

    type = "order"
    route = "order_id"  # the field of every input that says which order it is for

    def initial(self) -> State:
        return State()

    def decide(self, state: State, input: Input, now: datetime) -> Decision[Event, Effect, Input]:
        match state.status, input:
            case "new", Create(order_id, customer, cents, patience):
                return (
                    Decision.event(OrderCreated(customer, cents))
                    .with_effect(SendEmail(customer, f"please pay {cents} cents"))
                    .with_timer_after(patience, GiveUp(order_id), key="payment")
                )
            case "created", Pay(order_id, receipt):
                return Decision.event(PaymentReceived(receipt)).cancel_timer("payment").with_effect(Ship(order_id))
            case "created", GiveUp():
                return Decision.event(OrderExpired()).with_effect(SendEmail(state.customer, "your order has expired"))
            case "paid", Shipped(_, parcel):
                return Decision.event(OrderShipped(parcel)).with_effect(SendEmail(state.customer, f"sent {parcel}"))
            case _:  # an input that does not fit is a fact too: nothing is raised, and the stream shows it
                return Decision.event(InputIgnored(type(input).__name__, state.status))

    def evolve(self, state: State, event: Event) -> State:
        match event:
            case OrderCreated(customer, cents):
                return State("created", customer, cents)
            case PaymentReceived():
                return replace(state, status="paid")
            case OrderShipped():
                return replace(state, status="shipped")
            case OrderExpired():
                return replace(state, status="expired")
            case InputIgnored():
                return state

    def is_terminal(self, state: State) -> bool:
        return state.status in ("shipped", "expired")

    async def handle(self, effect: Effect, ctx: EffectContext) -> Input | None:
        """At least once: give the world outside `ctx.key`, which is the same in every attempt."""
        match effect:
            case SendEmail(to, text):
                print(f"  mail to {to}: {text}")
                return None
            case Ship(order_id):
                return Shipped(order_id, f"parcel for {ctx.type}")  # an answer is an input, decided exactly once

    # ---- for people: the same in a drawing

    def state_info(self, state: State) -> StateInfo:
        return StateInfo(state.status, fields={"cents": state.cents}, terminal=self.is_terminal(state))

    def transitions(self, state: State) -> Sequence[Transition]:
        return GRAPH[state.status]

    def states(self) -> Sequence[State]:
        return [State(status) for status in GRAPH]


GRAPH = {
    "new": [Transition("Create", "created", effects=["SendEmail"], timers=["payment"])],
    "created": [
        Transition("Pay", "paid", effects=["Ship"]),
        Transition("GiveUp", "expired", effects=["SendEmail"]),
    ],
    "paid": [Transition("Shipped", "shipped", effects=["SendEmail"])],
    "shipped": [],
    "expired": [],
}


def test_by_calling() -> None:
    """No store, no worker: what is decided is a value."""
    created = given(Orders()).when(Create("7", "ada", 1900))
    created.then(OrderCreated("ada", 1900)).then_timers(payment="1h")
    created.when(Pay("7", "r1")).then(PaymentReceived("r1")).then_effects(Ship("7")).then_timers()
    created.after("2h").then(OrderExpired()).then_state(lambda state: state.status == "expired")


async def main() -> None:
    test_by_calling()
    with tempfile.TemporaryDirectory() as folder:
        async with connect(os.environ.get("STEPWELL_URL") or f"sqlite:///{folder}/orders.db") as store:
            engine = Engine(store).register(Orders())
            worker = Worker(store, [engine])  # usually a process of its own: `await worker.run(signals=True)`
            await an_order_that_is_paid(engine, worker, f"paid {uuid.uuid4()}")
            await an_order_that_is_forgotten(engine, worker, f"forgotten {uuid.uuid4()}")


async def an_order_that_is_paid(engine: Engine, worker: Worker, order_id: str) -> None:
    first = await engine.execute(Create(order_id, "ada", 1900), key="click 1")
    again = await engine.execute(Create(order_id, "ada", 1900), key="click 1")
    print("asked twice:", first.outcome, again.outcome)
    print(StateMachine.of(Orders()).mermaid(await engine.state(Orders, order_id)), end="")
    await engine.execute(Pay(order_id, "receipt 1"))
    await worker.drain()
    await show(engine, order_id)


async def an_order_that_is_forgotten(engine: Engine, worker: Worker, order_id: str) -> None:
    await engine.execute(Create(order_id, "grace", 500, patience=timedelta(milliseconds=100)))
    while not Orders().is_terminal(await engine.state(Orders, order_id)):
        await asyncio.sleep(0.05)
        await worker.drain()
    late = await engine.execute_dynamic("order", {"Pay": {"order_id": order_id, "receipt": "receipt 2"}})
    print("paid too late:", late.outcome)
    await show(engine, order_id)


async def show(engine: Engine, order_id: str) -> None:
    for recorded in await engine.events("order", order_id):
        print(f"  {recorded.version} {recorded.event}")


if __name__ == "__main__":
    asyncio.run(main())
