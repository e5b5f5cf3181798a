"""A worker is stopped beyond its lease, another takes over, and the first one wakes up and writes: too late."""

import signal
from collections.abc import Callable

import pytest

from tests.crash.conftest import Scale
from tests.crash.site import LONG, Site, messages, void_unless
from tests.ground.processes import Crew
from tests.ground.waiting import wait_for

LEASE = 2
IN_FLIGHT = 120
LEAST_LATE = 50
STILL = 2  # bodies that the other worker has under way when the first wakes up; it waits a lease for each


@pytest.mark.proves("L-08", "L-09", "W-08", "promise-04", "rule-01", "rule-02", "rule-33", "protocol-03")
@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process: nobody could take over")
def test_late_writes_are_refused_and_the_worker_goes_on(
    site: Site, scale: Scale, measured: Callable[..., None]
) -> None:
    # At its first turn every body waits for `first`, and all are about to end when their worker is frozen. At the
    # second turn some of them wait for `second` and the others do not: so the late writes meet tasks that another
    # worker has settled, and tasks that it is still executing.
    site.enqueue([{**message, "gates": _gates(message["n"])} for message in messages(IN_FLIGHT, seconds=0)])
    options = {"lease": LEASE, "concurrency": IN_FLIGHT}
    with site.crew(**options) as frozen:
        [sleeper] = frozen.members
        _wait_until_executing(site, frozen, IN_FLIGHT)
        with site.crew(**options) as rescue:
            site.wait_for_sessions(rescue)
            site.open_gate("first", hold=True)
            wait_for(lambda: site.witness.lines("held", pid=sleeper.pid), LONG, message="bodies about to end")
            site.freeze(sleeper)
            _wait_until_executing(site, rescue, IN_FLIGHT)
            site.wait_for_success(rescue, IN_FLIGHT - STILL)
            site.open_gate("first")
            before = site.tables.rows()
            sleeper.signal(signal.SIGCONT)
            wait_for(lambda: not site.witness.in_flight(sleeper.pid), LONG, message="the bodies of the frozen worker")
            late = {line["task"] for line in site.witness.ends(pid=sleeper.pid)}
            void_unless(len(late) >= LEAST_LATE, f"only {len(late)} bodies ended after the freeze")
            wait_for(lambda: _refused(site, sleeper.pid) == late, 30, message=f"refusals of {len(late)} late writes")
            assert site.tables.rows() == before, "a late write changed a row"
            site.open_gate("second")
            site.wait_for_success(rescue, IN_FLIGHT)
            assert rescue.stop() == [0], rescue.complaints()
        assert {row.turn for row in site.tables.rows()} == {2}
        _wait_until_it_goes_on(site, frozen)
    measured("freeze", in_flight=IN_FLIGHT, late_writes=len(late), refused=len(_refused(site, sleeper.pid)))


def _gates(n: int) -> list[str]:
    return ["first", "second"] if n >= IN_FLIGHT - STILL else ["first"]


def _wait_until_executing(site: Site, crew: Crew, count: int) -> None:
    [member] = crew.members
    wait_for(
        lambda: len(site.witness.starts(pid=member.pid)) >= count,
        LONG,
        message=f"{count} bodies under way\n{crew.complaints()}",
    )


def _refused(site: Site, pid: int) -> set[int]:
    return {line["task_id"] for line in site.witness.events("LateWriteRefused", pid=pid)}


def _wait_until_it_goes_on(site: Site, frozen: Crew) -> None:
    """The frozen worker executes a new message, under a new session."""
    [sleeper] = frozen.members
    assert len(site.witness.events("SessionLost", pid=sleeper.pid)) == 1
    wait_for(
        lambda: len(site.witness.events("SessionStarted", pid=sleeper.pid)) == 2,
        LONG,
        message=f"a second session\n{frozen.complaints()}",
    )
    first, second = (line["worker_id"] for line in site.witness.events("SessionStarted", pid=sleeper.pid))
    site.enqueue([{"n": IN_FLIGHT, "seconds": 0}])
    site.wait_for_success(frozen, IN_FLIGHT + 1)
    [line] = site.witness.starts(n=IN_FLIGHT)
    assert (line["pid"], line["session"]) == (sleeper.pid, second)
    assert first != second
