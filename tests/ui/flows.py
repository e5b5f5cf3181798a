"""Workflows that wait, fail and take all sorts of arguments."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Literal

from stepwell import Context, Cron, Engine, PermanentError, Store, Worker, handler, step, workflow
from tests.ui import shop

log = logging.getLogger("shop.pay")
QUIET: dict[str, Any] = {"require_worker": "ignore"}


@dataclass
class Delivery:
    courier: str
    parcels: int
    fragile: bool = False


@step
async def price(what: str) -> int:
    return 1900 if what != "gold" else 190_000


@step
async def pay(cents: int) -> str:
    log.warning("paying %s", cents)
    if cents > 100_000:
        raise PermanentError("too dear")
    return f"paid {cents}"


@workflow
async def buy(what: str) -> str:
    """Buy a thing."""
    return await pay(await price(what))


@workflow
async def deliver(ctx: Context, what: str) -> str:
    delivery = await ctx.wait("accepted", Delivery)
    return f"{what} with {delivery.courier}, {delivery.parcels} parcels"


@workflow
async def configure(
    ctx: Context, name: str, *, size: Literal["small", "large"] = "small", count: int = 3, loud: bool = False
) -> dict[str, Any]:
    return {"name": name, "size": size, "count": count, "loud": loud}


@workflow
async def many(ctx: Context, count: int) -> None:
    for number in range(count):
        await ctx.step(price, str(number))


@step
async def chat(count: int) -> None:
    for number in range(count):
        log.warning("line %s of a program that says much: %s", number, "and more " * 40)


@workflow
async def loud(ctx: Context, count: int) -> None:
    for _ in range(-(-count // 1000)):
        await chat(min(count, 1000))


@workflow
async def tells(ctx: Context, what: str) -> None:
    log.warning("it tells")
    ctx.progress(what)
    ctx.set_value("status", {"at": what})
    for chunk in range(3):
        ctx.stream("tokens").write(chunk)


@handler("emails")
async def send_email(message: dict[str, str]) -> None:
    if "@" not in message["to"]:
        raise PermanentError(f"{message['to']} is no address")


ALL: list[Any] = [buy, deliver, configure, many, loud, tells, send_email]


async def filled(store: Store) -> dict[str, int]:
    """Runs of every sort, messages, and an instance."""
    bought = await store.trigger(buy.trigger("lamp").options(key="lamp", tags=["red"], **QUIET))
    failed = await store.trigger(buy.trigger("gold").options(key="gold", **QUIET))
    waits = await store.trigger(deliver.trigger("desk").options(key="desk", **QUIET))
    later = await store.trigger(buy.trigger("pen").options(delay="1h", **QUIET))
    await store.create_queue("emails")
    bad = await store.enqueue("emails", {"to": "nowhere"})
    good = await store.enqueue("emails", {"to": "ann@example.org"}, delay="1h")
    engine = Engine(store).register(shop.Subscriptions(), observe=True)
    for one in (shop.Start("s-1"), shop.AddCard("s-1", "4242"), shop.RecordCharge("s-1", paid=False, code="declined")):
        await engine.execute(one)
    await store.schedule("mornings", buy.trigger("bread"), Cron("0 7 * * MON-FRI", tz="Europe/Riga"))
    await Worker(store, [*ALL, engine]).drain()
    names = {"bought": bought, "failed": failed, "waits": waits, "later": later, "bad": bad, "good": good}
    return {name: int(number) for name, number in names.items()}


def own_pages(ids: dict[str, int]) -> list[str]:
    """The pages of what `filled` has made."""
    return [
        f"/runs/{ids['failed']}",
        f"/runs/{ids['waits']}",
        f"/runs/{ids['bought']}?step=price%231",
        f"/runs/{ids['bought']}?view=run",
        f"/runs/{ids['failed']}?tab=graph",
        f"/runs/{ids['failed']}?tab=source",
        f"/runs/{ids['waits']}?tab=source",
        f"/runs/{ids['later']}?fold=no",
        f"/tasks/{ids['bad']}",
        f"/tasks/{ids['good']}",
        "/queues/one?name=emails",
        "/queues/one?name=emails&show=waiting",
        "/queues/one?name=buy&show=finished",
        "/trigger?workflow=buy",
        "/trigger?workflow=configure",
        "/deciders?type=subscription",
        "/deciders?type=subscription&state=Trial",
        "/deciders/one?type=subscription&id=s-1",
        "/deciders/one?type=subscription&id=s-1&at=1",
        "/dead?queue=emails",
        "/schedules/one?name=mornings",
    ]
