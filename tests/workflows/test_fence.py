"""Who may record: the session that has the run, and of two of them the first; whoever was overtaken is told."""

import asyncio
import threading
from typing import Any

import pytest

from stepwell import (
    Context,
    Execute,
    InvalidOption,
    LeaseLost,
    Skipped,
    StepFailed,
    Store,
    Worker,
    connect,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.records import RunStatus
from stepwell.store.rows import StepRow
from stepwell.work.heartbeat import Heartbeat
from tests.ground.waiting import until
from tests.queue.raw import ask
from tests.store.seam import begin, claim, claim_alone
from tests.workflows.kit import begun, die, drained, statuses, steps_of, task_of


@workflow
async def nothing() -> None:
    """Do nothing."""


def row(run_id: int, output: str, status: RunStatus = RunStatus.SUCCESS) -> StepRow:
    return StepRow(run_id, 0, "a#1", 1, status, output=output)


@pytest.mark.proves("S-23", "L-09", "protocol-03")
async def test_a_session_without_a_fence_records_nothing_new_and_changes_nothing(store: Store) -> None:
    await begun(store, nothing)
    worker = await begin(store)
    [task] = await claim(store, worker, "nothing")
    await die(store.database)
    for has_row in (False, True):
        with pytest.raises(LeaseLost, match=f"session {worker} no longer holds task {task.id}"):
            await store.database.steps.record(row(task.id, "1"), worker, None, has_row=has_row)
    assert await store.steps(task.id) == []
    other = await begin(store)
    [task] = await claim_alone(store, other, "nothing")
    await store.database.steps.record(row(task.id, "null", RunStatus.RUNNING), other, None, has_row=False)
    with pytest.raises(LeaseLost):
        await store.database.steps.record(row(task.id, "1"), worker, None, has_row=True)
    assert await statuses(store, task.id) == {"a#1": "RUNNING"}


@pytest.mark.proves("S-23", "S-04")
async def test_the_first_result_stays_whatever_comes_after_it(store: Store) -> None:
    await begun(store, nothing)
    worker = await begin(store)
    [task] = await claim(store, worker, "nothing")
    await store.database.steps.record(row(task.id, "1"), worker, None, has_row=False)
    for status in (RunStatus.SUCCESS, RunStatus.ERROR, RunStatus.RUNNING):
        with pytest.raises(LeaseLost):
            await store.database.steps.record(row(task.id, "2", status), worker, None, has_row=True)
    [kept] = await store.steps(task.id)
    assert (kept.status, kept.output) == ("SUCCESS", 1)


@pytest.mark.proves("S-23", "L-08", "L-18", "R-04", "R-07")
async def test_of_two_executors_of_a_run_one_records_and_the_other_is_told(store: Store) -> None:
    go, at_work = asyncio.Event(), asyncio.Event()
    told: list[str] = []
    receipts: list[str] = []
    executors = iter(("frozen", "other"))

    @step
    async def charge() -> str:
        name = next(executors)
        if name == "frozen":
            at_work.set()
            await go.wait()
        return name

    @step
    async def receipt(name: str) -> str:
        receipts.append(name)
        return f"by {name}"

    @workflow
    async def pay(ctx: Context) -> list[Any]:
        assert await ctx.heartbeat()
        assert not ctx.is_cancelled()
        try:
            charged = await charge()
            return [charged, await receipt(charged)]  # which does not begin before the charge is recorded
        except LeaseLost as error:
            told.append(str(error))
            told.append(f"{ctx.is_cancelled()} {await ctx.heartbeat()}")
            with pytest.raises(LeaseLost):
                await ctx.step("next", lambda: told.append("executed"))
            raise

    run_id = await begun(store, pay)
    async with Worker(store, [pay]) as frozen:
        await asyncio.wait_for(at_work.wait(), 10)
        session = frozen._runtime.session
        assert session is not None
        await Heartbeat.of(store.database).remove(session)  # nobody tells it that it is dead
        await die(store.database)
        assert await drained(store, pay) == 1
        go.set()
        await until(lambda: len(told) > 1, message="LeaseLost in the workflow that was overtaken")
        await until(lambda: frozen._runtime.executed or not frozen._runtime.claims.executions)
    assert told[1:] == ["True False"]  # and nothing was executed after that
    assert f"session {session.id}" in told[0]
    run = await store.get_run(run_id)
    assert (run.output(), run.attempt) == (["other", "by other"], 2)
    assert await statuses(store, run_id) == {"charge#1": "SUCCESS", "receipt#1": "SUCCESS"}
    assert receipts == ["other"]  # the frozen one's result was refused before its next body began
    assert await drained(store, pay) == 0  # a finished run is not executed again
    assert (await task_of(store, run_id)).turn == 2


@pytest.mark.proves("L-18")
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_body_extends_its_lease_by_a_heartbeat(store_url: str, kind: str) -> None:
    ready, go = asyncio.Event(), threading.Event()

    @workflow
    async def careful(ctx: Context) -> list[bool]:
        ready.set()
        await asyncio.to_thread(go.wait, 10)
        return list(await asyncio.gather(*(ctx.heartbeat() for _ in range(20))))

    @workflow
    def careful_in_a_thread(ctx: sync.Context) -> list[bool]:
        ready.set()
        go.wait(10)
        return [ctx.heartbeat() for _ in range(20)]

    flow: Any = careful if kind == "async" else careful_in_a_thread
    async with connect(store_url, lease=600) as store, Worker(store, [flow]) as worker:
        run_id = await begun(store, flow)
        await asyncio.wait_for(ready.wait(), 10)
        session = worker._runtime.session
        assert session is not None
        assert await session.renew(0.0)
        [(begun_at,)] = await ask(store, "select beat_at from {beat}")
        session.renewed_at -= 101  # seconds: a sixth of the lease is 100
        go.set()
        assert await store.result(run_id, list[bool], timeout=10) == [True] * 20
        [(renewed_at,)] = await ask(store, "select beat_at from {beat}")
    assert renewed_at > begun_at


@pytest.mark.proves("W-13", "E-08", "S-13", "protocol-03")
async def test_a_stop_gives_a_run_back_and_refuses_what_its_thread_does_after_it(store: Store) -> None:
    go, at_work, over = threading.Event(), threading.Event(), threading.Event()
    called: list[str] = []

    @step
    def first() -> str:
        called.append("first")
        return "first"

    @step
    def second() -> str:
        called.append("second")
        if called.count("second") == 1:
            at_work.set()
            go.wait(10)
        return "second"

    @workflow
    def slow() -> list[str]:
        try:
            return [first(), second(), sync.current().step("third", lambda: "third")]
        except BaseException as error:
            called.append(type(error).__name__)
            over.set()
            raise

    run_id = await begun(store, slow)
    async with Worker(store, [slow], grace=0):
        assert await asyncio.to_thread(at_work.wait, 10)
    task = await task_of(store, run_id)
    assert (task.status, task.ready, task.attempt, task.owner) == ("PENDING", True, 0, None)
    go.set()
    assert await asyncio.to_thread(over.wait, 10)
    assert called == ["first", "second", "Unwinding"]
    assert (await statuses(store, run_id)).get("second#1") in (None, "RUNNING")
    await drained(store, slow)
    assert (await store.get_run(run_id)).output() == ["first", "second", "third"]
    assert called == ["first", "second", "Unwinding", "second"]
    assert list(await steps_of(store, run_id)) == ["first#1", "second#1", "third#1"]


@pytest.mark.proves("S-27", "L-18")
async def test_steps_by_hand_are_recorded_like_any_other(store: Store, clock: TestClock) -> None:
    told: list[Any] = []

    @workflow
    async def by_hand(ctx: Context) -> list[Any]:
        found = []
        for name in ("a", "b", "a"):
            match await ctx.acquire(name):
                case Skipped(value):
                    found.append(f"skipped {value}")
                case Execute() as guard:
                    await guard.success(f"{name} done")
                    found.append(guard.key)
                    with pytest.raises(InvalidOption, match="reported already"):
                        await guard.success("again")
        try:
            asked = await ctx.check_step("bad")
            assert isinstance(asked, Execute)
            await asked.fail(ValueError("broken"))
        except StepFailed as error:
            found.append(error.type)
        told.append(found)
        await ctx.sleep(60)
        return found

    @workflow
    def by_hand_too(ctx: sync.Context) -> list[Any]:
        found: list[Any] = []
        for acquire in (ctx.acquire, ctx.check_step):
            asked = acquire("a")
            if isinstance(asked, Skipped):
                found.append(asked.value)
            else:
                asked.success({"n": 1})
        try:
            guard = ctx.acquire("bad")
            assert not isinstance(guard, Skipped)
            guard.fail(ValueError("broken"))
        except StepFailed as error:
            found.append(error.type)
        told.append(found)
        ctx.sleep(60)
        return found

    runs = [await begun(store, one) for one in (by_hand, by_hand_too)]
    await drained(store, by_hand, by_hand_too, concurrency=1)
    assert sorted(told) == [[], ["a#1", "b#1", "a#2"]]
    assert list((await statuses(store, runs[0])).values()) == ["SUCCESS"] * 3 + ["ERROR", "SUCCESS"]
    clock.advance(60)
    await drained(store, by_hand, by_hand_too)
    assert (await store.get_run(runs[0])).output() == [
        "skipped a done",
        "skipped b done",
        "skipped a done",
        "ValueError",
    ]
    assert (await store.get_run(runs[1])).output() == [{"n": 1}, {"n": 1}, "ValueError"]


@pytest.mark.proves("S-27", "S-22", "E-02")
async def test_a_step_by_hand_that_failed_for_now_is_asked_for_again_when_its_time_has_come(
    store: Store, clock: TestClock
) -> None:
    attempts: list[int] = []

    @workflow
    async def patient(ctx: Context) -> Any:
        sibling = asyncio.create_task(ctx.sleep(10))
        match await ctx.acquire("charge"):
            case Execute() as guard:
                attempts.append(guard.attempt)
                if guard.attempt == 1:
                    await guard.fail_transient(ConnectionError("busy"), retry_after="1m")
                await guard.success(guard.attempt)
                await sibling
                return await ctx.step("next", lambda: "not skipped")
            case Skipped(value):
                return value

    @workflow
    def patient_too(ctx: sync.Context) -> Any:
        guard = ctx.acquire("charge")
        assert not isinstance(guard, Skipped)
        attempts.append(guard.attempt)
        if guard.attempt == 1:
            guard.fail_transient(ConnectionError("busy"), retry_after=60)
        guard.success(guard.attempt)
        return "done"

    runs = [await begun(store, one) for one in (patient, patient_too)]
    assert await drained(store, patient, patient_too) == 2
    for run_id in runs:
        task, row = await task_of(store, run_id), (await steps_of(store, run_id))["charge#1"]
        assert (task.status, task.owner, task.attempt) == ("PENDING", None, 0), "the run spends no attempt"
        assert (row.status, row.attempt) == ("PENDING", 1)
        assert row.error is not None
        assert (row.error["message"], row.error["retry_after"]) == ("busy", 60)
    clock.advance(59)
    assert await drained(store, patient, patient_too) == 1, "its sibling has woken the run before that"
    assert attempts == [1, 1]
    clock.advance(1)
    assert await drained(store, patient, patient_too) == 2
    assert [(await store.get_run(run_id)).output() for run_id in runs] == ["not skipped", "done"]
    assert sorted(attempts) == [1, 1, 2, 2]
    assert (await steps_of(store, runs[0]))["charge#1"].output == 2


@pytest.mark.proves("S-27", "E-02")
async def test_a_step_by_hand_waits_beside_a_sibling_and_gives_up_after_its_attempts(store: Store) -> None:
    seen: list[int] = []

    @workflow
    async def hopeless(ctx: Context) -> str:
        working = asyncio.Event()

        async def by_hand() -> None:
            guard = await ctx.acquire("charge")
            assert isinstance(guard, Execute)
            try:
                while True:
                    seen.append(guard.attempt)
                    await guard.fail_transient(ValueError(f"no {guard.attempt}"), retry_after=0)
            finally:
                working.set()

        sibling = ctx.step("work", working.wait)
        try:
            await asyncio.gather(sibling, by_hand())
        except StepFailed as error:
            return f"{error.step} {error.message}"
        return "succeeded"

    run_id = await begun(store, hopeless)
    assert await drained(store, hopeless) == 1
    run = await store.get_run(run_id)
    assert seen == [1, 2, 3]
    assert run.output().endswith("charge#1 no 3")
    assert sorted((await statuses(store, run_id)).values()) == ["ERROR", "SUCCESS"]
