"""What a store says of itself, on every backend."""

from datetime import timedelta

import pytest

from stepwell import Store, sync
from stepwell.clock import TestClock
from stepwell.store import schema
from stepwell.store.sql import Statements
from tests.queue.raw import ask, change


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


def test_another_tenants_queues_are_not_counted(store_url: str) -> None:
    with sync.connect(store_url, tenant="a") as store:
        store.create_queue("theirs")
        assert [one.queue for one in store.queue_stats()] == ["theirs"]
    with sync.connect(store_url, tenant="b") as store:
        assert list(store.queue_stats()) == []


async def test_the_database_says_what_durability_hangs_on(store: Store, backend: str, clock: TestClock) -> None:
    health = await store.health()
    assert health.backend == backend
    assert health.version[0].isdigit()
    assert health.schema == schema.latest(store.statements)
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
    other = Statements(store.statements.dialect, "by_hand")
    await change(store, *schema.script(other))
    [(number,)] = await ask(
        store,
        "select max(number) from " + ('"by_hand".migration' if other.dialect == "postgres" else "by_hand_migration"),
    )
    assert number == schema.latest(other)
    opened = Store(store.driver, other, store.options, store.clock, store.telemetry)
    assert opened.statements.schema == "by_hand"
