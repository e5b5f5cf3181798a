"""Events that runs and deciders emit: once for each call, with what they report."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from stepwell import (
    Context,
    Decider,
    Decision,
    Engine,
    NotInRun,
    SerializationError,
    Store,
    current,
    shield,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from tests.outbox.kit import Sink, drained, outbox, statuses


@workflow
async def order(ctx: Context, number: int) -> str:
    first = await ctx.emit("order.placed", number, subject=f"order/{number}", ordered=True)
    await ctx.sleep("1m")
    second = await ctx.emit("order.paid", number, subject=f"order/{number}", ordered=True)
    return f"{first} {second}"


@pytest.mark.proves("O-09", "O-05")
async def test_a_run_emits_each_event_once_however_often_it_is_replayed(store: Store, clock: TestClock) -> None:
    sink = Sink()
    await drained(store, outbox(sink), order)
    run_id = await order.trigger(7).execute(store)
    for _ in range(3):
        await drained(store, outbox(sink), order)
        clock.advance(30)
    await drained(store, outbox(sink), order)
    assert (await store.result(run_id)).split() == [one.id for one in sink.events]
    assert [(one.type, one.data) for one in sink.events] == [("order.placed", 7), ("order.paid", 7)]
    assert [one.key for one in await store.steps(run_id)] == ["emit()#1", "sleep#1", "emit()#2"]


@workflow(retry=1)
def sync_order(ctx: sync.Context, number: int) -> str:
    return ctx.emit("order.placed", number)


async def test_a_sync_workflow_emits(store: Store) -> None:
    sink = Sink()
    await drained(store, outbox(sink), sync_order)
    run_id = await sync_order.trigger(3).execute(store)
    await drained(store, outbox(sink), sync_order)
    assert [one.id for one in sink.events] == [await store.result(run_id)]


tried: list[str] = []


@step(retry=2)
async def charge(number: int) -> int:
    await current().emit("order.charged", number)
    tried.append("async")
    if len(tried) == 1:
        raise OSError("away")
    return number


@step
def book(number: int) -> int:
    sync.current().emit("order.booked", number)
    return number


@workflow(retry=1)
async def shop(ctx: Context, number: int) -> int:
    await charge(number)
    return await ctx.step(book, number)


@pytest.mark.proves("O-09", "O-01")
async def test_the_events_of_a_step_are_written_with_its_result_and_not_with_its_failure(
    store: Store, clock: TestClock
) -> None:
    tried.clear()
    sink = Sink()
    await drained(store, outbox(sink), shop)
    run_id = await shop.trigger(1).execute(store)
    await drained(store, outbox(sink), shop)
    assert sink.data == []
    clock.advance(10)
    await drained(store, outbox(sink), shop)
    assert await store.result(run_id) == 1
    assert [one.type for one in sink.events] == ["order.charged", "order.booked"]
    assert await statuses(store) == {"SUCCESS": 2}


@workflow
async def forgets(ctx: Context) -> None:
    ctx.emit("a")  # type: ignore[unused-awaitable]


async def test_an_event_that_is_not_awaited_is_reported(store: Store) -> None:
    run_id = await forgets.trigger().execute(store)
    await drained(store, forgets)
    assert "without `await`" in ((await store.get_run(run_id)).last_error or "")


async def test_only_code_of_the_run_emits_for_it() -> None:
    with pytest.raises(NotInRun):
        current()


@workflow(retry=1, cleanup="1m")
async def cleans(ctx: Context) -> None:
    try:
        await ctx.emit("begun")
        await ctx.wait("word")
    finally:
        async with shield():
            await ctx.emit("cleaned")


async def test_a_cancelled_run_emits_in_a_shield(store: Store) -> None:
    sink = Sink()
    await drained(store, outbox(sink), cleans)
    run_id = await cleans.trigger().execute(store)
    await drained(store, outbox(sink), cleans)
    await store.cancel(run_id)
    await drained(store, outbox(sink), cleans)
    assert [one.type for one in sink.events] == ["begun", "cleaned"]


@step
async def pays(number: int) -> int:
    await current().emit("paid", number, subject="s", ordered=True)
    return number


@workflow(retry=1)
async def crashed(ctx: Context, number: int) -> int:
    await ctx.emit("begun", number, subject="s", ordered=True)
    await pays(number)
    await asyncio.gather(ctx.emit("left", number), pays(number + 1))
    return number


@dataclass
class Place:
    label: str


@dataclass
class Placed:
    label: str


@dataclass
class Shop(Decider[list[str], Place, Placed, None]):
    type = "shop"

    def identify(self, input: Place) -> str:
        return "one"

    def initial(self) -> list[str]:
        return []

    def decide(self, state: list[str], input: Place, now: datetime) -> Decision[Placed, Any, Any]:
        decided = Decision.event(Placed(input.label)).with_emit("shop.placed.v1", {"label": input.label})
        if input.label == "bad":
            return decided.with_emit("shop.bad", object())
        return decided.with_emit("mail", input.label, subject="mail", ordered=False)

    def evolve(self, state: list[str], event: Placed) -> list[str]:
        return [*state, event.label]


@pytest.mark.proves("O-09", "O-13", "O-01")
async def test_what_a_decision_emits_is_there_if_the_decision_is(store: Store) -> None:
    sink = Sink()
    engine = Engine(store).register(Shop())
    await drained(store, outbox(sink), engine)
    for number in range(3):
        await engine.execute(Place(str(number)))
    await engine.submit(Place("submitted"))
    with pytest.raises(SerializationError, match="data of the event shop"):
        await engine.execute(Place("bad"))
    async with store.transaction() as tx:
        await engine.execute(Place("joined"), tx=tx)
    with contextlib.suppress(RuntimeError):
        async with store.transaction() as tx:
            await engine.execute(Place("undone"), tx=tx)
            raise RuntimeError
    await drained(store, outbox(sink), engine)
    placed = [one for one in sink.events if one.type == "shop.placed.v1"]
    assert [one.data["label"] for one in placed] == ["0", "1", "2", "joined", "submitted"]
    assert {one.subject for one in placed} == {"shop/one"}
    assert sorted(one.data for one in sink.events if one.type == "mail") == ["0", "1", "2", "joined", "submitted"]
