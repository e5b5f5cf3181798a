"""What a store says of itself, on every backend."""

from datetime import timedelta

import pytest

from stepwell import Aside, Context, Count, Store, connect, sleep, sync, workflow
from stepwell.base.clock import TestClock
from stepwell.store import schema
from stepwell.store.sql import Statements
from tests.queue.raw import ask, change
from tests.workflows.kit import drained


@pytest.mark.proves("MM-02", "MM-07")
async def test_queues_are_counted_by_state_and_the_oldest_is_aged(store: Store, clock: TestClock) -> None:
    await store.create_queue("empty")
    await store.create_queue("work")
    await store.enqueue("work", 1)
    clock.advance(90)
    await store.enqueue("work", 2)
    await store.enqueue("work", 3, delay=3600)
    await store.enqueue("work", 4)
    await store.dequeue("work")
    await store.drain_queue("empty")
    empty, work = await store.queue_stats()
    assert (empty.queue, empty.ready, empty.oldest, empty.draining) == ("empty", 0, None, True)
    assert (work.ready, work.waiting, work.running, work.dead) == (2, 1, 1, 0)
    assert work.oldest == 0.0, "the oldest was taken by hand"
    clock.advance(30)
    await store.enqueue("work", 5)
    assert (await store.queue_stats())[1].oldest == 30.0
    await change(store, "update {task} set status = 'ERROR', ready = false, finished_at = 1 where ready")
    assert [(one.ready, one.dead) for one in await store.queue_stats()] == [(0, 0), (0, 3)]


@pytest.mark.proves("MM-02")
async def test_the_depth_of_a_workflow_is_told_by_due_scheduled_running_and_paused(
    store: Store, clock: TestClock
) -> None:
    for trigger in (asks.trigger("ever"), asks.trigger("soon"), sleeps.trigger(), sleeps.trigger()):
        await trigger.options(require_worker="ignore").execute(store)
    await drained(store, asks, sleeps)
    await asks.trigger("later").options(require_worker="ignore").execute(store)
    found = {one.queue: (one.ready, one.scheduled, one.running, one.set_aside) for one in await store.queue_stats()}
    assert found == {"asks": (1, 0, 0, 2), "sleeps": (0, 2, 0, 0)}


def test_another_tenants_queues_are_not_counted(store_url: str) -> None:
    with sync.connect(store_url, tenant="a") as store:
        store.create_queue("theirs")
        assert [one.queue for one in store.queue_stats()] == ["theirs"]
    with sync.connect(store_url, tenant="b") as store:
        assert list(store.queue_stats()) == []


@workflow
async def asks(ctx: Context, name: str) -> str | None:
    return await ctx.wait(name, str, timeout="1h" if name == "soon" else None)


@workflow
async def sleeps() -> None:
    await sleep("1h")


@workflow
async def parent(ctx: Context) -> None:
    await asks.trigger("soon").wait().execute(ctx)


@pytest.mark.proves("P-02")
async def test_runs_that_go_on_only_when_somebody_lets_them(store: Store, clock: TestClock, store_url: str) -> None:
    assert await store.set_aside() == []
    for trigger in (asks.trigger("ever"), asks.trigger("soon"), sleeps.trigger(), parent.trigger()):
        await trigger.options(require_worker="ignore").execute(store)
        await drained(store, asks, sleeps, parent)
        clock.advance(60)
    assert await store.set_aside() == [Aside("signal", Count(1), 240.0)], (
        "neither what has an end, nor who waits for it"
    )
    held = [run.id for run in await store.runs("sleeps")] + [run.id for run in await store.runs("parent")]
    for run_id in held:
        await store.pause(run_id)
        clock.advance(60)
    assert await store.set_aside() == [Aside("unpause", Count(2), 120.0), Aside("signal", Count(1), 360.0)]
    await store.delete(held[0])
    assert (await store.set_aside())[0] == Aside("unpause", Count(1), 60.0)
    async with connect(store_url, tenant="other") as tenant:
        assert await tenant.set_aside() == []


async def test_the_database_says_what_durability_hangs_on(store: Store, backend: str, clock: TestClock) -> None:
    health = await store.health()
    assert health.backend == backend
    assert health.version[0].isdigit()
    assert health.schema == schema.latest(store.database.statements)
    assert abs(health.clock.timestamp() * 1e6 - clock.now()) < 1e6
    assert health.took > 0
    if backend == "postgres":
        assert set(health.settings) == {"fsync", "synchronous_commit", "full_page_writes"}
        assert health.held is not None
        assert timedelta(0) <= timedelta(seconds=health.held)
    else:
        assert health.settings == {"journal_mode": "wal", "synchronous": "full"}
        assert health.held is None


async def test_the_script_makes_what_installing_makes(store: Store) -> None:
    """As text under another name, applied by hand; the store's own tables are what it is compared with."""
    other = Statements(store.database.statements.dialect, "by_hand")
    await change(store, *schema.script(other))
    [(number,)] = await ask(
        store,
        "select max(number) from " + ('"by_hand".migration' if other.dialect == "postgres" else "by_hand_migration"),
    )
    assert number == schema.latest(other)
    opened = Store(store.database.driver, other, store.database.options, store.database.clock, store.database.telemetry)
    assert opened.database.statements.schema == "by_hand"
