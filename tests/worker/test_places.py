"""How much runs at once: per worker, per handler, and never more than was asked for."""

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from stepwell import Store, Worker, handler
from stepwell.store.rows import Claimed
from tests.ground.waiting import until


class Gauge:
    """How many bodies run at once, by queue, and the most that ever did; safe from any thread."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self._lock = threading.Lock()

    def enter(self, name: str) -> None:
        with self._lock:
            self.now[name] += 1
            self.now["all"] += 1
            for each in (name, "all"):
                self.most[each] = max(self.most[each], self.now[each])

    def leave(self, name: str) -> None:
        with self._lock:
            self.now[name] -= 1
            self.now["all"] -= 1


def serving(gauge: Gauge, queue: str, *, concurrency: int | None = None, sync: bool = False) -> Any:
    @handler(queue, concurrency=concurrency)
    async def work(number: int) -> None:
        gauge.enter(queue)
        await asyncio.sleep(0.02)
        gauge.leave(queue)

    @handler(queue, concurrency=concurrency)
    def work_in_thread(number: int) -> None:
        gauge.enter(queue)
        threading.Event().wait(0.02)
        gauge.leave(queue)

    return work_in_thread if sync else work


@pytest.mark.proves("W-18", "CF-05")
async def test_concurrency_bounds_the_worker_each_handler_and_each_limit(store: Store) -> None:
    gauge = Gauge()
    handlers = [
        serving(gauge, "own", concurrency=2),
        serving(gauge, "limited", concurrency=6),
        serving(gauge, "threads", sync=True),
        serving(gauge, "free"),
    ]
    for one in handlers:
        await store.enqueue_many(one, range(15))
    assert await Worker(store, handlers, concurrency=7, limits={"limited": 1, "threads": 3}).drain() == 60
    assert gauge.most["all"] == 7
    assert gauge.most["own"] == 2
    assert gauge.most["limited"] == 1
    assert gauge.most["threads"] == 3
    assert 1 <= gauge.most["free"] <= 7


@pytest.mark.parametrize("sync", [False, True])
async def test_one_at_a_time_is_one_at_a_time(store: Store, sync: bool) -> None:
    gauge = Gauge()
    one = serving(gauge, "mail", sync=sync)
    await store.enqueue_many(one, range(10))
    assert await Worker(store, [one], concurrency=1).drain() == 10
    assert gauge.most["all"] == 1


@pytest.mark.proves("W-20")
async def test_one_claim_takes_as_many_as_there_are_free_places(
    live_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    gates = [asyncio.Event() for _ in range(12)]
    running: set[int] = set()

    for verb in ("claim", "claim_above"):
        real = getattr(live_store.database.tasks, verb)

        async def claim(
            worker: int, wanted: Sequence[Any], limit: int, real: Any = real, **options: Any
        ) -> list[Claimed]:
            claimed: list[Claimed] = await real(worker, wanted, limit, **options)
            if claimed:
                asked.append((limit, len(claimed)))
            return claimed

        monkeypatch.setattr(live_store.database.tasks, verb, claim)

    @handler("mail")
    async def wait(number: int) -> None:
        running.add(number)
        await gates[number].wait()
        running.discard(number)

    await live_store.enqueue_many(wait, range(12))
    async with Worker(live_store, [wait], concurrency=7):
        await until(lambda: running == set(range(7)))
        assert asked == [(7, 7)]
        assert await live_store.counts("mail") == {"RUNNING": 7, "PENDING": 5}
        for number in (0, 3):
            gates[number].set()
        await until(lambda: running == {1, 2, 4, 5, 6, 7, 8})
        assert sum(taken for _, taken in asked) == 9
        assert all(limit == taken for limit, taken in asked)
        for gate in gates:
            gate.set()
        await until(lambda: not running)


async def test_a_busy_queue_does_not_starve_another(store: Store) -> None:
    order: list[str] = []

    def serving_(queue: str) -> Any:
        @handler(queue)
        async def work(number: int) -> None:
            order.append(queue)

        return work

    busy, quiet = serving_("busy"), serving_("quiet")
    await store.enqueue_many(busy, range(40), priority=9)
    await store.enqueue_many(quiet, range(3))
    await Worker(store, [busy, quiet], concurrency=1).drain()
    assert [place for place, queue in enumerate(order) if queue == "quiet"][-1] < 8
