"""Restart: an endless loop is one run, whose next generation begins in the transaction that ends the last."""

import asyncio
from typing import Any

import pytest

from stepwell import (
    Context,
    IdempotencyConflict,
    Paused,
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
from stepwell.store.rows import Claimed, StepRow
from stepwell.store.run_waits import FORGET_EVERY
from stepwell.testing import TestClock, world
from stepwell.testing.crashes import Case, Crash, Life, every_crash
from stepwell.work.outcome import Restarted, settlement_of
from tests.queue.raw import ask
from tests.store.seam import begin, claim, count, once, row_of, watched
from tests.workflows.kit import begun, die, drained

_AGAIN = settlement_of(Restarted("2"))
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


chain: list[tuple[int, str]] = []  # which number was executed under which key


@workflow(retry=3)
async def chained(ctx: Context, number: int) -> int:
    await ctx.step("note", lambda: chain.append((number, current().key)))
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


@pytest.mark.proves("protocol-11")
async def test_it_is_one_run_from_its_first_generation_to_its_last(store: Store) -> None:
    run_id = await begun(store, loop, 1, key="k", priority=4, tags=["t"], max_attempts=7)
    await drained(store, loop)
    assert ran == [1, 2, 3]
    [run] = await store.runs("loop")
    assert (run.id, run.status, run.generation, run.cause) == (run_id, RunStatus.SUCCESS, 2, None)
    assert (run.key, run.priority, run.tags, run.max_attempts, run.attempt) == ("k", 4, ("t",), 7, 1)
    assert run.input() == {"number": 3, "last": 3}
    assert await store.result(run_id, timeout=0) == "ended at 3"
    found = await store.find_run("loop", "k")
    assert found is not None
    assert found.id == run_id


@pytest.mark.proves("protocol-11")
async def test_whoever_triggers_with_the_key_again_finds_it(store: Store) -> None:
    run_id = await _settled_after(store, store.get_run)
    again = await guarded.trigger(1).options(key="k").execute(store)
    assert (again.created, again) == (False, run_id)
    with pytest.raises(IdempotencyConflict):
        await guarded.trigger(2).options(key="k").execute(store)


async def test_a_key_that_is_free_when_its_run_ends_is_free_after_the_last_generation(store: Store) -> None:
    trigger = loop.trigger(1).options(key="k", unique="unfinished", require_worker="ignore")
    first = await trigger.execute(store)
    [task] = await claim(store, await begin(store), "loop")
    await store.database.tasks.settle(task.id, task.owner, task.turn, settlement_of(Restarted('{"number":2}')))
    assert await trigger.execute(store) == first
    await drained(store, loop)
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
    assert [(run.input(), run.output()) for run in await store.runs("stubborn")] == [(2, 2)]
    assert await store.result(first, timeout=0) == 2


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
    assert [(run.input(), run.status) for run in await store.runs("branched")] == [(2, "SUCCESS")]


@pytest.mark.proves("L-14")
async def test_a_run_that_was_cancelled_meanwhile_has_no_next_generation(live_store: Store) -> None:
    run_id = await _while_it_works(live_store, lambda store, run_id: store.cancel(run_id))
    run = await live_store.get_run(run_id)
    assert (run.status, run.generation, run.input()) == (RunStatus.CANCELLED, 0, 1)


async def test_a_cancel_that_is_committed_first_wins(store: Store) -> None:
    run = await store.get_run(await _settled_after(store, store.cancel))
    assert (run.status, run.generation, run.input()) == (RunStatus.CANCELLED, 0, 1)


@pytest.mark.proves("SD-02")
async def test_a_run_that_was_deleted_meanwhile_does_not_go_on_until_it_is_restored(store: Store) -> None:
    run_id = await _settled_after(store, store.delete)
    assert await claim(store, await begin(store), "guarded") == []
    assert await store.restore(run_id)
    [task] = await claim(store, await begin(store), "guarded")
    assert (task.id, task.generation, task.input) == (run_id, 1, "2")


@pytest.mark.proves("P-02")
async def test_if_it_was_paused_meanwhile_it_is_paused_and_restarts_when_it_is_let_go(store: Store) -> None:
    run_id = await _settled_after(store, lambda run_id: store.pause(run_id, reason="look"))
    run = await store.get_run(run_id)
    assert (run.status, run.generation, run.input(), run.attempt) == (RunStatus.PAUSED, 0, 1, 0)
    go_on.set()
    assert await store.unpause(run_id)
    await drained(store, guarded)
    run = await store.get_run(run_id)
    assert (run.status, run.generation, run.output()) == (RunStatus.SUCCESS, 2, 3)


@pytest.mark.proves("protocol-03")
async def test_a_turn_that_is_over_begins_no_generation(store: Store) -> None:
    run_id = await begun(store, guarded, 1, key="k")
    [old] = await claim(store, await begin(store), "guarded")
    await die(store.database)
    with pytest.raises(Exception, match="no longer holds"):
        await _restarted(store, old)
    assert (await store.get_run(run_id)).generation == 0


@pytest.mark.proves("promise-05")
async def test_one_whose_reply_is_lost_restarts_once(store: Store) -> None:
    run_id = await begun(store, guarded, 1, key="k")
    store, driver = watched(store)
    [task] = await claim(store, await begin(store), "guarded")
    driver.forget()
    driver.after = once(StoreUnavailable("reset after the work was done"))
    assert await _restarted(store, task) == RunStatus.PENDING
    assert len(driver.flushes) == 2, "the reply was not lost: void"
    assert (await store.get_run(run_id)).generation == 1


async def test_it_is_one_flush_and_what_it_recorded_goes_with_it(store: Store) -> None:
    run_id = await begun(store, guarded, 1)
    store, driver = watched(store)
    worker = await begin(store)
    [task] = await claim(store, worker, "guarded")
    await store.database.steps.record(_row(task), worker, None, has_row=False)
    driver.forget()
    await _restarted(store, task)
    [flush] = driver.flushes
    assert [call.statement for call in flush if call.statement not in ("beat", "count_settled")] == [
        "settle",
        "forget_generations",
    ]
    assert await ask(store, f"select count(*) from {{step}} where run_id = {run_id}") == [(0,)]


async def test_a_settle_without_a_restart_removes_nothing(store: Store) -> None:
    await begun(store, loop, 3)
    store, driver = watched(store)
    await drained(store, loop)
    assert "forget_generations" not in {call.statement for flush in driver.flushes for call in flush}


@pytest.mark.proves("protocol-07")
async def test_what_an_earlier_generation_records_late_is_not_read(store: Store) -> None:
    await begun(store, guarded, 1)
    worker = await begin(store)
    [first] = await claim(store, worker, "guarded")
    await _restarted(store, first)
    [second] = await claim(store, worker, "guarded")
    await store.database.steps.record(_row(first), worker, None, has_row=False)  # by the same session: its fence stands
    assert await store.database.steps.of(second.id, second.generation) == []
    assert await store.steps(second.id) == []
    await store.database.steps.record(_row(second, output="2"), worker, None, has_row=False)
    assert [one.output for one in await store.database.steps.of(second.id, second.generation)] == ["2"]
    await _restarted(store, second)
    assert await ask(store, "select count(*) from {step}") == [(0,)], "and goes at the next restart at the latest"


async def test_its_generation_is_in_its_keys_and_in_its_chances(store: Store) -> None:
    seen: list[tuple[str, str, float, str]] = []

    @step
    async def pay() -> str:
        return current().key

    @workflow
    async def paying(ctx: Context, number: int) -> None:
        seen.append((await pay(), ctx.key, ctx.random(), str(ctx.uuid())))
        if number < 2:
            ctx.restart(number + 1)

    run_id = await begun(store, paying, 0)
    await drained(store, paying)
    assert all(len(set(each)) == 3 for each in zip(*seen, strict=True)), seen
    born = (await row_of(store, run_id))["created_at"]
    assert [key for _, key, _, _ in seen] == [f"{run_id}-{born:x}", f"{run_id}-{born:x}.1", f"{run_id}-{born:x}.2"]


async def test_a_step_of_a_queue_is_asked_for_anew_in_every_generation(store: Store) -> None:
    @step(queue="elsewhere")
    async def far(number: int) -> str:
        ran.append(current().key)
        return current().key

    @workflow
    async def asking(ctx: Context, number: int) -> str:
        key = await far(7)
        if number < 2:
            ctx.restart(number + 1)
        return key

    run_id = await begun(store, asking, 0)
    await drained(store, asking, far)
    assert len(set(ran)) == 3
    assert {run.parent_id for run in await store.runs("elsewhere")} == {run_id}
    assert (await store.get_run(run_id)).output() == ran[-1]


@pytest.mark.proves("P-05", "P-06")
async def test_signals_that_nobody_has_taken_are_the_next_generations(store: Store) -> None:
    @workflow
    async def entity(ctx: Context, taken: list[int]) -> list[int]:
        taken = [*taken, await ctx.wait("number", int), await ctx.wait("number", int)]
        if len(taken) < 6:
            ctx.restart(taken)
        return taken

    run_id = await begun(store, entity, [])
    for number in range(5):
        assert await store.signal(run_id, "number", number, key=str(number))
    await drained(store, entity)
    assert not await store.signal(run_id, "number", 0, key="0"), "its key is known whoever took it"
    assert await store.signal(run_id, "number", 5) == "WOKE"
    await drained(store, entity)
    assert (await store.get_run(run_id)).output() == [0, 1, 2, 3, 4, 5]


@pytest.mark.proves("P-05")
async def test_a_step_that_pauses_itself_is_resumed_once_a_generation(store: Store) -> None:
    @step
    async def approval() -> str:
        raise Paused("ask somebody")

    @workflow
    async def asking(ctx: Context, said: list[str]) -> list[str]:
        said = [*said, await approval()]
        if len(said) < 2:
            ctx.restart(said)
        return said

    run_id = await begun(store, asking, [])
    await drained(store, asking)
    assert await store.resume(run_id, "approval", "yes")
    assert not await store.resume(run_id, "approval", "no")
    await drained(store, asking)
    assert await store.resume(run_id, "approval", "yes again")
    assert not await store.resume(run_id, "approval", "no")
    await drained(store, asking)
    assert (await store.get_run(run_id)).output() == ["yes", "yes again"]


@pytest.mark.proves("S-16", "R-21")
async def test_a_child_that_restarted_is_still_the_child(store: Store) -> None:
    @workflow
    async def child(ctx: Context, number: int) -> int:
        if number < 3:
            ctx.restart(number + 1)
        return 10 * await ctx.wait("go", int)

    @workflow
    async def parent(ctx: Context) -> int:
        return await child.trigger(1).wait().execute(ctx)

    waiting, cancelled = await begun(store, parent), await begun(store, parent)
    await drained(store, parent, child)
    of = {run.parent_id: run for run in await store.runs("child")}
    assert {(run.generation, run.status) for run in of.values()} == {(2, RunStatus.PAUSED)}
    assert await store.cancel(cancelled)
    assert (await store.get_run(of[cancelled].id)).status == RunStatus.CANCELLED
    assert await store.signal(of[waiting].id, "go", 4)
    await drained(store, parent, child)
    assert (await store.get_run(waiting)).output() == 40


@pytest.mark.proves("S-16", "L-13")
async def test_children_of_an_earlier_generation_go_on_and_are_cancelled_with_it(store: Store) -> None:
    @workflow
    async def child(ctx: Context) -> None:
        await ctx.wait("never")

    @workflow
    async def parent(ctx: Context, number: int) -> None:
        await child.trigger().execute(ctx)
        if number < 3:
            ctx.restart(number + 1)
        await ctx.wait("never")

    run_id = await begun(store, parent, 1)
    await drained(store, parent, child)
    assert [run.status for run in await store.runs("child", parent=run_id)] == [RunStatus.PAUSED] * 3
    assert await store.cancel(run_id)
    assert [run.status for run in await store.runs("child", parent=run_id)] == [RunStatus.CANCELLED] * 3


async def test_a_time_limit_is_that_of_a_generation(store: Store, clock: TestClock) -> None:
    @workflow(timeout="10m")
    async def limited(ctx: Context, number: int) -> int:
        await ctx.sleep("6m")
        if number < 3:
            ctx.restart(number + 1)
        return number

    run_id = await begun(store, limited, 1)
    for _ in range(3):
        await drained(store, limited)
        clock.advance(361)
    await drained(store, limited)
    assert (await store.get_run(run_id)).output() == 3


@pytest.mark.proves("R-08")
async def test_a_generation_that_failed_is_retried_and_forked_as_it_is(store: Store) -> None:
    broken = True

    @step(retry=1)
    async def charge(number: int) -> int:
        ran.append(number)
        if broken and number == 2:
            raise ValueError("no money")
        return number

    @workflow(retry=1)
    async def paying(ctx: Context, number: int) -> list[int]:
        first = await ctx.step("first", lambda: number)
        charged = await charge(number)
        if number < 2:
            ctx.restart(number + 1)
        return [first, charged]

    run_id = await begun(store, paying, 1)
    await drained(store, paying)
    run = await store.get_run(run_id)
    assert (run.status, run.generation) == (RunStatus.ERROR, 1)
    assert [(one.key, one.status) for one in await store.steps(run_id)] == [
        ("first#1", "SUCCESS"),
        ("charge#1", "ERROR"),
    ]
    broken = False
    fork_id = await store.fork(run_id, at="charge")
    assert await store.retry(run_id)
    await drained(store, paying)
    for one in (run_id, fork_id):
        assert (await store.get_run(one)).output() == [2, 2]
    assert (await store.get_run(fork_id)).generation == 0
    assert ran == [1, 2, 2, 2]


@pytest.mark.proves("SD-10")
async def test_what_it_leaves_behind_is_bounded(store: Store, clock: TestClock) -> None:
    """Steps go with the restart; children that ended, and signals that were taken, are kept as long as messages are."""

    @workflow
    async def child(number: int) -> int:
        return number

    @workflow
    async def entity(ctx: Context, taken: int) -> None:
        await child.trigger(taken).execute(ctx)
        for _ in range(FORGET_EVERY):
            taken = await ctx.wait("number", int)
        ctx.restart(taken)

    run_id = await begun(store, entity, 0)
    seen: list[tuple[int, int, int]] = []
    for day in range(5):
        for number in range(FORGET_EVERY):
            await store.signal(run_id, "number", number, key=f"{day}/{number}")
        await drained(store, entity, child)
        await store.database.retention.round()
        [(steps,)] = await ask(store, f"select count(*) from {{step}} where run_id = {run_id}")
        [(signals,)] = await ask(store, "select count(*) from {signal}")
        seen.append((len(await store.runs("child", parent=run_id)), steps, signals))
        clock.advance(3 * 86_400)
    assert [steps for _, steps, _ in seen] == [2] * 5, "those of the generation that waits: a child, and a wait"
    assert max(children for children, _, _ in seen) <= 4, seen
    assert max(signals for _, _, signals in seen) <= 3 * FORGET_EVERY, seen
    assert (await store.get_run(run_id)).generation == 5
    assert not await store.signal(run_id, "number", 0, key="4/0"), "a key is known for as long as its signal is kept"


@pytest.mark.proves("R-04", "promise-05")
@pytest.mark.backends("sqlite", "postgres", reason="the same driver serves Turso")
async def test_a_worker_that_is_cut_off_at_any_database_call_leaves_each_generation_once(
    store_url: str, backend: str
) -> None:
    def at_settles(whole: Life) -> list[Crash]:
        return [crash for crash in every_crash(whole) if "settle" in whole.calls[crash[0] - 1]]

    def look(case: Case) -> None:
        begins = [at for at in range(1, len(chain)) if (chain[at - 1][0], chain[at][0]) == (3, 1)]  # of other lives
        life = chain[begins[-1] if begins else 0 :]
        keys = {number: {key for one, key in life if one == number} for number, _ in life}
        assert sorted(keys) == [1, 2, 3], case
        assert [len(found) for found in keys.values()] == [1, 1, 1], f"{case}: one of them began twice"
        chain.clear()

    async with world(chained, url=store_url) as w, w.crashes(chained.trigger(1).options(key="k")) as crashes:
        report = await crashes.everywhere(every_crash if backend == "sqlite" else at_settles, look)
    assert report.life.status == RunStatus.SUCCESS
    assert any("settle" in call for call in report.calls), report


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


def _row(task: Claimed, output: str = "1") -> StepRow:
    return StepRow(task.id, task.generation, "a#1", 1, RunStatus.SUCCESS, output=output)


async def _restarted(store: Store, task: Claimed) -> str:
    return await store.database.tasks.settle(task.id, task.owner, task.turn, _AGAIN)


async def _settled_after(store: Store, change: Any) -> int:
    """A run that is settled as restarted after somebody changed it."""
    run_id = await begun(store, guarded, 1, key="k")
    [task] = await claim(store, await begin(store), "guarded")
    assert await change(run_id)
    await _restarted(store, task)
    return run_id


async def _while_it_works(store: Store, change: Any) -> int:
    async with Worker(store, [guarded]):
        run_id = await begun(store, guarded, 1)
        await asyncio.wait_for(entered.wait(), 20)
        assert await change(store, run_id)
        go_on.set()
    return run_id
