"""How soon another worker executes what a killed one had under way."""

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.crash.conftest import Scale
from tests.crash.site import LONG, Site, helpers_of, void_unless
from tests.ground.waiting import wait_for

MARGIN = 5.0  # seconds after the lease


@pytest.mark.proves("promise-13", "L-03", "rule-08", "protocol-09")
@pytest.mark.backends("postgres", reason="an embedded store need not wait for the lease, with a helper or without")
@pytest.mark.parametrize("waiting", [True, False], ids=["waiting", "started-later"])
def test_within_the_lease_and_five_seconds(
    site: Site, scale: Scale, measured: Callable[..., None], waiting: bool
) -> None:
    lease = scale.of(3.0, 30.0) if waiting else 3.0
    seconds = _until_taken_over(site, lease, waiting=waiting, helper="off")
    void_unless(seconds > lease / 2, f"taken over after {seconds:.1f} s, while the lease had not ended")
    assert seconds <= lease + scale.of(4, 1) * MARGIN  # less is asked of a busy machine
    measured("recovery", lease=lease, seconds=seconds)


@pytest.mark.proves("promise-13", "L-03", "protocol-25")
@pytest.mark.backends("sqlite", "postgres", reason="Turso serves one process: nobody else is there to look")
@pytest.mark.parametrize("waiting", [True, False], ids=["waiting", "started-later"])
def test_at_once_where_a_file_lock_or_the_helper_proves_the_death(
    site: Site, scale: Scale, measured: Callable[..., None], waiting: bool, backend: str
) -> None:
    lease = 60.0
    seconds = _until_taken_over(site, lease, waiting=waiting, helper="on" if backend == "postgres" else "off")
    # A process needs its time to start; on a busy machine all do, and it is not the lease that ended.
    assert seconds <= scale.of(lease / 2, MARGIN + (0 if waiting else MARGIN))
    measured("recovery", lease=lease, seconds=seconds)


def _until_taken_over(site: Site, lease: float, *, waiting: bool, helper: str) -> float:
    """Seconds from the SIGKILL of the only worker to the start of its message in another, there or started then."""
    site.enqueue([{"n": 0, "seconds": 0, "gates": ["never"]}])
    with ExitStack() as stack:
        first, second = stack.enter_context(site.crew(lease=lease, helper=helper)), site.crew(lease=lease)
        [killed] = first.members
        wait_for(lambda: site.witness.in_flight(killed.pid), LONG, message=f"a body under way\n{first.complaints()}")
        if helper == "on":
            wait_for(lambda: helpers_of(killed.pid), LONG, message="its helper")
        if waiting:
            site.wait_for_sessions(stack.enter_context(second))
        killed_at = time.clock_gettime(time.CLOCK_BOOTTIME)
        killed.signal(signal.SIGKILL)
        if not waiting:
            stack.enter_context(second)
        site.wait_for_success(second, 1, timeout=lease + LONG)
    [again] = site.witness.starts(n=0, turn=2)
    assert again["pid"] == second.members[0].pid
    assert again["attempt"] == 2, "the lost attempt counts"
    took: float = again["at"] - killed_at
    return took
