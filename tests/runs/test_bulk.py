"""Steering many runs at once: by the filters of `runs`, in bounded transactions, never by mistake all of them."""

from datetime import timedelta
from typing import Any

import pytest

from stepwell import InvalidOption, RunNotFound, RunStatus, Store, StoreUnavailable, WorkflowNotFound, sync
from stepwell.base.clock import TestClock
from stepwell.store import bulk
from stepwell.store.rows import Settlement
from tests.runs.kit import Order, failed_at, fulfil, pack, record, recorded, settle, some, tick
from tests.store.seam import begin, claim, count, once, watched
from tests.workflows.kit import begun


async def statuses(store: Store) -> dict[str, int]:
    """How many runs have each status."""
    found: dict[str, int] = {}
    for run in await store.runs(limit=10_000):
        found[str(run.status)] = found.get(str(run.status), 0) + 1
    return found


@pytest.mark.proves("L-11", "L-16", "protocol-14")
async def test_all_unfinished_runs_that_fit_are_cancelled_and_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "CHUNK", 3)
    store, driver = watched(store)
    await store.create_workflow("fulfil")
    runs = await some(store, 10)
    done = await settle(store, "fulfil")
    session = await begin(store)
    [running] = await claim(store, session, "fulfil")
    other = await begun(store, tick)
    driver.forget()
    assert await store.cancel_runs(workflow="fulfil", reason="enough") == 9
    assert driver.scripts == 3, "three at once: the transactions are bounded"
    assert await statuses(store) == {"CANCELLED": 8, "RUNNING": 1, "SUCCESS": 1, "PENDING": 1}
    assert (await store.get_run(done)).status == RunStatus.SUCCESS
    assert (await store.get_run(other)).status == RunStatus.PENDING
    assert (await store.get_run(runs[-1])).last_error == "cancelled: enough"
    assert (
        await store.database.tasks.settle(running.id, session, running.turn, Settlement(RunStatus.SUCCESS))
        == "CANCELLED"
    )
    assert await store.cancel_runs(workflow="fulfil") == 0


async def test_each_filter_chooses(store: Store, clock: TestClock) -> None:
    keyed = await begun(store, fulfil, Order("a"), key="k")
    noon = (await store.get_run(keyed)).created_at
    tagged = await begun(store, fulfil, Order("b"), tags=["red", "big"])
    clock.advance("1h")
    late = await begun(store, fulfil, Order("c"))
    packed = await begun(store, pack, "d", delay="1d")
    await store.pause(packed)
    chosen: list[tuple[dict[str, Any], set[int]]] = [
        ({"key": "k"}, {keyed}),
        ({"tag": "red"}, {tagged}),
        ({"since": noon + timedelta(minutes=30), "workflow": "fulfil"}, {late}),
        ({"until": noon + timedelta(minutes=30)}, {keyed, tagged}),
        ({"status": "PAUSED"}, {packed}),
        ({"workflow": "zip.files"}, {packed}),
        ({"everything": True, "limit": 2}, {late, packed}),
        ({"everything": True}, {keyed, tagged, late, packed}),
    ]
    for which, expected in chosen:
        assert await store.delete_runs(**which, reason="r") == len(expected), which
        assert {run.id for run in await store.runs(deleted=True) if run.deleted_at} == expected, which
        for run_id in expected:
            assert await store.restore(run_id)


@pytest.mark.proves("R-20")
async def test_failed_runs_that_fit_are_retried_with_their_steps(store: Store) -> None:
    runs = [await fulfil.trigger(Order(name)).options(key=name).execute(store) for name in "abc"]
    for run_id in runs:
        await record(store, run_id, ("fetch#1", "SUCCESS"), ("pay#1", "ERROR"))
        await settle(store, "fulfil", failed_at("pay#1"))
    done = await begun(store, tick)
    await settle(store, "tick")
    assert await store.retry_runs(workflow="fulfil", key="b") == 1
    assert await statuses(store) == {"PENDING": 1, "ERROR": 2, "SUCCESS": 1}
    assert await store.retry_runs(everything=True) == 2
    assert await statuses(store) == {"PENDING": 3, "SUCCESS": 1}
    assert await recorded(store, runs[0]) == [("fetch#1", "SUCCESS", 3), ("pay#1", "PENDING", 0)]
    assert (await store.get_run(done)).status == RunStatus.SUCCESS


@pytest.mark.proves("R-20", "ST-01")
async def test_cancelled_runs_that_fit_go_on_if_they_are_asked_for(store: Store) -> None:
    cancelled = [await begun(store, tick) for _ in range(2)]
    failed = await begun(store, tick)
    for run_id in cancelled:
        assert await store.cancel(run_id)
    await settle(store, "tick", failed_at("pay#1"))
    assert await store.retry_runs(everything=True, limit=10) == 1  # what was cancelled was meant to end
    assert (await store.get_run(failed)).status == RunStatus.PENDING
    assert await store.retry_runs(workflow="tick", status="CANCELLED", limit=1) == 1
    assert await statuses(store) == {"PENDING": 2, "CANCELLED": 1}
    assert await store.retry_runs(workflow="tick", status=["ERROR", "CANCELLED"]) == 1
    assert await statuses(store) == {"PENDING": 3}


@pytest.mark.proves("SD-01", "SD-02", "SD-04", "SD-05")
async def test_deleted_runs_keep_their_status_and_can_be_restored(store: Store) -> None:
    pending = await begun(store, tick, key="k")
    assert await store.delete_runs(workflow="tick", reason="a mistake") == 1
    assert await store.runs() == []
    with pytest.raises(RunNotFound):
        await store.get_run(pending)
    run = await store.get_run(pending, deleted=True)
    assert run.status == RunStatus.PENDING
    assert await claim(store, await begin(store), "tick") == []
    again = await begun(store, tick, key="k")
    assert again.created
    assert await store.delete_runs(key="k") == 1
    assert await store.restore(pending)
    assert [task.id for task in await claim(store, await begin(store), "tick")] == [pending]


async def test_a_filter_that_says_nothing_or_nonsense_is_refused_and_nothing_is_changed(store: Store) -> None:
    await begun(store, tick)
    for verb in (store.cancel_runs, store.retry_runs, store.delete_runs):
        with pytest.raises(InvalidOption, match="everything=True"):
            await verb()
        with pytest.raises(InvalidOption, match="everything=True"):
            await verb(limit=10, key=None)
        with pytest.raises(WorkflowNotFound):
            await verb(workflow="tikc")
        with pytest.raises(InvalidOption, match="it is one of"):
            await verb(status="LOST")
        with pytest.raises(InvalidOption, match="limit"):
            await verb(everything=True, limit=0)
        with pytest.raises(TypeError, match="no filter 'queue'"):
            await verb(queue="tick")  # type: ignore[call-arg]
    with pytest.raises(InvalidOption, match="finished ones stay"):
        await store.cancel_runs(status="SUCCESS")
    with pytest.raises(InvalidOption, match="only what failed"):
        await store.retry_runs(status="PENDING")
    assert await count(store, "status = 'PENDING' and deleted_at is null") == 1


async def test_a_cancel_whose_reply_is_lost_counts_what_it_did(store: Store) -> None:
    await store.create_workflow("fulfil")
    await some(store, 4)
    store, driver = watched(store)
    driver.after = once(StoreUnavailable("reset after the work was done"))
    assert await store.cancel_runs(workflow="fulfil") == 4
    assert driver.scripts == 2, "the reply was not lost: void"


def test_a_sync_store_does_too(store_url: str) -> None:
    with sync.connect(store_url) as store:
        tick.trigger().options(require_worker="ignore").execute(store)
        assert store.retry_runs(everything=True) == 0
        assert store.cancel_runs(workflow="tick") == 1
        assert store.delete_runs(workflow="tick") == 1
