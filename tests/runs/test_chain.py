"""A run that restarts is one run with generations, whoever asks: result, signal, cancel, find, why, show, retention."""

from __future__ import annotations

import asyncio

import pytest

from stepwell import CancelAnswer, Context, Reason, RunStatus, Store, step, workflow
from stepwell.base.clock import TestClock
from stepwell.operate.lookup import run_named
from stepwell.operate.run_page import page_of
from stepwell.operate.run_view import view_of
from tests.upkeep.rows import count as rows_in
from tests.workflows.kit import drained


@step
async def stamp(taken: list[str]) -> int:
    return len(taken)


@workflow(name="coin_till")
async def till(ctx: Context, taken: list[str]) -> str:
    """It takes one coin in each generation, and ends with the third."""
    await stamp(taken)
    if len(taken) == 3:
        return ", ".join(taken)
    coin = await ctx.wait("coin", str)
    ctx.set_value("taken", len(taken) + 1)
    return ctx.restart([*taken, coin])


@workflow
async def shop(ctx: Context, name: str) -> str:
    return await till.trigger([]).options(key=name).wait().execute(ctx)


async def fed(store: Store, *coins: str) -> None:
    for coin in coins:
        assert await store.signal(till.with_key("left"), "coin", coin)
        await drained(store, till)


@pytest.mark.proves("R-21", "ST-08")
async def test_the_parent_and_every_caller_wait_for_its_last_generation(store: Store) -> None:
    parent = await shop.trigger("left").execute(store)
    await drained(store, shop, till)
    child = await till.find("left", store)
    assert child is not None
    callers = [asyncio.ensure_future(store.result(run, timeout=60)) for run in (child.id, till.with_key("left"))]
    await asyncio.sleep(0)
    await fed(store, "a", "b")
    assert (await store.get_run(parent)).status is RunStatus.PAUSED
    assert not any(caller.done() for caller in callers)
    await fed(store, "c")
    await drained(store, shop)
    assert await asyncio.gather(*callers) == ["a, b, c"] * 2
    assert await store.result(parent, timeout=0) == "a, b, c"
    found = await till.find("left", store)
    assert found is not None
    assert (found.id, found.generation, found.parent_id) == (child.id, 3, parent)


@pytest.mark.proves("R-21", "ST-08")
async def test_people_see_one_run_and_its_generation(store: Store) -> None:
    run = await till.trigger([]).options(key="left").execute(store)
    await drained(store, till)
    await fed(store, "a", "b")
    told = await store.why(till.with_key("left"))
    assert (told.reason, told.waits_for) == (Reason.WAITING_FOR_SIGNAL, ("coin",))
    assert [one.id for one in await store.runs("coin_till")] == [run]
    named = await run_named(store, "left")
    look, page = await view_of(store, named), await page_of(store, named, first=None, chosen=None)
    assert (look.run.generation, [one.key for one in look.steps]) == (2, ["stamp#1", "coin#1"])
    assert (page.run.generation, [one.key for one in page.steps]) == (2, ["stamp#1", "coin#1"])
    assert [one.taken_by for one in await store.signals(run)] == ["coin#1", "coin#1"]
    assert await store.value(run, "taken", int, timeout=0) == 2


@pytest.mark.proves("R-21", "ST-08")
async def test_a_cancel_of_the_parent_reaches_a_child_that_has_restarted(store: Store) -> None:
    parent = await shop.trigger("left").execute(store)
    await drained(store, shop, till)
    await fed(store, "a")
    assert await store.cancel(parent) is CancelAnswer.CANCELLED
    child = await store.get_run(till.with_key("left"))
    assert (child.status, child.generation) == (RunStatus.CANCELLED, 1)
    assert await store.retry(parent)
    await fed(store, "b", "c")
    await drained(store, shop)
    assert await store.result(parent, timeout=0) == "a, b, c"


@pytest.mark.proves("R-21", "ST-08")
async def test_it_is_kept_while_it_lives_and_removed_as_one(store: Store, clock: TestClock) -> None:
    run = await till.trigger([]).options(key="left").execute(store)
    await drained(store, till)
    await fed(store, "a")
    clock.advance("40d")
    assert await store.prune("30d") == 0
    await fed(store, "b", "c")
    assert await store.result(run, timeout=0) == "a, b, c"
    assert await store.prune("30d") == 0
    clock.advance("40d")
    assert await store.prune("30d") == 1
    assert [await rows_in(store, table) for table in ("task", "step", "signal", "report")] == [0] * 4
