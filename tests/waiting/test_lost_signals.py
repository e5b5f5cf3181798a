"""Replies that are lost, and workers: a signal is sent once, and one that was taken stays taken by the same wait."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from stepwell import Context, LeaseLost, SignalAnswer, Store, StoreUnavailable, Worker, step, workflow
from stepwell.base.clock import TestClock
from stepwell.store.driver import Call
from tests.ground.waiting import until
from tests.queue.raw import ask, change
from tests.store.seam import Gate, Watched, once, waiting_for_locks, watched
from tests.workflows.kit import begun, die, drained, statuses, steps_of

WOKE, KEPT, TOO_LATE = SignalAnswer.WOKE, SignalAnswer.KEPT, SignalAnswer.TOO_LATE
LOST = StoreUnavailable("reset after the work was done")


@workflow
async def twice(ctx: Context) -> list[int]:
    return [await ctx.wait("number", int), await ctx.wait("number", int)]


@pytest.mark.proves("rule-04", "P-05", "promise-15")
@pytest.mark.parametrize("key", [None, "click"], ids=["without a key", "with a key"])
async def test_a_signal_whose_reply_is_lost_is_sent_once_and_answers_what_it_did(store: Store, key: str | None) -> None:
    over, driver = watched(store)
    run_id = await begun(over, twice)
    driver.after = once(LOST)
    assert await over.signal(run_id, "number", 1, key=key) is KEPT
    await drained(store, twice)
    driver.forget()
    driver.after = once(LOST)
    assert await over.signal(run_id, "number", 2) is WOKE
    assert driver.scripts == 2, "the reply was not lost: void"
    assert await ask(store, "select count(*) from {signal}") == [(2,)]
    await drained(store, twice)
    assert (await store.get_run(run_id)).output() == [1, 2]


@pytest.mark.proves("rule-04", "P-05", "promise-15")
async def test_a_signal_that_was_taken_before_its_lost_reply_was_repeated_has_woken(store: Store) -> None:
    over, driver = watched(store)
    run_id = await begun(store, twice)
    await drained(store, twice)

    async def taken_meanwhile(_: Sequence[Call]) -> None:
        driver.after = None
        await drained(store, twice)
        raise LOST

    driver.after = taken_meanwhile
    assert await over.signal(run_id, "number", 1) is WOKE
    assert await ask(store, "select count(*) from {signal} where taken_by = 'number#1'") == [(1,)]


@pytest.mark.proves("rule-04", "promise-15", "S-12")
async def test_a_signal_whose_taking_lost_its_reply_is_taken_once_by_the_same_wait(store: Store) -> None:
    over, driver = watched(store)
    run_id = await begun(store, twice)
    for number in (1, 2, 3):
        await store.signal(run_id, "number", number)
    lose_script(driver)
    await drained(over, twice)
    assert (await store.get_run(run_id)).output() == [1, 2]
    assert await ask(store, "select place, taken_by from {signal} order by place") == [
        (1, "number#1"),
        (2, "number#2"),
        (3, None),
    ]


@pytest.mark.proves("promise-05", "promise-15", "protocol-05")
async def test_a_worker_that_is_lost_after_it_took_a_signal_has_recorded_it(store: Store) -> None:
    over, driver = watched(store)
    run_id = await begun(store, twice)
    for number in (1, 2):
        await store.signal(run_id, "number", number)

    async def dies(calls: Sequence[Call]) -> None:
        if not calls and driver.script[-1:] == ["change_steps"]:
            driver.after = None
            await die(store.database)

    driver.after = dies
    await drained(over, twice)
    await drained(store, twice)
    assert (await store.get_run(run_id)).output() == [1, 2]
    assert {key: one.attempt for key, one in (await steps_of(store, run_id)).items()} == {"number#1": 1, "number#2": 1}


@pytest.mark.proves("promise-05", "protocol-01", "protocol-03")
@pytest.mark.parametrize("how", ["taken over", "fence down"])
async def test_a_session_that_was_declared_dead_takes_no_signal(store: Store, how: str) -> None:
    run_id = await begun(store, twice, max_attempts=50)  # a beat in between begins another session, to die again
    await store.signal(run_id, "number", 1)
    raised: set[type[BaseException]] = set()

    @workflow(name="twice")
    async def late(ctx: Context) -> list[int]:
        if how == "taken over":
            await die(store.database)
        else:  # as a reaper leaves it that found the run locked
            await change(store, "delete from {fence}")
        try:
            return [await ctx.wait("number", int)]
        except BaseException as error:
            raised.add(type(error))
            raise

    await drained(store, late)
    assert await statuses(store, run_id) == {}
    assert raised, "the wait was not reached: void"
    assert raised <= {LeaseLost, asyncio.CancelledError}, "refused; or cancelled, if a beat hears of the death first"
    assert await ask(store, "select count(*) from {signal} where taken_at is null") == [(1,)]
    if how == "taken over":
        await store.signal(run_id, "number", 2)
        await drained(store, twice)
        assert (await store.get_run(run_id)).output() == [1, 2]


@pytest.mark.proves("rule-15", "rule-04", "promise-15")
@pytest.mark.parametrize("first", ["signal", "timeout"])
async def test_of_a_signal_and_a_timeout_one_wins_and_stays_the_winner(
    store: Store, clock: TestClock, first: str
) -> None:
    over, driver = watched(store)
    turns: list[object] = []

    @workflow
    async def either(ctx: Context) -> list[object]:
        turns.append(await ctx.wait("word", timeout="1h", default="nobody"))
        await ctx.sleep("1h")
        return [turns[-1], await ctx.wait("word", timeout="1h", default="nobody")]

    run_id = await begun(store, either)
    await drained(over, either)
    clock.advance(3601)

    async def sent_after_the_judgement(calls: Sequence[Call]) -> None:
        if not calls and driver.script[-1:] == ["change_steps"]:
            driver.after = None
            assert await store.signal(run_id, "word", None) is KEPT
            raise LOST  # so that it is judged a second time, now that the signal is there

    if first == "timeout":
        driver.after = sent_after_the_judgement
    else:
        assert await store.signal(run_id, "word", None) is WOKE  # its time is over, and nobody has judged it yet
    for _ in range(3):
        await drained(over, either)
        clock.advance(3601)
    assert driver.after is None, "no reply was lost: void"
    won, then = (None, "nobody") if first == "signal" else ("nobody", None)
    assert set(turns) == {won}, "every replay agrees"
    assert (await store.get_run(run_id)).output() == [won, then]
    told = {key: one.error and one.error["type"] for key, one in (await steps_of(store, run_id)).items()}
    kinds = [None, "Timeout"] if first == "signal" else ["Timeout", None]
    assert [told["word#1"], told["word#2"]] == kinds, "None that was sent and a timeout do not look alike"


@workflow
async def once_only(ctx: Context) -> str:
    return await ctx.wait("word", str)


@pytest.mark.proves("protocol-05", "promise-15", "rule-14")
async def test_a_signal_is_delivered_whenever_it_comes_between_two_transactions_of_its_run(store: Store) -> None:
    moments = 0
    while await _is_sent_at(store, moments):
        moments += 1
    assert moments > 4, "there were no transactions to come between: void"


async def _is_sent_at(store: Store, moment: int) -> bool:
    """Send a signal at this moment of a run that waits for it, and see it delivered; False if it has no such moment."""
    over, driver = watched(store)
    run_id, passed = await begun(store, once_only), itertools.count()

    async def send(_: Sequence[Call]) -> None:
        if next(passed) == moment:
            driver.before = driver.after = None
            assert await store.signal(run_id, "word", "came")

    driver.before = driver.after = send
    await drained(over, once_only)
    if driver.after is not None:
        return False
    await drained(over, once_only)
    assert (await store.get_run(run_id)).output() == "came", f"sent at moment {moment}"
    return True


@pytest.mark.proves("protocol-05", "promise-15", "rule-14", "rule-15")
@pytest.mark.backends("postgres", reason="elsewhere one transaction writes at a time")
async def test_whoever_asks_locks_its_run_before_it_looks(store: Store, store_url: str, clock: TestClock) -> None:
    go_on = asyncio.Event()

    @step
    async def work() -> str:
        await go_on.wait()
        return "worked"

    @workflow
    async def busy(ctx: Context) -> list[Any]:
        return list(await asyncio.gather(work(), ctx.wait("word", str, timeout="1h")))

    run_id = await begun(store, busy)
    mine = await asyncpg.connect(store_url)
    async with Worker(store, [busy]):
        await until(lambda: _stands(store, run_id, "word#1", "PAUSED"))
        async with mine.transaction():
            assert await store.signal(run_id, "word", "came", tx=mine) is WOKE
            clock.advance(3601)  # its time is over, and whoever judges that has to wait for us
            await until(lambda: waiting_for_locks(store))
        go_on.set()
        assert await store.result(run_id, timeout=10) == ["worked", "came"]
    await mine.close()


@pytest.mark.proves("promise-15", "protocol-18")
@pytest.mark.parametrize("lost", [False, True], ids=["", "its worker is lost"])
async def test_a_race_whose_wait_is_taking_its_signal_is_won_by_it_though_a_step_ended_before(
    store: Store, clock: TestClock, *, lost: bool
) -> None:
    over, driver = watched(store)
    gate, go_on, ended = Gate(), asyncio.Event(), asyncio.Event()

    @step
    async def work() -> str:
        await go_on.wait()
        ended.set()
        return "worked"

    @workflow
    async def raced(ctx: Context) -> list[Any]:
        won = await ctx.race(work(), ctx.wait("word", str))
        return [*won, await ctx.wait("word", str, timeout="1h")]

    run_id = await begun(over, raced)

    async def late(calls: Sequence[Call]) -> None:
        if not calls and "take_signals" in driver.script:
            await gate(calls)

    async with Worker(over, [raced]):
        await until(lambda: _stands(store, run_id, "word#1", "PAUSED"))
        driver.said.clear()
        driver.after = late
        await store.signal(run_id, "word", "came")
        await until(lambda: gate.arrived, message="it is taken, and the answer on its way")
        go_on.set()
        await ended.wait()
        await until(lambda: _stands(store, run_id, "work#1", "SUCCESS"))
        if lost:
            await die(store.database)
        driver.after = None
        gate.open()
        if not lost:
            await until(lambda: _stands(store, run_id, "word#2", "PAUSED"))
    await drained(store, raced)
    clock.advance(3601)
    await drained(store, raced)
    assert (await store.get_run(run_id)).output() == [1, "came", None]


def lose_script(driver: Watched) -> None:
    """Lose the reply of the next transaction that takes a signal."""

    async def hook(calls: Sequence[Call]) -> None:
        if not calls and "take_signals" in driver.script:
            driver.after = None
            raise LOST

    driver.after = hook


async def _stands(store: Store, run_id: int, key: str, status: str) -> bool:
    return (await statuses(store, run_id)).get(key) == status
