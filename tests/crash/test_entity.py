"""A run that restarts, signalled and asked by others while its workers are SIGKILLed: it receives each of them once."""

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from stepwell import Run, connect
from tests.crash.conftest import Scale
from tests.crash.entity import ENTITY, LAST, MOST, NUMBER, entity
from tests.crash.site import LONG, Site, void_unless
from tests.ground.databases import run_apart
from tests.ground.ledger import Ledger
from tests.ground.processes import Crew
from tests.ground.waiting import wait_for

MODULE = "tests.crash.entity"
LEASE = 2
SENDERS = 2
ASKERS = 1
KILL_EVERY = 0.7


@pytest.mark.proves("promise-01", "promise-15", "P-05", "P-06", "R-21")
@pytest.mark.timeout(600)
@pytest.mark.backends(
    "postgres", "sqlite", reason="Turso serves one process; the crash sweep cuts it off at every call"
)
def test_a_run_that_restarts_receives_every_acknowledged_signal_once(
    site: Site, scale: Scale, measured: Callable[..., None]
) -> None:
    count, seeds = scale.of(30, 200), scale.of((1,), (1, 2, 3))
    asks = scale.of(6, 50)
    began = time.monotonic()
    kills = generations = 0
    for seed in seeds:
        run, killed = _lived(site, scale, seed, count, asks)
        numbers = range(seed * 10_000, seed * 10_000 + count)
        _judge(site, run, list(numbers))
        _judge_answers(site, list(range(_asked_from(seed), _asked_from(seed) + asks)))
        void_unless(killed >= scale.of(2, 8), f"only {killed} of the workers that executed it were killed")
        void_unless(run.generation >= count // MOST, f"it restarted {run.generation} times only")
        kills, generations = kills + killed, generations + run.generation
    measured(
        "generations",
        entities=len(seeds),
        signals=len(seeds) * count,
        requests=len(seeds) * asks,
        generations=generations,
        kills=kills,
        seconds=time.monotonic() - began,
    )


def _judge(site: Site, run: Run[Any], numbers: list[int]) -> None:
    """Fail unless the ledger has one receipt of each number that was acknowledged, whatever the store says of it."""
    acknowledged = {line["n"] for line in site.witness.lines("acknowledged")}
    receipts: defaultdict[int, set[str]] = defaultdict(set)
    receivers: defaultdict[str, set[int]] = defaultdict(set)
    for line in site.witness.lines("noted"):
        receipts[line["n"]].add(line["key"])
        receivers[line["key"]].add(line["n"])
    assert acknowledged.issuperset(numbers), "the senders did not send all: void"
    lost = [n for n in numbers if n not in receipts]
    assert lost == [], f"{len(lost)} of {len(numbers)} acknowledged signals were never received"
    assert [n for n in numbers if len(receipts[n]) > 1] == [], "a signal was received twice"
    assert [key for key, taken in receivers.items() if len(taken) > 1] == [], "two steps have one key"
    assert run.output(int) == len(numbers)


def _judge_answers(site: Site, numbers: list[int]) -> None:
    """Fail unless each request was taken once, by whichever generation, and has the answer that was given to it."""
    replies = {line["n"]: line["reply"] for line in site.witness.lines("replied")}
    assert {n: replies.get(n) for n in numbers} == {n: 2 * n for n in numbers}
    receipts: defaultdict[int, set[str]] = defaultdict(set)
    for line in site.witness.lines("asked"):
        receipts[line["n"]].add(line["key"])
    assert [n for n in numbers if len(receipts[n]) != 1] == [], "a request was taken twice, or never"


def _asked_from(seed: int) -> int:
    return 500_000 + seed * 10_000


def _lived(site: Site, scale: Scale, seed: int, count: int, asks: int) -> tuple[Run[Any], int]:
    """One entity from its trigger to its end, and how many of the workers that executed it were killed."""
    key, each = f"entity-{seed}", count // SENDERS
    run_apart(_trigger(site, key))
    with ExitStack() as stack:
        workers = stack.enter_context(site.crew(3, seed=seed, module=MODULE, role="work", lease=LEASE))
        site.wait_for_sessions(workers)
        for first in range(seed * 10_000, seed * 10_000 + count, each):
            sending: dict[str, Any] = {
                "role": "send",
                "key": key,
                "first": first,
                "count": each,
                "seconds": scale.of(0.1, 0.15),
            }
            stack.enter_context(site.crew(1, module=MODULE, **sending))
        asking: dict[str, Any] = {"first": _asked_from(seed), "count": asks, "seconds": scale.of(0.4, 0.5)}
        stack.enter_context(site.crew(1, module=MODULE, role="ask", key=key, **asking))
        killed = _kill(site, workers, key, scale.of(3, 12))
        _wait_for(site, workers, lambda: _sent(site, key))
        run_apart(_end(site, key))
        _wait_for(site, workers, lambda: run_apart(_found(site, key)).finished_at is not None)
        workers.stop()
    return run_apart(_found(site, key)), killed


def _kill(site: Site, workers: Crew, key: str, most: int) -> int:
    """Kill whoever executes the entity, again and again while it is signalled."""
    killed = 0
    seen = len(site.witness.lines("noted"))
    while killed < most and not _sent(site, key):
        time.sleep(KILL_EVERY)
        noted = site.witness.lines("noted")
        victims = [one for one in workers.alive if len(noted) > seen and one.pid == noted[-1]["pid"]]
        for victim in victims:
            victim.end()
            killed, seen = killed + 1, len(noted)
        workers.respawn()
    return killed


def _wait_for(site: Site, workers: Crew, fact: Callable[[], bool]) -> None:
    wait_for(fact, LONG, every=0.2, message=f"the entity\n{workers.complaints()}")


def _sent(site: Site, key: str) -> bool:
    return len(site.witness.lines("sent", key=key)) == SENDERS + ASKERS


async def _trigger(site: Site, key: str) -> None:
    with Ledger(site.ledger) as ledger:
        async with connect(site.url) as store:
            await entity(ledger).trigger(0).options(key=key, require_worker="ignore").execute(store)


async def _found(site: Site, key: str) -> Run[Any]:
    async with connect(site.url) as store:
        run = await store.find_run(ENTITY, key)
        assert run is not None
        return run


async def _end(site: Site, key: str) -> None:
    async with connect(site.url) as store:
        run = await store.find_run(ENTITY, key)
        assert run is not None
        assert await store.signal(run.id, NUMBER, LAST)
