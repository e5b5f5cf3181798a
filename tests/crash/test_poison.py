"""A message that kills its worker every time is executed as often as it may, and takes no other with it."""

import signal
from collections.abc import Callable

import pytest

from stepwell import connect
from tests.crash.deadly import QUEUE
from tests.crash.site import LONG, ROOT, Site
from tests.ground.databases import run_apart
from tests.ground.processes import Crew
from tests.ground.waiting import wait_for

LEASE = 2
ATTEMPTS = 3
HARMLESS = 20


@pytest.mark.proves("E-07", "W-14")
@pytest.mark.backends("postgres", "sqlite", reason="Turso's file cannot be read from outside while a worker lives")
def test_a_message_that_kills_its_worker_ends_after_its_attempts(site: Site, measured: Callable[..., None]) -> None:
    run_apart(_enqueue(site.url))
    arguments = ("--url", site.url, "--ledger", str(site.ledger), "--lease", str(LEASE))
    with Crew("tests.crash.deadly", *arguments, size=2, folder=site.folder, cwd=ROOT) as crew:

        def is_over() -> bool:
            crew.respawn()
            return site.tables.statuses() == {"ERROR": 1, "SUCCESS": HARMLESS}

        wait_for(is_over, LONG, every=0.2, message=f"an end, but {site.tables.statuses()}\n{crew.complaints()}")
        killed = [member for member in crew.members if member.process.returncode == -signal.SIGKILL]
    [poison] = [row for row in site.tables.rows() if row.n == 0]
    assert (poison.status, poison.turn, poison.attempt) == ("ERROR", ATTEMPTS, ATTEMPTS)
    assert poison.last_error == "worker_lost"
    assert site.witness.executions()[0] == len(killed) == ATTEMPTS
    measured("poison", attempts=ATTEMPTS, killed=len(killed), others=HARMLESS)


async def _enqueue(url: str) -> None:
    async with connect(url) as store:
        await store.create_queue(QUEUE)
        await store.enqueue(QUEUE, {"n": 0, "kills": True}, max_attempts=ATTEMPTS)
        # More attempts than there are kills: whoever shares a process with the deadly one is executed again.
        for n in range(1, HARMLESS + 1):
            await store.enqueue(QUEUE, {"n": n, "kills": False}, max_attempts=ATTEMPTS + 1)
