"""A run that waits for an event gets each that it asked for, once and in order, whichever of the two comes first."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any

import pytest

from stepwell import (
    Context,
    Encrypted,
    IdempotencyConflict,
    InvalidName,
    InvalidOption,
    Keyring,
    Reason,
    RunStatus,
    SerializationError,
    SignalAnswer,
    Store,
    Worker,
    connect,
    race,
    sync,
    wait,
    wait_event,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.store.choice import MOST_FIELDS, choice_of
from stepwell.testing import world
from tests.ground.waiting import until
from tests.store.seam import ask, watched
from tests.store.test_encryption import everything
from tests.workflows.kit import begun, drained, statuses


@dataclass(frozen=True)
class Paid:
    order: int
    amount: int = 1


@workflow
async def one(ctx: Context, order: int) -> int:
    paid = await ctx.wait_event("paid", Paid, where={"order": order})
    return paid.amount


@workflow
async def all_of(count: int, replay: str | None = None) -> list[int]:
    return [(await wait_event("paid", Paid, replay=replay)).amount for _ in range(count)]


@workflow
async def late(replay: str | None = None) -> int:
    await wait("go")
    return (await wait_event("paid", Paid, replay=replay)).amount


@workflow
async def in_time(default: int) -> int:
    paid = await wait_event("paid", Paid, timeout="1h", default=None)
    return default if paid is None else paid.amount


@workflow
async def raised() -> int:
    return (await wait_event("paid", Paid, timeout="1h", default=LookupError)).amount


@workflow
def in_a_thread(ctx: sync.Context, order: int) -> int:
    return ctx.wait_event("paid", Paid, where={"order": order}).amount


@workflow
async def first_of() -> Any:
    found: tuple[int, Any] = await race(wait_event("paid", Paid), wait("go", str))
    return [found[0], found[1] if found[0] else found[1].amount]


@workflow
async def again(ctx: Context, seen: list[int]) -> list[int]:
    paid = await ctx.wait_event("paid", Paid)
    if len(seen) < 2:
        ctx.restart([*seen, paid.amount])
    return [*seen, paid.amount]


@workflow
async def named(name: str) -> str:
    called: dict[str, str] = await wait_event("called", where={"name": name})
    return called["name"]


@workflow
async def two_orders() -> list[int]:
    first = await wait_event("paid", Paid, where={"order": 1})
    second = await wait_event("paid", Paid, where={"order": 2})
    return [first.amount, second.amount]


async def output(store: Store, run_id: int) -> Any:
    return (await store.get_run(run_id)).output(object)


@pytest.mark.proves("BC-01", "BC-02")
async def test_an_event_wakes_the_runs_that_wait_for_it_and_no_other(store: Store) -> None:
    runs = [await begun(store, one, order) for order in (1, 2, 1)]
    await drained(store, one)
    assert await statuses(store, runs[0]) == {"@paid#1": "PAUSED"}
    assert (await store.get_run(runs[0])).worker is None
    await store.broadcast("paid", Paid(1, 5))
    assert await drained(store, one) == 3  # the event, and two runs
    assert [await output(store, runs[0]), await output(store, runs[2])] == [5, 5]
    assert (await store.get_run(runs[1])).status is RunStatus.PAUSED
    await store.broadcast("refunded", Paid(2))
    await store.broadcast("paid", {"order": "2"})  # a text is no number
    assert await drained(store, one) == 2
    await store.broadcast("paid", Paid(2, 7))
    await drained(store, one)
    assert await output(store, runs[1]) == 7


@pytest.mark.proves("BC-02", "BC-03")
async def test_each_event_is_taken_once_and_in_the_order_of_publication(store: Store) -> None:
    run_id = await begun(store, all_of, 4)
    for amount in (1, 2):  # before it waits, but after it was triggered
        await store.broadcast("paid", Paid(1, amount))
        await drained(store, all_of)
    for amount in (3, 4):
        await store.broadcast("paid", Paid(1, amount))
    await drained(store, all_of)
    assert await output(store, run_id) == [1, 2, 3, 4]
    assert len(await ask(store, "select 1 from {subscription}")) == 1, "only where the last one stands counts"


@pytest.mark.proves("BC-03")
async def test_how_far_a_wait_looks_back(store: Store, clock: TestClock) -> None:
    await store.broadcast("paid", Paid(1, 1))
    await drained(store, late)
    clock.advance("1h")
    runs = [await begun(store, late, replay) for replay in (None, "0s", "30m", "90m")]
    await drained(store, late)
    clock.advance("10m")
    await store.broadcast("paid", Paid(1, 2))
    await drained(store, late)
    clock.advance("10m")
    for run_id in runs:
        await store.signal(run_id, "go")
    await drained(store, late)
    assert [await output(store, runs[place]) for place in (0, 2, 3)] == [2, 2, 1]
    assert (await store.get_run(runs[1])).status is RunStatus.PAUSED
    clock.advance("1s")
    await store.broadcast("paid", Paid(1, 3))
    await drained(store, late)
    assert await output(store, runs[1]) == 3


@pytest.mark.proves("BC-04")
async def test_a_wait_that_is_over_in_time_returns_its_default_and_takes_nothing(
    store: Store, clock: TestClock
) -> None:
    runs = [await begun(store, in_time, 0), await begun(store, raised), await begun(store, first_of)]
    await drained(store, in_time, raised, first_of)
    clock.advance("1h")
    await store.signal(runs[2], "go", "now")
    await drained(store, in_time, raised, first_of)
    assert await output(store, runs[0]) == 0
    assert (await store.get_run(runs[1])).last_error == "LookupError: no event paid came in time"
    assert await output(store, runs[2]) == [1, "now"]
    assert await ask(store, "select 1 from {subscription} where taken is null") == []
    other = await begun(store, first_of)
    await drained(store, first_of)
    await store.broadcast("paid", Paid(1, 4))
    await drained(store, in_time, raised, first_of)
    assert await output(store, other) == [0, 4]


@pytest.mark.proves("BC-04", "BC-09")
async def test_a_sync_workflow_waits_for_events_and_a_resume_stands_for_one(store: Store) -> None:
    runs = [await begun(store, in_a_thread, 1), await begun(store, in_a_thread, 2)]
    await drained(store, in_a_thread)
    await store.broadcast("paid", Paid(1, 6))
    assert await store.resume(runs[1], "@paid", Paid(2, 8)) is SignalAnswer.WOKE
    await drained(store, in_a_thread)
    assert [await output(store, run_id) for run_id in runs] == [6, 8]


@pytest.mark.proves("BC-03", "BC-04")
async def test_a_restart_goes_on_behind_the_last_event_and_what_cannot_be_read_is_passed_over(store: Store) -> None:
    run_id = await begun(store, again, [])
    for amount in (1, 2):
        await store.broadcast("paid", Paid(1, amount))
    await drained(store, again)
    await store.broadcast("paid", {"order": "?"})
    await drained(store, again)
    assert (await store.get_run(run_id)).status is RunStatus.PAUSED
    assert "set aside" in str(await store.why(run_id))
    await store.broadcast("paid", Paid(1, 3))
    await drained(store, again)
    assert await output(store, run_id) == [1, 2, 3]
    assert (await store.get_run(run_id)).generation == 2


@pytest.mark.proves("BC-04")
async def test_paused_cancelled_and_forked_runs(store: Store, clock: TestClock) -> None:
    held, cancelled, original = [await begun(store, two_orders) for _ in range(3)]
    await drained(store, two_orders)
    await store.pause(held)
    await store.cancel(cancelled)
    await store.broadcast("paid", Paid(1, 5))
    await store.broadcast("paid", Paid(2, 6))
    await drained(store, two_orders)
    assert (await store.get_run(cancelled)).status is RunStatus.CANCELLED
    assert (await store.get_run(held)).status is RunStatus.PAUSED
    assert await output(store, original) == [5, 6]
    clock.advance("1s")
    fork = await store.fork(original, at="@paid#2")
    await store.unpause(held)
    await drained(store, two_orders)
    assert await output(store, held) == [5, 6]
    assert (await store.get_run(fork)).status is RunStatus.PAUSED, "a fork is a run of its own, triggered later"
    await store.broadcast("paid", Paid(2, 9))
    await drained(store, two_orders)
    assert await output(store, fork) == [5, 9]


@pytest.mark.proves("BC-05")
async def test_why_names_the_event(store: Store) -> None:
    run_id = await begun(store, one, 7)
    await drained(store, one)
    why = await store.why(run_id)
    assert (why.reason, why.waits_for) == (Reason.WAITING_FOR_EVENT, ("paid",))
    assert str(why) == "it waits for the event paid where order is 7; `store.broadcast('paid', data)`"
    both = await begun(store, first_of)
    await drained(store, first_of)
    assert "it waits for the signal go or the event paid" in str(await store.why(both))


@pytest.mark.proves("BC-01")
async def test_what_is_broadcast_in_a_transaction_is_published_if_that_commits(store: Store) -> None:
    run_id = await begun(store, one, 1)
    await drained(store, one)

    async def undone() -> None:
        async with store.transaction() as tx:
            await store.broadcast("paid", Paid(1, 1), tx=tx)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await undone()
    await drained(store, one)
    async with store.transaction() as tx:
        await store.broadcast("paid", Paid(1, 2), tx=tx)
    await drained(store, one)
    assert await output(store, run_id) == 2


@pytest.mark.proves("BC-01")
async def test_a_key_publishes_an_event_once(store: Store) -> None:
    first = await store.broadcast("paid", Paid(1), key="7")
    second = await store.broadcast("paid", Paid(1), key="7")
    assert (second, second.created) == (first, False)
    assert (await store.broadcast("refunded", Paid(1), key="7")).created
    with pytest.raises(IdempotencyConflict):
        await store.broadcast("paid", Paid(2), key="7")


@pytest.mark.proves("BC-06")
async def test_what_is_refused(store: Store) -> None:
    for name in ("", "a b", "x" * 255):
        with pytest.raises(InvalidName):
            await store.broadcast(name)
    with pytest.raises(InvalidOption, match="more than"):
        await store.broadcast("wide", {str(n): n for n in range(MOST_FIELDS + 1)})
    with pytest.raises(SerializationError):
        await store.broadcast("odd", object())

    async def wrong(where: Any) -> str:
        try:
            await wait_event("paid", where=where)
        except InvalidOption as error:
            return str(error)
        return ""

    @workflow
    async def refused() -> list[str]:
        return [await wrong(where) for where in ({}, {"a": 1, "b": 2}, {"a": 1.5}, {"a": None}, {"a": [1]}, [1])]

    run_id = await begun(store, refused)
    await drained(store, refused)
    assert all("where" in why for why in await output(store, run_id))


@pytest.mark.proves("BC-02")
async def test_an_event_that_is_published_while_a_wait_begins_is_taken(store: Store) -> None:
    """The event is published when the wait has looked once, and its worker did not see the wait, which it could not."""
    mine, driver = watched(store)
    run_id = await begun(mine, one, 1)

    async def told(*_: Any) -> bool:
        return True

    for each in (store, mine):
        each.database.broadcasts._tell_all = told  # type: ignore[method-assign, assignment]

    async def published() -> Any:
        await drained(store, all_of)
        return await ask(store, "select 1 from {broadcast_key}")

    async def between(_: Any) -> None:
        if "subscribe" in driver.script:
            driver.after = None
            await store.broadcast("paid", Paid(1, 3))
            await until(published)

    driver.after = between
    worker = Worker(mine, [one])
    await asyncio.wait_for(worker.drain(), 60)
    assert await output(store, run_id) == 3


@pytest.mark.proves("BC-07")
async def test_a_worker_without_events_makes_no_statement_for_them(store: Store) -> None:
    mine, driver = watched(store)
    texts: list[str] = []

    @workflow
    async def plain() -> str:
        return await wait("go", str)

    run_id = await begun(mine, plain)
    await drained(mine, plain)
    await mine.signal(run_id, "go", "x")
    await drained(mine, plain)
    texts += [call.statement for call in (*driver.reads, *driver.said)]
    texts += [call.statement for calls in driver.flushes for call in calls]
    assert texts
    known = await ask(store, "select name from {queue} where name like 'stepwell.%'")
    assert known == []
    ours = ("subscri", "broadcast", "event_workflow", "wake_runs", "published")
    assert [text for text in texts if any(one in text for one in ours)] == []


@pytest.mark.proves("BC-08")
async def test_tenants_hear_nothing_of_each_other(store_url: str, clock: TestClock) -> None:
    async with (
        connect(store_url, clock=clock, tenant="ann") as ann,
        connect(store_url, clock=clock, tenant="bob") as bob,
    ):
        runs = [await begun(each, one, 1) for each in (ann, bob)]
        await drained(ann, one)
        await drained(bob, one)
        await ann.broadcast("paid", Paid(1, 4))
        await drained(bob, one)
        await drained(ann, one)
        assert await output(ann, runs[0]) == 4
        assert (await bob.get_run(runs[1])).status is RunStatus.PAUSED


@pytest.mark.proves("BC-08")
async def test_an_encrypted_store_shows_neither_an_event_nor_by_what_a_run_chooses(
    store_url: str, clock: TestClock
) -> None:
    keys = Keyring({"k": os.urandom(32)}, "k")
    async with connect(store_url, clock=clock, codec=Encrypted(keys=keys)) as store:
        runs = [await begun(store, named, name) for name in ("marker-4711", "other")]
        await drained(store, named)
        await store.broadcast("called", {"name": "marker-4711"})
        await drained(store, named)
        assert await output(store, runs[0]) == "marker-4711"
        assert (await store.get_run(runs[1])).status is RunStatus.PAUSED
        seen = await everything(store)
        assert "marker-4711" not in seen
        plain = [choice_of({"name": name}, b"") for name in ("marker-4711", "other")]
        assert [one for one in plain if one in seen] == [], "who has no key cannot try values"


@pytest.mark.proves("BC-09")
@pytest.mark.backends("memory", reason="the kit's own")
async def test_a_world_fans_out_and_moves_its_clock() -> None:
    async with world(one, in_time) as w:
        first, second = await begun(w.store, one, 1), await begun(w.store, in_time, 9)
        await w.drain()
        await w.store.broadcast("paid", Paid(1, 2))
        await w.drain()
        assert [await output(w.store, first), await output(w.store, second)] == [2, 2]
        third = await begun(w.store, in_time, 9)
        await w.drain()
        await w.advance("1h")
        assert await output(w.store, third) == 2, "it was published since it was triggered"


@pytest.mark.proves("BC-10")
async def test_what_is_old_is_removed_but_not_what_a_run_was_told_of(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, one, 1)
    await drained(store, one)
    await store.pause(run_id)
    await store.broadcast("paid", Paid(1, 5))
    await store.broadcast("paid", Paid(2, 5))
    await drained(store, one)
    clock.advance("8d")
    assert await store.database.broadcasts.tidy() is False
    assert len(await ask(store, "select 1 from {broadcast}")) == 1
    assert len(await ask(store, "select 1 from {broadcast_key}")) == 3
    await store.unpause(run_id)
    await drained(store, one)
    assert await output(store, run_id) == 5
    clock.advance("8d")
    await store.prune()
    assert await ask(store, "select 1 from {subscription}") == []
