"""What the pictures and the browser tests look at: a shop with orders that wait and fail, and subscriptions."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from stepwell import (
    Context,
    Decider,
    Decision,
    EffectContext,
    PermanentError,
    Retry,
    StateInfo,
    Transition,
    handler,
    step,
    workflow,
)

QUICK = Retry(3, base=0.4, jitter=0.2)
log = logging.getLogger("shop")
PACE = float(os.environ.get("SHOP_PACE", "0.02"))  # seconds that a unit of work takes
MARKS = Path(os.environ.get("SHOP_MARKS", "/nonexistent"))


class SMTPServerDisconnected(Exception):  # noqa: N818 - the name that smtplib has
    """The mail server has hung up."""


@dataclass
class Delivery:
    courier: str
    parcels: int
    fragile: bool = False


@step
async def reserve_stock(order: str, items: list[str]) -> dict[str, Any]:
    await asyncio.sleep(3 * PACE)
    return {"order": order, "shelf": "B-12", "items": items, "reserved_until": "2026-11-20T12:00:00Z"}


def first_time(mark: Path) -> bool:
    """True once for each mark, if there is a folder for marks."""
    if not mark.parent.exists() or mark.exists():
        return False
    mark.touch()
    return True


@step(retry=QUICK)
async def charge_card(order: str, cents: int) -> dict[str, Any]:
    log.info("asking bank.example for %s", order)
    await asyncio.sleep(2 * PACE)
    mark = MARKS / f"{order}.charged"
    if first_time(mark):
        log.warning("bank.example: no answer within 2 s")
        raise ConnectionError("the bank did not answer")
    log.info("charged %s with %.2f EUR", order, cents / 100)
    return {"charge": "ch_9f31", "cents": cents, "currency": "EUR"}


@step
async def pack(item: str) -> str:
    await asyncio.sleep((2 + len(item) % 4) * PACE)
    return f"{item} packed"


@step(retry=QUICK)
async def send_receipt(to: str, order: str) -> str:
    await asyncio.sleep(2 * PACE)
    log.info("connecting to mail.example:587 for %s", to)
    if to.endswith("@down.example") and not (MARKS / "mail is back").exists():
        raise SMTPServerDisconnected("Connection unexpectedly closed")
    return f"receipt of {order} sent to {to}"


@workflow
async def fulfil_order(
    ctx: Context, order: str, items: list[str], *, cents: int = 5990, email: str = "ada@example.com", gift: bool = False
) -> str:
    """Bring an order to its customer.

    Reserves the stock, charges the card, packs every item, waits for a courier, and sends the receipt.
    """
    await reserve_stock(order, items)
    await charge_card(order, cents)
    await asyncio.gather(*(ctx.step(pack, item) for item in items))
    delivery = await ctx.wait("courier_accepted", Delivery)
    await send_receipt(email, order)
    return f"{order} is on its way with {delivery.courier}"


@step
async def collect(day: str) -> int:
    await asyncio.sleep(4 * PACE)
    return 240


@step(retry=Retry(1))
async def render(day: str, orders: int) -> str:
    await asyncio.sleep(PACE)
    if day == "2026-10-31":
        raise MemoryError("a page of 4,096 columns")
    return f"{day}: {orders} orders"


@workflow
async def nightly_report(day: str) -> str:
    """The figures of a day."""
    return await render(day, await collect(day))


@step(retry=Retry(8, base=120.0))
async def push(customer: int) -> None:
    await asyncio.sleep(PACE)
    raise ConnectionError("429 Too Many Requests")


@workflow
async def sync_crm(customer: int) -> None:
    await push(customer)


@workflow
async def campaign(ctx: Context, customers: list[int]) -> None:
    """One synchronisation for each customer."""
    await ctx.trigger_many(nightly_report.trigger(f"customer {one}") for one in customers)
    await asyncio.sleep(PACE)


@handler("emails", retry=Retry(2, base=0.05))
async def send_email(message: dict[str, Any]) -> None:
    await asyncio.sleep(PACE)
    if "@" not in str(message.get("to")):
        raise PermanentError(f"{message.get('to')!r} is no address")


@dataclass(frozen=True)
class Start:
    subscription: str
    plan: str = "team"


@dataclass(frozen=True)
class AddCard:
    subscription: str
    last4: str


@dataclass(frozen=True)
class RecordCharge:
    subscription: str
    paid: bool
    code: str = ""


@dataclass(frozen=True)
class Cancel:
    subscription: str
    reason: str = "customer"


Input = Start | AddCard | RecordCharge | Cancel


@dataclass(frozen=True)
class Started:
    plan: str


@dataclass(frozen=True)
class CardAdded:
    last4: str


@dataclass(frozen=True)
class Paid:
    cents: int


@dataclass(frozen=True)
class ChargeFailed:
    attempt: int
    code: str


@dataclass(frozen=True)
class GraceEnded:
    pass


@dataclass(frozen=True)
class Cancelled:
    reason: str


Event = Started | CardAdded | Paid | ChargeFailed | GraceEnded | Cancelled


@dataclass(frozen=True)
class TellCustomer:
    subscription: str
    about: str


@dataclass(frozen=True)
class State:
    status: str = "New"
    plan: str = ""
    card: str = ""
    failures: int = 0


class Subscriptions(Decider[State, Input, Event, TellCustomer]):
    type = "subscription"
    route = "subscription"

    def initial(self) -> State:
        return State()

    def decide(self, state: State, input: Input, now: datetime) -> Decision[Event, TellCustomer, Input]:
        match state.status, input:
            case "New", Start(_, plan):
                return Decision.event(Started(plan))
            case "Trial", AddCard(_, last4):
                return Decision.event(CardAdded(last4))
            case (("Active" | "PastDue"), RecordCharge(_, True, _)):
                return Decision.event(Paid(1900))
            case (("Active" | "PastDue"), RecordCharge(name, False, code)) if state.failures < 3:
                failed = Decision.event(ChargeFailed(state.failures + 1, code))
                told = failed.with_effect(TellCustomer(name, code))
                return told.with_timer_after(timedelta(days=5), RecordCharge(name, False, "grace"), key="grace")
            case "PastDue", RecordCharge():
                return Decision.event(GraceEnded())
            case (("Trial" | "Active" | "PastDue" | "Suspended"), Cancel(_, reason)):
                return Decision.event(Cancelled(reason)).cancel_timer("grace")
        raise ValueError(f"{type(input).__name__} does not fit a subscription that is {state.status}")

    def evolve(self, state: State, event: Event) -> State:
        match event:
            case Started(plan):
                return State("Trial", plan)
            case CardAdded(last4):
                return replace(state, status="Active", card=last4)
            case Paid():
                return replace(state, status="Active", failures=0)
            case ChargeFailed(attempt, _):
                return replace(state, status="PastDue", failures=attempt)
            case GraceEnded():
                return replace(state, status="Suspended")
            case Cancelled():
                return replace(state, status="Ended")

    def is_terminal(self, state: State) -> bool:
        return state.status == "Ended"

    async def handle(self, effect: TellCustomer, ctx: EffectContext) -> None:
        await asyncio.sleep(PACE)

    def state_info(self, state: State) -> StateInfo:
        return StateInfo(state.status, terminal=state.status == "Ended")

    def transitions(self, state: State) -> list[Transition]:
        cancel = Transition("Cancel", "Ended")
        return {
            "New": [Transition("Start", "Trial")],
            "Trial": [Transition("AddCard", "Active"), cancel],
            "Active": [
                Transition("RecordCharge", "PastDue", effects=["TellCustomer"], timers=["grace"]),
                cancel,
            ],
            "PastDue": [Transition("RecordCharge", "Active"), Transition("RecordCharge", "Suspended"), cancel],
            "Suspended": [cancel],
        }.get(state.status, [])

    def states(self) -> list[State]:
        return [State(name) for name in ("New", "Trial", "Active", "PastDue", "Suspended", "Ended")]


ALL: list[Any] = [fulfil_order, nightly_report, sync_crm, campaign, send_email, Subscriptions()]
