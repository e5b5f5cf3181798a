"""A stream that processes read from different offsets while its writers are SIGKILLed: no chunk is lost."""

import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from stepwell import RunId, connect
from tests.crash.conftest import Scale
from tests.crash.site import LONG, Site, void_unless
from tests.crash.streamer import streamer
from tests.ground.databases import run_apart
from tests.ground.ledger import Ledger
from tests.ground.processes import Crew
from tests.ground.waiting import wait_for

MODULE = "tests.crash.streamer"
LEASE = 2
KILL_EVERY = 0.4
READERS = 3


@pytest.mark.proves("TK-09", "TK-12", "promise-01")
@pytest.mark.timeout(600)
@pytest.mark.backends(
    "postgres", "sqlite", reason="Turso serves one process; the crash sweep cuts it off at every call"
)
def test_readers_of_a_stream_get_every_chunk_in_order(site: Site, scale: Scale, measured: Callable[..., None]) -> None:
    count, seeds = scale.of(300, 10_000), scale.of((1,), (1, 2, 3))
    began, kills = time.monotonic(), 0
    for seed in seeds:
        killed = _lived(site, scale, seed, count)
        void_unless(killed >= scale.of(1, 5), f"only {killed} of the workers that wrote it were killed")
        kills += killed
    seconds = time.monotonic() - began
    measured("stream", streams=len(seeds), chunks=len(seeds) * count, readers=READERS, kills=kills, seconds=seconds)


def _lived(site: Site, scale: Scale, seed: int, count: int) -> int:
    """One stream from its beginning to its end, read from three offsets; how many of its writers were killed."""
    key, offsets = f"stream-{seed}", [place * count // READERS for place in range(READERS)]
    run_apart(_trigger(site, key, count))
    with ExitStack() as stack:
        workers = stack.enter_context(site.crew(3, seed=seed, module=MODULE, role="work", lease=LEASE))
        site.wait_for_sessions(workers)
        for after in offsets:
            stack.enter_context(site.crew(1, module=MODULE, role="read", key=key, after=after))
        killed = _kill(site, workers, key, scale.of(2, 10))
        wait_for(
            lambda: len(site.witness.lines("read to the end", key=key)) == READERS,
            LONG * scale.of(1, 3),
            every=0.2,
            message=f"the end of the stream\n{workers.complaints()}",
        )
        workers.stop()
    for after in offsets:
        read = [(line["offset"], line["n"]) for line in site.witness.lines("read", key=key, after=after)]
        assert read == [(n + 1, n) for n in range(after, count)], f"chunks after {after} were lost, or read twice"
    return killed


def _kill(site: Site, workers: Crew, key: str, most: int) -> int:
    """Kill whoever writes the stream, again and again until it is read to its end."""
    killed = seen = 0
    while killed < most and not site.witness.lines("read to the end", key=key):
        time.sleep(KILL_EVERY if killed else 0.02)
        streamed = site.witness.lines("streamed")
        victims = [one for one in workers.alive if len(streamed) > seen and one.pid == streamed[-1]["pid"]]
        for victim in victims:
            victim.end()
            killed, seen = killed + 1, len(streamed)
        workers.respawn()
    return killed


async def _trigger(site: Site, key: str, count: int) -> RunId[int]:
    with Ledger(site.ledger) as ledger:
        async with connect(site.url) as store:
            run_id: RunId[int] = (
                await streamer(ledger).trigger(count).options(key=key, require_worker="ignore").execute(store)
            )
            return run_id
