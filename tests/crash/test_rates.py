"""Two processes share a rate, one is SIGKILLed, and no window holds more units that begin than the rate says."""

import threading
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from functools import partial

import pytest

from stepwell import Limits, Rate, connect
from tests.crash.conftest import Scale
from tests.crash.site import Site, messages, void_unless
from tests.crash.workload import QUEUE
from tests.ground.databases import run_apart
from tests.ground.waiting import wait_for
from tests.limits.test_rates import SECOND, worst

LEASE = 2
RATE = Rate(50, "1s")
MOST_UNITS = 4


@pytest.mark.proves("LI-10", "LI-12", "promise-17")
@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process")
def test_a_rate_holds_in_every_window_while_a_worker_is_killed(
    site: Site, scale: Scale, measured: Callable[..., None]
) -> None:
    count, kills = scale.of(50, 3_000), scale.of(1, 20)
    run_apart(_limit(site.url))
    bodies = messages(count, seconds=0.1)
    site.enqueue([{**one, "units": _units(one["n"])} for one in bodies])
    with site.crew(2, lease=LEASE, concurrency=30) as crew, _watched(site) as begun:
        site.wait_for_sessions(crew)
        began = time.monotonic()
        for kill in range(1, kills + 1):
            wait_for(partial(_has, begun, kill * count // (kills + 2)), 60, message="enough that has begun")
            crew.kill_random()
            crew.respawn()
        site.wait_for_success(crew, count, scale.of(60, 900))
        seconds = time.monotonic() - began
    starts = sorted(begun.values())
    most, again = worst(starts, SECOND), len(starts) - count
    assert most <= RATE.count
    void_unless(most >= 0.8 * RATE.count, f"at most {most} began in a second")
    units = sum(cost for _, cost in starts)
    measured("rates", messages=count, kills=kills, again=again, units=units, most=most, seconds=seconds)


def _has(begun: Sized, count: int) -> bool:
    return len(begun) >= count


def _units(number: int) -> int:
    return 1 + number % MOST_UNITS


async def _limit(url: str) -> None:
    async with connect(url) as store:
        await store.create_queue(QUEUE)
        await store.limits.set(QUEUE, rate=RATE, cost=Limits(cost="units").cost)


@contextmanager
def _watched(site: Site) -> Iterator[dict[tuple[int, int], tuple[int, int]]]:
    """When each turn of each message was claimed, and what it costs, as the rows say; a turn stands there for long."""
    begun: dict[tuple[int, int], tuple[int, int]] = {}
    over = threading.Event()

    def look() -> None:
        asked = "select id, turn, claimed_at, cost from {task} where claimed_at is not null"
        begun.update({(task_id, turn): (at, cost) for task_id, turn, at, cost in site.tables.ask(asked)})

    def watch() -> None:
        while not over.wait(0.1):
            look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield begun
    finally:
        over.set()
        watcher.join()
        look()
