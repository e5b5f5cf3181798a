"""A run that waits for a person: it asks, pauses, and goes on with what the webhook brings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from stepwell import SignalAnswer, Store, connect, consumer, workflow
from stepwell.base.clock import TestClock
from tests.seeds.loading import loaded
from tests.workflows.kit import statuses, task_of


@dataclass
class Params:
    approver: str


@dataclass
class Output:
    approved_by: str


class Mails:
    """`email`, as far as the text uses it."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def send_approval_request(self, approver: str) -> None:
        self.sent.append(approver)


class Processed:
    """What was done with approvals."""

    def __init__(self) -> None:
        self.approvals: list[Any] = []

    async def __call__(self, approval: dict[str, str]) -> dict[str, str]:
        self.approvals.append(approval)
        return {"approved_by": approval["by"]}


@pytest.fixture
def program(store: Store) -> Any:
    names = {"Params": Params, "Output": Output, "email": Mails(), "process": Processed()}
    return loaded("approval", get_store=lambda: store, **names)


async def drained(store: Store, program: Any) -> int:
    """What a new worker finds to do."""
    worker = await consumer("worker-1", 8080, "approval").handler(program.handler).create(store)
    return await worker.drain()


@pytest.mark.proves("P-01", "P-02", "P-04", "P-06", "P-12")
async def test_scenario_5(store: Store, clock: TestClock, program: Any) -> None:
    await store.create_workflow("approval")
    run_id = await workflow("approval").trigger(Params("grace")).execute(store)
    await drained(store, program)
    run = await store.get_run(run_id)
    assert (run.status, run.worker, run.paused_at) == ("PAUSED", None, run.created_at)
    assert await statuses(store, run_id) == {"send_approval_request#1": "SUCCESS", "wait_for_approval#1": "PAUSED"}
    clock.advance("1d")
    assert await drained(store, program) == 0  # without a condition nobody looks

    await program.approval_webhook(run_id, {"by": "grace"})
    assert (await task_of(store, run_id)).ready
    assert await store.resume(run_id, "wait_for_approval", {"by": "mallory"}) is SignalAnswer.TOO_LATE
    await drained(store, program)
    run = await store.get_run(run_id)
    assert (run.status, run.output(Output), run.attempt) == ("SUCCESS", Output("grace"), 1)
    assert (program.email.sent, program.process.approvals) == (["grace"], [{"by": "grace"}])
    assert set((await statuses(store, run_id)).values()) == {"SUCCESS"}


@pytest.mark.proves("P-05")
async def test_a_webhook_that_is_faster_than_the_worker(store: Store, program: Any) -> None:
    await store.create_workflow("approval")
    run_id = await workflow("approval").trigger(Params("grace")).execute(store)
    await program.approval_webhook(run_id, {"by": "grace"})
    await drained(store, program)
    assert (await store.get_run(run_id)).output(Output) == Output("grace")


@pytest.mark.proves("P-03", "CF-02")
async def test_configuration(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPWELL_URL", store_url)
    store = await loaded("approval", Params=Params, Output=Output).configured()
    assert (store.database.options.pause_check_interval, store.database.options.visibility) == (3600, 300)
    await store.close()
    async with connect(store_url) as store:
        assert store.database.options.pause_check_interval == 3600, "as it is if nothing is said"
