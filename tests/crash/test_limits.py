"""Workers are SIGKILLed all the time, and no more of a limited queue runs at once than its limits say."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from stepwell import Limits, connect
from tests.crash.conftest import Scale
from tests.crash.site import LONG, Site, messages, void_unless
from tests.crash.witness import executed_more_than_once
from tests.crash.workload import QUEUE
from tests.ground.databases import run_apart
from tests.ground.ledger import Ledger
from tests.ground.processes import Crew, Member
from tests.ground.waiting import wait_for

LEASE = 2
KILL_EVERY = 0.6
KEYS = 5
PRODUCERS = 3
BOTH = Limits(running=6, per_key=2, key="tenant")


@pytest.mark.proves("LI-01", "LI-02", "LI-06", "promise-17")
@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process")
@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(Limits(running=10), id="10 in all", marks=pytest.mark.soak),
        pytest.param(Limits(per_key=3, key="tenant"), id="3 a key", marks=pytest.mark.soak),
        pytest.param(BOTH, id="both"),
    ],
)
def test_limits_hold_while_workers_are_killed(
    site: Site, scale: Scale, limits: Limits, measured: Callable[..., None]
) -> None:
    processes, count = scale.of(3, 4), scale.of(100, 2_000)
    run_apart(_limit(site.url, limits))
    site.enqueue([{**one, "tenant": f"tenant-{one['n'] % KEYS}"} for one in messages(count, seconds=0.15)])
    with site.crew(processes, lease=LEASE, concurrency=10) as crew, _watched(site) as seen:
        site.wait_for_sessions(crew)
        began = time.monotonic()
        _kill_until_all_ended(site, crew, count, deadline=began + scale.of(60, 900))
        site.wait_for_success(crew, count)
        seconds = time.monotonic() - began
    site.assert_each_acknowledged_once(count)
    most, most_of_a_key = _most_at_once(site)
    assert most <= (limits.running or count)
    assert most_of_a_key <= (limits.per_key or count)
    assert max(seen) <= (limits.running or count), "by the rows of the database"
    again = executed_more_than_once(site.witness.executions())
    void_unless(again and len(crew.killed) > 2, f"{len(crew.killed)} kills, and {again} messages were executed again")
    void_unless(most == limits.running or most_of_a_key == limits.per_key, f"at most {most} ran at once")
    measured("limits", limits=str(limits), messages=count, kills=len(crew.killed), again=again, most=most,
             most_of_a_key=most_of_a_key, looks=seen.total(), seconds=seconds)  # fmt: skip


@pytest.mark.proves("LI-18")
@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process")
def test_each_key_is_in_order_while_workers_are_killed(site: Site, scale: Scale, measured: Callable[..., None]) -> None:
    processes, each = scale.of(3, 4), scale.of(20, 300)
    run_apart(_limit(site.url, Limits(running=KEYS, key="tenant", ordered=True)))
    producers = [threading.Thread(target=run_apart, args=(_produce(site, first, each),)) for first in range(PRODUCERS)]
    with site.crew(processes, lease=LEASE, concurrency=10) as crew:
        site.wait_for_sessions(crew)
        for producer in producers:
            producer.start()
        _kill_until_all_ended(site, crew, PRODUCERS * each, deadline=time.monotonic() + scale.of(60, 900))
        for producer in producers:
            producer.join()
        site.wait_for_success(crew, PRODUCERS * each)
    overtaken, pairs = _overtaken(Ledger(site.ledger).read())
    assert not overtaken, f"of {pairs} pairs these began before what was committed before them had ended"
    again = executed_more_than_once(site.witness.executions())
    landed = len(crew.killed) > 1 and pairs > each and (again or not scale.is_full)
    void_unless(landed, f"{len(crew.killed)} kills, {again} executed again, {pairs} pairs in order")
    measured("order of keys", messages=PRODUCERS * each, pairs=pairs, kills=len(crew.killed), again=again)


async def _produce(site: Site, first: int, count: int) -> None:
    """Add messages one after the other; note in the ledger when each began to be added, and when it was committed."""
    ledger = Ledger(site.ledger)
    async with connect(site.url) as store:
        for n in range(first, count * PRODUCERS, PRODUCERS):
            ledger.write(phase="adding", added=n)
            await store.enqueue(QUEUE, {"n": n, "seconds": 0.1, "tenant": f"tenant-{n % KEYS}"}, max_attempts=20)
            ledger.write(phase="added", added=n)


def _overtaken(lines: Iterable[dict[str, Any]]) -> tuple[list[tuple[int, int]], int]:
    """Pairs of one key of which the second began though the first, committed before it was added, had not ended."""
    committed: dict[int, list[int]] = {key: [] for key in range(KEYS)}
    before: dict[int, list[int]] = {}
    ended, begun, wrong = set[int](), set[int](), list[tuple[int, int]]()
    for line in lines:
        match line["phase"]:
            case "adding":
                before[line["added"]] = list(committed[line["added"] % KEYS])
            case "added":
                committed[line["added"] % KEYS].append(line["added"])
            case "start":
                wrong += [(first, line["n"]) for first in before[line["n"]] if first not in ended]
                later = (n for n in begun if line["n"] in before[n])
                wrong += [(line["n"], n) for n in later]
                begun.add(line["n"])
            case "end":
                ended.add(line["n"])
    return wrong, sum(map(len, before.values()))


async def _limit(url: str, limits: Limits) -> None:
    async with connect(url) as store:
        await store.create_queue(QUEUE)
        said = {name: getattr(limits, name) for name in ("running", "per_key", "key")}
        await store.limits.set(QUEUE, **said, ordered=limits.ordered or None)


def _kill_until_all_ended(site: Site, crew: Crew, count: int, deadline: float) -> None:
    ledger = Ledger(site.ledger)
    while len(site.witness.ended()) < count:
        dead = crew.kill_random()
        wait_for(partial(_is_dead, crew, dead), LONG, every=0.002, message="the death of a worker")
        ledger.write(phase="killed", victim=dead.pid)  # what it had under way has ended before this line
        crew.respawn()
        assert time.monotonic() < deadline, f"{len(site.witness.ended())} of {count} in time\n{crew.complaints()}"
        time.sleep(KILL_EVERY)


def _is_dead(crew: Crew, member: Member) -> bool:
    return member not in crew.alive


@contextmanager
def _watched(site: Site) -> Iterator[Counter[int]]:
    """How often the database was seen to have so many tasks under way."""
    seen, over = Counter[int](), threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            seen[site.tables.statuses()["RUNNING"]] += 1

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def _most_at_once(site: Site) -> tuple[int, int]:
    """How many bodies were under way at once, in all and of one key, by the lines of the ledger in their order."""
    under_way: dict[tuple[int, int, int], int] = {}
    most = most_of_a_key = 0
    for line in Ledger(site.ledger).read():
        match line["phase"]:
            case "start":
                under_way[line["pid"], line["n"], line["turn"]] = line["n"] % KEYS
            case "end" | "stopped":
                under_way.pop((line["pid"], line["n"], line["turn"]), None)
            case "killed":
                under_way = {place: key for place, key in under_way.items() if place[0] != line["victim"]}
        most = max(most, len(under_way))
        most_of_a_key = max([most_of_a_key, *Counter(under_way.values()).values()])
    return most, most_of_a_key
