"""A task that kills its worker is executed as often as it may be, and takes no other with it."""

import random
import re
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from stepwell import connect
from tests.crash.conftest import Scale
from tests.crash.deadly import served
from tests.crash.site import LONG, Site, void_unless
from tests.ground.databases import run_apart
from tests.ground.ledger import Ledger
from tests.ground.processes import Crew
from tests.ground.waiting import wait_for

LEASE = 2
WORKERS = 3
CONCURRENCY = 15
SOME = {"messages": ("exit",), "runs": ("abort",)}  # one death each in `make test`, ...
ALL = ("exit",) * 3 + ("abort",) * 2 + ("memory",)  # ... and in a soak every kind, three times with another seed
BUDGETS = (2, 3, 4)  # attempts of a deadly task
INNOCENT = 2  # attempts of every other: two deaths that counted would be its end
READ_ON_TURSO = "Turso's file cannot be read from outside while a worker lives"


@pytest.mark.proves("E-07", "W-14", "rule-07", "promise-12")
@pytest.mark.backends("postgres", "sqlite", reason=READ_ON_TURSO)
@pytest.mark.parametrize("kind", ["messages", "runs"])
@pytest.mark.timeout(900)
def test_what_kills_its_worker_is_found_and_takes_no_innocent_with_it(
    site: Site, scale: Scale, kind: str, measured: Callable[..., None]
) -> None:
    deaths = killed = again = unseen = 0
    innocents, seeds = scale.of(30, 400), scale.of(1, 3)
    began = time.monotonic()
    for seed in range(seeds):
        poisons = _add(site, kind, scale.of(SOME[kind], ALL), innocents, seed=seed)
        with _crew(site, scale) as crew:
            _until_over(site, crew, poisons, innocents * (seed + 1))
        starts, claims = _starts(site), _claims(site)
        assert {n: claims[n] for n in poisons} == poisons, "a poison was claimed more or less often than it may be"
        # A claim that another one's death ended before the body began is a start that the ledger did not see.
        assert all(budget - 1 <= starts[n] <= budget for n, budget in poisons.items()), starts
        unseen += sum(poisons.values()) - sum(starts[n] for n in poisons)
        assert _company(site, poisons) == [], "somebody was executed beside what had been lost with others"
        deaths += sum(poisons.values())
        killed += sum(member.process.returncode != 0 for member in crew.members if not member.is_alive)
        again += sum(starts[n] > 1 for n in starts.keys() - poisons.keys() if n >= seed * 1000)
    void_unless(again >= scale.of(1, 20), f"only {again} innocents were lost with a worker")
    assert killed >= deaths - unseen, "fewer processes died than poison was taken"
    void_unless(unseen <= deaths // 10, f"{unseen} of {deaths} starts were not seen by the ledger")
    assert _wrong_ends(site) == []
    measured(
        "poison",
        kind=kind,
        seeds=seeds,
        poisons=len(scale.of(SOME[kind], ALL)) * seeds,
        starts=deaths - unseen,
        unseen=unseen,
        innocents=innocents * seeds,
        lost_with_others=again,
        seconds=time.monotonic() - began,
    )


@pytest.mark.proves("W-14", "rule-07", "promise-12")
@pytest.mark.backends("postgres", "sqlite", reason=READ_ON_TURSO)
def test_workers_that_are_killed_from_outside_cost_no_task_an_attempt(
    site: Site, scale: Scale, measured: Callable[..., None]
) -> None:
    count, kills = scale.of(40, 400), 5 if scale.is_full else 2
    _add(site, "messages", (), count, seconds=0.3)
    with _crew(site, scale) as crew:
        for _ in range(kills):
            wait_for(partial(_kill_a_busy_one, site, crew), LONG, every=0.01, message=f"work\n{crew.complaints()}")
            crew.respawn()
        _until_over(site, crew, {}, count)
    starts = _starts(site)
    again = sum(times > 1 for times in starts.values())
    void_unless(again >= kills, f"only {again} tasks were lost with a worker")
    attempts = Counter(row.attempt for row in site.tables.rows())
    assert attempts == {1: count}, "an attempt was lost in company"
    measured("poison outside", kills=kills, messages=count, lost_with_others=again)


def _kill_a_busy_one(site: Site, crew: Crew) -> bool:
    """Kill a worker that executes several tasks; False if none does."""
    for member in crew.alive:
        if len(_in_flight(site, member.pid)) >= 4:
            crew.killed.append(member)
            member.process.kill()
            member.process.wait()
            return True
    return False


def _crew(site: Site, scale: Scale) -> Crew:
    size, concurrency = scale.of(2, WORKERS), scale.of(8, CONCURRENCY)
    return site.crew(size, module="tests.crash.deadly", lease=LEASE, concurrency=concurrency)


def _add(
    site: Site, kind: str, deaths: tuple[str, ...], innocents: int, *, seed: int = 0, seconds: float | None = None
) -> dict[int, int]:
    """Write tasks in an order by chance; the deadly ones, and how often each may be executed."""
    chance = random.Random(seed)
    tasks: list[dict[str, Any]] = [
        {"n": seed * 1000 + n, "death": death, "seconds": chance.uniform(0.05, 0.2) if seconds is None else seconds}
        for n, death in enumerate((*deaths, *[None] * innocents))
    ]
    budgets = {task["n"]: chance.choice(BUDGETS) for task in tasks if task["death"] is not None}
    # In the first half, so that each has company when it is begun.
    deadly, others = tasks[: len(deaths)], tasks[len(deaths) :]
    for task in deadly:
        others.insert(chance.randrange(2, len(others) // 2), task)
    tasks = others

    async def write() -> None:
        with Ledger(site.ledger) as ledger:
            message, run = served(ledger)
        async with connect(site.url) as store:
            for task in tasks:
                attempts = budgets.get(task["n"], INNOCENT)
                if kind == "runs":
                    await run.trigger(task).options(max_attempts=attempts).execute(store)
                else:
                    await store.enqueue(message, task, max_attempts=attempts)

    run_apart(write())
    return budgets


def _until_over(site: Site, crew: Crew, poisons: dict[int, int], innocents: int) -> None:
    def is_over() -> bool:
        crew.respawn()
        return set(site.tables.statuses()) <= {"ERROR", "SUCCESS"}

    wait_for(is_over, 4 * LONG, every=0.2, message=f"an end, but {site.tables.statuses()}\n{crew.complaints()}")
    assert site.tables.statuses()["SUCCESS"] == innocents, "an innocent was dead-lettered"


def _starts(site: Site) -> Counter[int]:
    return site.witness.executions()


def _claims(site: Site) -> dict[int, int]:
    """How often each task was claimed, by the database's word."""
    rows = site.tables.ask("select input, turn from {task}")
    return {int(found[1]): turn for text, turn in rows if (found := re.search(r'"n": ?(\d+)', text))}


def _in_flight(site: Site, pid: int) -> set[int]:
    """What a process has begun and not ended."""
    begun = Counter(line["n"] for line in site.witness.starts(pid=pid))
    return set(begun - Counter(line["n"] for line in site.witness.ends(pid=pid)))


def _company(site: Site, poisons: dict[int, int]) -> list[tuple[int, set[int]]]:
    """The deadly tasks that were executed beside others after they had killed a process, and beside whom."""
    found, seen = [], Counter[int]()
    open_in: dict[int, set[int]] = {}
    lines = sorted([*site.witness.starts(), *site.witness.ends()], key=lambda line: line["at"])
    for line in lines:
        here = open_in.setdefault(line["pid"], set())
        if line["phase"] == "end":
            here.discard(line["n"])
            continue
        if line["n"] in poisons and seen[line["n"]] and here:
            found.append((line["n"], set(here)))
        if here & {n for n in poisons if seen[n] > 1}:
            found.append((line["n"], set(here)))
        seen[line["n"]] += 1
        here.add(line["n"])
    return found


def _wrong_ends(site: Site) -> list[Any]:
    """Tasks that ended in ERROR and have not killed anybody, and the other way round."""
    rows = site.tables.ask("select input, status, last_error from {task}")
    ends = {True: ("SUCCESS", None), False: ("ERROR", "worker_lost")}
    innocent = ['"death":null' in text.replace(" ", "") for text, _, _ in rows]
    return [row for row, is_innocent in zip(rows, innocent, strict=True) if tuple(row[1:]) != ends[is_innocent]]
