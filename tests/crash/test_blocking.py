"""A body that blocks for many leases is executed once, although another worker waits to take it over."""

import pytest

from tests.crash.site import LONG, Site, messages, void_unless
from tests.ground.waiting import wait_for

LEASE = 1.0
BLOCKED = 4 * LEASE
OTHERS = 80  # messages that keep the other worker busy while the first one blocks


@pytest.mark.proves("L-05", "L-07", "promise-04", "rule-11")
@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process: its other worker would be blocked too")
def test_a_body_that_blocks_the_loop_is_executed_once(site: Site) -> None:
    _is_executed_once(site, body="block")


@pytest.mark.proves("L-05", "L-07", "promise-04", "rule-11")
def test_a_sync_body_is_executed_once(site: Site, backend: str) -> None:
    _is_executed_once(site, body="thread", together=backend == "turso")


def _is_executed_once(site: Site, *, body: str, together: bool = False) -> None:
    """Two workers, in two processes or with a store each in one: the first message blocks the one that takes it."""
    processes, workers = (1, 2) if together else (2, 1)
    quick = messages(OTHERS + 1, seconds=0.1)[1:]
    site.enqueue([{"n": 0, "seconds": BLOCKED}, *quick])
    with site.crew(processes, lease=LEASE, concurrency=1, body=body, workers=workers) as crew:
        wait_for(lambda: len(site.witness.ended()) == OTHERS + 1, LONG, message=f"all to end\n{crew.complaints()}")
        assert crew.stop() == [0] * processes, crew.complaints()
    site.assert_each_acknowledged_once(OTHERS + 1)
    assert site.witness.executions()[0] == 1
    assert site.tables.rows()[0].turn == 1
    assert site.witness.events("SessionLost") == []
    assert site.witness.events("SessionsRecovered") == []
    _void_unless_another_could_have_taken_over(site)


def _void_unless_another_could_have_taken_over(site: Site) -> None:
    [start], [end] = site.witness.starts(n=0), site.witness.ends(n=0)
    watched = [
        line
        for line in site.witness.starts()
        if line["session"] != start["session"] and start["at"] + 2 * LEASE < line["at"] < end["at"]
    ]
    void_unless(watched, "no other worker was at work when the lease of the blocked one would have ended")
    void_unless(end["at"] - start["at"] >= BLOCKED, "the body did not block for four leases")
