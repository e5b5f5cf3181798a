"""Steps, and workflows, that set themselves aside: until they are resumed, or a condition that is asked is met."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Paused,
    Retry,
    Run,
    SignalAnswer,
    Store,
    TransientError,
    Worker,
    condition,
    connect,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.base.durations import datetime_of
from stepwell.base.events import ConditionUnanswered
from stepwell.errors import InvalidName, InvalidOption, RunNotFound
from stepwell.testing import world
from tests.ground.waiting import until
from tests.workflows.kit import begun, drained, statuses, steps_of, task_of

WOKE, KEPT, TOO_LATE = SignalAnswer.WOKE, SignalAnswer.KEPT, SignalAnswer.TOO_LATE
HOUR = 3600


@dataclass(frozen=True)
class Decision:
    by: str
    granted: bool = True


@step
async def ask(what: str) -> Decision:
    raise Paused(f"who allows {what}?")


@step(timeout="1m")
def ask_in_a_thread(what: str) -> Decision:
    raise Paused(f"who allows {what}?")


@workflow
async def approve(what: str) -> str:
    return (await ask(what)).by


@workflow
def approve_in_a_thread(ctx: sync.Context, what: str) -> str:
    return ask_in_a_thread(what).by


answers: dict[str, list[Any]] = {}
calls: list[str] = []


@condition("waiting.async")
async def _asked(run: Run[Any]) -> object:
    return _answer("async", run)


@condition("waiting.sync")
def _asked_in_a_thread(run: Run[Any]) -> object:
    return _answer("sync", run)


def _answer(kind: str, run: Run[Any]) -> object:
    assert run.status == "RUNNING"
    calls.append(kind)
    answer = answers[kind].pop(0)
    if isinstance(answer, Exception):
        raise answer
    return answer


@step
async def stock(kind: str) -> int:
    calls.append("body")
    if calls.count("body") == 1 or kind == "nobody":
        raise Paused("nothing left", resume_condition=f"waiting.{kind}")
    return 7


@workflow
async def sell(kind: str) -> int:
    return await stock(kind)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    calls.clear()
    answers.clear()


@pytest.mark.proves("P-01", "P-02", "P-04", "E-01")
@pytest.mark.parametrize("flow", [approve, approve_in_a_thread], ids=["async", "sync"])
async def test_a_step_that_pauses_itself_is_stored_as_that_and_resumed_with_data(store: Store, flow: Any) -> None:
    run_id = await begun(store, flow, "a trip")
    await drained(store, flow)
    run, task = await store.get_run(run_id), await task_of(store, run_id)
    assert (run.status, task.owner, task.run_at, task.attempt) == ("PAUSED", None, None, 0)
    assert run.paused_at is not None
    [paused] = await store.steps(run_id)
    assert paused.status == "PAUSED"
    assert paused.error == {"type": "Paused", "message": "who allows a trip?", "resume_condition": None}
    assert await drained(store, flow) == 0
    assert await store.resume(run_id, paused.name, Decision("ann")) is WOKE
    assert (await task_of(store, run_id)).ready
    await drained(store, flow)
    assert (await store.get_run(run_id)).output() == "ann"
    assert await statuses(store, run_id) == {paused.key: "SUCCESS"}


@pytest.mark.proves("P-05", "P-06")
async def test_a_resume_may_come_before_the_pause_and_a_second_one_changes_nothing(store: Store) -> None:
    run_id = await begun(store, approve, "a trip")
    assert await store.resume(run_id, "ask", Decision("ann")) is KEPT
    assert await store.resume(run_id, "ask", Decision("bob")) is TOO_LATE
    assert await drained(store, approve) == 1
    assert (await store.get_run(run_id)).output() == "ann"
    assert await store.resume(run_id, "ask", Decision("bob")) is TOO_LATE
    assert (await store.get_run(run_id)).output() == "ann"


@pytest.mark.proves("P-06")
async def test_a_resume_for_what_nobody_asked_is_kept_and_wakes_nobody(store: Store) -> None:
    run_id = await begun(store, approve, "a trip")
    await drained(store, approve)
    assert await store.resume(run_id, "another", 1) is KEPT
    assert await drained(store, approve) == 0
    assert (await store.get_run(run_id)).status == "PAUSED"


@pytest.mark.proves("P-06")
async def test_only_names_of_steps_and_waits_can_be_resumed(store: Store) -> None:
    run_id = await begun(store, approve, "a trip")
    for wrong in ("ask#1", "branch:1/ask", "double()", "", "x" * 256, 7):
        with pytest.raises(InvalidName):
            await store.resume(run_id, wrong, 1)  # type: ignore[arg-type]
    with pytest.raises(RunNotFound):
        await store.resume(10**6, "ask", 1)


@pytest.mark.proves("P-07")
async def test_a_resume_while_a_worker_executes_the_run_gives_it_to_no_second_one(store: Store) -> None:
    entered, go_on, executed = asyncio.Event(), asyncio.Event(), []

    @step
    async def long() -> int:
        executed.append(1)
        entered.set()
        await go_on.wait()
        raise Paused("ask somebody")

    @workflow
    async def busy() -> int:
        return await long()

    run_id = await begun(store, busy)
    async with Worker(store, [busy]):
        await entered.wait()
        assert await store.resume(run_id, "long", 5) is KEPT
        task = await task_of(store, run_id)
        assert (task.status, task.ready, task.turn) == ("RUNNING", False, 1)
        assert await drained(store, busy) == 0
        go_on.set()
        assert await store.result(run_id, timeout=10) == 5
    assert executed == [1]
    assert (await task_of(store, run_id)).turn == 2  # the end of the first has found what came while the body ran


@pytest.mark.proves("P-03", "P-10")
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_condition_is_asked_every_interval_until_it_is_met(store: Store, clock: TestClock, kind: str) -> None:
    answers[kind] = [None, False, True]
    run_id = await begun(store, sell, kind)
    await drained(store, sell)
    assert (await task_of(store, run_id)).run_at == datetime_of(clock.now()) + timedelta(hours=1)
    clock.advance(HOUR - 1)
    assert await drained(store, sell) == 0
    for left in (2, 1):
        clock.advance(HOUR)
        assert await drained(store, sell) == 1
        task = await task_of(store, run_id)
        assert (len(answers[kind]), task.status, task.attempt) == (left, "PAUSED", 0)
        assert task.run_at == datetime_of(clock.now()) + timedelta(hours=1)
    clock.advance(HOUR)
    await drained(store, sell)
    assert (await store.get_run(run_id)).output() == 7
    assert calls == ["body", kind, kind, kind, "body"]
    [recorded] = await store.steps(run_id)
    assert (recorded.status, recorded.attempt, recorded.error) == ("SUCCESS", 1, None)


@pytest.mark.proves("CF-02")
@pytest.mark.parametrize(("said", "seconds"), [(None, HOUR), ("10m", 600), (timedelta(hours=5), 5 * HOUR)])
async def test_the_interval_is_the_stores_and_one_hour_if_nothing_is_said(
    store_url: str, clock: TestClock, said: Any, seconds: int
) -> None:
    @workflow
    async def itself() -> None:
        raise Paused("not yet", resume_condition="later")

    answers["async"] = [None, 5]
    options: Any = {} if said is None else {"pause_check_interval": said}
    async with connect(store_url, clock=clock, **options) as store:
        run_id, other = await begun(store, sell, "async"), await begun(store, itself)
        await drained(store, sell, itself)
        for asked in (1, 2):
            clock.advance(seconds - 1)
            assert await drained(store, sell, itself) == 0
            clock.advance(1)
            assert await drained(store, sell, itself) == 2
            assert calls == ["body", *["async"] * asked]
        assert (await store.get_run(run_id)).output() == 5
        assert (await task_of(store, other)).run_at == datetime_of(clock.now()) + timedelta(seconds=seconds)


@pytest.mark.proves("P-03")
async def test_what_a_condition_returns_is_what_the_step_returns(store: Store, clock: TestClock) -> None:
    answers["async"] = [12]
    run_id = await begun(store, sell, "async")
    await drained(store, sell)
    clock.advance(HOUR)
    await drained(store, sell)
    assert (await store.get_run(run_id)).output() == 12
    assert calls == ["body", "async"]


@pytest.mark.proves("P-03")
async def test_a_condition_that_cannot_be_asked_is_told_of_and_leaves_the_run_paused(
    store: Store, clock: TestClock
) -> None:
    events: list[ConditionUnanswered] = []
    store.database.telemetry.subscribe(
        lambda event: events.append(event) if isinstance(event, ConditionUnanswered) else None
    )
    answers["async"] = [ValueError("the stock is being counted"), object(), 3]
    run_id, unknown = await begun(store, sell, "async"), await begun(store, sell, "nobody")
    await drained(store, sell)
    for _ in range(2):
        clock.advance(HOUR)
        await drained(store, sell)
        assert {str((await store.get_run(one)).status) for one in (run_id, unknown)} == {"PAUSED"}
    assert sorted({event.condition for event in events}) == ["waiting.async", "waiting.nobody"]
    assert any("being counted" in event.why for event in events)
    clock.advance(HOUR)
    await drained(store, sell)
    assert (await store.get_run(run_id)).output() == 3
    assert await store.resume(unknown, "stock", 9) is WOKE
    await drained(store, sell)
    assert (await store.get_run(unknown)).output() == 9


@pytest.mark.proves("P-10")
async def test_a_run_that_was_checked_a_thousand_times_has_all_its_attempts() -> None:
    answers["async"] = [None] * 1000
    async with world(sell, pause_check_interval="1s") as w:
        run_id = await sell.trigger("async").execute(w.store)
        await w.advance("1000s")
        task = await task_of(w.store, run_id)
        assert (task.attempt, task.turn, task.status, answers["async"]) == (0, 1001, "PAUSED", [])
        assert await w.store.resume(run_id, "stock", 1) is WOKE
        await w.drain()
        assert (await w.store.get_run(run_id)).output() == 1


@pytest.mark.proves("P-03")
async def test_a_resume_before_the_next_check_wins(store: Store) -> None:
    run_id = await begun(store, sell, "async")
    await drained(store, sell)
    assert await store.resume(run_id, "stock", 4) is WOKE
    await drained(store, sell)
    assert (await store.get_run(run_id)).output() == 4
    assert calls == ["body"]


@pytest.mark.proves("P-03", "R-16")
async def test_an_answer_that_does_not_fit_the_step_is_reported_and_asked_for_again(
    store: Store, clock: TestClock
) -> None:
    """Recorded as the result of the step, it could be read by no code."""
    events: list[ConditionUnanswered] = []
    store.database.telemetry.subscribe(
        lambda event: events.append(event) if isinstance(event, ConditionUnanswered) else None
    )
    answers["async"] = ["seven", 8]
    run_id = await begun(store, sell, "async")
    await drained(store, sell)
    clock.advance(HOUR)
    await drained(store, sell)
    assert (await store.get_run(run_id)).status == "PAUSED"
    assert "answer of condition waiting.async refused at `$`: Expected `int`, got `str`" in events[0].why
    clock.advance(HOUR)
    await drained(store, sell)
    assert (await store.get_run(run_id)).output() == 8


@pytest.mark.every_loop
@pytest.mark.proves("P-03", "W-10")
async def test_a_run_is_not_given_back_while_its_condition_is_asked(store: Store, clock: TestClock) -> None:
    @condition("waiting.slow")
    async def slow(run: Run[Any]) -> object:
        await asyncio.gather(asyncio.sleep(0.2))  # whoever waits for tasks looks as if the run's own were meant
        return 2

    @step
    def aside() -> int:
        raise Paused("later", resume_condition="waiting.slow")

    @step(retry=3)
    def flaky() -> int:
        if sync.current().attempt < 2:
            raise TransientError("again", retry_after="5h")
        return 1

    @workflow
    def both(ctx: sync.Context) -> int:
        beside = flaky.start()
        return aside() + beside.result()

    run_id = await begun(store, both)
    await drained(store, both)
    clock.advance(HOUR)
    assert await drained(store, both) == 1
    assert await statuses(store, run_id) == {"flaky#1": "PENDING", "aside#1": "SUCCESS"}
    clock.advance(5 * HOUR)
    await drained(store, both)
    assert (await store.get_run(run_id)).output() == 3


@pytest.mark.proves("P-11")
async def test_a_paused_run_that_is_cancelled_never_goes_on(store: Store, clock: TestClock) -> None:
    run_id = await begun(store, sell, "async")
    await drained(store, sell)
    assert await store.cancel(run_id) == "CANCELLED"
    assert await store.resume(run_id, "stock", 4) is TOO_LATE
    clock.advance(HOUR)
    assert await drained(store, sell) == 0
    assert (await store.get_run(run_id)).status == "CANCELLED"


@pytest.mark.proves("P-01", "P-10")
@pytest.mark.parametrize("again", [None, "later"], ids=["by hand", "now and then"])
async def test_a_workflow_that_pauses_itself_outside_of_a_step_spends_no_attempt(
    store: Store, clock: TestClock, again: str | None
) -> None:
    allowed: list[bool] = []

    @workflow(retry=1)
    async def careful() -> list[int]:
        first = await stock("async") if calls else 0
        if not allowed:
            raise Paused("not before noon", resume_condition=again)
        return [first, 1]

    run_id = await begun(store, careful)
    await drained(store, careful)
    run, task = await store.get_run(run_id), await task_of(store, run_id)
    assert (run.status, task.attempt, task.owner) == ("PAUSED", 0, None)
    assert run.error == {"type": "Paused", "message": "not before noon", "resume_condition": again}
    assert "not before noon" in (await store.why(run_id)).message
    clock.advance(HOUR)
    assert await drained(store, careful) == (again is not None)
    assert (await store.get_run(run_id)).status == "PAUSED"
    allowed.append(True)
    assert await store.unpause(run_id)
    await drained(store, careful)
    run = await store.get_run(run_id)
    assert (run.output(), run.error, run.last_error) == ([0, 1], None, None)


@pytest.mark.proves("E-12", "P-01")
@pytest.mark.parametrize("where", ["step", "workflow"])
async def test_an_exception_that_is_mapped_to_a_pause_spends_no_attempt(store: Store, where: str) -> None:
    paid: list[bool] = []
    policy = Retry(1, paused=(PermissionError,))

    @step(retry=policy)
    async def ship() -> str:
        if where == "step" and not paid:
            raise PermissionError("not paid yet")
        return "shipped"

    @workflow(retry=policy)
    async def sell() -> str:
        if where == "workflow" and not paid:
            raise PermissionError("not paid yet")
        return await ship()

    run_id = await begun(store, sell)
    await drained(store, sell)
    run = await store.get_run(run_id)
    assert (run.status, (await task_of(store, run_id)).attempt) == ("PAUSED", 0)
    assert "PermissionError: not paid yet" in (await store.why(run_id)).message
    paid.append(True)
    if where == "step":
        assert await store.resume(run_id, "ship", "shipped by hand") is WOKE
    else:
        assert await store.unpause(run_id)
    await drained(store, sell)
    assert (await store.get_run(run_id)).output() == ("shipped by hand" if where == "step" else "shipped")


@pytest.mark.proves("P-01")
@pytest.mark.parametrize("where", ["step", "workflow"])
async def test_a_pause_with_a_time_is_over_then_and_spends_no_attempt(
    store: Store, clock: TestClock, where: str
) -> None:
    called: list[int] = []

    def too_early(here: str) -> None:
        if here == where:
            called.append(1)
            if len(called) < 3:
                raise Paused("too early", resume_after="1h")

    @step(retry=1)
    async def ship() -> str:
        too_early("step")
        return "shipped"

    @workflow(retry=1)
    async def sell() -> str:
        too_early("workflow")
        return await ship()

    run_id = await begun(store, sell)
    for tried in (1, 2):
        await drained(store, sell)
        assert ((await store.get_run(run_id)).status, len(called)) == ("PAUSED", tried)
        clock.advance(HOUR - 1)
        assert await drained(store, sell) == 0
        clock.advance(1)
    await drained(store, sell)
    run = await store.get_run(run_id)
    assert (run.output(), (await task_of(store, run_id)).attempt) == ("shipped", 1)


@pytest.mark.proves("E-12")
async def test_what_a_step_gave_up_with_is_no_pause_of_the_run(store: Store) -> None:
    @step(retry=1, raises=(PermissionError,))
    async def ship() -> None:
        raise PermissionError("not paid yet")

    @workflow(retry=Retry(1, paused=(PermissionError,)))
    async def sell() -> None:
        await ship()

    run_id = await begun(store, sell)
    await drained(store, sell)
    assert (await store.get_run(run_id)).status == "ERROR"


@pytest.mark.proves("P-01")
def test_two_conditions_of_one_name_are_refused() -> None:
    @condition("waiting.once")
    def first(run: Run[Any]) -> bool:
        return True

    with pytest.raises(InvalidOption, match="first"):

        @condition("waiting.once")
        def second(run: Run[Any]) -> bool:
            return True


@pytest.mark.proves("P-01", "P-04")
async def test_a_paused_step_beside_others_is_resumed_while_they_work(store: Store) -> None:
    go_on = asyncio.Event()

    @step
    async def slow() -> str:
        await go_on.wait()
        return "done"

    @workflow
    async def both() -> list[Any]:
        decision, done = await asyncio.gather(ask("both"), slow())
        return [decision.by, done]

    run_id = await begun(store, both)
    async with Worker(store, [both]):
        await until(lambda: _stands(store, run_id, "ask#1", "PAUSED"))
        assert await store.resume(run_id, "ask", Decision("ann")) is WOKE
        await until(lambda: _stands(store, run_id, "ask#1", "SUCCESS"))
        go_on.set()
        assert await store.result(run_id, timeout=10) == ["ann", "done"]


async def _stands(store: Store, run_id: int, key: str, status: str) -> bool:
    step = (await steps_of(store, run_id)).get(key)
    return step is not None and step.status == status
