"""A process that waits for events or sends them, until it is killed: `python -m tests.broadcasts.crewmate URL ROLE`."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from typing import Any

from stepwell import Context, Store, Worker, Workflow, connect, on_event, workflow

EVENT, LAST, SENT = "news", -1, "sent"
LEASE = "2s"
WORKFLOWS = 10


@workflow(name="reader", retry=100)
async def reader(ctx: Context, seen: list[int]) -> list[int]:
    """Read all events, in their order, until the last."""
    while (news := await ctx.wait_event(EVENT))["n"] != LAST:
        seen = [*seen, news["n"]]
    return seen


def listeners(count: int) -> list[Workflow[..., Any]]:
    """Workflows that an event triggers, each with the number of the event as its result."""

    def listener(place: int) -> Workflow[..., Any]:
        @on_event(EVENT)
        @workflow(name=f"listener-{place}", retry=100)
        async def listen(news: dict[str, int]) -> int:
            return news["n"]

        return listen

    return [listener(place) for place in range(count)]


async def send(store: Store) -> None:
    """Send events, each in a transaction with a row of our own that says so."""
    for turn in itertools.count():
        n = os.getpid() * 1_000_000 + turn
        async with store.transaction() as tx:
            await store.broadcast(EVENT, {"n": n}, tx=tx)
            await tx.execute(f"insert into {SENT} (n) values ({n})")
        await asyncio.sleep(0.2)  # the pace of the publisher


async def main(url: str, role: str, count: str) -> None:
    async with connect(url, lease=LEASE) as store:
        if role == "send":
            await send(store)
        else:
            await Worker(store, [reader, *listeners(int(count))], concurrency=20).run(signals=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
