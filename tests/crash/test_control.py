"""Cancel and pause from another process, under load: each branch begins at most one more step after the answer."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from signal import SIGKILL

import pytest

from stepwell import RunStatus, connect
from tests.crash.conftest import Scale
from tests.crash.site import LONG, Site, void_unless
from tests.crash.steering import BRANCHES, FAILS, SLEEPS, STEPS, TOO_LATE, undoes
from tests.ground.databases import run_apart
from tests.ground.ledger import Ledger
from tests.ground.processes import Crew, Member
from tests.ground.waiting import wait_for

PROCESSES = pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process at a time")
MODULE = "tests.crash.steering"
LEASE = 2
SUM = BRANCHES * sum(range(STEPS))
Answers = dict[int, tuple[str, float]]


@PROCESSES
@pytest.mark.proves("L-11", "L-12", "L-13", "P-02", "P-10")
@pytest.mark.timeout(600)
def test_each_branch_begins_at_most_one_more_step_after_the_answer(
    site: Site, backend: str, scale: Scale, measured: Callable[..., None]
) -> None:
    count, workers, within = (
        scale.of(16, 1000),
        scale.of(1, 2),
        {"sqlite": 0.5, "postgres": scale.of(0.5, 1.5)}[backend],
    )
    began = time.monotonic()
    run_apart(_install(site.url))
    with ExitStack() as stack:
        crew = stack.enter_context(site.crew(workers, module=MODULE, role="work"))
        wait_for(lambda: len(site.tables.sessions()) == workers, LONG, message=f"the workers\n{crew.complaints()}")
        steerer = stack.enter_context(site.crew(1, module=MODULE, role="steer", count=count, within=within))
        told = f"{crew.complaints()}\n{steerer.complaints()}"
        wait_for(lambda: site.witness.lines("steered"), 3 * LONG, message=f"all answers\n{told}")
        answers = {line["n"]: (line["answer"], line["at"]) for line in site.witness.lines("answer")}
        _wait_until_all_stand(site, crew, len(answers))
        late = _late(site, answers)
        assert max(late.values(), default=0) <= 1, f"a branch went on: {late.most_common(5)}"
        assert _ends(site) == {n: _wanted(n, answer) for n, (answer, _) in answers.items()}
        paused = [line["run"] for line in site.witness.lines("answer", answer="True")]
        run_apart(_let_go(site.url, paused))
        wait_for(lambda: site.tables.statuses()["PAUSED"] == 0, LONG, message="the end of those that were let go")
        wait_for(lambda: _wanted_at_last(site, answers), LONG, every=0.25, message=f"{_ends(site)}")
        crew.stop()
    kinds = Counter(answer for answer, _ in answers.values())
    begun = _begun(site)
    under_way = [n for n, (answer, at) in answers.items() if answer in ("REQUESTED", "True") and begun.get(n, at) < at]
    cancelled = kinds["REQUESTED"] + kinds["CANCELLED"]
    void_unless(min(cancelled, kinds["True"]) >= count / 2, f"too few were stopped in time: {kinds}")
    void_unless(len(under_way) >= count / 4, f"few runs were steered while they worked: {kinds}, {len(under_way)}")
    void_unless(not scale.is_full or late, "no run had a late step: nothing was measured")
    measured(
        "control",
        cancelled=cancelled,
        paused=kinds["True"],
        too_late=sum(kinds[one] for one in TOO_LATE),
        branches=BRANCHES,
        late=len(late),
        late_runs=len({n for n, _ in late}),
        seconds=time.monotonic() - began,
    )


@PROCESSES
@pytest.mark.proves("L-13", "L-15")
def test_a_cleanup_survives_killed_workers_failed_undos_and_sleep(
    site: Site, scale: Scale, measured: Callable[..., None]
) -> None:
    count, kills = scale.of(9, 150), scale.of(2, 20)
    run_apart(_install(site.url))
    with site.crew(2, module=MODULE, role="work", lease=LEASE, concurrency=count) as crew:
        wait_for(lambda: len(site.tables.sessions()) == 2, LONG, message=f"the workers\n{crew.complaints()}")
        run_ids = run_apart(_triggered(site, count))
        wait_for(lambda: len(_numbers(site, "reserved")) == count, LONG, message=f"the runs\n{crew.complaints()}")
        wait_for(lambda: _asleep(site) >= count // 3, LONG, message="those that sleep to be given back")
        began = time.monotonic()
        assert set(run_apart(_cancelled(site.url, run_ids))) == {"REQUESTED"}
        for _ in range(kills):
            undoing = wait_for(lambda: _at_an_undo(site, crew), LONG, every=0.01, message="an undo to be killed")
            undoing[0].signal(SIGKILL)
            crew.respawn()
        wait_for(
            lambda: site.tables.statuses() == {"CANCELLED": count},
            2 * LONG,
            every=0.25,
            message=f"all to be cancelled, but {site.tables.statuses()}\n{crew.complaints()}",
        )
        seconds = time.monotonic() - began
    assert _numbers(site, "undone") == set(range(count)), "a cleanup was lost"
    assert site.witness.lines("paid") == [], "a run went on after its cleanup"
    failed = {line["n"] for line in site.witness.lines("undo", attempt=2)} & set(range(FAILS, count, 3))
    again = [n for n in range(count) if len(site.witness.lines("undo", n=n, attempt=1 + (n in failed))) > 1]
    void_unless(failed == set(range(FAILS, count, 3)), "an undo did not fail")
    void_unless(again, "no undo was cut off by a kill")
    cut = len(again)
    measured("cleanup", runs=count, kills=kills, failed=len(failed), slept=_third(count), again=cut, seconds=seconds)


def _third(count: int) -> int:
    return len(range(SLEEPS, count, 3))


def _numbers(site: Site, phase: str) -> set[int]:
    return {line["n"] for line in site.witness.lines(phase)}


def _asleep(site: Site) -> int:
    return site.tables.statuses()["PENDING"]


def _at_an_undo(site: Site, crew: Crew) -> list[Member]:
    """Those of the crew that have begun an undo, one that will not fail, and have not ended it."""
    undone = _numbers(site, "undone")
    lines = [line for line in site.witness.lines("undo") if line["n"] % 3 != FAILS or line["attempt"] > 1]
    pids = {line["pid"] for line in lines if line["n"] not in undone}
    return [member for member in crew.alive if member.pid in pids]


async def _triggered(site: Site, count: int) -> list[int]:
    with Ledger(site.ledger) as ledger:
        flow = undoes(ledger)
    async with connect(site.url) as store:
        return [await flow.trigger(n).execute(store) for n in range(count)]


async def _cancelled(url: str, run_ids: list[int]) -> list[str]:
    async with connect(url) as store:
        return [str(await store.cancel(run_id)) for run_id in run_ids]


def _late(site: Site, answers: Answers) -> Counter[tuple[int, int]]:
    """How many steps each branch of each run began after the answer to whoever stopped it."""
    stopped = {n: at for n, (answer, at) in answers.items() if answer not in TOO_LATE}
    return Counter(
        (line["n"], line["branch"]) for line in site.witness.starts() if line["at"] > stopped.get(line["n"], line["at"])
    )


def _begun(site: Site) -> dict[int, float]:
    """When the first step of each run began."""
    return {line["n"]: line["at"] for line in sorted(site.witness.starts(), key=lambda line: -line["at"])}


def _wanted(n: int, answer: str) -> str:
    match answer:
        case "True":
            return RunStatus.PAUSED
        case "REQUESTED" | "CANCELLED":
            return RunStatus.CANCELLED
        case _:
            assert answer == ("False" if n % 2 else "TOO_LATE"), answer
            return RunStatus.SUCCESS


def _wanted_at_last(site: Site, answers: Answers) -> bool:
    wanted = {n: RunStatus.SUCCESS if n % 2 else _wanted(n, answer) for n, (answer, _) in answers.items()}
    return _ends(site) == wanted and {output for (output,) in _outputs(site)} == {str(SUM)}


def _ends(site: Site) -> dict[int, str]:
    found = site.tables.ask("select key, status from {task} where kind = 'RUN'")
    return {int(key): status for key, status in found}


def _outputs(site: Site) -> list[tuple[str]]:
    found = site.tables.ask("select distinct cast(output as text) from {task} where status = 'SUCCESS'")
    return [(str(output),) for (output,) in found]


def _wait_until_all_stand(site: Site, crew: Crew, count: int) -> None:
    def stand() -> bool:
        statuses = site.tables.statuses()
        return sum(statuses.values()) == count and statuses["RUNNING"] == statuses["PENDING"] == 0

    wait_for(stand, LONG, every=0.25, message=f"all to stand still, but {site.tables.statuses()}\n{crew.complaints()}")


async def _install(url: str) -> None:
    async with connect(url):
        pass


async def _let_go(url: str, run_ids: list[int]) -> None:
    async with connect(url) as store:
        for run_id in run_ids:
            assert await store.unpause(run_id)
