"""What people see of limits: in the dashboard, by `doctor`, and in the metrics."""

import pytest

from stepwell import Limits, Store
from stepwell.base.clock import TestClock
from stepwell.operate.doctor import findings
from stepwell.operate.facts import facts_of
from tests.limits.test_running import claimed, queue
from tests.store.seam import begin
from tests.ui.kit import dashboard


async def told(store: Store) -> list[str]:
    return [one.said for one in findings(await facts_of(store, "here")) if one.about == "limits"]


@pytest.mark.proves("LI-16")
async def test_doctor_and_metrics_tell_of_limits(store: Store, clock: TestClock) -> None:
    number = await queue(store, Limits(running=2, key="tenant", rate="10/s"), a=2, b=1)
    worker = await begin(store)
    assert len(await claimed(store, worker, number)) == 1
    assert await told(store) == []
    await store.limits.pause("q", "b", reason="abuse")
    assert await told(store) == ["key 'b' of q is paused (abuse) and 1 task waits"]
    text = await store.prometheus()
    for line in ('places{queue="q"} 2', 'places_taken{queue="q"} 1', 'paused_keys{queue="q"} 1'):
        assert f"stepwell_limit_{line}" in text
    assert 'stepwell_limit_rate_wait_seconds{queue="q"} 0.1' in text
    await store.limits.set("q", running=2000)
    assert any("q has 2000 places: each claim looks at all" in one for one in await told(store))


@pytest.mark.proves("LI-16")
async def test_the_dashboard_shows_and_changes_rates(store: Store) -> None:
    await queue(store, Limits(rate="10/s", key="tenant", key_rate="5/1m"), a=1)
    async with dashboard(store) as desk:
        page = (await desk.page("/queues/one?name=q")).text
        assert "10/1s begin; 5/1m of each tenant" in page
        await desk.done("/queues/limits", verb="set", queue="q", running="3", per_key="", rate="20/s", key_rate="")
        info = await store.limits.of("q")
        assert info is not None
        assert info.limits == Limits(running=3, key="tenant", rate="20/s")
