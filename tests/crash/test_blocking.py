"""A body that blocks for many leases is executed once, although another worker waits to take it over."""

import pytest

from tests.crash.site import LONG, Site, messages, void_unless
from tests.ground.processes import Crew
from tests.ground.waiting import wait_for

LEASE = 1.0
BLOCKED = 4 * LEASE


@pytest.mark.proves("L-05", "L-07", "promise-04", "rule-11")
@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process: its other worker would be blocked too")
def test_a_body_that_blocks_the_loop_is_executed_once(site: Site) -> None:
    _is_executed_once(site, body="block")


@pytest.mark.proves("L-05", "L-07", "promise-04", "rule-11")
def test_a_sync_body_is_executed_once(site: Site, backend: str) -> None:
    _is_executed_once(site, body="thread", together=backend == "turso")


def _is_executed_once(site: Site, *, body: str, together: bool = False) -> None:
    """Two workers, in two processes or with a store each in one; the first message blocks the one that takes it."""
    processes, workers = (1, 2) if together else (2, 1)
    options = {"lease": LEASE, "concurrency": 1, "body": body, "workers": workers}
    site.enqueue([{"n": 0, "seconds": BLOCKED}])
    with site.crew(processes, **options) as crew:
        site.wait_for_sessions(crew, each=workers)
        [blocked] = wait_for(lambda: site.witness.starts(n=0), LONG, message=f"the start\n{crew.complaints()}")
        wait_for(lambda: site.witness.ends(n=0), LONG, message=f"the end of the blocking body\n{crew.complaints()}")
        _other_worker_lives(site, crew, blocked["session"])
        assert crew.stop() == [0] * processes, crew.complaints()
    row = site.tables.rows()[0]
    assert (row.n, row.status, row.turn, row.attempt) == (0, "SUCCESS", 1, 1)
    assert site.witness.executions()[0] == 1
    assert site.witness.events("SessionLost") == []
    assert site.witness.events("SessionsRecovered") == []


def _other_worker_lives(site: Site, crew: Crew, blocked: int) -> None:
    """Void unless somebody was there to take over: the other session has executed something."""
