"""Restart: an endless loop is a chain of runs under one key, each written by the transaction that ends the last."""

import asyncio
from typing import Any

import pytest

from stepwell import (
    Context,
    IdempotencyConflict,
    RunStatus,
    SerializationError,
    Store,
    StoreUnavailable,
    Worker,
    current,
    sleep,
    step,
    sync,
    workflow,
)
from stepwell.engine.outcome import Restarted, settlement_of
from stepwell.testing import world
from stepwell.testing.crashing import Case, Crash, Life, every_crash
from tests.store.seam import begin, claim, count, once, row_of, watched
from tests.workflows.kit import begun, die, drained

_WELL = settlement_of(Restarted("2"))
ran: list[object] = []
entered = asyncio.Event()
go_on = asyncio.Event()


@pytest.fixture(autouse=True)
def anew() -> None:
    global entered, go_on  # an event belongs to the loop of its test
    ran.clear()
    chain.clear()
    entered, go_on = asyncio.Event(), asyncio.Event()


@step
async def note(what: object) -> object:
    ran.append(what)
    return what


@workflow(retry=3)
async def loop(ctx: Any, number: int, last: int = 3) -> str:
    await note(number)
    if number < last:
        ctx.restart(number + 1, last=last)
    return f"ended at {number}"


chain: list[tuple[int, int]] = []  # which number was executed by which run


@workflow(retry=3)
async def chained(ctx: Context, number: int) -> int:
    await ctx.step("note", lambda: chain.append((number, int(ctx.run_id))))
    if number < 3:
        ctx.restart(number + 1)
    return number


@workflow
async def guarded(number: int) -> int:
    entered.set()
    await go_on.wait()
    if number < 3:
        current().restart(number + 1)
    return number


async def test_each_run_ends_well_and_the_next_goes_on_under_its_key(store: Store) -> None:
    first = await begun(store, loop, 1, key="k", priority=4, tags=["t"], max_attempts=7)
    await drained(store, loop)
    assert ran == [1, 2, 3]
    third, second, again = await store.runs("loop")
    assert again.id == first
    assert [run.status for run in (again, second, third)] == [RunStatus.SUCCESS] * 3
    assert [run.cause for run in (again, second, third)] == [None, f"restart of {first}", f"restart of {second.id}"]
    assert [run.key for run in (again, second, third)] == [None, None, "k"]
    assert (third.priority, third.tags, third.max_attempts, third.attempt) == (4, ("t",), 7, 1)
    assert third.input() == {"number": 3, "last": 3}
    assert await store.result(first, timeout=0) is None
    assert await store.result(third.id, str, timeout=0) == "ended at 3"
    found = await store.find_run("loop", "k")
    assert found is not None
    assert found.id == third.id


async def test_whoever_triggers_with_the_key_again_finds_the_run_that_has_it_now(store: Store) -> None:
    first, [second] = await _settled_after(store, store.get_run)
    again = await guarded.trigger(1).options(key="k").execute(store)
    assert (again.created, again) == (False, second)
    assert again != first
    with pytest.raises(IdempotencyConflict):
        await guarded.trigger(2).options(key="k").execute(store)


async def test_a_key_that_is_free_when_its_run_ends_is_handed_over_too(store: Store) -> None:
    trigger = loop.trigger(1).options(key="k", unique="unfinished", require_worker="ignore")
    first = await trigger.execute(store)
    await drained(store, loop)
    runs = await store.runs("loop")
    assert [run.key for run in runs] == ["k"] * 3
    again = await trigger.execute(store)
    assert again.created
    assert again != first


async def test_nothing_after_the_call_is_executed_whatever_the_code_makes_of_it(store: Store) -> None:
    @workflow
    async def stubborn(ctx: Any, number: int) -> int:
        if number == 2:
            return 2
        try:
            ctx.restart(2)
        except BaseException:  # noqa: BLE001 - that is what is tried here
            ran.append("caught")
        finally:
            ran.append("finally")
        await note("after")
        return 1

    first = await begun(store, stubborn, 1)
    await drained(store, stubborn)
    assert ran == ["caught", "finally"]
    assert [run.input() for run in await store.runs("stubborn")] == [2, 1]
    assert await store.result(first, timeout=0) is None


async def test_a_branch_may_ask_for_it_while_others_work_or_wait(store: Store) -> None:
    @workflow
    async def branched(ctx: Any, number: int) -> int:
        async def restarting() -> None:
            await note("quick")
            ctx.restart(2)

        async def waiting() -> None:
            await sleep("1h")
            await note("late")

        async def working() -> None:
            await asyncio.Event().wait()

        if number == 1:
            await asyncio.gather(waiting(), working(), restarting(), return_exceptions=True)
            await note("after")
        return number

    await begun(store, branched, 1)
    await drained(store, branched)
    assert ran == ["quick"]
    assert [(run.input(), run.status) for run in await store.runs("branched")] == [(2, "SUCCESS"), (1, "SUCCESS")]


@pytest.mark.proves("L-14")
async def test_a_run_that_was_cancelled_meanwhile_has_no_next(live_store: Store) -> None:
    run_id, again = await _while_it_works(live_store, lambda store, run_id: store.cancel(run_id))
    assert ((await live_store.get_run(run_id)).status, again) == (RunStatus.CANCELLED, [])


async def test_a_run_that_was_deleted_meanwhile_has_no_next(store: Store) -> None:
    run_id, again = await _settled_after(store, store.delete)
    assert ((await store.get_run(run_id, deleted=True)).status, again) == (RunStatus.SUCCESS, [])


@pytest.mark.proves("P-02")
async def test_if_it_was_paused_meanwhile_it_is_paused_and_restarts_when_it_is_let_go(store: Store) -> None:
    run_id, again = await _settled_after(store, lambda run_id: store.pause(run_id, reason="look"))
    assert again == []
    run = await store.get_run(run_id)
    assert (run.status, run.input(), run.key) == (RunStatus.PAUSED, 1, "k")
    assert run.held_at is not None
    go_on.set()
    assert await store.unpause(run_id)
    await drained(store, guarded)
    assert (await store.get_run(run_id)).status == RunStatus.SUCCESS


async def test_a_cancel_that_is_committed_first_leaves_no_next(store: Store) -> None:
    run_id, again = await _settled_after(store, store.cancel)
    assert ((await store.get_run(run_id)).status, again) == (RunStatus.CANCELLED, [])


@pytest.mark.proves("protocol-03")
async def test_a_turn_that_is_over_writes_no_next(store: Store) -> None:
    await begun(store, guarded, 1, key="k")
    [old] = await claim(store, await begin(store), "guarded")
    await die(store)
    with pytest.raises(Exception, match="no longer holds"):
        await store.tasks.settle_and_restart(old, _WELL, "2")
    assert await count(store) == 1


async def test_one_whose_reply_is_lost_has_one_next(store: Store) -> None:
    run_id = await begun(store, guarded, 1, key="k")
    store, driver = watched(store)
    [task] = await claim(store, await begin(store), "guarded")
    await store.ids.take(1)
    driver.forget()
    driver.after = once(StoreUnavailable("reset after the work was done"))
    assert await store.tasks.settle_and_restart(task, _WELL, "2") == RunStatus.SUCCESS
    assert driver.scripts == 2, "the reply was not lost: void"
    assert await count(store) == 2
    assert (await row_of(store, run_id))["key"] is None


@pytest.mark.proves("R-04", "promise-05")
@pytest.mark.backends("sqlite", "postgres", reason="the same driver serves Turso")
async def test_a_worker_that_is_cut_off_at_any_database_call_leaves_one_chain(store_url: str, backend: str) -> None:
    def at_restarts(whole: Life) -> list[Crash]:
        return [crash for crash in every_crash(whole) if "_settle_and" in whole.calls[crash[0] - 1]]

    def look(case: Case) -> None:
        begins = [at for at in range(1, len(chain)) if (chain[at - 1][0], chain[at][0]) == (3, 1)]  # of other lives
        life = chain[begins[-1] if begins else 0 :]
        runs = {number: {run for one, run in life if one == number} for number, _ in life}
        assert sorted(runs) == [1, 2, 3], case
        assert [len(found) for found in runs.values()] == [1, 1, 1], f"{case}: one of them was written twice"
        chain.clear()

    async with world(chained, url=store_url) as w, w.crashes(chained.trigger(1).options(key="k")) as crashes:
        report = await crashes.everywhere(every_crash if backend == "sqlite" else at_restarts, look)
    assert report.life.status == RunStatus.SUCCESS
    assert any("_settle_and" in call for call in report.calls), report


async def test_arguments_are_checked_where_it_is_called(store: Store) -> None:
    errors: list[type[BaseException]] = []

    @workflow
    async def wrong(ctx: Any, number: int) -> int:
        for args in ((), ("text",), (1, 2)):
            try:
                ctx.restart(*args)
            except (TypeError, SerializationError) as error:
                errors.append(type(error))
        return number

    run_id = await begun(store, wrong, 1)
    await drained(store, wrong)
    assert errors == [TypeError, SerializationError, TypeError]
    assert await store.result(run_id, timeout=0) == 1


async def test_a_step_cannot_ask_for_it(store: Store) -> None:
    @step(retry=1)
    async def inside() -> None:
        current().restart(2)

    @workflow(retry=1)
    async def outside(number: int) -> None:
        await inside()

    run_id = await begun(store, outside, 1)
    await drained(store, outside)
    assert "NotInRun" in str((await store.get_run(run_id)).last_error)
    assert await count(store) == 1


def test_a_sync_workflow_restarts_too(store_url: str) -> None:
    @workflow
    def plain(ctx: sync.Context, number: int) -> int:
        ctx.step("note", lambda: ran.append(number))
        if number < 3:
            try:
                ctx.restart(number + 1)
            finally:
                ran.append("finally")
        return number

    with sync.connect(store_url) as store:
        plain.trigger(1).options(key="k", require_worker="ignore").execute(store)
        sync.Worker(store, [plain]).drain()
        run = store.find_run("plain", "k")
        assert run is not None
        assert run.output() == 3
    assert ran == [1, "finally", 2, "finally", 3]


async def _settled_after(store: Store, change: Any) -> tuple[int, list[int]]:
    """A run that is settled as restarted after somebody changed it; and the runs that came of it."""
    run_id = await begun(store, guarded, 1, key="k")
    [task] = await claim(store, await begin(store), "guarded")
    assert await change(run_id)
    await store.tasks.settle_and_restart(task, _WELL, "2")
    return run_id, [run.id for run in await store.runs("guarded") if run.id != run_id]


async def _while_it_works(store: Store, change: Any) -> tuple[int, list[int]]:
    async with Worker(store, [guarded]):
        run_id = await begun(store, guarded, 1)
        await asyncio.wait_for(entered.wait(), 20)
        assert await change(store, run_id)
        go_on.set()
    return run_id, [run.id for run in await store.runs("guarded") if run.id != run_id]
