"""A database that pgqrs has made: messages and runs in each state that it knows."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

import asyncpg
import pgqrs  # type: ignore[import-untyped]
from pgqrs.decorators import step, workflow  # type: ignore[import-untyped]

STEPS = "select count(*) from pgqrs_workflow_steps"


@dataclass(frozen=True, slots=True)
class Left:
    """What pgqrs has left behind, as its own tables say."""

    url: str

    async def ask(self, sql: str) -> list[Any]:
        """Rows of its tables."""
        connection = await asyncpg.connect(self.url)
        try:
            return list(await connection.fetch(sql))
        finally:
            await connection.close()


@step  # type: ignore[untyped-decorator]
async def charge(ctx: Any, order: dict[str, Any]) -> dict[str, Any]:
    return {"charged": order["n"]}


@step  # type: ignore[untyped-decorator]
async def pack(ctx: Any, order: dict[str, Any]) -> str:
    match order["mode"]:
        case "fails":
            raise ValueError("no box")
        case "later":
            raise pgqrs.TransientStepError("the shop is closed")
        case "dies":
            raise KeyboardInterrupt
    return "packed"


@workflow(name="fulfil")  # type: ignore[untyped-decorator]
async def fulfil(ctx: Any, order: dict[str, Any]) -> list[Any]:
    charged = await charge(ctx, order)
    if order["mode"] == "pauses":
        await ctx.pause("approval", 300)
        raise pgqrs.PausedError("approval")
    return [charged, await pack(ctx, order)]


async def left_by_pgqrs(url: str) -> Left:
    """Make the tables with pgqrs itself, and leave work in them; its workers are gone when this returns."""
    config = pgqrs.Config(url)
    config.max_enqueue_per_second = config.max_enqueue_burst = None
    store = await pgqrs.connect_with(config)
    await pgqrs.admin(store).install()
    await _messages(store)
    await pgqrs.workflow().name("fulfil").store(store).create()
    consumer = await store.consumer("fulfil")
    for number, mode in enumerate(("goes well", "fails", "later", "pauses", "dies")):
        message = await _triggered(store, number, mode)
        [taken] = await consumer.dequeue(batch_size=1)
        assert taken.id == message.id
        run = await pgqrs.run().message(taken).store(store).execute()
        with contextlib.suppress(Exception, KeyboardInterrupt):
            await fulfil(run, {"n": number, "mode": mode})
        if mode in ("goes well", "fails"):
            await consumer.archive(taken.id)
    await _triggered(store, 5, "waits")
    left = Left(url)
    await left.ask("update pgqrs_messages set consumer_worker_id = null where archived_at is null")  # it has stopped
    return left


async def _messages(store: Any) -> None:
    await store.queue("mail")
    producer = await store.producer("mail")
    for number in range(6):
        await producer.enqueue({"i": number, "to": "Zoë"})
    await producer.enqueue_delayed({"i": 6}, 3600)
    consumer = await store.consumer("mail")
    first, second, third, *_ = await consumer.dequeue(batch_size=3)
    await consumer.archive(first.id)
    await consumer.release_messages([second.id, third.id])


async def _triggered(store: Any, number: int, mode: str) -> Any:
    builder = pgqrs.workflow().name("fulfil").store(store)
    return await asyncio.wait_for(builder.trigger({"n": number, "mode": mode}).execute(), 10)
