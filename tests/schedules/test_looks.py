"""What people see of schedules: in the dashboard, by `doctor` and in the metrics."""

from __future__ import annotations

import pytest

from stepwell import Cron, Every, Store, workflow
from stepwell.base.clock import TestClock
from stepwell.operate.doctor import findings
from stepwell.operate.facts import facts_of
from tests.ui.kit import dashboard


@workflow
async def report() -> None: ...


@pytest.mark.proves("SC-11")
async def test_the_dashboard_the_doctor_and_the_metrics_tell_of_schedules(store: Store, clock: TestClock) -> None:
    await store.create_workflow("report")
    async with dashboard(store) as desk:
        assert "There are no schedules" in (await desk.page("/schedules")).text
        await store.schedule("nightly", report.trigger(), Cron("0 2 * * *", tz="Europe/Berlin"))
        await store.schedule("often", report.trigger(), Every("1h"))
        page = await desk.page("/schedules")
        assert "Thu 2026-01-01 02:00:00 CET" in page.text
        said = await desk.done("/schedules/change", name="nightly", verb="pause", back="/schedules")
        assert "nightly is paused" in said
        clock.advance("1h30m")
        assert "late" in (await desk.page("/schedules")).text
        told = [(one.level, one.said) for one in findings(await facts_of(store, "here")) if one.about == "schedules"]
        assert [level for level, _ in told] == ["warning", "problem"]
        assert "often is 30 m late" in told[1][1]
        text = await store.prometheus(events=False)
        assert 'stepwell_schedule_late_seconds{schedule="often"} 1800' in text
        assert 'stepwell_schedule_paused{schedule="nightly"} 1' in text
        await store.database.ticks.fire()
        told = [(one.level, one.said) for one in findings(await facts_of(store, "here")) if one.about == "schedules"]
        assert [level for level, _ in told] == ["good", "warning"]
        page = await desk.page("/schedules/one?name=often")
        assert "fired" in page.text
        assert "Thu 2026-01-01 02:00:00 UTC" in page.text
        said = await desk.done("/schedules/change", name="nightly", verb="run", back="/schedules")
        assert "nightly runs now, as run" in said
        said = await desk.done("/schedules/change", name="nightly", verb="run", back="/schedules")
        assert "is not finished" in said
        said = await desk.done("/schedules/change", name="nightly", verb="resume", back="/schedules")
        assert "goes on from now" in said
        assert (await store.get_schedule("nightly")).state == "active"
