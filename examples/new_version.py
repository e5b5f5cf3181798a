"""A shop changes its classes while its work is open: version 2 goes on with what version 1 has left.

Run it:  python examples/new_version.py
It uses a temporary SQLite file, or the store that STEPWELL_URL names.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import uuid4

from stepwell import Context, Worker, connect, handler, step, upcast, workflow

SHOP = f"shop{uuid4().hex[:8]}"  # a name of its own in a shared store


# ---- version 1


@dataclass(frozen=True)
class OldOrder:
    id: str
    euros: float


@step(id="charge")
async def old_charge(order: OldOrder) -> OldOrder:
    print(f"version 1 charges {order.euros} euros for {order.id}")
    return order


@workflow(name=f"{SHOP}.sale")
async def old_sale(ctx: Context, order: OldOrder) -> float:
    charged = await old_charge(order)
    await ctx.wait("approved")
    return charged.euros


@handler(f"{SHOP}.mail")
async def old_mail(order: OldOrder) -> None:
    print(f"version 1 writes about {order.euros} euros")


# ---- version 2: another name and another type for the price


@dataclass(frozen=True)
class Order:
    __stepwell_version__: ClassVar[int] = 2
    id: str
    cents: int


@upcast(Order, 1)
def in_cents(old: dict[str, Any]) -> dict[str, Any]:
    return {"id": old["id"], "cents": round(old["euros"] * 100)}


@step
async def charge(order: Order) -> Order:
    print(f"version 2 charges {order.cents} cents for {order.id}")
    return order


@workflow(name=f"{SHOP}.sale")
async def sale(ctx: Context, order: Order) -> int:
    charged = await charge(order)
    await ctx.wait("approved")
    return charged.cents


@handler(f"{SHOP}.mail")
async def mail(order: Order) -> None:
    print(f"version 2 writes about {order.cents} cents")


async def play(url: str) -> None:
    async with connect(url) as store:
        open_run = await old_sale.trigger(OldOrder("lamp", 9.5)).options(require_worker="ignore").execute(store)
        await Worker(store, [old_sale]).drain()
        new_run = await old_sale.trigger(OldOrder("desk", 99.0)).options(require_worker="ignore").execute(store)
        await store.enqueue(old_mail, OldOrder("lamp", 9.5))
        print("one run is open, one has not begun, and a message waits: version 2 is deployed")
        worker = Worker(store, [sale, mail])
        await worker.drain()
        for run_id in (open_run, new_run):
            await store.signal(run_id, "approved")
        await worker.drain()
        print(f"the sales came to {await store.result(open_run):.0f} and {await store.result(new_run):.0f} cents")

        await store.enqueue(mail, Order("chair", 4900))
        await Worker(store, [old_mail]).drain()
        waiting = next(one for one in await store.queue_stats() if one.queue == f"{SHOP}.mail")
        print(f"an old worker leaves {waiting.unreadable} newer message to new ones, with its attempts")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(os.environ.get("STEPWELL_URL") or f"sqlite:///{folder}/shop.db"))


if __name__ == "__main__":
    main()
