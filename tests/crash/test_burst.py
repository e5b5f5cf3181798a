"""Debounced messages whose producers and workers are SIGKILLed: the last of each key is handled, and none twice."""

import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from stepwell import connect
from tests.crash.burst import QUEUE
from tests.crash.conftest import Scale
from tests.crash.site import LONG, Site, void_unless
from tests.ground.databases import run_apart
from tests.ground.waiting import wait_for

MODULE = "tests.crash.burst"
LEASE = 2
KILL_EVERY = 0.15


@pytest.mark.proves("arrivals-04")
@pytest.mark.timeout(600)
@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process; its replies are lost in another test")
def test_the_last_of_a_burst_is_handled_whoever_is_killed(
    site: Site, scale: Scale, measured: Callable[..., None]
) -> None:
    keys, count, most = [f"key-{n}" for n in range(scale.of(2, 4))], scale.of(300, 3000), scale.of(3, 40)
    run_apart(_create(site))
    site.ledger.touch()
    began, killed = time.monotonic(), 0
    with ExitStack() as stack:
        workers = stack.enter_context(site.crew(2, module=MODULE, role="work", lease=LEASE))
        site.wait_for_sessions(workers)
        producers = [
            stack.enter_context(site.crew(1, module=MODULE, role="produce", who=key, count=count)) for key in keys
        ]
        while len(site.witness.lines("sent all")) < len(keys):
            assert time.monotonic() < began + LONG * scale.of(1, 4), "the producers do not come to their end"
            time.sleep(KILL_EVERY)
            crew = [*producers, workers][killed % (len(keys) + 1)]
            if killed < most and crew.alive and site.witness.lines("sent"):
                crew.alive[0].end()
                killed += 1
                crew.respawn()
        wait_for(
            lambda: all(site.witness.lines("handled", who=key, n=count - 1) for key in keys),
            LONG,
            message=f"the last of each key\n{workers.complaints()}",
        )
        workers.stop()
    void_unless(killed >= scale.of(2, 10), f"only {killed} processes were killed")
    for key in keys:
        handled = site.witness.lines("handled", who=key)
        tasks = {(line["task"], line["n"]) for line in handled}
        assert len(tasks) == len({task for task, _ in tasks}), "a message changed after it had begun"
        assert len(tasks) == len({n for _, n in tasks}), "one call was handled twice"
        assert max(n for _, n in tasks) == count - 1
    turns = len(site.witness.lines("handled"))
    measured("burst", calls=len(keys) * count, handled=turns, kills=killed, seconds=time.monotonic() - began)


async def _create(site: Site) -> None:
    async with connect(site.url) as store:
        await store.create_queue(QUEUE)
