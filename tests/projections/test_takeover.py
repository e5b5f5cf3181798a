"""Several workers and one projection: one drives it, another takes over, and what comes too late is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell import At, LeaseLost, Store, Worker, connect
from tests.ground.waiting import until
from tests.projections.books import Balances, Pay, balances, engine_of, handled
from tests.store.seam import begin


@pytest.mark.proves("PJ-15")
async def test_one_session_drives_a_projection_and_another_takes_it_over(store: Store) -> None:
    verbs = store.database.projections
    await verbs.make("p")
    first, second = await begin(store), await begin(store)
    held = await verbs.claim("p", first)
    assert held is not None
    assert await verbs.claim("p", second) is None
    await verbs.move(held, 5, 5)
    again = await verbs.claim("p", first)  # its own: it may not know whether its last batch was committed
    assert again is not None
    assert (again.position, again.turn, again.suspect) == (5, held.turn + 1, False)
    await store.database.sessions.end(first, "lost")
    assert await verbs.claim("p", first) is None  # it lives no more
    taken = await verbs.claim("p", second)
    assert taken is not None
    assert (taken.position, taken.turn, taken.suspect) == (5, again.turn + 1, True)
    for late in (held, again, again._replace(position=4)):
        with pytest.raises(LeaseLost):
            await verbs.move(late, 9, 4)
    with pytest.raises(LeaseLost):
        await verbs.move(taken._replace(position=4), 9, 4)
    await verbs.release(taken)
    third = await verbs.claim("p", second)
    assert third is not None
    assert (third.position, third.suspect) == (5, False)


@pytest.mark.proves("PJ-15", "PJ-05")
@pytest.mark.backends("postgres", reason="elsewhere a batch has the file, and no other worker writes until it ends")
async def test_the_batch_of_a_worker_that_was_taken_for_dead_is_not_committed(store_url: str) -> None:
    entered, let_go, told = asyncio.Event(), asyncio.Event(), list[object]()

    async def frozen(event: Any, at: At) -> None:
        entered.set()
        await let_go.wait()

    async with connect(store_url, lease=60) as one, connect(store_url, lease=60) as two:
        await Worker(two, [engine_of(two, Balances())]).drain()  # its tables are there
        for number in range(5):
            await engine_of(two).execute(Pay(f"a{number}", 1))
        slow = Balances(before=frozen)
        worker = Worker(one, [engine_of(one, slow)])
        async with worker:
            await entered.wait()
            await two.database.sessions.end(worker.id, "lost")
            async with Worker(two, [engine_of(two, Balances())]):
                await until(lambda: _sum(two, 5))
                one.database.telemetry.subscribe(told.append)
                let_go.set()
                await until(lambda: _refused(slow, one))
        assert await balances(two) == {f"a{number}": 1 for number in range(5)}
        assert [position for position, *_ in await handled(two)] == [1, 2, 3, 4, 5]


async def _sum(store: Store, expected: int) -> bool:
    return sum((await balances(store)).values()) == expected


async def _refused(slow: Balances, store: Store) -> bool:
    """Whether the late worker came to the end of its batch, or of its first rows, and gave up."""
    return bool(slow.seen) and not [one for one in await store.projections() if one.lag]


@pytest.mark.proves("PJ-15")
async def test_a_worker_that_ends_leaves_its_projection_to_the_next_at_once(store: Store) -> None:
    engine = engine_of(store)
    for number in range(3):
        await engine.execute(Pay("a", 1))
        model = Balances()
        await Worker(store, [engine_of(store, model)]).drain()
        assert len(model.seen) == 1
        [info] = await store.projections()
        assert (info.owner, info.position, info.handled) == (None, number + 1, number + 1)
