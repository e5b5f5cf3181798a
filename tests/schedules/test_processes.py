"""Several processes fire the same schedules, and are killed, while an operator pauses, changes and deletes some."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stepwell import Every, Store, connect
from tests.ground.processes import Crew
from tests.ground.scale import Scale
from tests.schedules.firer import beat, slow
from tests.store.seam import ask

pytestmark = pytest.mark.backends("sqlite", "postgres", reason="several processes")
SECOND = 1_000_000


@pytest.mark.proves("SC-01", "SC-04")
async def test_no_tick_is_fired_twice_or_left_out_and_no_run_overlaps(
    store_url: str, tmp_path: Path, scale: Scale
) -> None:
    size, rounds, count = scale.of((2, 3, 4), (4, 30, 40))
    chance = random.Random(7)
    async with connect(store_url, lease="2s") as store:
        for name in ("beat", "slow"):
            await store.create_workflow(name)
        with Crew("tests.schedules.firer", store_url, size=size, folder=tmp_path) as crew:
            for place in range(count):
                await store.schedule(f"beat-{place}", beat.trigger(), Every("1s", overlap="allow"))
                await store.schedule(f"slow-{place}", slow.trigger(), Every("1s"))
            for turn in range(rounds):
                await asyncio.sleep(1)  # of the schedules' own time
                name = f"{chance.choice(('beat', 'slow'))}-{chance.randrange(count)}"
                await store.pause_schedule(name)
                await store.resume_schedule(name)
                await store.update_schedule(f"beat-{chance.randrange(count)}", every=chance.choice(("1s", "2s")))
                crew.kill_random()
                crew.respawn()
                if turn == rounds // 2:
                    await store.delete_schedule("slow-0")
            fired = await until_fired(store, rounds)
        assert fired, crew.complaints()
        await check(store)


async def until_fired(store: Store, rounds: int) -> bool:
    """Wait until every process that was killed has been replaced, and ticks go on."""
    before = len(await ask(store, "select due_at from {tick} where outcome = 'fired'"))
    for _ in range(200):
        await asyncio.sleep(0.1)
        if len(await ask(store, "select due_at from {tick} where outcome = 'fired'")) > before + rounds:
            return True
    return False


async def check(store: Store) -> None:
    """By the tables alone: doubles, holes, ticks without a run, runs without a tick, overlaps."""
    ticks = await ask(store, "select schedule_id, due_at, kind, outcome, count, task_id from {tick} order by 1, 2")
    runs = await ask(
        store, "select id, schedule_id, created_at, finished_at from {task} where schedule_id is not null order by 2, 3"
    )
    assert len(runs) > 10
    fired = Counter(row["task_id"] for row in ticks if row["outcome"] == "fired")
    assert set(fired.values()) == {1}
    assert set(fired) == {row["id"] for row in runs}, "each fired tick has its run, and each run its tick"
    changed = {row["id"] for row in await ask(store, "select id from {schedule} where version > 0")}
    by_schedule: dict[int, list[Any]] = {}
    for row in ticks:
        by_schedule.setdefault(row["schedule_id"], []).append(row)
    for number, rows in by_schedule.items():
        if number in changed:  # while it was paused ticks are left out
            continue
        until = rows[0]["due_at"]
        for row in rows:
            if row["kind"] == "gap":
                assert row["due_at"] == until
                until += row["count"] * SECOND
            elif row["due_at"] >= until:
                assert row["due_at"] == until, f"a hole in schedule {number}"
                until += SECOND
    slow_ones = {
        row["id"]
        for row in await ask(store, "select id, plan from {schedule}")
        if json.loads(row["plan"]).get("overlap", "skip") == "skip"
    }
    for before, after in itertools.pairwise(runs):
        if before["schedule_id"] == after["schedule_id"] and before["schedule_id"] in slow_ones:
            assert before["finished_at"] is not None
            assert before["finished_at"] <= after["created_at"], "two runs at once, though it skips"
