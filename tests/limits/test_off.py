"""What limits cost where there are none, and how they are turned on beside adds that are under way."""

import asyncio
import contextlib
from typing import Any

import pytest

from stepwell import Limits, Store, Worker, handler, workflow
from stepwell.store.driver import Call
from tests.ground.waiting import until
from tests.limits.test_running import claimed, keys_of
from tests.store.seam import Watched, ask, begin, claim

LIMITS_SQL = ("limit", "places", "keys_ahead", "ready_of_key", "admit", "adopt", "pay", "cost")


def of_limits(call: Call) -> bool:
    return any(word in call.statement for word in LIMITS_SQL)


@pytest.mark.proves("LI-09")
async def test_where_no_queue_has_limits_no_statement_asks_for_any_and_no_row_is_written(store: Store) -> None:
    @handler("mail")
    async def mail(payload: int) -> None:
        """Nothing."""

    @workflow
    async def greet(name: str) -> str:
        return name

    watched: Any = Watched(store.database.driver)
    with contextlib.ExitStack() as restored:
        for place in (store.database, store.database.tasks, store.database.limited, store.database.flusher):
            for name in ("driver", "_driver"):
                if getattr(place, name, None) is store.database.driver and place is not store.database:
                    restored.callback(setattr, place, name, getattr(place, name))
                    setattr(place, name, watched)
        restored.callback(setattr, store.database, "driver", store.database.driver)
        store.database.driver = watched
        async with Worker(store, [mail, greet]):
            await store.enqueue_many(mail, list(range(20)))
            run = await store.trigger(greet.trigger("ann"))
            assert await store.result(run) == "ann"
            await until(lambda: drained(store))
            await until(lambda: any(call.statement == "next_due" for call in watched.reads))
    calls = [*watched.reads, *watched.said, *(call for flush in watched.flushes for call in flush)]
    assert len(calls) > 10
    assert not [call.statement for call in calls if of_limits(call)]
    for table in ("limiter", "key_limit", "key_paid"):
        assert not await ask(store, f"select 1 from {{{table}}}")
    columns = "limit_key is not null or cost is not null"
    assert not await ask(store, f"select id from {{task}} where {columns}"), "so no index of limits has an entry"


async def drained(store: Store) -> bool:
    return (await store.counts("mail")).get("SUCCESS") == 20


@pytest.mark.proves("LI-05")
async def test_what_an_open_transaction_adds_while_limits_are_turned_on_is_claimed_under_them(store: Store) -> None:
    await store.create_queue("q")
    worker, number = await begin(store), await store.database.queue_id("q")
    async with store.transaction() as tx:
        await store.enqueue_many("q", [{"tenant": "a", "n": 1}] * 3, tx=tx)
        turning_on = asyncio.create_task(store.limits.set("q", key="tenant", per_key=1, cost="n"))
        await asyncio.wait([turning_on], timeout=0.05)  # it waits for the transaction, or comes before all of it
        assert not turning_on.done()
    await turning_on
    await store.enqueue("q", {"tenant": "b"})
    assert not await claim(store, worker, "q")
    assert keys_of(await claimed(store, worker, number)) == "ab"
    assert {row["limit_key"] for row in await ask(store, "select limit_key from {task}")} == {"a", "b"}
    info = await store.limits.of("q")
    assert info is not None
    assert info.limits == Limits(key="tenant", per_key=1, cost="n")
