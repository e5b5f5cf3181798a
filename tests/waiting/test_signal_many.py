"""Many signals in one transaction: all are sent or none, and the answers come in their order."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from stepwell import (
    Context,
    InvalidOption,
    RunNotFound,
    SerializationError,
    SignalAnswer,
    Store,
    StoreUnavailable,
    sync,
    workflow,
)
from stepwell.store.run_key import WhichRun
from stepwell.store.signals import NewSignal
from tests.store.seam import once, watched
from tests.workflows.kit import drained

WOKE, KEPT, TOO_LATE = SignalAnswer


@workflow
async def account(ctx: Context, owner: str) -> int:
    first = await ctx.wait("booked", int)
    return first + await ctx.wait("booked", int)


async def accounts(store: Store) -> tuple[WhichRun, WhichRun]:
    """Two runs: one that waits, and one that has not begun."""
    waits = await account.trigger("ann").options(key="ann").execute(store)
    await drained(store, account)
    return waits, await account.trigger("bob").options(key="bob").execute(store)


@pytest.mark.proves("ST-04")
async def test_answers_come_in_the_order_of_the_signals(store: Store) -> None:
    ann, bob = await accounts(store)
    sent: list[NewSignal] = [
        (bob, "booked", 5),
        (account.with_key("ann"), "booked", 1),
        (ann, "booked", 2),
        (bob, "booked", 6),
    ]
    assert await store.signal_many(sent) == [KEPT, WOKE, KEPT, KEPT]
    await drained(store, account)
    assert [await store.result(run, timeout=0) for run in (ann, bob)] == [3, 11]
    assert await store.signal_many([(ann, "booked", 9)]) == [TOO_LATE]
    assert await store.signal_many([]) == []


@pytest.mark.proves("ST-04")
async def test_an_error_sends_none(store: Store) -> None:
    ann, bob = await accounts(store)
    with pytest.raises(RunNotFound):
        await store.signal_many([(bob, "booked", 1), (10**9, "booked", 2)])
    with pytest.raises(SerializationError, match="nothing was sent"):
        await store.signal_many([(bob, "booked", 1), (ann, "booked", "much")])
    with pytest.raises(InvalidOption, match="each is a tuple"):
        await store.signal_many([(bob,)])  # type: ignore[list-item]
    assert await store.signal_many([(ann, "booked", 1), (bob, "booked", 1)]) == [WOKE, KEPT]


@pytest.mark.proves("ST-04")
async def test_keys_make_each_count_once(store: Store) -> None:
    ann, bob = await accounts(store)
    sent = [(ann, "booked", 1), (bob, "booked", 2)]
    assert await store.signal_many(sent, keys=["k", "l"]) == [WOKE, KEPT]
    assert await store.signal_many([*sent, (bob, "booked", 3)], keys=["k", "l", "m"]) == [TOO_LATE, TOO_LATE, KEPT]
    with pytest.raises(InvalidOption, match="give each of the 2 signals its key"):
        await store.signal_many(sent, keys=["k"])


@pytest.mark.proves("ST-04")
async def test_they_are_sent_with_the_callers_transaction_or_never(store: Store) -> None:
    ann, bob = await accounts(store)
    with contextlib.suppress(ZeroDivisionError):
        async with store.transaction() as tx:
            assert await store.signal_many([(ann, "booked", 1), (bob, "booked", 1)], tx=tx) == [WOKE, KEPT]
            raise ZeroDivisionError
    async with store.transaction() as tx:
        sent: list[NewSignal] = [(ann, "booked", 2), (account.with_key("bob"), "booked", 2), (ann, "booked", 3)]
        assert await store.signal_many(sent, tx=tx) == [WOKE, KEPT, KEPT]
    await drained(store, account)
    assert await store.result(ann, timeout=0) == 5


@pytest.mark.proves("ST-04")
async def test_opposite_orders_do_not_wait_for_each_other(store: Store) -> None:
    runs = [await account.trigger("x").execute(store) for _ in range(4)]
    both = [[(run, "booked", 1) for run in order] for order in (runs, runs[::-1])]
    answers = await asyncio.gather(*(store.signal_many(some) for some in both * 5))
    assert all(answer == [KEPT] * 4 for answer in answers)


@pytest.mark.proves("ST-04")
def test_a_sync_store_sends_many_too(store_url: str) -> None:
    with sync.connect(store_url) as store:
        runs = [account.trigger("x").execute(store) for _ in range(2)]
        assert store.signal_many((run, "booked", 1) for run in runs) == [KEPT, KEPT]
        with store.transaction() as tx:
            assert store.signal_many([(run, "booked", 1) for run in runs], tx=tx) == [KEPT, KEPT]


@pytest.mark.proves("ST-04")
async def test_after_a_lost_reply_nothing_is_sent_twice(store: Store) -> None:
    ann, bob = await accounts(store)
    over, driver = watched(store)
    driver.after = once(StoreUnavailable("reset after the work was done"))
    assert await over.signal_many([(ann, "booked", 1), (bob, "booked", 1)]) == [WOKE, KEPT]
    assert driver.scripts == 2, "the reply was not lost: void"
    assert await store.signal_many([(ann, "booked", 2)]) == [KEPT]
    await drained(store, account)
    assert await store.result(ann, timeout=0) == 3
