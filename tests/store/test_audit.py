"""The audit: what is noted of a task, in which order, in which transaction, and that a good run costs nothing."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, get_args

import pytest

from stepwell import (
    AuditInfo,
    Engine,
    Every,
    InvalidOption,
    Paused,
    PermanentError,
    RunNotFound,
    SignalAnswer,
    Store,
    Worker,
    connect,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.base.durations import datetime_of
from stepwell.errors import LeaseLost, StoreBusy, StoreUnavailable
from stepwell.records import RunStatus
from stepwell.store.audit import Note, What, rows_of
from stepwell.store.driver import Call
from stepwell.store.embedded.render import Rendered
from stepwell.store.rows import Settlement, StepRow
from stepwell.store.sql import Dialect, Statements
from tests.deciders.workbench import Bench, Do
from tests.ground.waiting import until
from tests.store.seam import (
    AGAIN,
    DONE,
    FAILED,
    RELEASED,
    ask,
    begin,
    claim,
    once,
    one,
    row_of,
    waiting_for_locks,
    watched,
)
from tests.unit.test_sql import text_of
from tests.workflows.kit import begun, die, drained

USE_OF_AUDIT = re.compile(r'\b(delete from|\w+)\s+(?:"s"\.|s_)audit\b')

failures: list[Exception] = []


@pytest.fixture(autouse=True)
def anew() -> None:
    failures.clear()


@step(retry=3)
async def charge(cents: int) -> int:
    if failures:
        raise failures.pop(0)
    return cents


@workflow(retry=2)
async def order(cents: int) -> int:
    return await charge(cents) + await charge(cents)


@workflow
async def approved(ctx: Any) -> str:
    return str(await ctx.wait("yes"))


@step
async def sign() -> str:
    raise Paused("somebody has to sign")


@workflow
async def signed() -> str:
    return await sign()


@workflow
async def parent(ctx: Any) -> Any:
    return await order.trigger(5).options(require_worker="ignore").wait().execute(ctx)


@workflow
async def loop(ctx: Any, number: int) -> int:
    if number:
        ctx.restart(number - 1)
    return number


async def told(store: Store, task_id: int) -> list[tuple[str, str | None]]:
    return [(note.what, note.detail) for note in await store.history(task_id)]


async def words(store: Store, task_id: int) -> list[str]:
    return [note.what for note in await store.history(task_id)]


# What costs nothing


@pytest.mark.proves("A-03")
async def test_a_run_that_goes_well_is_noted_nowhere_and_costs_no_statement(store: Store) -> None:
    store, driver = watched(store)
    run_id = await begun(store, order, 5)
    await drained(store, order)
    assert (await store.get_run(run_id)).output() == 10
    beats = ["beat"] if store.database.driver.flush_beats else []
    flushes = [[call.statement for call in calls] for calls in driver.flushes]
    flushes = [parts for parts in flushes if parts not in (["claim"], ["claim_above"])]
    assert flushes == [
        ["add_tasks"],
        ["add_steps", "control_requests", *beats],
        ["settle", "count_settled", "settle_steps", *beats],  # the last result goes with the end
    ]
    assert "note" not in {call.statement for call in driver.said}
    assert await store.history(run_id) == []
    assert await ask(store, "select * from {audit}") == []


@pytest.mark.proves("A-03", "CF-06")
async def test_with_off_nothing_is_noted_whatever_happens(store_url: str, clock: TestClock) -> None:
    async with connect(store_url, clock=clock, audit="off") as opened:
        store, driver = watched(opened)
        failures.append(PermanentError("no"))
        run_id = await begun(store, order, 5)
        await drained(store, order)
        assert await store.retry(run_id)
        assert await store.cancel(run_id)
        assert await store.delete(run_id)
        said = [call.statement for calls in driver.flushes for call in calls] + [call.statement for call in driver.said]
        assert "note" not in said
        assert await store.history(run_id) == []


@pytest.mark.proves("CF-06")
async def test_another_level_is_refused_and_one_may_stand_in_the_url(store_url: str) -> None:
    with pytest.raises(InvalidOption, match="problems, all, off"):
        await connect(store_url, audit="some")  # type: ignore[arg-type]
    async with connect(f"{store_url}{'&' if '?' in store_url else '?'}audit=all") as store:
        assert store.database.options.audit == "all"


@pytest.mark.proves("A-01", "A-05")
async def test_with_all_claims_and_ends_are_noted_too(store_url: str, clock: TestClock) -> None:
    async with connect(store_url, clock=clock, audit="all") as store:
        run_id = await begun(store, approved)
        await drained(store, approved)
        assert await store.signal(run_id, "yes", "go") is SignalAnswer.WOKE
        await drained(store, approved)
        happened = ["created", "claimed", "suspended", "signalled", "claimed", "succeeded"]
        assert await words(store, run_id) == happened
        history = await store.history(run_id)
        assert [note.turn for note in history] == [0, 1, 1, 1, 2, 2]
        _, first, *_, last = history
        assert (first.worker or 0) < (last.worker or 0)
        restarts = await begun(store, loop, 1)
        await drained(store, loop)
        assert await words(store, restarts) == ["created", "claimed", "restarted", "claimed", "succeeded"]
        await store.create_queue("q")
        message_id = await store.enqueue("q", 1)
        [message] = await store.dequeue("q")
        await message.release()
        [message] = await store.dequeue("q")
        await message.archive()
        assert await words(store, message_id) == ["created", "claimed", "given back", "claimed", "succeeded"]


@pytest.mark.proves("A-01", "A-02")
async def test_with_all_whatever_adds_a_task_notes_that_it_was_created(store_url: str, clock: TestClock) -> None:
    async with connect(store_url, clock=clock, audit="all") as store:
        await store.create_queue("q")
        await store.enqueue_many("q", [1, 2])
        assert [(await store.enqueue("q", 1, key="k")).created for _ in range(2)] == [True, False]
        async with store.transaction() as tx:
            await store.enqueue("q", 3, tx=tx)
        await store.emit("order.placed", {}, subject="a", ordered=True)
        await store.schedule("daily", approved.trigger(), Every("1d"))
        await begun(store, parent)
        await drained(store, parent)
        engine = Engine(store).register(Bench())
        await engine.execute(Do("a", ask="mail", after=60, timer="t"))
        await engine.execute(Do("a", "known by now", ask="mail"))
        await engine.submit(Do("a", "later"))
        clock.advance("2d")
        await store.database.ticks.fire()
        await Worker(store, [engine]).drain()
        tasks = {row["id"] for row in await ask(store, "select id from {task}")}
        made = [row["task_id"] for row in await ask(store, "select task_id from {audit} where what = 'created'")]
        assert sorted(made) == sorted(tasks)
        with pytest.raises(RuntimeError):
            await undone(store)
        assert len(await ask(store, "select task_id from {audit} where what = 'created'")) == len(made)


async def undone(store: Store) -> None:
    async with store.transaction() as tx:
        await store.enqueue("q", 4, tx=tx)
        raise RuntimeError


# What goes wrong


@pytest.mark.proves("A-01", "A-05")
async def test_failed_attempts_are_noted_with_worker_turn_attempt_error_and_when_the_next_is(
    store: Store, clock: TestClock
) -> None:
    worker = await begin(store)
    task = await one(store, worker)
    at = datetime_of(clock.now())
    await store.database.tasks.settle(task.id, worker, task.turn, AGAIN)
    clock.advance("10s")
    await store.database.tasks.wake()
    [task] = await claim(store, worker, "q")
    await store.database.tasks.settle(task.id, worker, task.turn, FAILED)
    first, second = await store.history(task.id)
    assert first == AuditInfo("attempt failed", at, worker, 1, 1, "E: m; again in 5 s")
    assert second == AuditInfo("failed", datetime_of(clock.now()), worker, 2, 2, "E: m")


@pytest.mark.proves("A-05")
async def test_an_attempt_that_is_given_back_is_noted_with_its_number(store: Store) -> None:
    worker = await begin(store)
    task = await one(store, worker)
    alone = Settlement(RunStatus.PENDING, attempt_back=True, alone=True, error=FAILED.error, last_error="E: m")
    await store.database.tasks.settle(task.id, worker, task.turn, alone, attempt=task.attempt)
    [note] = await store.history(task.id)
    assert (note.what, note.attempt, note.detail) == ("attempt failed", 1, "E: m; again, alone")


@pytest.mark.proves("A-01", "A-05")
async def test_failed_attempts_of_steps_are_noted_with_the_steps_own_number(store: Store, clock: TestClock) -> None:
    failures.extend([ValueError("first"), TypeError("second")])
    run_id = await begun(store, order, 5)
    await drained(store, order)
    clock.advance("1h")
    await drained(store, order)
    clock.advance("1h")
    await drained(store, order)
    assert (await store.get_run(run_id)).output() == 10
    history = await store.history(run_id)
    assert [(note.what, note.attempt, note.detail) for note in history] == [
        ("step failed", 1, "charge#1: ValueError: first"),
        ("step failed", 2, "charge#1: TypeError: second"),
    ]
    assert all(note.worker is not None and note.turn for note in history)


@pytest.mark.proves("A-01")
async def test_a_step_that_gives_up_and_the_run_that_it_ends_are_noted_in_this_order(store: Store) -> None:
    failures.append(PermanentError("no"))
    run_id = await begun(store, order, 5)
    await drained(store, order)
    assert (await store.get_run(run_id)).status == RunStatus.ERROR
    gave_up, failed = await store.history(run_id)
    assert (gave_up.what, gave_up.detail) == ("step gave up", "charge#1: PermanentError: no")
    assert failed.what == "failed"
    assert "no" in (failed.detail or "")
    assert await store.retry(run_id)
    await drained(store, order)
    assert await words(store, run_id) == ["step gave up", "failed", "retried"]


@pytest.mark.proves("A-01", "A-05")
async def test_a_lost_worker_is_noted_with_what_becomes_of_the_task(store: Store) -> None:
    worker = await begin(store)
    again = await one(store, worker)
    last = await one(store, worker, max_attempts=1)
    await die(store.database)
    [note] = await store.history(again.id)
    assert (note.what, note.worker, note.turn, note.attempt) == ("worker lost", worker, 1, 0)
    assert note.detail == "given back, to be executed alone"
    assert await told(store, last.id) == [("worker lost", "that was its last attempt")]


@pytest.mark.proves("A-01")
async def test_what_was_taken_by_hand_and_not_closed_in_time_is_noted(store: Store, clock: TestClock) -> None:
    await store.create_queue("q")
    await store.create_queue("other")
    message_id = await store.enqueue("q", 1, max_attempts=2)
    other = await store.enqueue("other", 2, delay="1m")  # becomes due with it, and nothing is wrong with it
    for _ in range(2):
        assert [message.id for message in await store.dequeue("q", visibility="90s")] == [message_id]
        clock.advance("91s")
        await store.database.tasks.wake()
    late = "VisibilityTimeout: not acknowledged in time"
    assert await told(store, message_id) == [("attempt failed", late), ("failed", late)]
    assert await store.history(other) == []


# What people do


@pytest.mark.proves("A-01")
async def test_holding_back_and_letting_go_are_noted(store: Store) -> None:
    run_id = await begun(store, order, 5)
    assert await store.pause(run_id, reason="lunch")
    assert await store.unpause(run_id)
    assert not await store.unpause(run_id)
    assert await told(store, run_id) == [("paused", "lunch"), ("unpaused", None)]


@pytest.mark.proves("A-01")
async def test_a_cancel_is_noted_with_its_reason_on_what_was_asked_for_too(store: Store) -> None:
    run_id = await begun(store, parent)
    await drained(store, parent)
    [child] = [row["id"] for row in await ask(store, f"select id from {{task}} where parent_id = {run_id}")]
    running = await begun(store, approved)
    worker = await begin(store)
    [task] = await claim(store, worker, "approved")
    assert await store.cancel(run_id, reason="too late")
    assert await store.cancel(running)
    await store.database.tasks.settle(running, worker, task.turn, Settlement(RunStatus.CANCELLED))
    assert await told(store, run_id) == [("cancelled", "too late")]
    assert await told(store, child) == [("cancelled", f"with run {run_id}")]
    assert await told(store, running) == [("cancel requested", None), ("cancelled", None)]


@pytest.mark.proves("A-01")
async def test_signals_and_resumes_are_noted_if_they_woke_it(store: Store) -> None:
    waits, sets_aside = await begun(store, approved), await begun(store, signed)
    await drained(store, approved, signed)
    assert await store.signal(waits, "no", 1) is SignalAnswer.KEPT
    assert await store.signal(waits, "yes", 1) is SignalAnswer.WOKE
    assert await store.resume(sets_aside, "sign", "me") is SignalAnswer.WOKE
    assert await store.resume(sets_aside, "sign", "me") is SignalAnswer.TOO_LATE
    assert await told(store, waits) == [("signalled", "yes")]
    assert await told(store, sets_aside) == [("resumed", "sign")]


@pytest.mark.proves("A-01")
async def test_forks_are_noted(store: Store) -> None:
    run_id = await begun(store, order, 5)
    await drained(store, order)
    fork_id = await store.fork(run_id, at="charge#2", reason="dearer")
    assert await told(store, run_id) == [("forked", f"as run {fork_id} at charge#2")]
    assert await told(store, fork_id) == [("forked", f"fork of {run_id} at charge#2: dearer")]
    goes_well = await begun(store, loop, 1)
    await drained(store, loop)
    assert await store.history(goes_well) == []


@pytest.mark.proves("A-01")
async def test_requeues_deletes_and_restores_are_noted_of_messages_too(store: Store) -> None:
    worker = await begin(store)
    task = await one(store, worker)
    await store.database.tasks.settle(task.id, worker, task.turn, FAILED)
    assert await store.requeue(task.id) == 1
    assert await store.delete(task.id, reason="a test")
    assert await words(store, task.id) == ["failed", "requeued", "deleted"]
    assert await store.restore(task.id)
    assert (await told(store, task.id))[1:] == [("requeued", None), ("deleted", "a test"), ("restored", None)]


@pytest.mark.proves("A-01")
async def test_what_is_done_to_many_is_noted_of_each(store: Store) -> None:
    runs = [await begun(store, order, cents) for cents in range(3)]
    assert await store.cancel_runs(workflow="order", reason="all") == 3
    assert await store.delete_runs(workflow="order", reason="gone") == 3
    for run_id in runs:
        assert await told(store, run_id) == [("cancelled", "all"), ("deleted", "gone")]


@pytest.mark.proves("A-06")
@pytest.mark.parametrize("dialect", get_args(Dialect))
def test_no_statement_changes_a_note_and_only_upkeep_removes_one(dialect: Dialect) -> None:
    statements, uses = Statements(dialect, "s"), dict[str, set[str]]()
    for name in statements._statements:
        for use in USE_OF_AUDIT.findall(text_of(statements[name])):
            uses.setdefault(use, set()).add(name)
    assert uses.keys() == {"into", "from", "join", "delete from", "update"}
    assert uses["update"] == {"put_under_seal"}
    assert " set seal = " in text_of(statements["put_under_seal"]), "what a note says stays"
    assert uses["into"] == {"note"}
    assert "on conflict" not in text_of(statements["note"]), "one that is there stays"
    assert uses["delete from"] == {"remove_audit", "remove_old_audit", "remove_notes_under_seal"}


@pytest.mark.proves("A-04", "A-06")
async def test_history_is_of_this_tenant_and_goes_with_its_task(store: Store, store_url: str, clock: TestClock) -> None:
    run_id = await begun(store, order, 5)
    await store.cancel(run_id)
    async with connect(store_url, clock=clock, tenant="bob") as bob:
        with pytest.raises(RunNotFound):
            await bob.history(run_id)
    clock.advance("8d")
    assert await store.prune("7d") == 1
    assert await ask(store, "select * from {audit} where task_id = " + str(int(run_id))) == []
    with pytest.raises(RunNotFound):
        await store.history(run_id)


def test_the_sync_face_tells_it_too(store_url: str) -> None:
    with sync.connect(store_url) as store:
        run_id = order.trigger(5).options(require_worker="ignore").execute(store)
        assert store.cancel(run_id, reason="done")
        assert [(note.what, note.detail) for note in store.history(run_id)] == [("cancelled", "done")]


# In the order in which it happened


@pytest.mark.proves("A-04")
async def test_several_notes_of_one_flush_have_places_of_their_own_in_their_order(store: Store) -> None:
    store, driver = watched(store)
    worker = await begin(store)
    run_id = await begun(store, order, 5)
    [task] = await claim(store, worker, "order")
    driver.forget()
    rows = [
        StepRow(run_id, 0, f"charge#{place}", place, RunStatus.PENDING, error=f'{{"type":"E","message":"{place}"}}')
        for place in (1, 2)
    ]
    await asyncio.gather(
        *(store.database.steps.record(row, worker, None, has_row=False) for row in rows),
        store.database.tasks.settle(run_id, worker, task.turn, AGAIN),
    )
    assert await told(store, run_id) == [
        ("step failed", "charge#1: E: 1"),
        ("step failed", "charge#2: E: 2"),
        ("attempt failed", "E: m; again in 5 s"),
    ]
    assert driver.transactions == 1, "it was not refused and taken apart"


@pytest.mark.proves("A-04")
@pytest.mark.backends("postgres", reason="an embedded store has one writer: nobody waits for a row's lock")
async def test_what_waited_for_the_lock_is_noted_behind_what_was_noted_under_it(live_store: Store) -> None:
    store = live_store
    worker = await begin(store)
    run_id = await begun(store, order, 5)
    [task] = await claim(store, worker, "order")
    params: dict[str, Any] = {"now": None, "tenant": "", "id": run_id, "reason": None, "or_message": False}
    async with store.database.driver.transaction() as own:
        await own.answer(Call("lock_run", params))
        await own.answer(Call("hold_run", params))
        settling = asyncio.ensure_future(store.database.tasks.settle(run_id, worker, task.turn, AGAIN))
        await until(lambda: waiting_for_locks(store))
        await own.answer(Call("note", params, rows_of([Note(run_id, What.PAUSED)])))
    assert await settling == RunStatus.PAUSED
    assert await words(store, run_id) == ["paused", "attempt failed"]


# With the deed, or not at all


@pytest.mark.proves("A-02")
async def test_a_turn_that_is_not_the_workers_any_more_leaves_no_note(store: Store) -> None:
    worker = await begin(store)
    lost = await one(store, worker)
    kept = await one(store, worker)
    await store.database.tasks.settle(lost.id, worker, lost.turn, RELEASED)
    answers = await asyncio.gather(
        store.database.tasks.settle(lost.id, worker, lost.turn, FAILED),
        store.database.tasks.settle(kept.id, worker, kept.turn, FAILED),
        return_exceptions=True,
    )
    assert isinstance(answers[0], LeaseLost)
    assert await store.history(lost.id) == []
    assert await words(store, kept.id) == ["failed"]


@pytest.mark.proves("A-02")
async def test_with_all_a_late_success_of_a_cancelled_run_is_not_noted_as_one(store_url: str, clock: TestClock) -> None:
    async with connect(store_url, clock=clock, audit="all") as store:
        worker = await begin(store)
        run_id = await begun(store, order, 5)
        [task] = await claim(store, worker, "order")
        await store.cancel(run_id)
        assert await store.database.tasks.settle(run_id, worker, task.turn, DONE) == RunStatus.CANCELLED
        assert await words(store, run_id) == ["created", "claimed", "cancel requested"]


@pytest.mark.proves("A-02", "rule-04")
async def test_a_reply_that_is_lost_is_noted_once(store: Store) -> None:
    store, driver = watched(store)
    worker = await begin(store)
    run_id = await begun(store, order, 5)
    [task] = await claim(store, worker, "order")
    lost = StoreUnavailable("reset after the work was done")
    row = StepRow(run_id, 0, "charge#1", 1, RunStatus.PENDING, error='{"type":"E","message":"m"}')
    driver.after = once(lost)
    await store.database.steps.record(row, worker, None, has_row=False)
    driver.after = once(lost)
    assert await store.cancel(run_id, reason="enough")
    driver.after = once(lost)
    await store.database.tasks.settle(run_id, worker, task.turn, AGAIN)
    other = await begun(store, approved)
    for verb in (store.pause, store.unpause, store.cancel):
        driver.after = once(lost)
        assert await verb(other)
    assert await words(store, run_id) == ["step failed", "cancel requested", "attempt failed"]
    assert await words(store, other) == ["paused", "unpaused", "cancelled"]


@pytest.mark.proves("A-02")
async def test_a_crash_between_the_deed_and_its_note_leaves_neither(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, driver = watched(store)
    failures.append(PermanentError("no"))
    failed, waits = await begun(store, order, 5), await begun(store, approved)
    await drained(store, order, approved)
    deleted = await begun(store, order, 5)
    await store.delete(deleted)
    worker = await begin(store)
    held = await one(store, worker)
    real = driver._overheard

    def crashing(talk: Any, heard: list[str]) -> Any:
        return real(_until_the_note(talk), heard)

    monkeypatch.setattr(driver, "_overheard", crashing)
    [session] = [one for one in await store.database.sessions.living() if one.worker_id == worker]
    deeds: list[tuple[int, Callable[[], Awaitable[Any]]]] = [
        (failed, lambda: store.retry(failed)),
        (failed, lambda: store.requeue(failed)),
        (failed, lambda: store.fork(failed, at="charge#1")),
        (failed, lambda: store.delete(failed)),
        (failed, lambda: store.delete_runs(workflow="order")),
        (waits, lambda: store.cancel(waits)),
        (waits, lambda: store.cancel_runs(workflow="approved")),
        (waits, lambda: store.pause(waits)),
        (waits, lambda: store.signal(waits, "yes")),
        (deleted, lambda: store.restore(deleted)),
        (held.id, lambda: store.database.sessions.bury(session)),
    ]
    for task_id, deed in deeds:
        before = await row_of(store, task_id), len(await ask(store, "select place from {audit}"))
        with pytest.raises(CrashedError):
            await deed()
        assert (await row_of(store, task_id), len(await ask(store, "select place from {audit}"))) == before


@pytest.mark.proves("A-02")
async def test_a_failed_attempt_is_settled_and_noted_in_one_transaction(
    store: Store, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, driver = watched(store)
    worker = await begin(store)
    task = await one(store, worker)
    driver.forget()
    if backend != "postgres":  # there it is one statement
        real, crashes = Rendered.execute, iter([StoreBusy("a crash before the note")])

        def execute(self: Rendered, connection: Any, call: Call, rows: Any) -> Any:
            if call.statement == "note" and (crash := next(crashes, None)) is not None:
                [row] = connection.execute(f"select status from stepwell_task where id = {task.id}").fetchall()
                assert row[0] == "PENDING"
                raise crash
            return real(self, connection, call, rows)

        monkeypatch.setattr(Rendered, "execute", execute)
    await store.database.tasks.settle(task.id, worker, task.turn, AGAIN)
    assert {tuple(call.statement for call in calls if call.statement != "beat") for calls in driver.flushes} == {
        ("settle", "count_settled", "note")
    }
    assert len(driver.flushes) == (1 if backend == "postgres" else 2)
    assert await words(store, task.id) == ["attempt failed"]


class CrashedError(Exception):
    """The process ended here."""


def _until_the_note(talk: Any) -> Any:
    call = next(talk)
    try:
        while True:
            if isinstance(call, Call) and call.statement == "note":
                raise CrashedError
            call = talk.send((yield call))
    except StopIteration as end:
        return end.value
