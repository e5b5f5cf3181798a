"""SIGTERM: what can finish does, what cannot is given back with its attempt, and the process ends well."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.conftest import Scale
from tests.crash.site import LONG, Site, messages, void_unless
from tests.ground.faultproxy import FaultProxy
from tests.ground.processes import Crew, Member
from tests.ground.waiting import wait_for

GRACE = 1.0


@pytest.mark.proves("W-13", "promise-03", "rule-06", "rule-32", "rule-33")
def test_a_rolling_restart_executes_nothing_twice(
    site: Site, backend: str, scale: Scale, measured: Callable[..., None]
) -> None:
    # One attempt each: a message that loses its attempt to a restart ends in ERROR, and the test fails.
    processes, restarts = (1, scale.of(3, 10)) if backend == "turso" else (3, scale.of(3, 30))
    count = processes * restarts * 40  # enough for workers that are slow to start
    site.enqueue(messages(count, seconds=0.2), attempts=1)
    with site.crew(processes, lease=30, concurrency=10, grace=20) as crew:
        began = time.monotonic()
        for _ in range(restarts):
            _stop_in_the_middle(site, crew, crew.alive[0])
            crew.respawn()
        wait_for(lambda: len(site.witness.ended()) == count, LONG, message=f"all to end\n{crew.complaints()}")
        site.wait_for_sessions(crew)  # the last one may be starting still, and heeds no signal before that
        assert crew.stop() == [0] * processes, crew.complaints()
        seconds = time.monotonic() - began
    site.assert_each_acknowledged_once(count)
    assert set(site.witness.executions().values()) == {1}
    measured("restart", processes=processes, messages=count, restarts=restarts, executed_again=0, seconds=seconds)


@pytest.mark.proves("W-13", "promise-13", "rule-06", "rule-32", "rule-33")
@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process: nobody waits to pick it up")
def test_what_outlasts_the_grace_is_given_back_and_picked_up_at_once(
    site: Site, scale: Scale, measured: Callable[..., None]
) -> None:
    site.enqueue([{"n": 0, "seconds": 0, "gates": ["never"]}], attempts=1)
    with site.crew(lease=30, grace=GRACE) as first:
        [leaving] = first.members
        wait_for(lambda: site.witness.in_flight(leaving.pid), LONG, message=f"a body\n{first.complaints()}")
        with site.crew(lease=30) as second:
            site.wait_for_sessions(second)
            stopped_at = time.clock_gettime(time.CLOCK_BOOTTIME)
            leaving.signal(signal.SIGTERM)
            assert leaving.process.wait(LONG) == 0, first.complaints()
            site.wait_for_success(second, 1)
    before, after = site.witness.starts(n=0)
    assert (before["turn"], before["attempt"], after["turn"], after["attempt"]) == (1, 1, 2, 1)
    seconds = after["at"] - stopped_at
    # A second is promised; the rest is for a busy machine, and far from the lease.
    assert GRACE <= seconds <= GRACE + scale.of(10, 3)
    measured("release", grace=GRACE, seconds=seconds)


@pytest.mark.proves("W-13", "rule-06", "rule-32", "rule-33")
@pytest.mark.parametrize("body", ["nap", "thread"])
def test_a_second_sigterm_hurries(site: Site, body: str) -> None:
    site.enqueue([{"n": 0, "seconds": 600}], attempts=1)
    with site.crew(lease=30, grace=300, body=body) as crew:
        [leaving] = crew.members
        wait_for(lambda: site.witness.in_flight(leaving.pid), LONG, message=f"a body\n{crew.complaints()}")
        leaving.signal(signal.SIGTERM)
        time.sleep(1)
        void_unless(leaving.is_alive, "the worker did not wait for its body")
        leaving.signal(signal.SIGTERM)
        assert leaving.process.wait(30) == 0, crew.complaints()
    [row] = site.tables.rows()
    assert (row.status, row.owner, row.attempt, row.last_error) == ("PENDING", None, 0, None)


@pytest.mark.proves("W-13", "rule-06", "rule-32")
@pytest.mark.backends("postgres", reason="only over a network can the reply of a claim be on its way for long")
def test_a_claim_under_way_at_sigterm_costs_no_attempt(
    backend: str, proxy: FaultProxy, postgres_url: str, tmp_path: Path
) -> None:
    site, behind = Site(proxy.url(postgres_url), tmp_path), Site(postgres_url, tmp_path)
    with site.crew(lease=30, grace=20) as crew:
        [leaving] = crew.members
        site.wait_for_sessions(crew)
        proxy.delay(0.2)
        behind.enqueue([{"n": 0, "seconds": 0.1}], attempts=1)
        wait_for(lambda: behind.tables.statuses()["RUNNING"], LONG, every=0.01, message="the claim")
        leaving.signal(signal.SIGTERM)
        void_unless(not site.witness.starts(), "the reply of the claim had arrived")
        assert leaving.process.wait(LONG) == 0, crew.complaints()
    [row] = behind.tables.rows()
    executed = len(site.witness.ends())
    assert (row.status, row.attempt, executed) in {("SUCCESS", 1, 1), ("PENDING", 0, 0)}
    assert row.last_error is None


def _stop_in_the_middle(site: Site, crew: Crew, member: Member) -> None:
    """SIGTERM a worker that has bodies under way; they come to their end and it ends well."""
    busy = wait_for(
        lambda: site.witness.in_flight(member.pid), LONG, every=0.01, message=f"a body under way\n{crew.complaints()}"
    )
    member.signal(signal.SIGTERM)
    assert member.process.wait(LONG) == 0, crew.complaints()
    assert not site.witness.in_flight(member.pid)
    void_unless(busy <= {line["n"] for line in site.witness.ends(pid=member.pid)}, "the bodies did not end in it")
