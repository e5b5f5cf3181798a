"""Whether a living worker serves the workflow: checked after the name and before the write, as the trigger says."""

import asyncio
import logging
from typing import Any

import pytest

from stepwell import NoWorkerAvailable, Store, WorkflowNotFound, sync, workflow
from stepwell.base import telemetry
from stepwell.base.clock import TestClock
from stepwell.base.events import NoWorker
from stepwell.base.telemetry import LogBudget
from tests.runs.kit import Order, fulfil, pack, serve, tick, written
from tests.store.seam import LEASE, beat, watched


@pytest.fixture
def told(store: Store) -> list[Any]:
    events: list[Any] = []
    store.database.telemetry.subscribe(events.append)
    return events


@pytest.mark.proves("V-01", "V-03")
async def test_an_error_is_raised_before_anything_is_written_and_after_the_name_is_known(store: Store) -> None:
    with pytest.raises(WorkflowNotFound):
        await workflow("nobody").trigger(1).options(require_worker="error").execute(store)
    with pytest.raises(NoWorkerAvailable, match="fulfil"):
        await fulfil.trigger(Order("a")).options(require_worker="error").execute(store)
    assert await written(store) == (0, 0, 0)  # not even its definition
    with pytest.raises(NoWorkerAvailable, match="tick"):
        await store.trigger_many([fulfil.trigger(Order("a")), tick.trigger().options(require_worker="error")])
    assert await written(store) == (0, 0, 0)
    await serve(store, "fulfil")
    assert (await fulfil.trigger(Order("a")).options(require_worker="error").execute(store)).created


@pytest.mark.proves("V-02")
async def test_by_default_a_run_that_nobody_serves_is_written_with_a_warning(
    store: Store, told: list[Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "_budget", LogBudget(lambda: 0.0))
    caplog.set_level(logging.WARNING, "stepwell")
    for number in range(5):
        assert (await fulfil.trigger(Order(str(number))).execute(store)).created
    await store.trigger_many([tick.trigger(), tick.trigger()])
    assert told == [NoWorker("fulfil")] * 5 + [NoWorker("tick")]
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [  # a line for each workflow, not for each run
        "no living worker serves the workflow fulfil: what is triggered waits until one starts",
        "no living worker serves the workflow tick: what is triggered waits until one starts",
    ]
    assert await written(store) == (2, 2, 7)


@pytest.mark.proves("V-02", "V-04")
async def test_a_worker_that_serves_it_by_name_or_by_prefix_is_enough(
    store: Store, told: list[Any], clock: TestClock
) -> None:
    await serve(store, "fulfil", "zip.*")
    for trigger in (fulfil.trigger(Order("a")), pack.trigger("b")):
        await trigger.execute(store)
        await trigger.options(require_worker="error").execute(store)
    assert told == []
    await tick.trigger().execute(store)
    assert told == [NoWorker("tick")]


@pytest.mark.proves("V-04")
async def test_a_worker_that_is_silent_or_has_ended_does_not_count(store: Store, clock: TestClock) -> None:
    trigger = tick.trigger().options(require_worker="error")
    worker = await serve(store, "tick")
    assert (await trigger.execute(store)).created
    clock.advance(LEASE / 1_000_000 - 1, leases=True)
    assert (await trigger.execute(store)).created
    clock.advance(2, leases=True)  # its beat is older than its lease, and nobody has found it dead yet
    with pytest.raises(NoWorkerAvailable):
        await trigger.execute(store)
    await beat(store, worker)
    assert (await trigger.execute(store)).created
    await store.database.sessions.end(worker, "stopped")
    with pytest.raises(NoWorkerAvailable):
        await trigger.execute(store)


@pytest.mark.proves("V-05")
async def test_a_burst_asks_once_an_error_asks_afresh_and_nobody_asks_if_it_is_ignored(
    store: Store, told: list[Any], clock: TestClock
) -> None:
    over, driver = watched(store)
    await over.database.workflow_id("tick", create=True)
    asked: list[str] = []
    read = driver._driver.read

    async def listened(call: Any) -> Any:
        asked.append(call.statement)
        return await read(call)

    driver.read = listened  # type: ignore[method-assign]
    await tick.trigger().options(require_worker="ignore").execute(over)
    assert (asked, told) == ([], [])
    await asyncio.gather(*(tick.trigger().execute(over) for _ in range(50)))
    assert asked == ["living_handlers"]
    assert told == [NoWorker("tick")] * 50
    await serve(store, "tick")
    await tick.trigger().execute(over)  # for a moment it is taken for unserved still
    assert (asked, len(told)) == (["living_handlers"], 51)
    await tick.trigger().options(require_worker="error").execute(over)
    assert asked == ["living_handlers"] * 2
    await tick.trigger().execute(over)  # what an error has learned, a warning knows
    assert (asked, len(told)) == (["living_handlers"] * 2, 51)
    clock.advance(1.1, leases=True)
    await tick.trigger().execute(over)
    assert asked == ["living_handlers"] * 3


@pytest.mark.proves("V-03")
def test_a_sync_trigger_is_checked_too(store_url: str) -> None:
    with sync.connect(store_url) as store:
        with pytest.raises(NoWorkerAvailable):
            tick.trigger().options(require_worker="error").execute(store)
        assert store.workflows() == []
