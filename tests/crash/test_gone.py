"""A worker that is killed is taken over at once: the supervisor above it has seen its process end."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from tests.crash.conftest import Scale
from tests.crash.site import LONG, ROOT, Site
from tests.crash.workload import LEDGER
from tests.ground.processes import Crew
from tests.ground.waiting import wait_for

LEASE = 30.0
AT_ONCE = 2.0  # seconds


@pytest.mark.proves("promise-13", "L-03", "rule-08")
@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process: nobody could take over")
@pytest.mark.timeout(400)
def test_what_a_killed_worker_had_under_way_goes_on_at_once(
    site: Site, scale: Scale, measured: Callable[..., None]
) -> None:
    kills, processes = scale.of(1, 50), scale.of(2, 4)
    with _supervised(site, processes) as crew:
        took = [_until_taken_over(site, crew, n, processes // 2) for n in range(kills)]
        assert crew.stop() == [0], crew.complaints()
    assert [row for row in site.tables.rows() if row.status != "SUCCESS"] == []
    assert {row.turn for row in site.tables.rows()} == {2}
    late = [seconds for seconds in took if seconds > scale.of(LEASE / 2, AT_ONCE)]
    assert late == []
    measured("gone", lease=LEASE, kills=kills, late=len(late), slowest=max(took))


def _supervised(site: Site, processes: int) -> Crew:
    url = f"{site.url}?lease={LEASE:g}"
    words = ("worker", "tests.crash.app:work", "--url", url, "--processes", str(processes), "--grace", "1s")
    site.ledger.touch()
    return Crew("stepwell", *words, size=1, folder=site.folder, cwd=ROOT, env={LEDGER: str(site.ledger)})


def _until_taken_over(site: Site, crew: Crew, n: int, least: int) -> float:
    """Seconds from the SIGKILL of a worker to the next start of its message."""
    wait_for(lambda: _living(site) >= least, LONG, message=f"workers\n{crew.complaints()}")
    site.enqueue([{"n": n, "seconds": 0, "gates": ["never"]}])
    [first] = wait_for(lambda: site.witness.starts(n=n), LONG, message=f"a body under way\n{crew.complaints()}")
    killed_at = time.clock_gettime(time.CLOCK_BOOTTIME)
    os.kill(first["pid"], signal.SIGKILL)
    [again] = wait_for(lambda: site.witness.starts(n=n, turn=2), LONG, message=f"a takeover\n{crew.complaints()}")
    wait_for(lambda: site.witness.ends(n=n), LONG, message="its end")
    took: float = again["at"] - killed_at
    return took


def _living(site: Site) -> int:
    """How many sessions live; none before there are tables."""
    try:
        [[count]] = site.tables.ask("select count(*) from {beat} where not gone")
    except Exception:  # noqa: BLE001 - no tables yet, whatever the database calls that
        return 0
    return int(count)
