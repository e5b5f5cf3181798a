"""A worker is frozen beyond its lease in a transaction of a step: its rows are there once, its successor goes on."""

import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell import connect
from tests.crash.conftest import Scale
from tests.crash.site import LONG, Site, void_unless
from tests.crash.zombie import OUT, POINTS, WORKFLOW, zombie
from tests.ground.databases import run_apart
from tests.ground.ledger import Ledger
from tests.ground.processes import Member
from tests.ground.waiting import wait_for

LEASE = 3.0
AT_ONCE = 10  # runs that are frozen together; one where there is one writer


@pytest.mark.proves("L-09", "promise-04")
@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process: there is no successor")
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.timeout(900)
def test_what_is_frozen_in_a_transaction_writes_nothing_late_and_holds_nobody_up(
    site: Site, backend: str, scale: Scale, point: str, measured: Callable[..., None]
) -> None:
    many = backend == "postgres" or point == POINTS[0]
    at_once = scale.of(2, AT_ONCE) if many else 1
    runs = scale.of(2 if many else 1, 50)
    run_apart(_install(site.url))
    done_meanwhile = refused = 0
    for first in range(0, runs, at_once):
        done, late = _round(site, point, range(first, first + at_once), frozen_writer=not many)
        done_meanwhile, refused = done_meanwhile + done, refused + late
    rows, messages = _written(site)
    assert rows == messages == dict.fromkeys(range(runs), 1), "a row or a message is there twice, or not at all"
    if many:
        assert done_meanwhile == runs, "a successor was held up by a frozen transaction"
        void_unless(refused == runs, f"only {refused} of {runs} late transactions were tried")
    measured("zombie", point=point, runs=runs, done_meanwhile=done_meanwhile, refused=refused)


def _round(site: Site, point: str, numbers: range, *, frozen_writer: bool) -> tuple[int, int]:
    """Freeze a worker that has these under way; how many others have done meanwhile, and how many were refused."""
    gate = site.folder / f"gate-{numbers.start}"
    _trigger(site, numbers)
    options: dict[str, Any] = {"module": "tests.crash.zombie", "lease": LEASE, "concurrency": len(numbers)}
    with site.crew(1, stop=point, gate=gate, **options) as frozen:
        [worker] = frozen.members
        wait_for(lambda: _at(site, numbers), LONG, message=f"bodies at {point}\n{frozen.complaints()}")
        if frozen_writer:
            worker.signal(signal.SIGSTOP)
        else:
            site.freeze(worker)  # not in a write of another kind: on SQLite nobody could go on
        gate.touch()
        with site.crew(1, **options) as successor:
            done = 0
            if frozen_writer:  # nobody else can write, or even find it dead
                time.sleep(1.5 * LEASE)
            else:
                done = _wait_for_success(site, numbers)
            worker.signal(signal.SIGCONT)
            wait_for(lambda: _left(site, worker, numbers), LONG, message=f"its end\n{frozen.complaints()}")
            _wait_for_success(site, numbers, successor.complaints)
    return done, len([line for line in site.witness.lines("refused", pid=worker.pid) if line["n"] in numbers])


def _at(site: Site, numbers: range) -> bool:
    return {line["n"] for line in site.witness.lines("at")} >= set(numbers)


def _left(site: Site, worker: Member, numbers: range) -> bool:
    """Whether every body of the frozen worker has come to its end, good or bad."""
    ends = {line["n"] for phase in ("end", "refused") for line in site.witness.lines(phase, pid=worker.pid)}
    return ends >= set(numbers)


def _wait_for_success(site: Site, numbers: range, complaints: Callable[[], str] = str) -> int:
    """Wait until the runs so far have succeeded; how many of these there are."""

    def done() -> bool:
        question = "select count(*) from {task} where kind = 'RUN' and status = 'SUCCESS'"
        return bool(site.tables.ask(question)[0][0] >= numbers.stop)

    wait_for(done, LONG, every=0.1, message=f"{numbers.stop} runs to succeed\n{complaints()}")
    return len(numbers)


def _written(site: Site) -> tuple[dict[int, int], dict[int, int]]:
    """How often each row and each message is there."""
    rows = Counter(int(n) for (n,) in site.tables.ask("select n from written"))
    messages = Counter(int(text) for (text,) in site.tables.ask("select input from {task} where kind = 'MESSAGE'"))
    return dict(rows), dict(messages)


def _trigger(site: Site, numbers: range) -> None:
    async def write() -> None:
        with Ledger(site.ledger) as ledger:
            run = zombie(None, ledger, "", Path("/nowhere"))
        async with connect(site.url) as store:
            for n in numbers:
                await run.trigger(n).execute(store)

    run_apart(write())


async def _install(url: str) -> None:
    async with connect(url) as store:
        await store.create_workflow(WORKFLOW)
        await store.create_queue(OUT)
        async with store.transaction() as tx:
            await tx.execute("create table written (n bigint not null)")
