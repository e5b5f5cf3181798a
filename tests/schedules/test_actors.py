"""Who changed a schedule stands in the audit, as with everything else that an operator does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import Every, Store, Worker, WorkerInfo, wait, workflow
from stepwell.base.clock import TestClock
from stepwell.base.durations import datetime_of
from stepwell.base.timetable import zones_version
from stepwell.store.schedule_info import other_zones
from stepwell.store.ticks import Ticks


@workflow
async def report(region: str) -> str:
    return region


@workflow
async def patient() -> str:
    return await wait("go", str)


@pytest.mark.proves("SC-12")
async def test_each_change_of_a_schedule_is_noted_with_its_actor(store: Store, clock: TestClock) -> None:
    await store.schedule("nightly", report.trigger("eu"), Every("1h"), actor="ann")
    await store.update_schedule("nightly", every="2h", actor="bob")
    assert await store.pause_schedule("nightly", reason="the disk is full", actor="cid")
    assert await store.pause_schedule("nightly", actor="dan") is False  # nothing was changed, so nothing is noted
    assert await store.resume_schedule("nightly", actor="eve")
    assert await store.run_schedule("nightly", actor="fay") is not None
    assert await store.run_schedule("nightly", actor="gus") is None
    now = datetime_of(clock.now())
    done = await store.backfill_schedule("nightly", now - timedelta(hours=4), now, actor="hal")
    await store.delete_schedule("nightly", actor="ida")
    noted = [(one.note.actor, one.note.detail) for one in await store.audit() if one.note.what == "schedule changed"]
    assert sorted(noted) == [
        ("ann", "put schedule nightly"),
        ("bob", "change schedule nightly"),
        ("cid", "pause schedule nightly: the disk is full"),
        ("eve", "resume schedule nightly"),
        ("fay", "run schedule nightly"),
        ("hal", f"backfill {done.triggered} of schedule nightly"),
        ("ida", "delete schedule nightly"),
    ]


@pytest.mark.proves("SC-13")
async def test_why_names_the_schedule_and_says_what_became_of_a_tick(store: Store, clock: TestClock) -> None:
    await store.schedule("hours", patient.trigger(), Every("1h", overlap="skip"))
    assert (await store.get_schedule("hours")).why.startswith("its first tick comes at ")
    clock.advance("1h")
    await Worker(store, [patient]).drain()
    await store.database.ticks.fire()
    await Worker(store, [patient]).drain()
    [run] = await store.runs("patient")
    assert "has triggered run" in (await store.get_schedule("hours")).why
    assert "(triggered by schedule hours for " in str(await store.why(run.id))
    clock.advance("1h")
    await store.database.ticks.fire()
    told = (await store.get_schedule("hours")).why
    assert f"was skipped: run {run.id} was not finished, and overlap is 'skip'" in told
    skipped, fired = await store.ticks("hours")
    assert skipped.why == "a run of the schedule was not finished, or its queue took no work"
    assert fired.why == f"it has triggered run {run.id}"
    clock.advance("90m")
    assert "1800 s late: every living worker of this store fires ticks" in (await store.get_schedule("hours")).why
    await store.pause_schedule("hours", reason="the disk is full")
    assert (await store.get_schedule("hours")).why.startswith("it is paused: the disk is full")


@pytest.mark.proves("SC-13")
async def test_why_of_a_tick_that_waits_and_of_those_that_were_missed(store: Store, clock: TestClock) -> None:
    await store.schedule("waits", patient.trigger(), Every("1h", overlap="buffer"))
    await store.schedule("missed", report.trigger("eu"), Every("1h", catch_up="none"))
    clock.advance("1h")
    await store.database.ticks.fire()
    clock.advance("1h")
    await store.database.ticks.fire()
    assert "waits until run" in (await store.get_schedule("waits")).why
    assert (await store.ticks("waits"))[0].why == "it had to wait for the run before it"
    clock.advance("50h")
    await store.database.ticks.fire()
    gap = next(one for one in await store.ticks("missed") if one.kind == "gap")
    assert gap.why == f"no worker was there in time: {gap.count} ticks were left out"


@pytest.mark.proves("SC-14")
def test_workers_with_different_time_zones_are_told_apart() -> None:
    def worker(name: str, zones: str | None) -> WorkerInfo:
        now = datetime(2026, 1, 1, tzinfo=UTC)
        return WorkerInfo(1, name, "h", 1, None, "0", (), 30.0, True, 0.0, now, None, None, zones=zones)

    assert other_zones([worker("a", "2025b"), worker("b", "2025b"), worker("c", None)]) == ""
    told = other_zones([worker("a", "2025b"), worker("b", "2024a")])
    assert told.endswith("a tick may be at two moments: 2024a (b); 2025b (a)")


@pytest.mark.proves("SC-14")
async def test_a_worker_says_by_which_time_zones_it_computes(store: Store) -> None:
    async with Worker(store, [report]):
        [info] = [one for one in await store.workers() if one.alive]
    assert info.zones == zones_version()
    assert info.handlers == ("report",)
    assert zones_version() is None or zones_version()[:2] == "20"  # type: ignore[index]


@pytest.mark.proves("SC-15")
@pytest.mark.parametrize(("catch_up", "runs", "gap"), [("none", 0, 360), ("last", 1, 359), ("all", 360, 0)])
async def test_a_month_without_a_worker(
    store: Store, monkeypatch: pytest.MonkeyPatch, catch_up: Any, runs: int, gap: int
) -> None:
    clock: Any = store.database.clock
    sizes: list[int] = []
    trigger = Ticks.trigger

    def counted(self: Ticks, seen: Any, queue_id: int, ticks: Any, ids: Any, **more: Any) -> Any:
        sizes.append(len(ticks))
        return trigger(self, seen, queue_id, ticks, ids, **more)

    monkeypatch.setattr(Ticks, "trigger", counted)
    await store.schedule("hours", report.trigger("eu"), Every("2h", overlap="allow", catch_up=catch_up))
    clock.advance("30d")
    clock.advance("30m")  # away from a tick
    for _ in range(10):
        await store.database.ticks.fire()
    ticks = await store.ticks("hours", limit=1000)
    assert sum(one.outcome == "fired" for one in ticks) == len(await store.runs("report", limit=1000)) == runs
    assert sum(one.count for one in ticks if one.kind == "gap") == gap
    assert sum(one.kind == "gap" for one in ticks) <= 1, "one row tells of all that was left out"
    assert max(sizes) <= 100
    assert (await store.get_schedule("hours")).late == 0.0
