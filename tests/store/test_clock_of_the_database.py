"""Which clock decides: the database's, whatever the host's says."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from stepwell import Store
from stepwell.store.recovery import Recovery
from tests.store.seam import AGAIN, DONE, ask, beat, begin, claim, one, row_of, silent

HOUR = 3600
MICROSECONDS = 1_000_000


def wrong_by(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set this process's wall clock wrong; the database's is right."""
    right, right_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: right() + seconds)
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + int(seconds * 1_000_000_000))


async def database_now(store: Store) -> int:
    [row] = await ask(store, "select cast(extract(epoch from clock_timestamp()) * 1000000 as bigint) as now")
    now: int = row["now"]
    return now


@pytest.mark.proves("L-10", "rule-09")
@pytest.mark.backends("postgres", reason="an embedded store's clock is its only host's")
@pytest.mark.parametrize("hours", [1, -1])
async def test_a_process_whose_clock_is_an_hour_wrong_behaves(
    live_store: Store, backend: str, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    store = live_store
    wrong_by(hours * HOUR, monkeypatch)
    worker = await begin(store)
    before = await database_now(store)
    task = await one(store, worker)
    later = await store.enqueue("q", 1, delay=0.3)
    await store.database.tasks.settle(task.id, worker, task.turn, AGAIN)
    assert await beat(store, worker) == {worker}
    after = await database_now(store)
    row = await row_of(store, task.id)
    moments = [row[name] for name in ("created_at", "updated_at", "claimed_at", "started_at")]
    assert all(before <= moment <= after for moment in moments)
    assert before + 5 * MICROSECONDS <= row["run_at"] <= after + 5 * MICROSECONDS
    [seen] = await ask(store, "select beat_at from {beat}")
    assert before <= seen["beat_at"] <= after
    [session] = await ask(store, "select started_at from {worker}")
    assert before - 5 * MICROSECONDS <= session["started_at"] <= after
    assert await claim(store, worker, "q") == [], "the delayed one is not due yet"
    await asyncio.sleep(0.31)
    woken, wait = await store.database.tasks.wake_due()
    assert woken == {task.queue_id}
    assert wait is not None
    assert 0 < wait < 5
    assert [found.id for found in await claim(store, worker, "q")] == [later]
    assert await silent(store) == []
    await Recovery(store.database).look()
    assert await beat(store, worker) == {worker}


@pytest.mark.proves("L-10", "rule-09")
@pytest.mark.backends("sqlite", "turso", reason="on Postgres the host's clock reaches no row at all")
@pytest.mark.parametrize("hours", [1, -1])
async def test_setting_the_hosts_clock_steals_and_spares_no_session(
    live_store: Store, backend: str, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    worker = await begin(live_store)
    task = await one(live_store, worker)
    wrong_by(hours * HOUR, monkeypatch)
    assert await silent(live_store) == []
    await Recovery(live_store.database).look()
    assert await live_store.database.tasks.settle(task.id, worker, task.turn, DONE) == "SUCCESS"
    monkeypatch.undo()
    dead = await begin(live_store, lease=100_000)
    await asyncio.sleep(0.15)
    assert [silent.worker_id for silent in await silent(live_store)] == [dead]


@pytest.mark.proves("B-06", "Q-04")
async def test_due_times_are_told_apart_below_a_second_by_the_databases_own_clock(live_store: Store) -> None:
    await live_store.create_queue("q")
    worker = await begin(live_store)
    sent = time.monotonic()
    await live_store.enqueue("q", 1, delay=0.25)
    found: list[object] = []
    while not found:
        await live_store.database.tasks.wake_due()
        found += await claim(live_store, worker, "q")
        assert time.monotonic() - sent < 30
    assert time.monotonic() - sent >= 0.25


@pytest.mark.proves("B-06")
async def test_moments_keep_their_microseconds(store: Store) -> None:
    await store.create_queue("q")
    moment = datetime(2031, 5, 6, 7, 8, 9, 123457, tzinfo=UTC)
    task_id = await store.enqueue("q", 1, run_at=moment)
    assert (await row_of(store, task_id))["run_at"] == int(
        (moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1)
    )
    task = await store.get(task_id)
    assert task is not None
    assert task.run_at == moment
