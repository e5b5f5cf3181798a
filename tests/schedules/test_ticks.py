"""Each tick is decided once, in the transaction that writes its run, whoever looks and however often."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stepwell import (
    Context,
    Cron,
    Every,
    InvalidOption,
    Once,
    PermanentError,
    ScheduleNotFound,
    Store,
    Worker,
    connect,
    wait,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.base.events import ScheduleKept
from stepwell.store.driver import Call
from stepwell.testing import world

SEEN: list[datetime] = []


@workflow(schedule=Every("1h", name="hours"))
async def hourly(scheduled_for: datetime) -> str:
    SEEN.append(scheduled_for)
    return scheduled_for.isoformat()


@workflow
async def patient(word: str = "go") -> str:
    return await wait("go", str)


async def kinds(store: Store, name: str) -> list[tuple[str, str, int]]:
    """Kind, outcome and count of the ticks of a schedule, the oldest first."""
    return [(one.kind, one.outcome, one.count) for one in reversed(await store.ticks(name))]


@pytest.mark.proves("SC-01", "SC-02")
async def test_each_tick_has_one_run_that_knows_its_moment(store: Store, clock: TestClock) -> None:
    SEEN.clear()
    worker = Worker(store, [hourly])
    await worker.drain()
    for _ in range(3):
        clock.advance("1h")
        await worker.drain()
        await store.database.ticks.fire()
        await worker.drain()
    ticks = list(reversed(await store.ticks("hours")))
    assert [one.due_at for one in ticks] == SEEN
    assert [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (1, 2, 3)] == SEEN
    runs = await store.runs("hourly")
    assert {one.id for one in runs} == {one.run_id for one in ticks}
    assert len(runs) == 3
    found = await store.find_run("hourly", "schedule:hours@2026-01-01T02:00:00Z")
    assert found is not None
    assert await store.result(found.id) == "2026-01-01T02:00:00+00:00"
    info = await store.get_schedule("hours")
    assert (info.workflow, info.state, info.when, info.declared) == ("hourly", "active", "every 1h", True)
    assert info.next_at == datetime(2026, 1, 1, 4, tzinfo=UTC)
    assert await store.next_ticks("hours", 2) == [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (4, 5)]


@pytest.mark.proves("SC-01")
async def test_many_lookers_fire_a_tick_once(store_url: str, clock: TestClock) -> None:
    async with connect(store_url, clock=clock) as store, connect(store_url, clock=clock) as other:
        await store.create_workflow("patient")
        for place in range(5):
            await store.schedule(f"s{place}", patient.trigger("x"), Every("1m", overlap="allow"))
        for _ in range(4):
            clock.advance("1m")
            await asyncio.gather(*(each.database.ticks.fire() for each in (store, other) for _ in range(3)))
        runs = await store.runs("patient")
        assert len(runs) == 20
        assert len({one.key for one in runs}) == 20
        for place in range(5):
            assert await kinds(store, f"s{place}") == [("tick", "fired", 1)] * 4


@pytest.mark.proves("SC-01")
async def test_a_tick_that_was_seen_belongs_to_whom_was_first(store: Store, clock: TestClock) -> None:
    """Two workers have read the same tick; a third has paused the schedule, or moved it, before they write."""
    await store.create_workflow("patient")
    await store.schedule("s", patient.trigger("x"), Every("1m", overlap="allow"))
    clock.advance("1m")
    rows = await store.database.driver.read(Call("due_schedules", store.database.params(limit=10)))
    [first, second] = [rows[0], rows[0]]
    ticks = store.database.ticks
    assert await ticks._fire(first, buffered=False)
    clock.advance("1m")
    await ticks.fire()
    assert await ticks._fire(second, buffered=False) == set()
    assert (await store.get_schedule("s")).next_at == datetime(2026, 1, 1, 0, 3, tzinfo=UTC)
    clock.advance("1m")
    [seen] = await store.database.driver.read(Call("due_schedules", store.database.params(limit=10)))
    await store.pause_schedule("s", reason="a look")
    assert await ticks._fire(seen, buffered=False) == set()
    await store.resume_schedule("s")
    assert await ticks._fire(seen, buffered=False) == set()
    assert await kinds(store, "s") == [("tick", "fired", 1)] * 2
    assert len(await store.runs("patient")) == 2


@pytest.mark.proves("SC-04")
@pytest.mark.parametrize("overlap", ["skip", "buffer", "allow"])
async def test_what_happens_to_a_tick_while_a_run_is_under_way(store: Store, clock: TestClock, overlap: Any) -> None:
    await store.create_workflow("patient")
    await store.schedule("s", patient.trigger(), Every("1m", overlap=overlap))
    worker = Worker(store, [patient])
    for _ in range(3):
        clock.advance("1m")
        await store.database.ticks.fire()
        await worker.drain()
    runs = sorted(await store.runs("patient"), key=lambda one: one.id)
    unfinished = [one.id for one in runs if not one.status.finished]
    told = {
        "skip": ([("fired", True), ("skipped", False), ("skipped", False)], 1),
        "buffer": ([("fired", True), ("buffered", False), ("skipped", False)], 1),
        "allow": ([("fired", True)] * 3, 3),
    }[overlap]
    ticks = list(reversed(await store.ticks("s")))
    assert [(one.outcome, one.run_id is not None) for one in ticks] == told[0]
    assert len(unfinished) == told[1]
    await store.signal(unfinished[0], "go", "done")
    await worker.drain()
    await store.database.ticks.fire()
    ticks = list(reversed(await store.ticks("s")))
    after = {"buffer": ["fired", "fired", "skipped"], "skip": ["fired", "skipped", "skipped"], "allow": ["fired"] * 3}
    assert [one.outcome for one in ticks] == after[overlap]


@pytest.mark.proves("SC-04")
async def test_a_tick_cancels_the_run_before_it_and_waits_for_its_end(store: Store, clock: TestClock) -> None:
    await store.create_workflow("patient")
    await store.schedule("s", patient.trigger(), Every("1m", overlap="cancel"))
    worker = Worker(store, [patient])
    clock.advance("1m")
    await store.database.ticks.fire()
    await worker.drain()
    [run] = await store.runs("patient")
    clock.advance("1m")
    await store.database.ticks.fire()
    assert (await store.get_run(run.id)).status == "CANCELLED"
    assert await kinds(store, "s") == [("tick", "fired", 1), ("tick", "buffered", 1)]
    await store.database.ticks.fire()
    assert await kinds(store, "s") == [("tick", "fired", 1), ("tick", "fired", 1)]
    assert len(await store.runs("patient")) == 2


@pytest.mark.proves("SC-04")
async def test_a_failed_run_that_is_retried_is_under_way_again(store: Store, clock: TestClock) -> None:
    await store.create_workflow("failing")
    await store.schedule("s", failing.trigger(), Every("1m"))
    worker = Worker(store, [failing])
    clock.advance("1m")
    await store.database.ticks.fire()
    await worker.drain()
    [run] = await store.runs("failing")
    assert run.status == "ERROR"
    await store.retry(run.id)
    clock.advance("1m")
    await store.database.ticks.fire()
    assert await kinds(store, "s") == [("tick", "fired", 1), ("tick", "skipped", 1)]


@pytest.mark.proves("SC-06")
async def test_a_schedule_is_paused_resumed_and_run_at_once(store: Store, clock: TestClock) -> None:
    await store.create_workflow("patient")
    await store.schedule("s", patient.trigger(), Every("1m"))
    assert await store.pause_schedule("s", reason="the disk is full")
    assert not await store.pause_schedule("s")
    info = await store.get_schedule("s")
    assert (info.state, info.pause_reason, info.next_at) == ("paused", "the disk is full", None)
    clock.advance("10m30s")
    assert await store.database.ticks.fire() == set()
    run = await store.run_schedule("s")
    assert run is not None
    clock.advance("1s")
    assert await store.run_schedule("s") is None
    clock.advance("1s")
    assert await store.run_schedule("s", force=True) is not None
    history = [("manual", "fired", 1), ("manual", "skipped", 1), ("manual", "fired", 1)]
    assert await kinds(store, "s") == history
    clock.advance("1s")
    assert await store.resume_schedule("s")
    assert not await store.resume_schedule("s")
    assert (await store.get_schedule("s")).next_at == datetime(2026, 1, 1, 0, 11, tzinfo=UTC)
    await store.database.ticks.fire()
    assert await kinds(store, "s") == history
    with pytest.raises(ScheduleNotFound):
        await store.pause_schedule("other")


@pytest.mark.proves("SC-05")
async def test_what_no_worker_fired_in_time(store: Store, clock: TestClock) -> None:
    await store.create_workflow("patient")
    whens: dict[str, Any] = {
        "last": Every("1m", overlap="allow"),
        "all": Every("1m", overlap="allow", catch_up="all"),
        "none": Every("1m", overlap="allow", catch_up="none"),
        "within": Every("1m", overlap="allow", within="10s"),
        "month": Cron("* * * * *", overlap="allow"),
        "once": Once(datetime(2026, 1, 1, 0, 1, tzinfo=UTC)),
        "late": Once(datetime(2026, 1, 1, 0, 1, tzinfo=UTC), catch_up="none"),
    }
    for name, when in whens.items():
        await store.schedule(name, patient.trigger(), when)
    clock.advance("3h30s")
    for _ in range(3):
        await store.database.ticks.fire()
    gap = ("gap", "missed", 179)
    assert await kinds(store, "last") == [gap, ("tick", "fired", 1)]
    assert len(await store.ticks("all", limit=1000)) == 180
    assert await kinds(store, "none") == [gap, ("tick", "fired", 1)]
    assert await kinds(store, "within") == [("gap", "missed", 180)]
    assert await kinds(store, "month") == [gap, ("tick", "fired", 1)]
    assert await kinds(store, "once") == [("tick", "fired", 1)]
    assert await kinds(store, "late") == [("gap", "missed", 1)]
    assert (await store.get_schedule("once")).state == "ended"
    assert len(await store.runs("patient", limit=1000)) == 180 + 4


@pytest.mark.proves("SC-07")
async def test_old_code_does_not_take_back_what_newer_code_declares(store: Store, clock: TestClock) -> None:
    def code(when: Any) -> Any:
        @workflow(name="report", schedule=when)
        async def report() -> None: ...

        return report

    old, new = code(Every("1h")), code(Every("2h"))
    kept: list[object] = []
    store.database.telemetry.subscribe(lambda event: kept.append(event) if isinstance(event, ScheduleKept) else None)
    async with Worker(store, [old]):
        assert (await store.get_schedule("report")).when == "every 1h"
        async with Worker(store, [new]):
            assert (await store.get_schedule("report")).when == "every 2h"
            async with Worker(store, [old]):  # an old process restarts during the deploy
                assert (await store.get_schedule("report")).when == "every 2h"
                assert kept == [ScheduleKept("report")]
    async with Worker(store, [old]):  # a rollback: nobody has the newer code any more
        assert (await store.get_schedule("report")).when == "every 1h"


@pytest.mark.proves("SC-08", "SC-09")
async def test_a_schedule_made_by_a_verb(store: Store, clock: TestClock) -> None:
    await store.schedule("eu", both, Cron("0 2 * * *", tz="Europe/Berlin", input={"region": "eu"}, tags=["night"]))
    with pytest.raises(InvalidOption, match="replace"):
        await store.schedule("eu", both, Every("1h", input={"region": "us"}), replace=False)
    with pytest.raises(TypeError, match="region"):
        await store.schedule("eu", both, Every("1h"))
    clock.advance("24h")
    await store.database.ticks.fire()
    await Worker(store, [both]).drain()
    [run] = await store.runs("both")
    assert run.tags == ("night",)
    assert await store.result(run.id) == "eu 2026-01-01T01:00:00+00:00 eu 2026-01-01T01:00:00+00:00"
    info = await store.schedule("eu", both, Every("1h", input={"region": "us"}))
    assert (info.when, info.input["region"], info.declared) == ("every 1h", "us", False)
    async with Worker(store, [hourly]):
        with pytest.raises(InvalidOption, match="code declares"):
            await store.schedule("hours", both, Every("1h", input={"region": "us"}))
    assert [one.name for one in await store.schedules()] == ["eu", "hours"]
    page = await store.schedules(limit=1)
    assert [one.name for one in await store.schedules(after=page.next)] == ["hours"]


@workflow
async def both(ctx: Context, region: str, scheduled_for: datetime) -> str:
    assert ctx.scheduled_for is not None
    return f"{region} {scheduled_for.isoformat()} {ctx.schedule} {ctx.scheduled_for.isoformat()}"


@workflow
async def failing() -> None:
    raise PermanentError("no")


async def test_a_workflow_that_says_its_schedule_wrongly_is_refused() -> None:
    with pytest.raises(InvalidOption, match="bad minute"):
        Cron("61 * * * *")
    with pytest.raises(InvalidOption, match="day-of-month"):
        Cron("0 0 30 2 *")
    with pytest.raises(InvalidOption, match="Europe/Berlin"):
        Cron("0 * * * *", tz="CEST+1")
    with pytest.raises(InvalidOption, match="a second"):
        Every("0.2s")
    with pytest.raises(InvalidOption, match="allow"):
        Every("1m", catch_up="all")
    with pytest.raises(InvalidOption, match="overlap"):
        Every("1m", overlap="both")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="name"):
        workflow(schedule=[Every("1m"), Every("2m")])(both.fn)
    with pytest.raises(InvalidOption, match="Cron"):
        workflow(schedule="0 2 * * *")(both.fn)  # type: ignore[arg-type]


@pytest.mark.proves("SC-03")
async def test_a_world_fires_what_is_due_over_a_change_of_clocks() -> None:
    moments: list[datetime] = []

    @workflow(schedule=Cron("30 2 * * *", tz="Europe/Berlin"))
    async def nightly(scheduled_for: datetime) -> None:
        moments.append(scheduled_for)

    async with world(nightly, start=datetime(2026, 3, 27, tzinfo=UTC)) as w:
        await w.drain()
        await w.advance(timedelta(days=4))
        assert moments == [
            datetime(2026, 3, 27, 1, 30, tzinfo=UTC),
            datetime(2026, 3, 28, 1, 30, tzinfo=UTC),
            datetime(2026, 3, 29, 1, 0, tzinfo=UTC),  # 03:00, since 02:30 does not exist
            datetime(2026, 3, 30, 0, 30, tzinfo=UTC),
        ]
