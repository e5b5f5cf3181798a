"""Workers are killed and frozen around the commit of a step: its rows and its record agree, and none is there twice."""

import itertools
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stepwell import Reason, connect
from tests.crash.committer import ONCE, OWN, POINTS, VIA, WORKFLOW, Stops, committer
from tests.crash.conftest import Scale
from tests.crash.site import LONG, Site, void_unless
from tests.ground.databases import run_apart
from tests.ground.ledger import Ledger
from tests.ground.waiting import wait_for

LEASE = 3.0
RUNS = 50


class Case(NamedTuple):
    """Whose transaction it is, where its worker is stopped, and how."""

    via: str
    point: str
    ends: signal.Signals

    def __str__(self) -> str:
        return f"{self.via} {self.point} {self.ends.name}"


FEW = (Case(OWN, POINTS[2], signal.SIGKILL), Case(OWN, POINTS[1], signal.SIGSTOP))
MANY = [
    Case(*case)
    for case in itertools.product(
        dict.fromkeys([OWN, *VIA["postgres"], *VIA["sqlite"]]), POINTS, (signal.SIGKILL, signal.SIGSTOP)
    )
    if case[:2] != ("django", POINTS[2])  # Django commits in a block of its own
]
JOINED = pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process: there is no successor")


@pytest.mark.proves("promise-06")
@JOINED
@pytest.mark.parametrize("case", FEW, ids=str)
@pytest.mark.timeout(300)
def test_a_worker_is_stopped_around_the_commit_of_a_step(site: Site, backend: str, case: Case) -> None:
    stopped_at(site, backend, case, runs=1, at_once=1)


@pytest.mark.soak
@pytest.mark.proves("promise-06")
@JOINED
@pytest.mark.parametrize("case", MANY, ids=str)
@pytest.mark.timeout(1800)
def test_many_workers_are_stopped_around_the_commit_of_a_step(
    site: Site, backend: str, scale: Scale, case: Case, measured: Callable[..., None]
) -> None:
    if case.via not in (OWN, *VIA[backend]):
        pytest.skip("a library for another database")
    at_once = 10 if backend == "postgres" or case.point == POINTS[2] else 1
    runs = scale.of(10, RUNS)
    stopped_at(site, backend, case, runs=runs, at_once=at_once)
    measured("commits", case=str(case), runs=runs)


def stopped_at(site: Site, backend: str, case: Case, *, runs: int, at_once: int) -> None:
    """Stop the workers of these runs there, let others go on, and look at what is there."""
    run_apart(_install(site.url))
    for first in range(0, runs, at_once):
        numbers = range(first, min(first + at_once, runs))
        _trigger(site, numbers)
        _round(site, backend, case, numbers)
    tokens = {int(n): token for n, token in site.tables.ask("select n, token from written")}
    assert len(site.tables.ask("select n from written")) == runs, "a row is there twice, or not at all"
    assert run_apart(_outputs(site.url)) == tokens, "rows and records do not agree"


def _round(site: Site, backend: str, case: Case, numbers: range) -> None:
    via, point, ends = case
    options: dict[str, Any] = {"module": "tests.crash.committer", "lease": LEASE, "via": via}
    gate = site.folder / f"gate-{numbers.start}"
    # Frozen with the only writer, or with a lock in a transaction that no server ends, it keeps its turn.
    keeps = ends == signal.SIGSTOP and point != POINTS[2] and (backend == "sqlite" or via != OWN)
    with site.crew(len(numbers), stop=point, gate=gate, **options) as stopped:
        wait_for(lambda: _at(site) >= set(numbers), LONG, message=f"bodies {point}\n{stopped.complaints()}")
        for worker in stopped.members:
            worker.signal(ends)
        gate.touch()
        with site.crew(1, **options) as successor:
            if keeps:
                time.sleep(1.5 * LEASE)
            else:
                _wait_for_success(site, numbers, successor.complaints)
            if ends == signal.SIGSTOP:
                for worker in stopped.members:
                    worker.signal(signal.SIGCONT)
            _wait_for_success(site, numbers, successor.complaints)


@pytest.mark.proves("promise-07", "S-29")
@JOINED
@pytest.mark.timeout(300)
def test_a_body_at_most_once_never_begins_twice_whoever_is_killed(site: Site, scale: Scale) -> None:
    runs = scale.of(2, RUNS)
    run_apart(_install(site.url))
    _trigger(site, range(runs))
    options: dict[str, Any] = {"module": "tests.crash.committer", "lease": LEASE, "via": ONCE}
    for n in range(runs):
        gate = site.folder / f"gate-{n}"
        with site.crew(1, stop=POINTS[0], gate=gate, **options) as killed:
            wait_for(lambda n=n: len(_at(site)) > n, LONG, message=f"a body\n{killed.complaints()}")  # type: ignore[misc]
            killed.members[0].signal(signal.SIGKILL)
    with site.crew(1, **options) as successor:
        waiting = "select count(*) from {task} where kind = 'RUN' and status = 'PAUSED'"
        wait_for(
            lambda: site.tables.ask(waiting)[0][0] == runs, LONG, message=f"all in doubt\n{successor.complaints()}"
        )
        run_apart(_resolve(site.url, runs))
        _wait_for_success(site, range(runs), successor.complaints)
    starts = Counter(line["n"] for line in site.witness.lines("start"))
    void_unless(len(starts) == runs, "not every body has begun")
    assert set(starts.values()) == {1}, "a body has begun twice"


def _at(site: Site) -> set[int]:
    return {line["n"] for line in site.witness.lines("at")}


def _wait_for_success(site: Site, numbers: range, complaints: Callable[[], str]) -> None:
    def done() -> bool:
        question = "select count(*) from {task} where kind = 'RUN' and status = 'SUCCESS'"
        return bool(site.tables.ask(question)[0][0] >= numbers.stop)

    wait_for(done, LONG, every=0.1, message=f"{numbers.stop} runs to succeed\n{complaints()}")


def _trigger(site: Site, numbers: range) -> None:
    async def write() -> None:
        with Ledger(site.ledger) as ledger:
            run = committer(Stops(ledger, "", Path("/nowhere")), OWN, site.url)
        async with connect(site.url) as store:
            for n in numbers:
                await run.trigger(n).options(require_worker="ignore").execute(store)

    run_apart(write())


async def _outputs(url: str) -> dict[int, str]:
    async with connect(url) as store:
        return {int(run.input()): run.output(str) for run in await store.runs(limit=RUNS)}


async def _resolve(url: str, runs: int) -> None:
    async with connect(url) as store:
        for run in await store.runs(limit=runs):
            assert (await store.why(run.id)).reason is Reason.STEP_IN_DOUBT
            await store.resolve(run.id, "act", done=True, value="found")


async def _install(url: str) -> None:
    async with connect(url) as store:
        await store.create_workflow(WORKFLOW)
        async with store.transaction() as tx:
            await tx.execute("create table written (n bigint not null, token text not null)")
