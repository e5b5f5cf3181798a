"""A receiver that fails, hangs, lies, and a publisher that is SIGKILLed between publishing and marking."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stepwell import Worker, connect
from tests.crash.conftest import Scale
from tests.crash.publisher import EVERY, FAULTS, SUBJECTS, TYPE, UNMARKED, fault_of, outbox
from tests.crash.site import LONG, Site, void_unless
from tests.ground.databases import run_apart
from tests.ground.ledger import Ledger
from tests.ground.processes import Crew
from tests.ground.waiting import wait_for


@pytest.mark.proves("O-01", "O-03", "O-04", "O-05", "O-10", "O-12", "O-13")
@pytest.mark.timeout(1800)
def test_every_event_arrives_under_one_id_and_in_the_order_of_its_subject(
    site: Site, backend: str, scale: Scale, measured: Callable[..., None]
) -> None:
    count = scale.of(3 * EVERY, 60 * EVERY)
    run_apart(_emit(site, count))
    began = time.monotonic()
    size = 1 if backend == "turso" else 2  # Turso serves one process
    with site.crew(size, module="tests.crash.publisher") as crew:
        longest = LONG * scale.of(1, 4)
        wait_for(lambda: _all_arrived(site, crew, count), longest, every=0.1, message=f"all\n{crew.complaints()}")
        crew.stop()
    seconds = time.monotonic() - began
    arrived, tried = site.witness.lines("arrived"), site.witness.lines("tried")
    _assert_one_id_each(arrived, count)
    _assert_order_of_subjects(arrived)
    _assert_others_go_on(tried, arrived)
    again = len(arrived) - count
    void_unless(again >= count * 2 // EVERY, f"only {again} events arrived twice: none was killed, or lied about")
    kills = sum(fault_of(n) == "kill" for n in range(count))
    measured("outbox", events=count, kills=kills, arrived_again=again, seconds=seconds)


async def _emit(site: Site, count: int) -> None:
    """Emit the events, each subject in the order of its numbers."""
    with Ledger(site.ledger) as ledger:
        async with connect(site.url) as store:
            await Worker(store, [outbox(ledger)]).drain()  # it registers itself
            for n in range(count):
                await store.emit(TYPE, n, subject=f"subject-{n % SUBJECTS}", ordered=True)


def _all_arrived(site: Site, crew: Crew, count: int) -> bool:
    """Whether each event has arrived, and once more if it was not marked the first time: the faults have landed."""
    crew.respawn()
    arrived = Counter(line["n"] for line in site.witness.lines("arrived"))
    return all(arrived[n] >= (2 if fault_of(n) in UNMARKED else 1) for n in range(count))


def _assert_one_id_each(arrived: Sequence[Any], count: int) -> None:
    ids = defaultdict[int, set[str]](set)
    for line in arrived:
        ids[line["n"]].add(line["id"])
    assert set(ids) == set(range(count))
    assert all(len(one) == 1 for one in ids.values())
    assert len({next(iter(one)) for one in ids.values()}) == count


def _assert_order_of_subjects(arrived: Sequence[Any]) -> None:
    first = defaultdict[str, list[int]](list)
    for line in arrived:
        if line["n"] not in first[line["subject"]]:
            first[line["subject"]].append(line["n"])
    assert all(numbers == sorted(numbers) for numbers in first.values())


def _assert_others_go_on(tried: Sequence[Any], arrived: Sequence[Any]) -> None:
    """While an event hung, events of other subjects arrived."""
    assert "hang" in FAULTS.values()
    went_on = 0
    for line in (one for one in tried if fault_of(one["n"]) == "hang"):
        own = [one["at"] for one in arrived if one["n"] == line["n"]]
        others = [one for one in arrived if line["at"] < one["at"] < min(own) and one["subject"] != line["subject"]]
        went_on += bool(others)
    assert went_on, "nothing arrived while an event hung"
