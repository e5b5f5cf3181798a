"""Inputs of many clients, decided by workers that are SIGKILLed: each once, and in the order of their commits."""

import random
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from stepwell import Engine, connect
from tests.crash.conftest import Scale
from tests.crash.inbox import Lists
from tests.crash.site import LONG, Site, void_unless
from tests.ground.databases import run_apart
from tests.ground.processes import Crew
from tests.ground.waiting import wait_for

MODULE = "tests.crash.inbox"
LEASE = 2
KILL_EVERY = 0.7


@pytest.mark.proves("IN-02", "IN-03")
@pytest.mark.timeout(600)
@pytest.mark.backends(
    "postgres", "sqlite", reason="Turso serves one process; the crash sweep cuts it off at every call"
)
@pytest.mark.parametrize("together", [1, 0], ids=["taken along", "one by one"])
def test_every_instance_decides_its_inputs_once_and_in_the_order_of_their_commits(
    site: Site, scale: Scale, measured: Callable[..., None], together: int
) -> None:
    workers, clients, instances = scale.of(3, 5), scale.of(4, 10), scale.of(6, 20)
    count, kills, began = scale.of(40, 200), scale.of(2, 12), time.monotonic()
    with ExitStack() as stack:
        crew = stack.enter_context(site.crew(workers, module=MODULE, role="work", lease=LEASE, together=together))
        site.wait_for_sessions(crew)
        for who in range(clients):
            sending: dict[str, Any] = {"role": "submit", "who": who, "count": count, "instances": instances}
            stack.enter_context(site.crew(1, module=MODULE, **sending))
        killed = _kill(crew, kills)
        _wait_for(crew, lambda: len(site.witness.lines("sent")) == clients)
        _wait_for(crew, lambda: run_apart(_decided(site, instances)) == clients * count)
        crew.stop()
    void_unless(killed >= kills, f"only {killed} workers were killed")
    repaired = run_apart(_judge(site, instances))
    assert repaired == 0, "upkeep had to wake the first of a group"
    measured(
        "inbox",
        together=together,
        inputs=clients * count,
        instances=instances,
        kills=killed,
        seconds=time.monotonic() - began,
    )


def _kill(crew: Crew, most: int) -> int:
    """Kill workers while inputs come; the last kills may come after that."""
    chance, killed = random.Random(7), 0
    while killed < most:
        time.sleep(KILL_EVERY)
        chance.choice(list(crew.alive)).end()
        killed += 1
        crew.respawn()
    return killed


def _wait_for(crew: Crew, fact: Callable[[], bool]) -> None:
    wait_for(fact, 2 * LONG, every=0.2, message=f"the inputs\n{crew.complaints()}")


async def _decided(site: Site, instances: int) -> int:
    async with connect(site.url) as store:
        engine = Engine(store).register(Lists())
        return sum([await engine.state(Lists, str(place)) for place in range(instances)])


async def _judge(site: Site, instances: int) -> int:
    """Each acknowledged input once; none before one that was acknowledged when it was begun."""
    begun = {(line["who"], line["n"]): line for line in site.witness.lines("begun")}
    ended = {(line["who"], line["n"]): line for line in site.witness.lines("acknowledged")}
    asked = defaultdict[str, list[tuple[int, int]]](list)
    for name, line in ended.items():
        asked[line["place"]].append(name)
    async with connect(site.url) as store:
        engine = Engine(store).register(Lists())
        for place in map(str, range(instances)):
            came = [(one.event.who, one.event.n) for one in await engine.events("list", place)]
            assert sorted(came) == sorted(asked[place]), f"instance {place} lost or repeated an input"
            last = 0.0  # when the latest of those so far was begun
            for name in came:
                assert ended[name]["at"] >= last, f"{name} came after one that was begun when it was acknowledged"
                last = max(last, begun[name]["at"])
        return sum(one.repaired for one in await store.ordered_groups())
