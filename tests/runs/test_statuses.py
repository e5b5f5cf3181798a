"""Every verb on a run of every status: it changes the status as requirement R-02 says, or says that it did not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stepwell import CancelAnswer, RunStatus, SignalAnswer, Store, workflow
from stepwell.base.clock import TestClock
from stepwell.errors import StepwellError
from stepwell.store.rows import Settlement
from tests.runs.kit import CANCELLED
from tests.store.seam import AGAIN, DONE, FAILED, begin, claim, row_of
from tests.workflows.kit import begun, task_of

PENDING, RUNNING, PAUSED, SUCCESS, ERROR = (
    RunStatus.PENDING,
    RunStatus.RUNNING,
    RunStatus.PAUSED,
    RunStatus.SUCCESS,
    RunStatus.ERROR,
)
SUSPENDED = Settlement(PAUSED, attempt_back=True)
Verb = Callable[[Store, int], Awaitable[Any]]


@workflow
async def thing() -> None:
    """Nothing executes it: the test is its worker."""


async def is_refused(answer: Awaitable[Any]) -> bool:
    """Whether the caller is told that nothing was done."""
    try:
        given = await answer
    except StepwellError:
        return True
    return given in (False, 0, None, [], CancelAnswer.TOO_LATE, SignalAnswer.TOO_LATE)


VERBS: dict[str, Verb] = {
    "cancel": lambda store, run: store.cancel(run),
    "pause": lambda store, run: store.pause(run),
    "unpause": lambda store, run: store.unpause(run),
    "retry": lambda store, run: store.retry(run),
    "requeue": lambda store, run: store.requeue(run),
    "requeue what succeeded": lambda store, run: store.requeue(run, succeeded=True),
    "release": lambda store, run: store.release(run),
    "archive": lambda store, run: store.archive(run),
    "accept": lambda store, run: store.accept(run),
    "restore": lambda store, run: store.restore(run),
    "signal": lambda store, run: store.signal(run, "word"),
    "resume": lambda store, run: store.resume(run, "step"),
}
SETTLEMENTS = {"success": DONE, "failure": FAILED, "retry": AGAIN, "suspension": SUSPENDED, "cancellation": CANCELLED}
CHANGES = {
    ("cancel", PENDING): RunStatus.CANCELLED,
    ("cancel", PAUSED): RunStatus.CANCELLED,
    ("pause", PENDING): PAUSED,
    ("unpause", PAUSED): PENDING,
    ("retry", ERROR): PENDING,
    ("retry", RunStatus.CANCELLED): PENDING,
    ("requeue", ERROR): PENDING,
    ("requeue what succeeded", ERROR): PENDING,
}
ASKED = {("cancel", RUNNING), ("pause", RUNNING)}  # the worker is asked, and ends the turn
DONE_ALREADY = {("pause", PAUSED)}  # what was asked for holds, so the answer is yes
KEPT = {(verb, status) for verb in ("signal", "resume") for status in (PENDING, RUNNING, PAUSED)}


async def run_of(store: Store, status: RunStatus) -> tuple[int, int, int]:
    """A run that came to this status through a worker, the session that had it, and its turn."""
    run_id = await begun(store, thing)
    worker = await begin(store)
    if status is PENDING:
        return run_id, worker, 1
    [task] = await claim(store, worker, "thing")
    ends = {SUCCESS: DONE, ERROR: FAILED, RunStatus.CANCELLED: CANCELLED}
    if status in ends:
        await store.database.tasks.settle(run_id, worker, task.turn, ends[status])
    elif status is PAUSED:
        await store.database.tasks.settle(run_id, worker, task.turn, AGAIN)
        assert await store.pause(run_id)
    return run_id, worker, task.turn


@pytest.mark.proves("R-02", "R-13", "L-14", "L-16")
@pytest.mark.parametrize("status", list(RunStatus))
async def test_a_verb_changes_a_status_that_it_may_change_and_says_so_of_every_other(
    store: Store, clock: TestClock, status: RunStatus
) -> None:
    for name, verb in VERBS.items():
        run_id, _, _ = await run_of(store, status)
        before = await row_of(store, run_id)
        clock.advance(1)
        refused = await is_refused(verb(store, run_id))
        after = await row_of(store, run_id)
        assert after["status"] == CHANGES.get((name, status), status), f"{name} of a run in {status}"
        has_changed = any(after[column] != before[column] for column in after if column != "updated_at")
        assert after["updated_at"] > before["updated_at"] or not has_changed, f"{name} of a run in {status}"
        took_effect = (name, status) in CHANGES.keys() | ASKED | KEPT | DONE_ALREADY
        assert refused == (not took_effect), f"{name} of a run in {status}"
        await store.delete(run_id)  # the next one is claimed, not this one


@pytest.mark.proves("R-02", "L-09", "L-14")
@pytest.mark.parametrize("status", list(RunStatus))
async def test_a_worker_ends_its_own_turn_of_a_running_run_and_nothing_else(store: Store, status: RunStatus) -> None:
    for name, settlement in SETTLEMENTS.items():
        run_id, worker, turn = await run_of(store, status)
        before = await task_of(store, run_id)
        refused = await is_refused(store.database.tasks.settle(run_id, worker, turn, settlement))
        after = await task_of(store, run_id)
        assert refused == (status is not RUNNING), f"{name} of a run in {status}"
        assert after.status == (settlement.status if status is RUNNING else status), f"{name} of a run in {status}"
        assert status is RUNNING or after == before
        await store.delete(run_id)
