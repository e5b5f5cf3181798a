"""Races over processes: a signal against the end of its wait, a cancel against the end of its run.

Whatever the answer was, it is true: of the final state, and of every replay.
"""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from stepwell import RunStatus, connect
from tests.crash.conftest import Scale
from tests.crash.racing import NOTHING_CAME, WAITS, WORKS
from tests.crash.site import LONG, Site, void_unless
from tests.ground.databases import run_apart
from tests.ground.processes import Crew
from tests.ground.waiting import wait_for
from tests.queue.raw import ask

PROCESSES = pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process at a time")
MODULE = "tests.crash.racing"
Ends = dict[int, tuple[str, Any]]


@PROCESSES
@pytest.mark.proves("promise-15", "P-05", "P-06", "P-08", "protocol-05")
def test_a_signal_and_the_end_of_its_wait(
    site: Site, backend: str, scale: Scale, measured: Callable[..., None]
) -> None:
    count = scale.of(60, 2000 if backend == "postgres" else 500)
    seconds = _raced(site, count, role="signal", seconds=0.2)
    answers, ends = _answers(site, count), _ends(site, WAITS)
    saw: dict[int, set[int]] = {n: set() for n in range(count)}
    for line in site.witness.lines("saw"):
        saw[line["n"]].add(line["came"])
    taken = _taken(site)
    for n, answer in answers.items():
        status, output = ends[n]
        assert status == RunStatus.SUCCESS
        assert saw[n] == {output}, f"replays of run {n} saw {saw[n]}, and it returned {output}"
        assert output in (n, NOTHING_CAME)
        match answer:
            case "WOKE":
                assert output == n, f"signal {n} woke its wait, which returned that nothing came"
            case "KEPT":
                assert taken[n] is (output == n), f"signal {n} was kept, and is taken: {taken[n]}"
            case _:
                assert (answer, output) == ("TOO_LATE", NOTHING_CAME)
                assert n not in taken, f"signal {n} came too late, and is there"
    kinds = _both_sided(answers, scale, "WOKE", "KEPT", "TOO_LATE")
    measured("signal race", races=count, seconds=seconds, **kinds)


@PROCESSES
@pytest.mark.proves("promise-11", "L-11", "L-12", "L-14", "L-16", "protocol-05")
def test_a_cancel_and_the_end_of_its_run(site: Site, backend: str, scale: Scale, measured: Callable[..., None]) -> None:
    count = scale.of(60, 2000 if backend == "postgres" else 500)
    seconds = _raced(site, count, role="cancel", seconds=0.1)
    answers, ends = _answers(site, count), _ends(site, WORKS)
    at = {line["n"]: line["at"] for line in site.witness.lines("answer")}
    for n, answer in answers.items():
        status, output = ends[n]
        late = [line for line in site.witness.starts(n=n) if line["at"] > at[n]]
        match answer:
            case "CANCELLED":
                assert (status, output, late) == (RunStatus.CANCELLED, None, []), f"run {n} went on"
            case "REQUESTED":
                assert (status, output) == (RunStatus.CANCELLED, None), f"run {n} ended {status}"
            case _:
                assert (answer, status, output) == ("TOO_LATE", RunStatus.SUCCESS, 2), f"run {n} ended {status}"
    kinds = _both_sided(answers, scale, "CANCELLED", "REQUESTED", "TOO_LATE")
    measured("cancel race", races=count, seconds=seconds, **kinds)


def _raced(site: Site, count: int, *, role: str, seconds: float) -> float:
    """Let two processes race with the workers of two others, until every run has ended."""
    half = count // 2
    options: dict[str, Any] = {"role": role, "count": half, "seconds": seconds}
    run_apart(_install(site.url))
    began = time.monotonic()
    with ExitStack() as stack:
        workers = stack.enter_context(site.crew(2, module=MODULE, role="work"))
        _wait_for_workers(site, workers)
        racers = [stack.enter_context(site.crew(1, module=MODULE, first=first, **options)) for first in (0, half)]
        told = "\n".join(crew.complaints() for crew in (workers, *racers))
        wait_for(lambda: len(site.witness.lines("raced")) == 2, 3 * LONG, message=f"the races\n{told}")
        wait_for(lambda: _all_ended(site, count), LONG, every=0.25, message=f"the end of all runs\n{told}")
        workers.stop()
    return time.monotonic() - began


async def _install(url: str) -> None:
    async with connect(url):
        pass


def _wait_for_workers(site: Site, crew: Crew) -> None:
    wait_for(lambda: len(site.tables.sessions()) == crew.size, LONG, message=f"the workers\n{crew.complaints()}")


def _all_ended(site: Site, count: int) -> bool:
    statuses = site.tables.statuses()
    return statuses[RunStatus.SUCCESS] + statuses[RunStatus.CANCELLED] + statuses[RunStatus.ERROR] == count


def _answers(site: Site, count: int) -> dict[int, str]:
    answers = {line["n"]: line["answer"] for line in site.witness.lines("answer")}
    assert sorted(answers) == list(range(count))
    return answers


def _both_sided(answers: dict[int, str], scale: Scale, *kinds: str) -> Counter[str]:
    """How often there was each answer; void unless each was a tenth of them, or in a small run at least one."""
    counted = Counter(answers.values())
    least = scale.of(1.0, 0.1 * len(answers))
    void_unless(all(counted[kind] >= least for kind in kinds), f"one-sided races: {counted}")
    return Counter({kind.lower(): counted[kind] for kind in counted})


def _ends(site: Site, workflow: str) -> Ends:
    """How each run ended: its status and, of those that succeeded, what it returned."""

    async def read() -> Ends:
        ends: Ends = {}
        async with connect(site.url) as store:
            after: str | None = None
            while True:
                page: Any = await store.runs(workflow, limit=500, after=after)
                ends |= {int(run.key): (run.status, run.output(int) if run.output_text else None) for run in page}
                after = page.next
                if after is None:
                    return ends

    return run_apart(read())


def _taken(site: Site) -> dict[int, bool]:
    """Of each signal that is there, whether the wait has taken it."""

    async def read() -> dict[int, bool]:
        async with connect(site.url) as store:
            rows = await ask(store, "select cast(data as text), taken_by from {signal}")
            assert len({data for data, _ in rows}) == len(rows), "a signal was sent twice"
            return {int(data): taken_by is not None for data, taken_by in rows}

    return run_apart(read())
