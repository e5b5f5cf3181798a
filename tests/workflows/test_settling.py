"""A step that waits and the run that waits for it change in one transaction, however the writing goes wrong."""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest

from stepwell import Context, Execute, Paused, Store, TransientError, Worker, current, step, workflow
from stepwell.base.events import InternalTaskFailed
from stepwell.errors import LeaseLost, Refused, StoreBusy, StoreLocked, StoreUnavailable
from stepwell.records import RunStatus
from stepwell.store import tasks
from stepwell.store.driver import Call
from stepwell.store.rows import Claimed, Settlement, SettleRow, StepRow
from stepwell.store.settle import Following, settle_row, settled_step
from tests.ground.opened import READS_AUDIT
from tests.ground.waiting import until
from tests.store.seam import AGAIN, DONE, FAILED, RELEASED, ask, begin, claim, do, one, watched
from tests.workflows.kit import begun, drained, statuses, task_of

SHOWN = 0.06  # seconds after which a step is recorded as RUNNING, and more
NEITHER, BOTH = (None, "RUNNING"), ("PENDING", "PENDING")
ERROR = '{"type":"E","message":"m"}'
TELLING = Following(tells=True)
Seen = list[tuple[str | None, str]]


async def seen_of(store: Store, task_id: int) -> tuple[str | None, str]:
    """A task's only step, and the task, as a reader sees them at one moment."""
    step = f"(select status from {{step}} where run_id = {task_id})"
    [row] = await ask(store, f"select {step} as step, status from {{task}} where id = {task_id}")
    return row["step"], row["status"]


def waiting(task: Claimed, settlement: Settlement = AGAIN, **changed: Any) -> Settlement:
    """The end of a turn whose step waits."""
    row = StepRow(task.id, 0, "a#1", 1, RunStatus.PENDING, error=ERROR)
    return msgspec.structs.replace(settlement, steps=(msgspec.structs.replace(row, **changed),))


async def steps_at_work(store: Store, task: Claimed, worker: int, *keys: str) -> None:
    for place, key in enumerate(keys, 1):
        row = StepRow(task.id, 0, key, place, RunStatus.RUNNING)
        await store.database.steps.record(row, worker, None, has_row=False)


# However a flush is taken apart


@pytest.mark.proves("E-02", "P-01", "R-05", "protocol-15")
@pytest.mark.parametrize(
    "way", ["neighbour refused", "step refused", "settle refused", "held", "alone", "reply lost", "apart, reply lost"]
)
async def test_a_step_and_its_run_are_written_together_however_their_flush_is_taken_apart(
    store: Store, way: str
) -> None:
    over, driver = watched(store)
    worker = await begin(store)
    await store.create_queue("q")
    await store.enqueue_many("q", range(6))
    first, ours, *others, broken = await claim(store, worker, "q", 6)
    odd = ours if way == "settle refused" else broken if "refused" in way or "apart" in way else None
    if odd is not None:
        await do(store, f"update {{task}} set attempt = 0 where id = {odd.id}")  # to give it back breaks a check
    seen: Seen = []
    # Three times together, then one by one.
    held = (
        StoreLocked("held") if store.database.driver.key_slot is not None else StoreBusy("held")
    )  # a file is locked whole
    troubles: dict[str, list[StoreBusy | StoreUnavailable]] = {
        "held": [held],
        "alone": [StoreUnavailable("gone") for _ in range(3)],
    }
    losses = troubles.get(way, [])
    unheard = [StoreUnavailable("gone")] if "reply lost" in way else []

    async def look(troubles: list[Any], calls: Sequence[Call]) -> None:
        seen.append(await seen_of(store, ours.id))
        if troubles and (way != "apart, reply lost" or not calls):
            raise troubles.pop()

    settlement = {
        "step refused": waiting(ours, place=None),
        "settle refused": waiting(ours, RELEASED),
    }.get(way, waiting(ours))
    work = [(first, DONE), (ours, settlement), *((one, DONE) for one in others), (broken, RELEASED)]
    driver.before, driver.after = partial(look, losses), partial(look, unheard)
    settling = (over.database.tasks.settle(one.id, worker, one.turn, what) for one, what in work)
    answers = await asyncio.wait_for(asyncio.gather(*settling, return_exceptions=True), 20)
    assert len(driver.ids("settle")[0]) == len(work), "not one flush: void"
    ours_is_refused = way in ("step refused", "settle refused")
    assert isinstance(answers[1], Refused) if ours_is_refused else answers[1] == "PENDING"
    assert await seen_of(store, ours.id) == (NEITHER if ours_is_refused else BOTH)
    assert set(seen) <= {NEITHER, BOTH}
    assert answers[0] == answers[2] == "SUCCESS"
    assert not losses
    assert not unheard


@pytest.mark.proves("R-05", "protocol-15")
@pytest.mark.parametrize("way", ["whole", "apart", "as a letter"])
async def test_a_run_that_fails_closes_its_steps_with_it_but_those_it_records(store: Store, way: str) -> None:
    over, driver = watched(store)
    worker = await begin(store)
    await store.create_queue("q")
    await store.enqueue_many("q", range(2))
    ours, broken = await claim(store, worker, "q", 2)
    await steps_at_work(store, ours, worker, "a#1", "b#1")
    settlement = msgspec.structs.replace(waiting(ours, FAILED), ends_run=True)
    if way == "apart":
        await do(store, f"update {{task}} set attempt = 0 where id = {broken.id}")
        settling = over.database.tasks.settle(ours.id, worker, ours.turn, settlement)
        refused = over.database.tasks.settle(broken.id, worker, broken.turn, RELEASED)
        answer, refusal = await asyncio.gather(settling, refused, return_exceptions=True)
        assert isinstance(refusal, Refused)
        assert len(driver.flushes) == driver.scripts == 1
    else:
        verbs = over.database.tasks
        settle = verbs.settle if way == "whole" else partial(verbs.settle_with, what=TELLING)
        answer = await settle(ours.id, worker, ours.turn, settlement)
    assert answer == "ERROR"
    rows = await ask(store, f"select key, status from {{step}} where run_id = {ours.id} order by place")
    assert [(row["key"], row["status"]) for row in rows] == [("a#1", "PENDING"), ("b#1", "CANCELLED")]


@pytest.mark.proves("E-02", "P-01", "R-05", "protocol-03", "L-09")
@pytest.mark.parametrize("lost", ["turn", "session", "fence"])
@pytest.mark.parametrize("way", ["settle", "settle_with"])
async def test_a_step_is_not_recorded_with_a_turn_that_is_lost(store: Store, lost: str, way: str) -> None:
    worker, other = await begin(store), await begin(store)
    task = await one(store, worker)
    if lost == "fence":
        await do(store, f"delete from {{fence}} where worker_id = {worker}")
    turn, session = task.turn + (lost == "turn"), other if lost == "session" else worker
    plain, telling = store.database.tasks.settle, partial(store.database.tasks.settle_with, what=TELLING)
    with pytest.raises(LeaseLost):
        await (plain if way == "settle" else telling)(task.id, session, turn, waiting(task))
    assert await seen_of(store, task.id) == NEITHER


# What a worker writes


@step(retry=2)
async def flaky() -> None:
    await asyncio.sleep(SHOWN)
    raise TransientError("not now", retry_after=60)


@step(retry=2)
def flaky_in_a_thread() -> None:
    time.sleep(SHOWN)
    raise TransientError("not now", retry_after=60)


@step
async def ask_somebody() -> None:
    await asyncio.sleep(SHOWN)
    raise Paused("who allows it?")


@step
def ask_in_a_thread() -> None:
    time.sleep(SHOWN)
    raise Paused("who allows it?", resume_after="1h")


@workflow
async def retried() -> None:
    await flaky()


@workflow
def retried_in_a_thread() -> None:
    flaky_in_a_thread()


@workflow
async def retried_by_hand(ctx: Context) -> None:
    guard = await ctx.acquire("by_hand")
    assert isinstance(guard, Execute)
    await guard.fail_transient(TransientError("not now"), retry_after=60)


@workflow
async def paused() -> None:
    await ask_somebody()


@workflow
def paused_in_a_thread() -> None:
    ask_in_a_thread()


async def seen_meanwhile(store: Store, flow: Any) -> Seen:
    """What a reader may see of a run's step, and of the run, after each transaction of its first turn."""
    over, driver = watched(store)
    run_id, seen = await begun(store, flow), Seen()

    async def look(_: Sequence[Call]) -> None:
        seen.append(await seen_of(store, run_id))

    driver.after = look
    await drained(over, flow)
    return seen


@pytest.mark.proves("E-02")
@pytest.mark.parametrize("flow", [retried, retried_in_a_thread], ids=["async", "sync"])
async def test_a_transient_failure_of_a_step_and_the_delay_of_its_run_are_seen_together(
    store: Store, flow: Any
) -> None:
    seen = await seen_meanwhile(store, flow)
    assert ("RUNNING", "RUNNING") in seen, "the step was not seen at work: void"
    assert seen[-1] == ("PENDING", "PENDING")
    assert ("PENDING", "RUNNING") not in seen
    assert ("RUNNING", "PENDING") not in seen


@pytest.mark.proves("P-01")
@pytest.mark.parametrize("flow", [paused, paused_in_a_thread], ids=["async", "sync"])
async def test_the_pause_of_a_step_and_that_of_its_run_are_seen_together(store: Store, flow: Any) -> None:
    seen = await seen_meanwhile(store, flow)
    assert ("RUNNING", "RUNNING") in seen, "the step was not seen at work: void"
    assert seen[-1] == ("PAUSED", "PAUSED")
    assert ("PAUSED", "RUNNING") not in seen
    assert ("RUNNING", "PAUSED") not in seen


# What writes steps and ends turns, and with what a run begins to ask.
WRITING = ("add_steps", "change_steps", "settle_steps", "settle", "lock_turns")


@step(retry=3)
async def fails(retry_after: int) -> int:
    if (attempt := current().attempt) < 3:
        raise TransientError(f"attempt {attempt}", retry_after=retry_after)
    return attempt


@step
async def asks() -> int:
    raise Paused("who allows it?")


@workflow
async def failing() -> int:
    return await fails(60)


@workflow
async def failing_at_once() -> int:
    return await fails(0)


@workflow
async def asking() -> int:
    return await asks()


@pytest.mark.proves("E-02", "P-01")
@pytest.mark.parametrize("flow", [failing, retried_by_hand, asking], ids=["failed", "failed by hand", "paused"])
async def test_a_step_that_waits_costs_its_run_one_transaction_and_no_question(store: Store, flow: Any) -> None:
    over, driver = watched(store)
    await begun(store, flow)
    await drained(over, flow)
    written = [[call.statement for call in calls if call.statement in WRITING] for calls in driver.flushes]
    assert [calls for calls in written if calls] == [["settle", "settle_steps"]]
    assert not [call.statement for call in driver.said if call.statement in WRITING]


@READS_AUDIT
@pytest.mark.proves("E-02", "A-01")
async def test_an_attempt_that_is_repeated_at_once_is_recorded_before_the_next(store: Store) -> None:
    run_id = await begun(store, failing_at_once)
    assert await drained(store, failing_at_once) == 1
    assert (await store.get_run(run_id)).output() == 3
    told = [(note.what, note.attempt) for note in await store.history(run_id)]
    assert told == [("step failed", 1), ("step failed", 2)]


@pytest.mark.proves("P-05")
async def test_a_resume_that_comes_while_the_body_runs_is_found_by_the_end_of_the_turn(store: Store) -> None:
    @step
    async def resumed_already() -> int:
        await store.resume(run_id, "resumed_already", 5)
        raise Paused("who allows it?")

    @workflow
    async def lucky() -> int:
        return await resumed_already()

    run_id = await begun(store, lucky)
    await drained(store, lucky)
    assert (await store.get_run(run_id)).output() == 5


@pytest.mark.proves("P-01", "promise-15")
async def test_a_step_that_paused_itself_and_lost_its_race_does_not_wait_any_more(store: Store) -> None:
    lost = asyncio.Event()

    @step
    async def loses() -> int:
        lost.set()
        raise Paused("who allows it?")

    @step
    async def wins() -> int:
        await lost.wait()
        return 1

    @workflow
    async def racing(ctx: Context) -> list[int]:
        return [*await ctx.race(loses(), wins())]

    run_id = await begun(store, racing)
    await drained(store, racing)
    assert (await store.get_run(run_id)).output() == [1, 1]
    found = await statuses(store, run_id)
    assert [status for key, status in found.items() if "loses" in key] == ["CANCELLED"]


@pytest.mark.proves("protocol-11")
async def test_a_run_that_restarts_keeps_nothing_of_a_step_that_waited(store: Store) -> None:
    @workflow
    async def restarting(ctx: Context, number: int) -> int:
        if number == 1:
            beside = asyncio.create_task(asks())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not beside.done()
            ctx.restart(2)
        return number

    run_id = await begun(store, restarting, 1)
    await drained(store, restarting)
    assert (await store.get_run(run_id)).output() == 2
    assert await ask(store, f"select key from {{step}} where run_id = {run_id}") == []


@pytest.mark.proves("E-02")
async def test_a_run_is_given_back_with_its_step_also_when_nobody_was_about_to_look(store: Store) -> None:
    @workflow
    async def dawdling(ctx: Context) -> None:
        async def later() -> None:
            await asleep.wait()
            await asyncio.sleep(0.3)  # from here the next look is a tenth of a second and more away
            await fails(60)

        # Nothing that asks the database again and again: while it asks, the step is recorded by itself.
        await asyncio.gather(ctx.sleep(3600), later())

    over, driver = watched(store)
    asleep = asyncio.Event()  # the sleep is recorded: while that is written, a step that waits is recorded by itself
    run_id, seen = await begun(store, dawdling), set[tuple[str | None, str]]()

    async def look(_: Sequence[Call]) -> None:
        [row] = await ask(
            store,
            "select status, (select max(step.status) from {step} as step where step.run_id = task.id"
            " and step.key like '%fails#1') as step, (select count(*) from {step} as step where step.run_id = task.id)"
            f" as steps from {{task}} as task where id = {run_id}",
        )
        seen.add((row["step"], row["status"]))
        if row["steps"]:
            asleep.set()

    driver.after = look
    await drained(over, dawdling)
    assert ("PENDING", "PENDING") in seen
    assert ("PENDING", "RUNNING") not in seen


async def waits_too(store: Store, run_id: int) -> bool:
    return (await task_of(store, run_id)).status != "RUNNING"


@pytest.mark.proves("E-02", "P-01")
@pytest.mark.parametrize("waits", [flaky, ask_somebody], ids=["failed", "paused"])
async def test_beside_a_body_at_work_a_step_that_waits_is_recorded_by_itself(store: Store, waits: Any) -> None:
    go_on = asyncio.Event()

    @step
    async def slow() -> None:
        await go_on.wait()

    @workflow
    async def both() -> None:
        await asyncio.gather(waits(), slow())

    run_id = await begun(store, both)
    expected = "PENDING" if waits is flaky else "PAUSED"

    async def is_recorded() -> bool:
        return (await statuses(store, run_id)).get(f"{waits.id}#1") == expected

    async with Worker(store, [both]):
        await until(is_recorded)
        assert (await task_of(store, run_id)).status == "RUNNING"
        go_on.set()
        await until(lambda: waits_too(store, run_id))
    assert await statuses(store, run_id) == {f"{waits.id}#1": expected, "slow#1": "SUCCESS"}


@pytest.mark.proves("R-05", "protocol-15")
async def test_a_run_whose_end_the_database_refuses_fails_with_that_and_is_not_executed_for_ever(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd: Any = tasks
    monkeypatch.setattr(odd, "settled_step", lambda row: settled_step(msgspec.structs.replace(row, place=None)))

    @workflow(retry=1)
    async def doomed() -> None:
        await flaky()

    run_id = await begun(store, doomed)
    await drained(store, doomed)
    run = await store.get_run(run_id)
    assert (run.status, run.attempt) == ("ERROR", 1)
    assert run.error is not None
    assert run.error["type"] == "Refused"


@pytest.mark.proves("R-05", "promise-20")
async def test_a_run_of_which_no_end_can_be_written_is_tried_twice_and_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd: Any = tasks
    tried: list[str] = []

    def refused(task_id: int, worker: int, turn: int, done: Settlement) -> SettleRow:
        tried.append(str(done.status))
        row = settle_row(task_id, worker, turn, done)
        return row._replace(status="NO STATUS") if len(tried) < 9 else row

    monkeypatch.setattr(odd, "settle_row", refused)
    told: list[str] = []
    store.database.telemetry.subscribe(
        lambda event: told.append(event.error) if isinstance(event, InternalTaskFailed) else None
    )
    await begun(store, failing)
    await drained(store, failing)
    assert tried == ["PENDING", "PENDING"]
    [error] = told
    assert "Refused" in error
