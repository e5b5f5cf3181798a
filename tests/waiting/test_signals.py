"""Signals: kept until a wait of their name takes them, each once and in order; before, during or after the wait."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from stepwell import (
    Context,
    InvalidName,
    PermanentError,
    RunNotFound,
    SerializationError,
    SignalAnswer,
    StepFailed,
    Store,
    Timeout,
    Worker,
    connect,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.store.driver import Call
from tests.ground.waiting import until
from tests.queue.raw import ask as ask_raw
from tests.store.seam import Gate, watched
from tests.workflows.kit import begun, drained, statuses, task_of

WOKE, KEPT, TOO_LATE = SignalAnswer.WOKE, SignalAnswer.KEPT, SignalAnswer.TOO_LATE


@dataclass(frozen=True)
class Approval:
    by: str


@step
async def ask(what: str) -> str:
    return what


@workflow
async def approve(ctx: Context, what: str) -> str:
    await ask(what)
    approval = await ctx.wait("approved", Approval)
    return f"{what} by {approval.by}"


@workflow
async def twice(ctx: Context) -> list[int]:
    return [await ctx.wait("number", int), await ctx.wait("number", int)]


@workflow
async def in_time(ctx: Context) -> str:
    approval = await ctx.wait("approved", Approval, timeout="1h")
    return "nobody" if approval is None else approval.by


@workflow
def in_a_thread(ctx: sync.Context) -> str | None:
    return ctx.wait("word", str, timeout="1h")


@pytest.mark.proves("P-02", "P-04")
async def test_a_run_that_waits_holds_nothing_until_its_signal_wakes_it(store: Store) -> None:
    run_id = await begun(store, approve, "trip")
    await drained(store, approve)
    task = await task_of(store, run_id)
    assert (task.status, task.owner, task.attempt, task.run_at) == ("PAUSED", None, 0, None)
    assert await statuses(store, run_id) == {"ask#1": "SUCCESS", "approved#1": "PAUSED"}
    assert await drained(store, approve) == 0
    assert await store.signal(run_id, "approved", Approval("ann")) is WOKE
    assert (await task_of(store, run_id)).ready
    assert await drained(store, approve) == 1
    assert (await store.get_run(run_id)).output() == "trip by ann"
    assert await store.signal(run_id, "approved", Approval("bob")) is TOO_LATE
    assert not await store.signal(run_id, "approved", Approval("bob"))


@pytest.mark.proves("P-05")
async def test_a_signal_that_comes_before_the_wait_is_kept_for_it(store: Store) -> None:
    run_id = await begun(store, approve, "trip")
    assert await store.signal(run_id, "approved", Approval("ann")) is KEPT
    assert await drained(store, approve) == 1
    assert (await store.get_run(run_id)).output() == "trip by ann"


@pytest.mark.proves("P-05")
async def test_signals_of_a_name_are_taken_in_order_each_by_one_wait(store: Store) -> None:
    run_id = await begun(store, twice)
    assert [await store.signal(run_id, "number", n) for n in (1, 2, 3)] == [KEPT] * 3
    await drained(store, twice)
    assert (await store.get_run(run_id)).output() == [1, 2]


@pytest.mark.proves("P-06")
async def test_a_repeated_signal_and_a_second_resume_change_nothing_and_say_so(store: Store) -> None:
    run_id = await begun(store, twice)
    await drained(store, twice)
    assert await store.signal(run_id, "number", 1, key="click") is WOKE
    assert await store.signal(run_id, "number", 2, key="click") is TOO_LATE
    await drained(store, twice)
    assert await store.resume(run_id, "number", 7) is WOKE
    assert await store.resume(run_id, "number", 8) is TOO_LATE
    await drained(store, twice)
    assert (await store.get_run(run_id)).output() == [1, 7]


@pytest.mark.proves("P-08")
async def test_a_timeout_is_a_value_and_is_recorded(store: Store, clock: TestClock) -> None:
    first, second = await begun(store, in_time), await begun(store, in_a_thread)
    await drained(store, in_time, in_a_thread)
    clock.advance(3599)
    assert await drained(store, in_time, in_a_thread) == 0
    clock.advance(2)
    assert await store.signal(first, "approved", Approval("just in time")) is WOKE  # nobody has judged it yet
    assert await drained(store, in_time, in_a_thread) == 2
    assert (await store.get_run(first)).output() == "just in time"
    assert (await store.get_run(second)).output() is None
    [wait] = await store.steps(second)
    assert (wait.status, wait.output) == ("SUCCESS", None)
    assert wait.error == {"type": "Timeout", "message": "no signal word came in time"}


@pytest.mark.proves("P-08")
async def test_a_deadline_that_is_to_raise_raises_on_every_replay(store: Store, clock: TestClock) -> None:
    @workflow
    async def strict(ctx: Context) -> list[str]:
        told = []
        for default in (Timeout, LookupError("the approval is missing")):
            try:
                told.append(await ctx.wait("approved", str, timeout="1h", default=default))
            except (Timeout, LookupError) as error:
                told.append(f"{type(error).__name__}: {error}")
            await ctx.sleep("1m")  # the run is given back, and replayed
        return told

    late, early = await begun(store, strict), await begun(store, strict)
    await drained(store, strict)
    await store.signal(early, "approved", "grace")
    for _ in range(2):
        clock.advance("1h")
        await drained(store, strict)
        clock.advance("1m")
        await drained(store, strict)
    missing = "LookupError: the approval is missing"
    assert (await store.get_run(late)).output() == ["Timeout: no signal approved came in time", missing]
    assert (await store.get_run(early)).output() == ["grace", missing]


@pytest.mark.proves("P-07")
async def test_a_signal_to_a_run_that_is_executed_is_seen_when_it_pauses(store: Store) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    @step
    async def work() -> None:
        entered.set()
        await go_on.wait()

    @workflow
    async def busy(ctx: Context) -> list[str]:
        _, word = await asyncio.gather(work(), ctx.wait("word", str))
        return [word, await ctx.wait("word", str)]

    run_id = await begun(store, busy)
    async with Worker(store, [busy]):
        await entered.wait()
        await until(lambda: _stands(store, run_id, "word#1", "PAUSED"))
        assert await store.signal(run_id, "word", "one") is WOKE
        await until(lambda: _stands(store, run_id, "word#1", "SUCCESS"), message="it is taken beside the step")
        assert (await task_of(store, run_id)).turn == 1
        go_on.set()
        await until(lambda: _is(store, run_id, "PAUSED"))
        assert await store.signal(run_id, "word", "two") is WOKE
        assert await store.result(run_id, timeout=10) == ["one", "two"]


@pytest.mark.proves("P-05", "P-07", "protocol-05")
async def test_a_signal_between_the_look_and_the_pause_is_seen_by_the_pause(store: Store) -> None:
    over, driver = watched(store)
    gate = Gate()

    async def hold(calls: Sequence[Call]) -> None:
        if any(call.statement == "settle" for call in calls):
            await gate(calls)

    run_id = await begun(over, in_time)
    driver.before = hold
    async with Worker(over, [in_time]):
        await until(lambda: gate.arrived, message="it has looked, and is about to pause")
        assert await store.signal(run_id, "approved", Approval("ann")) is WOKE
        driver.before = None
        gate.open()
        assert await over.result(run_id, timeout=5) == "ann"


@pytest.mark.proves("P-06", "P-11")
async def test_who_cannot_take_a_signal_any_more_is_not_sent_one(store: Store) -> None:
    with pytest.raises(RunNotFound):
        await store.signal(12345, "approved")

    @workflow
    async def refused(ctx: Context) -> None:
        await ctx.wait("approved", Approval)
        raise PermanentError("no")

    cancelled, deleted = [await begun(store, approve, "trip") for _ in range(2)]
    failed = await begun(store, refused)
    await drained(store, approve, refused)
    assert await store.cancel(cancelled)
    assert await store.signal(cancelled, "approved", Approval("ann")) is TOO_LATE
    await store.delete(deleted)
    with pytest.raises(RunNotFound):
        await store.signal(deleted, "approved", Approval("ann"))
    await store.signal(failed, "approved", Approval("ann"))
    await drained(store, refused)
    assert (await store.get_run(failed)).status == "ERROR"
    assert await store.signal(failed, "approved", Approval("ann")) is TOO_LATE
    assert await drained(store, approve) == 0


@pytest.mark.proves("L-12", "P-06")
async def test_a_run_that_is_being_cancelled_is_sent_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    @step
    async def work() -> None:
        entered.set()
        await go_on.wait()

    @workflow
    async def busy(ctx: Context) -> None:
        await asyncio.gather(work(), ctx.wait("word"))

    run_id = await begun(store, busy)
    monkeypatch.setattr(store.database.tasks, "wished", lambda *_: None)  # the worker has not heard of it yet
    async with Worker(store, [busy]):
        await entered.wait()
        await until(lambda: _stands(store, run_id, "word#1", "PAUSED"))
        assert await store.cancel(run_id)
        assert await store.signal(run_id, "word", "late") is TOO_LATE
        go_on.set()
        await until(lambda: _is(store, run_id, "CANCELLED"))


@pytest.mark.proves("P-04", "S-19")
async def test_data_comes_as_the_type_that_is_waited_for(store: Store) -> None:
    @workflow
    async def typed(ctx: Context) -> str:
        approval = await ctx.wait("approved", Approval)
        assert isinstance(approval, Approval)
        return approval.by

    run_id = await begun(store, typed)
    assert [await store.signal(run_id, "approved", one) for one in (7, Approval("ann"))] == [KEPT, KEPT]
    await drained(store, typed)
    assert (await store.get_run(run_id)).output() == "ann"


@pytest.mark.proves("P-08", "promise-15", "rule-15")
async def test_none_that_was_sent_is_no_timeout(store: Store, clock: TestClock) -> None:
    @workflow
    async def either(ctx: Context) -> list[object]:
        return [await ctx.wait("word", timeout="1h", default="nobody") for _ in range(2)]

    run_id = await begun(store, either)
    await store.signal(run_id, "word", None)
    await drained(store, either)
    clock.advance(3601)
    await drained(store, either)
    assert (await store.get_run(run_id)).output() == [None, "nobody"]
    kinds = [one.error and one.error["type"] for one in await store.steps(run_id)]
    assert kinds == [None, "Timeout"]


@pytest.mark.proves("P-06")
async def test_what_cannot_be_sent_is_refused_before_anything_is_written(store: Store) -> None:
    run_id = await begun(store, approve, "trip")
    for wrong in ("", "a b", "x" * 256, "a/b", 7):
        with pytest.raises(InvalidName):
            await store.signal(run_id, wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidName):
        await store.signal(run_id, "approved", key="")
    with pytest.raises(SerializationError):
        await store.signal(run_id, "approved", "x" * (store.database.options.payload_limit + 1))
    with pytest.raises(SerializationError):
        await store.signal(run_id, "approved", object())
    assert await ask_raw(store, "select count(*) from {signal}") == [(0,)]


@pytest.mark.proves("P-05", "promise-15")
async def test_waits_of_one_name_in_parallel_take_a_signal_each(store: Store) -> None:
    @workflow
    async def gathered(ctx: Context) -> list[int]:
        async with asyncio.TaskGroup() as group:
            other = group.create_task(ctx.wait("number", int))
            numbers = await asyncio.gather(*(ctx.wait("number", int) for _ in range(3)))
        return [other.result(), *numbers]

    run_id = await begun(store, gathered)
    assert await store.signal(run_id, "number", 0) is KEPT
    await drained(store, gathered)
    assert sorted((await statuses(store, run_id)).values()) == ["PAUSED"] * 3 + ["SUCCESS"]
    assert [await store.signal(run_id, "number", n) for n in (1, 2, 3, 4)] == [WOKE, WOKE, WOKE, KEPT]
    assert await drained(store, gathered) == 1
    assert sorted((await store.get_run(run_id)).output()) == [0, 1, 2, 3]


@pytest.mark.proves("promise-15", "protocol-18")
async def test_a_wait_that_the_workflow_has_cancelled_leaves_its_signal_to_the_next(
    store: Store, clock: TestClock
) -> None:
    @step
    async def fail() -> None:
        raise PermanentError("no")

    @workflow(strict=True)
    async def aborted(ctx: Context) -> list[object]:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.wait("word"))
                group.create_task(fail())
        except* StepFailed:
            await ctx.sleep("1h")
        return [await ctx.wait("word", timeout="1h")]

    run_id = await begun(store, aborted)
    await drained(store, aborted)
    assert (await statuses(store, run_id))["word#1"] == "CANCELLED"
    assert await store.signal(run_id, "word", "hello") is KEPT
    clock.advance(3601)
    await drained(store, aborted)
    assert (await store.get_run(run_id)).output() == ["hello"]


@pytest.mark.proves("S-06", "protocol-21")
async def test_a_strict_workflow_may_wait(store: Store, clock: TestClock) -> None:
    @workflow(strict=True)
    async def strict(ctx: Context) -> list[object]:
        first = await ctx.wait("a", int)
        second = await ctx.wait("b", int, timeout="1h")
        return [first, second, await ask("c")]

    run_id = await begun(store, strict)
    await drained(store, strict)
    await store.signal(run_id, "a", 1)
    await drained(store, strict)
    clock.advance(3601)
    await drained(store, strict)
    assert (await store.get_run(run_id)).output() == [1, None, "c"]


@pytest.mark.proves("P-02", "P-05", "promise-15")
async def test_a_thousand_runs_that_wait_and_are_woken_cost_few_statements(store: Store, backend: str) -> None:
    count = 100 if backend == "turso" else 1000  # where each row is a statement of its own
    over, driver = watched(store)
    triggers = [in_time.trigger().options(require_worker="ignore") for _ in range(count)]
    run_ids = await over.trigger_many(triggers)
    driver.forget()
    await drained(over, in_time, concurrency=count)
    assert driver.transactions < 60
    assert sum(call.statement == "lock_turns" for call in driver.said) < 20
    for run_id in run_ids[:5]:
        assert await over.signal(run_id, "approved", Approval("ann")) is WOKE
    driver.forget()
    await drained(over, in_time, concurrency=count)
    assert driver.transactions < 20
    assert {(await over.get_run(run_id)).output() for run_id in run_ids[:5]} == {"ann"}


@pytest.mark.proves("P-07", "promise-15")
@pytest.mark.backends("sqlite", "postgres", reason="Turso serves one process at a time")
async def test_a_wait_beside_a_working_step_is_answered_by_a_signal_of_another_store(
    store_url: str, backend: str
) -> None:
    go_on = asyncio.Event()

    @step
    async def work() -> str:
        await go_on.wait()
        return "worked"

    @workflow
    async def busy(ctx: Context) -> list[str]:
        return list(await asyncio.gather(work(), ctx.wait("word", str)))

    async with connect(store_url, listen=False) as here, connect(store_url, listen=False) as there:
        run_id = await begun(here, busy)
        async with Worker(here, [busy]):
            await until(lambda: _stands(here, run_id, "word#1", "PAUSED"))
            assert await there.signal(run_id, "word", "hello") is WOKE
            await until(lambda: _stands(here, run_id, "word#1", "SUCCESS"), message="found by asking again")
            go_on.set()
            assert await here.result(run_id, timeout=10) == ["worked", "hello"]
        assert (await task_of(here, run_id)).turn == 1


@pytest.mark.proves("P-02", "P-05")
@pytest.mark.backends("sqlite", "postgres", reason="Turso serves one process at a time")
async def test_a_run_that_waits_is_woken_by_another_store_for_the_worker_of_this_one(
    store_url: str, backend: str
) -> None:
    async with connect(store_url) as here, connect(store_url) as there:
        run_id = await begun(here, approve, "trip")
        async with Worker(here, [approve]):
            await until(lambda: _is(here, run_id, "PAUSED"))
            assert await there.signal(run_id, "approved", Approval("ann")) is WOKE
            assert await here.result(run_id, timeout=10) == "trip by ann"


@pytest.mark.usefixtures("backend")
@pytest.mark.proves("P-04", "P-06")
def test_sync_code_signals_and_resumes_the_same_way(store_url: str) -> None:
    with sync.connect(store_url) as store:
        run_id = twice.trigger().options(require_worker="ignore").execute(store)
        worker = sync.Worker(store, [twice])
        worker.drain()
        assert store.signal(run_id, "number", 1, key="click") is WOKE
        assert store.signal(run_id, "number", 2, key="click") is TOO_LATE
        worker.drain()
        assert store.resume(run_id, "number", 2) is WOKE
        worker.drain()
        assert store.result(run_id, timeout=5) == [1, 2]
        assert not store.resume(run_id, "number", 3)


async def _stands(store: Store, run_id: int, key: str, status: str) -> bool:
    return (await statuses(store, run_id)).get(key) == status


async def _is(store: Store, run_id: int, status: str) -> bool:
    return (await task_of(store, run_id)).status == status
