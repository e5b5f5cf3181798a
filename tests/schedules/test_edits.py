"""Schedules that operators change: over what code declares, until they are reset."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner

from stepwell import Cron, Every, InvalidOption, PermanentError, ScheduleNotFound, Store, Worker, connect, workflow
from stepwell.base.clock import TestClock
from stepwell.cli.main import main


def code(when: Any) -> Any:
    @workflow(name="report", schedule=when)
    async def report() -> None: ...

    return report


@workflow
async def other() -> None: ...


@workflow
async def failing() -> None:
    raise PermanentError("no")


@pytest.mark.proves("SC-10")
async def test_a_change_stays_over_a_deploy_until_it_is_reset(store: Store, clock: TestClock) -> None:
    old, new = code(Cron("0 2 * * *")), code(Cron("0 4 * * *", overlap="allow"))
    async with Worker(store, [old]):
        info = await store.update_schedule("report", cron="0 3 * * *", tz="Europe/Berlin", jitter="5m")
    assert (info.cron, info.tz) == ("0 3 * * *", "Europe/Berlin")
    assert info.next_at == datetime(2026, 1, 1, 2, tzinfo=UTC)
    async with Worker(store, [new]):
        info = await store.get_schedule("report")
        assert (info.cron, info.overlap) == ("0 3 * * *", "allow")  # what was not changed follows the code
        assert set(info.edited) >= {"cron", "tz", "jitter"}
        assert await store.reset_schedule("report")
        assert not await store.reset_schedule("report")
        info = await store.get_schedule("report")
        assert (info.cron, info.tz, info.edited) == ("0 4 * * *", "UTC", ())
    with pytest.raises(InvalidOption, match="bad hour"):
        await store.update_schedule("report", cron="0 25 * * *")
    with pytest.raises(InvalidOption, match="one of"):
        await store.update_schedule("report", cron="0 2 * * *", every="1h")
    with pytest.raises(InvalidOption, match="allow"):
        await store.update_schedule("report", overlap="skip", catch_up="all")


@pytest.mark.proves("SC-10")
async def test_what_was_deleted_stays_away_until_it_is_reset(store: Store, clock: TestClock) -> None:
    report = code(Every("1h"))
    async with Worker(store, [report]):
        await store.delete_schedule("report")
    async with Worker(store, [report]):
        assert await store.schedules() == []
    async with Worker(store, [code(Every("2h"))]):
        assert await store.schedules() == []
        clock.advance("5h")
        assert await store.database.ticks.fire() == set()
        assert await store.reset_schedule("report")
    assert (await store.get_schedule("report")).next_at == datetime(2026, 1, 1, 6, tzinfo=UTC)
    await store.schedule("mine", other.trigger(), Every("1h"))
    await store.delete_schedule("mine")
    with pytest.raises(ScheduleNotFound):
        await store.reset_schedule("mine")
    await store.schedule("mine", other.trigger(), Every("1h"), replace=False)
    assert (await store.get_schedule("mine")).next_at == datetime(2026, 1, 1, 6, tzinfo=UTC)


@pytest.mark.proves("SC-10")
async def test_a_schedule_that_no_code_declares_is_paused_and_goes_on_when_it_does(
    store: Store, clock: TestClock
) -> None:
    retire = store.database.schedule_edits.retire
    async with Worker(store, [code(Every("1h"))]):
        await retire()
        await retire()
        assert (await store.get_schedule("report")).state == "active"
    await retire()
    await retire()
    assert (await store.get_schedule("report")).state == "active"  # no worker lives: nothing changes
    async with Worker(store, [code(())]):
        await retire()
        assert (await store.get_schedule("report")).state == "active"  # perhaps a deploy is under way
        await retire()
        assert (await store.get_schedule("report")).pause_reason == "no worker declares it any more"
    clock.advance("5h")
    async with Worker(store, [code(Every("1h"))]):
        info = await store.get_schedule("report")
        assert (info.state, info.pause_reason) == ("active", None)
        assert info.next_at == datetime(2026, 1, 1, 6, tzinfo=UTC)


@pytest.mark.proves("SC-05")
async def test_the_ticks_of_a_span_are_made_good_once(store: Store, clock: TestClock) -> None:
    await store.create_workflow("other")
    await store.schedule("s", other.trigger(), Every("1h"))
    clock.advance("5h")
    await store.database.ticks.fire()
    begin, end = datetime(2025, 12, 31, 20, tzinfo=UTC), datetime(2026, 1, 1, 5, tzinfo=UTC)
    planned = await store.backfill_schedule("s", begin, end, dry_run=True)
    assert (planned.ticks, planned.triggered, planned.had_runs) == (10, 9, 1)
    assert len(await store.runs("other")) == 1
    assert await store.backfill_schedule("s", begin, end) == planned
    again = await store.backfill_schedule("s", begin, end)
    assert (again.triggered, again.had_runs) == (0, 10)
    runs = await store.runs("other")
    assert sorted(one.priority for one in runs) == [-10] * 9 + [0]
    assert len({one.key for one in runs}) == 10


@pytest.mark.proves("SC-06")
async def test_a_run_that_failed_pauses_its_schedule_if_that_is_asked_for(store: Store, clock: TestClock) -> None:
    await store.create_workflow("failing")
    await store.schedule("s", failing.trigger(), Every("1h", pause_on_error=True))
    for _ in range(2):
        clock.advance("1h")
        await store.database.ticks.fire()
        await Worker(store, [failing]).drain()
    info = await store.get_schedule("s")
    assert (info.state, info.pause_reason) == ("paused", f"run {info.last_run} failed")
    assert len(await store.runs("failing")) == 1


@pytest.mark.proves("SC-10")
@pytest.mark.backends("sqlite", reason="the command opens the store a second time")
def test_the_command_line_shows_and_changes_schedules(store_url: str) -> None:
    async def make() -> None:
        async with connect(store_url) as store:
            await store.create_workflow("other")
            await store.schedule("s", other.trigger(), Cron("0 2 * * *", tz="Europe/Berlin"))

    asyncio.run(make())

    def said(*words: str) -> tuple[int, Any]:
        done = CliRunner().invoke(main, ["schedule", *words, "--url", store_url, "--json"])
        return done.exit_code, json.loads(done.stdout) if done.stdout else None

    def shown(*words: str) -> str:
        return CliRunner().invoke(main, ["schedule", *words, "--url", store_url]).output

    assert said("ls")[1]["schedules"][0]["name"] == "s"
    assert "At 02:00 every day Europe/Berlin" in shown("ls")
    assert "02:00:00 CE" in shown("show", "s")
    assert len(said("next", "s", "-n", "3")[1]["next"]) == 3
    assert said("pause", "s", "--reason", "look")[0] == 0
    assert "paused: look" in shown("ls")
    assert said("pause", "s")[0] == 4
    assert said("resume", "s")[0] == 0
    assert said("run", "s")[1]["run"] > 0
    assert said("run", "s")[0] == 4
    assert "manual" in shown("history", "s")
    assert said("set", "s", "every=10m", "overlap=allow")[0] == 0
    assert "every 10m" in shown("show", "s")
    assert said("set", "s", "color=red")[0] == 2
    assert (
        said("backfill", "s", "--from", "2026-01-01", "--to", "2026-01-02", "--dry-run")[1]["backfill"]["ticks"] == 145
    )
    assert said("reset", "s")[0] == 4
    assert said("rm", "s", "--yes")[0] == 0
    assert said("show", "s")[0] == 3
