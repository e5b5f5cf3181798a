"""A body that holds the interpreter costs nothing; a worker that is stopped, hung or gone is still taken over."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.conftest import Scale
from tests.crash.site import LONG, Site, children_of, helpers_of, messages, void_unless
from tests.crash.witness import executed_more_than_once
from tests.ground.processes import Crew, Member
from tests.ground.waiting import wait_for

pytestmark = pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process: the lease alone decides")
PLACES = 4
MARGIN = 10.0  # seconds for a machine that does other things too


@pytest.mark.proves("L-05", "L-07", "promise-04", "rule-11")
def test_held_for_many_leases_it_is_executed_once_and_stopped_it_is_taken_over(
    site: Site, scale: Scale, measured: Callable[..., None]
) -> None:
    lease, hold, count = scale.of(3.0, 4.0), scale.of(8.0, 20.0), scale.of(40, 1_000)
    others = messages(count, seconds=1.2 * PLACES * hold / count)[1:]  # more than one worker does during the hold
    with site.crew(2, lease=lease, concurrency=PLACES, body="hold") as crew:
        wait_for(lambda: all(helpers_of(one.pid) for one in crew.members), LONG, message="helpers")
        assert _connections_of_helpers(site) == 0, "it says nothing while its worker beats"
        site.enqueue([{"n": 0, "seconds": 0, "hold": hold}, *others])
        wait_for(lambda: len(site.witness.ended()) == count, LONG, message=f"all to end\n{crew.complaints()}")
        site.wait_for_success(crew, count)
        site.assert_each_acknowledged_once(count)
        [start], [end] = site.witness.starts(n=0), site.witness.ends(n=0)
        void_unless(end["at"] - start["at"] >= hold, "the interpreter was not held")
        meanwhile = [line for line in site.witness.starts() if start["at"] + 2 * lease < line["at"] < end["at"]]
        void_unless(meanwhile, "no other worker was at work when the lease of this one would have ended")
        twice = executed_more_than_once(site.witness.executions())
        assert (twice, site.witness.events("SessionLost"), site.witness.events("SessionsRecovered")) == (0, [], [])
        seconds = _until_taken_over_when_stopped(site, crew, n=count)
    assert seconds <= 2 * lease + scale.of(MARGIN, 0.0)
    measured("held interpreter", held=hold, lease=lease, messages=count, twice=twice, stopped_seconds=seconds)


def _connections_of_helpers(site: Site) -> int:
    if not site.url.startswith("postgres"):
        return 0
    question = "select count(*) from pg_stat_activity where application_name = 'stepwell helper'"
    [[count]] = site.tables.ask(f"{question} and datname = current_database()")
    return int(count)


def _until_taken_over_when_stopped(site: Site, crew: Crew, n: int) -> float:
    """Seconds from the SIGSTOP of a worker to the start of its message in the other one."""
    site.enqueue([{"n": n, "seconds": 0, "gates": ["never"]}])
    [first] = wait_for(lambda: site.witness.starts(n=n), LONG, message="a body under way")
    [stopped] = [one for one in crew.members if one.pid == first["pid"]]
    site.freeze(stopped)
    stopped_at = time.clock_gettime(time.CLOCK_BOOTTIME)
    again = wait_for(lambda: site.witness.starts(n=n, turn=2), LONG, message=f"a takeover\n{crew.complaints()}")
    took: float = again[0]["at"] - stopped_at
    return took


@pytest.mark.proves("L-05", "rule-11")
@pytest.mark.backends("postgres", reason="no statement of it differs, and each takes two processes")
def test_held_for_longer_than_it_may_be_it_is_taken_over(site: Site) -> None:
    hold, limit = 16.0, 4.0
    with site.crew(2, lease=2.0, hang_after=limit, concurrency=1, body="hold") as crew:
        wait_for(lambda: all(helpers_of(one.pid) for one in crew.members), LONG, message="helpers")
        site.enqueue([{"n": 0, "seconds": 0, "hold": hold}])
        [first] = wait_for(lambda: site.witness.starts(n=0, turn=1), LONG, message="a body under way")
        [second] = wait_for(lambda: site.witness.starts(n=0, turn=2), LONG, message=f"a takeover\n{crew.complaints()}")
        void_unless(second["at"] - first["at"] < hold, "it was taken over after the hold")
        assert second["at"] - first["at"] >= limit, "it was taken over before its limit"
        assert second["pid"] != first["pid"]
        assert "has given no sign of life for 4 s" in crew.complaints()


@pytest.mark.proves("L-05", "rule-11")
@pytest.mark.backends("sqlite", reason="no statement of it differs, and each takes two processes")
def test_a_loop_that_is_blocked_for_longer_than_it_may_be_is_told_of_and_taken_over(site: Site) -> None:
    blocked, limit = 10.0, 2.0
    with site.crew(2, lease=1.0, hang_after=limit, concurrency=1, body="block") as crew:
        site.wait_for_sessions(crew)
        site.enqueue([{"n": 0, "seconds": blocked}])
        [first] = wait_for(lambda: site.witness.starts(n=0, turn=1), LONG, message="a body under way")
        [second] = wait_for(lambda: site.witness.starts(n=0, turn=2), LONG, message=f"a takeover\n{crew.complaints()}")
        void_unless(second["at"] - first["at"] < blocked, "it was taken over after it had ended")
        assert second["pid"] != first["pid"]
        [told] = site.witness.events("LoopBlocked", pid=first["pid"])
        assert "workload.py" in told["stack"].partition(" < ")[0], "where it stands"


@pytest.mark.proves("L-05")
@pytest.mark.backends("sqlite", reason="no statement of it differs, and each takes two processes")
def test_a_helper_that_is_killed_is_warned_of_and_started_again_once(site: Site) -> None:
    with site.crew(1, lease=1.0, body="hold") as crew:
        [worker] = crew.members
        for again in (True, False):
            [helper] = wait_for(lambda: helpers_of(worker.pid), LONG, message="a helper")
            _kill(helper)
            _wait_for_warning(site, worker, again=again)
        wait_for(lambda: site.tables.ask("select helper from {beat}") == [["lost"]], LONG, message="the note")
        assert helpers_of(worker.pid) == []
        assert crew.stop() == [0]


def _wait_for_warning(site: Site, worker: Member, *, again: bool) -> None:
    wait_for(lambda: site.witness.events("HelperLost", pid=worker.pid, again=again), LONG, message="a warning")


@pytest.mark.proves("promise-13", "L-03")
@pytest.mark.backends("postgres", reason="no statement of it differs, and each takes two processes")
def test_a_forked_child_that_lives_on_does_not_hide_the_death(site: Site) -> None:
    lease = 30.0
    with site.crew(2, lease=lease, concurrency=1, body="hold") as crew:
        wait_for(lambda: all(helpers_of(one.pid) for one in crew.members), LONG, message="helpers")
        site.enqueue([{"n": 0, "seconds": 0, "fork": True, "gates": ["never"]}])
        [first] = wait_for(lambda: site.witness.starts(n=0), LONG, message="a body under way")
        [forked] = wait_for(lambda: children_of(first["pid"], "crash.workload"), LONG, message="a forked child")
        killed_at = _kill_member(crew, first["pid"])
        [again] = wait_for(lambda: site.witness.starts(n=0, turn=2), lease / 2, message=crew.complaints())
        void_unless(Path(f"/proc/{forked}").exists(), "the forked child has ended")
        assert again["at"] - killed_at <= MARGIN
        _kill(forked)


def _kill_member(crew: Crew, pid: int) -> float:
    member: Member
    [member] = [one for one in crew.members if one.pid == pid]
    killed_at = time.clock_gettime(time.CLOCK_BOOTTIME)
    member.signal(signal.SIGKILL)
    return killed_at


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
