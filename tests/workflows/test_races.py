"""What a thread and the loop do to one step at the same moment, made to happen one after the other."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from stepwell import LeaseLost, Store, sync, workflow
from stepwell.records import RunStatus
from stepwell.runs.long_steps import LongSteps
from stepwell.runs.sync_turn import SyncTurn
from stepwell.store.driver import Call, Row
from stepwell.store.rows import StepRow
from tests.store.seam import begin, claim
from tests.workflows.kit import begun, drained, statuses


@pytest.mark.proves("S-01", "protocol-07")
def test_an_attempt_that_ends_while_others_are_being_shown_is_not_shown() -> None:
    shown: list[Any] = []
    long_steps: Any = LongSteps()

    def begin(row: str, owner: int, *, has_row: bool) -> str:
        shown.append(row)
        long_steps.end(second)  # in its own thread, just now
        return "operation"

    recorded = SimpleNamespace(begin=begin)
    run = SimpleNamespace(
        unwinding=False,
        loop=SimpleNamespace(call_later=lambda *_: None),
        on_loop=lambda call: call(),
        slot=SimpleNamespace(database=SimpleNamespace(steps=recorded)),
        task=SimpleNamespace(owner=1),
    )

    def attempt(name: str) -> Any:
        return _Attempt(SimpleNamespace(run=run, row=lambda *_: name, definition=SimpleNamespace(tx=None)))

    first, second = attempt("first"), attempt("second")
    long_steps.begin(first)
    long_steps.begin(second)
    long_steps._look()
    assert shown == ["first"]
    assert (first.shown, second.shown) == ("operation", None)


class _Attempt:
    """As much of an attempt as is asked for."""

    since, took, number, has_row = 0.0, 5, 1, False

    def __init__(self, call: Any) -> None:
        self.call = call
        self.shown: Any = None


@pytest.mark.proves("protocol-03", "S-23")
async def test_a_thread_whose_run_is_given_back_at_the_last_moment_records_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    @workflow
    def last_moment(ctx: sync.Context) -> None:
        try:
            ctx.step("late", lambda: 1)
        except LeaseLost:
            told.append("LeaseLost")
            raise

    def given_back_first(run: SyncTurn, work: Any) -> Any:
        if work.cr_code.co_name == "_recorded":
            run.slot.session.held.pop(run.task.id)  # by the loop, after the thread has looked
        return wait_in_thread(run, work)

    wait_in_thread = SyncTurn.wait_in_thread
    run_id = await begun(store, last_moment, max_attempts=1)
    monkeypatch.setattr(SyncTurn, "wait_in_thread", given_back_first)
    await drained(store, last_moment)
    assert told == ["LeaseLost"]
    assert await statuses(store, run_id) == {}


@pytest.mark.proves("protocol-06")
async def test_whoever_has_claimed_a_run_since_does_not_share_what_was_read_before(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    @workflow
    async def shared() -> None: ...

    has_read, answer = asyncio.Event(), asyncio.Event()
    read = store.database.driver.read

    async def read_slowly(call: Call) -> list[Row]:
        rows = await read(call)
        has_read.set()
        await answer.wait()
        return rows

    await begun(store, shared)
    worker = await begin(store)
    [task] = await claim(store, worker, "shared")
    monkeypatch.setattr(store.database.driver, "read", read_slowly)
    before = asyncio.create_task(store.database.steps.of(task.id, 0))
    await asyncio.wait_for(has_read.wait(), 10)
    await store.database.steps.record(
        StepRow(task.id, 0, "a#1", 1, RunStatus.SUCCESS, output="1"), worker, None, has_row=False
    )
    after = asyncio.create_task(store.database.steps.of(task.id, 0))
    await asyncio.sleep(0)
    answer.set()
    assert await asyncio.wait_for(before, 10) == []
    assert [row.key for row in await asyncio.wait_for(after, 10)] == ["a#1"]
