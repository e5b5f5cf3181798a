"""Workers are SIGKILLed while they execute workflows: no run is lost, and no step that was recorded runs again."""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from stepwell import RunStatus, connect
from tests.crash.conftest import Scale
from tests.crash.pipeline import STEPS, WORKFLOW, pipeline
from tests.crash.site import LONG, Site, void_unless
from tests.crash.witness import Line
from tests.ground.databases import run_apart
from tests.ground.ledger import Ledger
from tests.ground.processes import Crew
from tests.ground.waiting import wait_for

LEASE = 2
KILL_EVERY = 0.5
LEAST_HIT = 0.02  # the share of steps that must have been executed more than once

Marks = dict[int, list[str]]


@pytest.mark.proves("W-14", "R-06", "R-15", "S-04", "promise-01", "promise-02")
@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process; the crash sweep kills it at every call")
def test_workers_killed_every_half_second_lose_no_run_and_repeat_no_recorded_step(
    site: Site, scale: Scale, measured: Callable[..., None]
) -> None:
    count, lasts = scale.of(40, 500), scale.of(4.0, 60.0)
    _trigger(site, count, scale.of(0.2, 0.1))
    # Eight at once: whatever dies with others is executed alone afterwards, and that is what most of the time is for.
    with site.crew(4, module="tests.crash.pipeline", lease=LEASE, concurrency=8) as crew:
        site.wait_for_sessions(crew)
        began = time.monotonic()
        _kill(site, crew, count, began + lasts)
        wait_for(lambda: _finished(site) == count, 2 * LONG, every=0.25, message=f"all runs\n{crew.complaints()}")
        seconds = time.monotonic() - began
    again = _judge(_results(site, count), site.witness.starts(), site.witness.ends(), count)
    void_unless(again >= LEAST_HIT * count, f"only {again} steps of {count} runs were executed more than once")
    measured("kill runs", runs=count, kills=len(crew.killed), steps_executed_again=again, seconds=seconds)


def _judge(results: Marks, starts: list[Line], ends: list[Line], count: int) -> int:
    """Fail unless the ledger agrees with what was recorded; how many steps were executed more than once."""
    assert sorted(results) == list(range(count)), "a run was lost"
    ended = {(line["n"], line["place"], line["mark"]) for line in ends}
    by_step: defaultdict[tuple[int, int], list[Line]] = defaultdict(list)
    for line in starts:
        by_step[line["n"], line["place"]].append(line)
    for n, marks in results.items():
        for place, mark in enumerate(marks):
            assert (n, place, mark) in ended, f"step {place} of run {n} has a result that no body returned"
            before = "begin" if place == 0 else marks[place - 1]
            assert {line["before"] for line in by_step[n, place]} == {before}, "a replay got another result"
            recorded = min((line["at"] for line in by_step.get((n, place + 1), ())), default=float("inf"))
            late = [line for line in by_step[n, place] if line["at"] > recorded]
            assert late == [], f"step {place} of run {n} was executed again after it was recorded: {late}"
    return sum(len(lines) > 1 for lines in by_step.values())


def _trigger(site: Site, count: int, seconds: float) -> None:
    async def write() -> None:
        with Ledger(site.ledger) as ledger:
            run = pipeline(ledger)
        async with connect(site.url) as store:
            triggers = [run.trigger(n, seconds).options(key=str(n), require_worker="ignore") for n in range(count)]
            await store.trigger_many(triggers)

    run_apart(write())


def _kill(site: Site, crew: Crew, count: int, until: float) -> None:
    """Kill on schedule while there is something left to do."""
    following = time.monotonic()
    while time.monotonic() < until and len(site.witness.ends(place=STEPS - 1)) < count:
        crew.kill_random()
        crew.respawn()
        following += KILL_EVERY
        time.sleep(max(0.0, following - time.monotonic()))


def _finished(site: Site) -> int:
    statuses = site.tables.statuses()
    assert statuses[RunStatus.ERROR] == 0, "a run failed"
    return int(statuses[RunStatus.SUCCESS])


def _results(site: Site, count: int) -> Marks:
    async def read() -> Marks:
        found: Marks = {}
        async with connect(site.url) as store:
            after: str | None = None
            while True:
                page: Any = await store.runs(WORKFLOW, limit=500, after=after)
                found |= {int(run.key): run.output(list[str]) for run in page}
                after = page.next
                if after is None:
                    return found

    return run_apart(read())
