"""A publisher or a worker is killed at any point: all are told of an event or none, each once, in one order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stepwell import Context, connect, current, on_event, step, workflow
from stepwell.testing import world
from stepwell.testing.crashes import WHENS, Crash, Life
from tests.broadcasts.crewmate import EVENT, LAST, LEASE, SENT, WORKFLOWS, reader
from tests.ground.processes import Crew
from tests.ground.scale import Scale
from tests.ground.waiting import until
from tests.store.seam import ask
from tests.sweep.ledger import LEDGER, assert_nothing_recorded_ran_again, note

TOLD = ("publish", "keep_turns", "tell", "wake_runs", "subscribe", "broadcast", "add_tasks_once", "settle")


@step
async def tell(n: int) -> None:
    note()
    ctx = current()
    await ctx._run.slot.database.broadcasts.send("swept", {"n": n}, ctx.key, None)


@workflow(name="sweep.events")
async def listening(ctx: Context, n: int) -> list[int]:
    await tell(n)
    first = await ctx.wait_event("swept", where={"n": n})
    await tell(n + 1)
    second = await ctx.wait_event("swept", where={"n": n + 1}, timeout="1h")
    await ctx.sleep("1m")  # or the next run would have been triggered when these events were published
    return [first["n"], second["n"]]


@on_event("swept")
@workflow(name="sweep.triggered")
async def triggered(event: dict[str, int]) -> int:
    return event["n"]


@pytest.mark.proves("BC-14", "BC-11", "BC-03")
@pytest.mark.backends("sqlite", "postgres", reason="the same driver serves Turso")
async def test_a_worker_is_cut_off_at_every_call_of_a_fan_out(backend: str, store_url: str, scale: Scale) -> None:
    LEDGER.clear()

    def chosen(whole: Life) -> Iterable[Crash]:
        telling = [at for at, call in enumerate(whole.calls, 1) if any(word in call for word in TOLD)]
        every = scale.of(max(1, len(telling) // 6), 1)
        return [(at, when) for at in telling[::every] for when in (WHENS if scale.is_full else WHENS[at % 2 :][:1])]

    async with world(listening, triggered, url=store_url) as w:
        async with w.crashes(listening.trigger(1)) as crashes:
            report = await crashes.everywhere(chosen, look=assert_nothing_recorded_ran_again)
        assert json.loads(report.life.output or "null") == [1, 2], report.life
        assert any("publish" in call for call in report.calls), report.calls
        await w.drain()
        sent = await ask(w.store, "select id from {task} where kind = 'MESSAGE'")
        runs = await ask(w.store, "select key from {task} where status = 'SUCCESS' and key like 'event:%'")
        assert len(sent) >= 2 * (report.cases + 1), "those of each life, and of the one without a crash"
        assert sorted(row["key"] for row in runs) == sorted(f"event:swept:{row['id']}" for row in sent)


@pytest.mark.proves("BC-14", "BC-11", "BC-03", "BC-12")
@pytest.mark.backends("sqlite", "postgres", reason="several processes")
async def test_killed_publishers_and_workers_tell_all_or_none_once_and_in_one_order(
    store_url: str, tmp_path: Path, scale: Scale, measured: Callable[..., None]
) -> None:
    readers, listeners, kills = scale.of((8, 2, 2), (1000, WORKFLOWS, 20))
    async with connect(store_url, lease=LEASE) as store:
        async with store.transaction() as tx:
            await tx.execute(f"create table {SENT} (n bigint not null)")
        await store.trigger_many([reader.trigger([]).options(require_worker="ignore") for _ in range(readers)])
        workers = Crew("tests.broadcasts.crewmate", store_url, "work", str(listeners), size=2, folder=tmp_path)
        other = tmp_path / "publishers"
        other.mkdir()
        with (
            workers as crew,
            Crew("tests.broadcasts.crewmate", store_url, "send", "0", size=1, folder=other) as senders,
        ):
            await until(lambda: _are_waiting(store, readers), 60, message=crew.complaints())
            for turn in range(kills):
                sent = len(await _sent(store)) + 1
                await until(partial(_more_than, store, sent), 30, message=senders.complaints())
                senders.kill_random()
                senders.respawn()
                if turn % 2:
                    crew.kill_random()
                    crew.respawn()
            for one in senders.alive:
                one.end()
            await store.broadcast(EVENT, {"n": LAST})
            await until(lambda: _ended(store, readers), scale.of(60, 600), every=0.2, message=crew.complaints())
            expected = sorted([*await _sent(store), LAST])
            await until(lambda: _triggered(store, len(expected) * listeners), 60, message=crew.complaints())
        results = [run.output(list[int]) for run in await _runs(store, "reader")]
        assert len(results) == readers
        assert sorted(results[0]) == expected[1:], "what was sent, each once"
        assert all(one == results[0] for one in results), "in one order for all"
        for place in range(listeners):
            assert sorted(run.output(int) for run in await _runs(store, f"listener-{place}")) == expected
        told = {"readers": readers, "workflows": listeners, "events": len(expected)}
        measured("broadcast", **told, kills=len(crew.killed), publishers=len(senders.killed))


async def _runs(store: Any, name: str) -> list[Any]:
    found, after = [], None
    while True:
        page = await store.runs(name, limit=500, after=after)
        found += page
        if (after := page.next) is None:
            return found


async def _are_waiting(store: Any, count: int) -> bool:
    return len(await ask(store, "select 1 from {subscription}")) == count


async def _sent(store: Any) -> list[int]:
    return [row["n"] for row in await ask(store, f"select n from {SENT}")]


async def _more_than(store: Any, count: int) -> bool:
    return len(await _sent(store)) > count


async def _ended(store: Any, count: int) -> bool:
    rows = await ask(store, "select 1 from {task} where status = 'SUCCESS' and queue_id in (" + _QUEUE)
    return len(rows) == count


_QUEUE = "select id from {queue} where name = 'reader')"


async def _triggered(store: Any, count: int) -> bool:
    rows = await ask(store, "select 1 from {task} where kind = 'RUN' and status = 'SUCCESS' and key is not null")
    return len(rows) == count
