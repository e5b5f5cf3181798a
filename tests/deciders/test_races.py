"""Many processes, one instance: nothing is lost or doubled, numbers have no gaps, and others are not kept waiting."""

import asyncio
import contextlib
import json
import random
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stepwell import Engine, StoreUnavailable, connect
from stepwell.deciders.mailbox import Pending
from tests.deciders import racer
from tests.deciders.conftest import Scale
from tests.deciders.workbench import Bench, Do, labels, versions
from tests.ground.processes import Member, spawn
from tests.ground.waiting import until

DUPLICATES = 0.2


@pytest.mark.timeout(600)
@pytest.mark.proves("M-09", "M-10", "M-11", "II-03", "protocol-12", "promise-08")
@pytest.mark.parametrize("together", [True, False], ids=["mailbox", "one by one"])
async def test_inputs_from_many_processes_are_each_decided_once_and_without_gaps(
    store_url: str, backend: str, tmp_path: Path, scale: Scale, together: bool
) -> None:
    inputs, processes, rounds = scale.of((60, 3, 1), (200, 8, 10))
    plans = _plans(inputs, processes, rounds)
    async with connect(store_url) as store:
        engine = Engine(store).register(Bench())
        async with _racers(store_url, backend, tmp_path, plans, together) as answers:
            for round_ in range(rounds):
                await until(partial(_at_the_line, tmp_path, round_, processes), timeout=60)
                (tmp_path / f"go-{round_}").touch()
                await until(partial(_ended, answers, round_), timeout=120)
                _judge(plans, answers(), round_, await labels(engine, f"hot-{round_}"))
                assert await versions(engine, f"hot-{round_}") == list(range(1, len(_keys(plans, round_)) + 1))
                for number in range(processes):
                    assert await versions(engine, f"own-{round_}-{number}") == [1, 2, 3]


def _plans(inputs: int, processes: int, rounds: int) -> list[list[list[str]]]:
    """For each process and round its keys: a fifth of all inputs repeats a key of another."""
    chance = random.Random(7)
    plans: list[list[list[str]]] = [[] for _ in range(processes)]
    for round_ in range(rounds):
        unique = [f"{round_}/{number}" for number in range(round((1 - DUPLICATES) * inputs))]
        keys = unique + chance.choices(unique, k=inputs - len(unique))
        chance.shuffle(keys)
        for number in range(processes):
            plans[number].append(keys[number::processes])
    return plans


@contextlib.asynccontextmanager
async def _racers(
    url: str, backend: str, folder: Path, plans: list[list[list[str]]], together: bool
) -> AsyncIterator[Callable[[], list[list[Any]]]]:
    """Everybody at the line: processes, or for Turso, which serves one process, stores in this one."""
    told = [{"number": number, "together": together, "rounds": rounds} for number, rounds in enumerate(plans)]
    if backend == "turso":
        heard: list[list[Any]] = [[] for _ in plans]
        running = [
            asyncio.ensure_future(racer.race(url, folder, plan, heard[number].append))
            for number, plan in enumerate(told)
        ]
        yield lambda: heard
        await asyncio.gather(*running)
        return
    members = [_started(url, folder, plan) for plan in told]
    try:
        yield lambda: [[json.loads(line) for line in one.stdout.read_text().splitlines()] for one in members]
        await until(lambda: all(not one.is_alive for one in members), timeout=30)
        assert [one.stderr.read_text() for one in members if one.process.returncode] == []
    finally:
        for one in members:
            one.end()


def _started(url: str, folder: Path, plan: dict[str, Any]) -> Member:
    stdout, stderr = (folder / f"{plan['number']}.{end}" for end in ("out", "err"))
    command = [sys.executable, "-m", "tests.deciders.racer", url, str(folder), json.dumps(plan)]
    with stdout.open("wb") as out, stderr.open("wb") as err:
        return Member(plan["number"], spawn(command, stdout=out, stderr=err), stdout, stderr)


def _at_the_line(folder: Path, round_: int, processes: int) -> bool:
    return all((folder / f"ready-{round_}-{number}").exists() for number in range(processes))


def _ended(answers: Callable[[], list[list[Any]]], round_: int) -> bool:
    return all(len(one) > round_ for one in answers())


def _keys(plans: list[list[list[str]]], round_: int) -> set[str]:
    return {key for plan in plans for key in plan[round_]}


def _judge(plans: list[list[list[str]]], answers: list[list[Any]], round_: int, noted: list[str]) -> None:
    """Each key noted once, applied for one of those who sent it, and the same numbers for all of them."""
    keys = _keys(plans, round_)
    assert sorted(noted) == sorted(keys)
    told = [answer for one in answers for answer in one[round_]]
    assert len(told) == sum(len(plan[round_]) for plan in plans)
    for key in keys:
        mine = [answer[1:] for answer in told if answer[0] == key]
        assert sorted(outcome for outcome, *_ in mine) == ["applied"] + ["duplicate"] * (len(mine) - 1)
        assert {(first, last) for _, first, last in mine} == {(noted.index(key) + 1,) * 2}


@pytest.mark.proves("M-11", "rule-28")
async def test_a_busy_instance_is_in_one_transaction_at_a_time_and_others_do_not_wait_behind_all_of_it(
    store_url: str,
) -> None:
    async with connect(store_url) as store:
        engine = Engine(store).register(Bench())
        batches: list[set[str]] = []
        under_way: list[str] = []
        decide = engine._mailbox.decide

        async def overheard(batch: Sequence[Pending], patience: float | None = None) -> None:
            ids = {pending.id for pending in batch}
            assert ids.isdisjoint(under_way)
            batches.append(ids)
            under_way.extend(ids)
            await decide(batch, patience)
            for one in ids:
                under_way.remove(one)

        engine._mailbox.decide = overheard
        hot = [asyncio.ensure_future(engine.execute(Do("hot"))) for _ in range(2_000)]
        cold = [asyncio.ensure_future(engine.execute(Do(f"cold-{number}"))) for number in range(10)]
        await asyncio.gather(*hot, *cold)
        assert await versions(engine, "hot") == list(range(1, 2_001))
        assert [number for number, ids in enumerate(batches) if "cold-9" in ids] == [1], "behind the first, no more"
        assert len(batches) <= 8


@pytest.mark.proves("M-14", "rule-28")
async def test_an_input_behind_a_transaction_that_hangs_is_answered_in_time(store_url: str) -> None:
    async with connect(store_url, timeout=2) as store:
        engine = Engine(store).register(Bench())
        await engine.execute(Do("a"))
        begun, hangs = asyncio.Event(), asyncio.Event()
        decide = engine._mailbox.decide

        async def hanging(batch: Sequence[Pending], patience: float | None = None) -> None:
            begun.set()
            await hangs.wait()
            await decide(batch, patience)

        engine._mailbox.decide = hanging
        answers = [asyncio.ensure_future(engine.execute(Do("a", "begun")))]
        await begun.wait()
        answers.append(asyncio.ensure_future(engine.execute(Do("a", "waiting"))))
        told = await asyncio.wait_for(asyncio.gather(*answers, return_exceptions=True), 10)
        assert all(isinstance(one, StoreUnavailable) for one in told)
        hangs.set()
        await engine.flush()
        engine._mailbox.decide = decide
        assert (await engine.execute(Do("a", "third"))).outcome == "applied"
        assert await labels(engine) == ["x", "begun", "third"], "what had not begun is not decided behind its caller"


@pytest.mark.proves("rule-28", "M-14")
async def test_an_input_waits_for_the_lock_of_its_instance_and_not_for_ever(store_url: str) -> None:
    async with connect(store_url) as holder, connect(store_url, timeout=0.5) as store:
        engine, other = Engine(store).register(Bench()), Engine(holder).register(Bench())
        await engine.execute(Do("a"))
        async with holder.transaction() as tx:
            await other.execute(Do("a", "held"), tx=tx)
            with pytest.raises(StoreUnavailable):
                await asyncio.wait_for(engine.execute(Do("a", "too early")), 10)
            patient = asyncio.ensure_future(engine.execute(Do("a", "next")))
        assert (await asyncio.wait_for(patient, 10)).outcome == "applied"
        early = [label for label in await labels(engine) if label == "too early"]
        assert len(early) <= 1, "nobody knew whether it would be decided"
        assert await labels(engine) == ["x", "held", *early, "next"]
