"""Projections whose workers are SIGKILLed and frozen under unruly writers: each event counts once, in order."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stepwell import Store, Worker, connect
from tests.crash.conftest import Scale
from tests.crash.reader import FREEZE, engine_of
from tests.crash.site import LONG, Site, void_unless
from tests.ground.databases import run_apart
from tests.ground.postgres import PostgresServer
from tests.ground.processes import Crew
from tests.ground.waiting import until, wait_for

MODULE = "tests.crash.reader"
KILL_EVERY = 0.5


@pytest.fixture
def place(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """A fresh store; on Postgres on a server of its own, which allows prepared transactions."""
    if backend != "postgres":
        yield Site(request.getfixturevalue("store_url"), tmp_path)
        return
    with PostgresServer(max_prepared_transactions="30") as server:
        yield Site(server.url(), tmp_path)


@pytest.mark.proves("PJ-02", "PJ-03", "PJ-04", "PJ-05", "PJ-08", "PJ-15", "promise-09", "rule-26", "protocol-13")
@pytest.mark.timeout(900)
def test_each_event_is_applied_once_and_in_order_while_workers_are_killed_and_frozen(
    place: Site, scale: Scale, backend: str, measured: Callable[..., None]
) -> None:
    count = scale.of(200, 20_000 if backend == "postgres" else 2_000)
    most = scale.of(2 if backend == "postgres" else 1, 20)
    began = time.monotonic()
    run_apart(_begun(place))
    alone = backend == "turso"  # it serves one process, which writes and projects
    with ExitStack() as stack:
        options = {"role": "both", "count": count} if alone else {"role": "project"}
        pause, lease = scale.of(0.002, 0.001), scale.of(1, 2)
        readers = stack.enter_context(place.crew(1 if alone else 2, module=MODULE, lease=lease, pause=pause, **options))
        if not alone:
            place.wait_for_sessions(readers)
            stack.enter_context(place.crew(1, module=MODULE, role="write", count=count, rest=scale.of(0.25, 0.03)))
        taken = _kill(place, readers, most)
        frozen = 0.0 if alone else _freeze(place, readers, backend, lease)
        wait_for(lambda: place.witness.lines("written"), 10 * LONG, message=readers.complaints())
        if alone:
            readers.close()
        else:
            wait_for(lambda: run_apart(_lag(place)) == 0, LONG, every=0.3, message=readers.complaints())
            readers.stop()
    events = run_apart(_judged(place))
    void_unless(events >= count, f"only {events} events were written")
    void_unless(len(taken) >= most, f"only {len(taken)} workers were killed at work")
    measured(
        "projections",
        events=events,
        kills=len(taken),
        frozen=frozen,
        lease=lease,
        fastest=min(taken),
        slowest=max(taken),
        kinds=len({line["kind"] for line in place.witness.lines("wrote")}) or 1,
        seconds=time.monotonic() - began,
    )


async def _begun(place: Site) -> None:
    """Begin both projections and a second build of each, which is driven under the same kills."""
    async with connect(place.url) as store:
        await Worker(store, [engine_of(store)]).drain()
        for name in ("applied", "totals"):
            await store.rebuild_projection(name)


def _freeze(place: Site, readers: Crew, backend: str, lease: float) -> float:
    """Have a worker stop itself inside its transaction; go on when another has taken over, or where none can, later."""
    place.open_gate(FREEZE)
    wait_for(lambda: place.witness.lines("frozen"), LONG, message=f"a frozen worker\n{readers.complaints()}")
    [line] = place.witness.lines("frozen")
    if backend == "postgres":
        wait_for(lambda: _after(place, line), LONG, message=f"another goes on\n{readers.complaints()}")
    else:
        time.sleep(1.5 * lease)  # it has the file's only write lock
    os.kill(line["pid"], signal.SIGCONT)
    wait_for(lambda: place.witness.lines("continued"), LONG, message="it goes on")
    later = _after(place, line)
    return later[0]["at"] - line["at"] if later else 0.0


def _after(place: Site, moment: dict[str, Any]) -> list[dict[str, Any]]:
    """What another process has handled since, of the live build."""
    handled = place.witness.lines("handled", table="applied")
    return [line for line in handled if line["pid"] != moment["pid"] and line["at"] > moment["at"]]


def _kill(place: Site, readers: Crew, most: int) -> list[float]:
    """Kill the worker that handles events, again and again; how long it took each time until another one did."""
    taken: list[float] = []
    while len(taken) < most:
        time.sleep(KILL_EVERY)
        since = time.clock_gettime(time.CLOCK_BOOTTIME) - KILL_EVERY
        handled = [line for line in place.witness.lines("handled", table="applied") if line["at"] > since]
        victims = [one for one in readers.alive if handled and one.pid == handled[-1]["pid"]]
        if not victims:
            if place.witness.lines("written") and not run_apart(_lag(place)):
                break  # nothing is left to be handled
            continue
        victims[0].end()
        moment = {"pid": victims[0].pid, "at": time.clock_gettime(time.CLOCK_BOOTTIME)}
        readers.respawn()
        wait_for(partial(_after, place, moment), LONG, message=f"a take-over\n{readers.complaints()}")
        taken.append(_after(place, moment)[0]["at"] - moment["at"])
    return taken


async def _lag(place: Site) -> int:
    async with connect(place.url) as store:
        return sum(one.lag for one in await store.projections())


async def _judged(place: Site) -> int:
    """Compare both builds of both projections with the events themselves; how many there are."""
    async with connect(place.url) as store:
        async with Worker(store, [engine_of(store)]):  # a killed one may be taken for alive until its lease is over

            async def caught_up() -> bool:
                return not any(one.lag for one in await store.projections())

            await until(caught_up, timeout=LONG)
        assert [one.parked for one in await store.projections()] == [0, 0, 0, 0]
        name = '"stepwell".event' if store.database.driver.name == "postgres" else "stepwell_event"
        events = await _rows(store, f"select position, instance_id, version from {name} order by position")
        versions: dict[int, int] = {}
        for _, instance, version in events:
            assert version == versions.get(instance, 0) + 1, "positions do not follow versions"
            versions[instance] = version
        for table in ("applied", "applied__2"):
            applied = await _rows(store, f"select position from {table} order by place")
            positions, expected = [row[0] for row in applied], [row[0] for row in events]
            assert len(positions) == len(set(positions)), f"{table}: an event was applied twice"
            assert set(positions) == set(expected), (
                f"{table}: {len(set(expected) - set(positions))} events were skipped"
            )
            assert positions == expected, f"{table}: another order"
        for name in ("applied", "totals"):
            await store.swap_projection(name)
        engine = engine_of(store)
        async with Worker(store, [engine]):

            async def swapped() -> bool:
                return [one.build for one in await store.projections() if one.live] == [2, 2]

            await until(swapped, timeout=LONG)
        columns = "counter, total, count, last"
        both = [await _rows(store, f"select {columns} from {one} order by 1") for one in ("totals", "totals__1")]
        assert both[0] == both[1], "a rebuild has other rows"
        for counter, total, _, _ in both[0]:
            assert total == await engine.state("counter", counter)
        assert sum(row[2] for row in both[0]) == len(events)
        return len(events)


async def _rows(store: Store, statement: str) -> list[tuple[Any, ...]]:
    async with store.transaction() as tx:
        return [tuple(row) for row in await tx.execute(statement)]
