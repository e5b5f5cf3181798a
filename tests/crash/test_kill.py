"""Workers are SIGKILLed all the time: no message is lost, none is acknowledged twice."""

import time
from collections.abc import Callable
from functools import partial

import pytest

from tests.crash.conftest import Scale
from tests.crash.site import LONG, Site, messages, void_unless
from tests.crash.witness import executed_more_than_once
from tests.ground.processes import Crew
from tests.ground.waiting import wait_for

LEASE = 2
KILL_EVERY = 0.5
LEAST_HIT = 0.05  # the share of messages that must have been executed more than once


@pytest.mark.proves("W-14", "W-10", "W-07", "L-02", "L-03", "promise-01", "promise-03", "rule-08", "protocol-01")
@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process; its own test is below")
def test_a_random_worker_killed_every_half_second(site: Site, scale: Scale, measured: Callable[..., None]) -> None:
    processes, count = scale.of(4, 8), scale.of(200, 5000)
    site.enqueue(messages(count, seconds=scale.of(0.3, 0.45)))
    with site.crew(processes, lease=LEASE, concurrency=10) as crew:
        site.wait_for_sessions(crew)
        began = time.monotonic()
        _kill_until_all_ended(site, crew, count, deadline=began + scale.of(60, 180))
        site.wait_for_success(crew, count)
        seconds = time.monotonic() - began
    site.assert_each_acknowledged_once(count)
    again = executed_more_than_once(site.witness.executions())
    void_unless(again >= LEAST_HIT * count, f"only {again} of {count} messages were executed more than once")
    measured("kill", processes=processes, messages=count, kills=len(crew.killed), executed_again=again, seconds=seconds)


@pytest.mark.proves("W-14", "W-10", "L-03", "promise-01", "promise-03", "rule-31", "protocol-26")
@pytest.mark.backends("turso", reason="the others are killed with many processes, above")
def test_the_only_process_killed_and_started_again(site: Site, scale: Scale, measured: Callable[..., None]) -> None:
    # Fewer kills than attempts: with one process, the oldest messages may be under way at each of them.
    kills, count, before_each = scale.of(6, 15), scale.of(120, 600), scale.of(5, 15)
    site.enqueue(messages(count, seconds=scale.of(0.1, 0.2)))
    began = time.monotonic()
    with site.crew(1, lease=LEASE, concurrency=10) as crew:
        for _ in range(kills):
            [worker] = crew.alive
            wait_for(partial(_works, site, worker.pid, before_each), LONG, message=f"work\n{crew.complaints()}")
            crew.kill_random()
            crew.respawn()
        _stop_when_done(site, crew, count)
        seconds = time.monotonic() - began
    site.assert_each_acknowledged_once(count)
    again = executed_more_than_once(site.witness.executions())
    void_unless(again >= LEAST_HIT * count, f"only {again} of {count} messages were executed more than once")
    measured("kill", processes=1, messages=count, kills=kills, executed_again=again, seconds=seconds)


def _kill_until_all_ended(site: Site, crew: Crew, count: int, deadline: float) -> None:
    """Kill on schedule while there is a message whose body never came to its end."""
    following = time.monotonic()
    while len(site.witness.ended()) < count:
        crew.kill_random()
        crew.respawn()
        assert time.monotonic() < deadline, f"{len(site.witness.ended())} of {count} in time\n{crew.complaints()}"
        following += KILL_EVERY
        time.sleep(max(0.0, following - time.monotonic()))


def _works(site: Site, pid: int, before: int) -> bool:
    """Whether this process has finished that much and is in the middle of something else.

    With little before each kill, the same oldest messages are under way at every one of them.
    """
    busy, done = site.witness.in_flight(pid), site.witness.ends(pid=pid)
    return len(done) >= before and len(busy) >= 5


def _stop_when_done(site: Site, crew: Crew, count: int) -> None:
    """Turso's file can be read only when nobody has it open: stop, look, and go on if something is left."""
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        wait_for(lambda: len(site.witness.ended()) == count, LONG, message=f"all to end\n{crew.complaints()}")
        assert crew.stop() == [0], crew.complaints()
        if site.tables.statuses()["SUCCESS"] == count:
            return
        crew.respawn()
        site.wait_for_sessions(crew)
        time.sleep(1)  # what was executed but not acknowledged is executed now; the deadline bounds the tries
