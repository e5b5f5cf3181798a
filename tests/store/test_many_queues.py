"""What a claim costs among a thousand queues, and that it walks those it serves in the order given."""

import time
from collections.abc import Callable

import pytest

from stepwell import Store
from tests.store.plans import Calls, Prepared, buffers, drawn, fill, nodes, picked
from tests.store.seam import begin, do
from tests.store.steps import Stepped

QUEUES = 1_000
WAITING = 200_000
postgres = pytest.mark.backends("postgres", reason="one statement walks several queues on Postgres only")


async def define_queues(store: Store, count: int) -> list[int]:
    """So many queues with nothing in them; their numbers."""
    numbers = f"with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < {count})"
    await do(store, f"insert into {{queue}} (name, created_at) {numbers} select 'empty-' || n, 1 from numbers")
    return [await store.database.queue_id(f"empty-{n}") for n in range(1, count + 1)]


@pytest.mark.proves("Q-24", "Q-23")
@postgres
async def test_on_postgres_a_thousand_queues_cost_a_claim_little(
    live_store: Store, prepared: Prepared, measured: Callable[..., None]
) -> None:
    store = live_store
    await store.create_queue("q")
    queue = await store.database.queue_id("q")
    await do(store, "analyze {queue}", "analyze {task}")
    calls = Calls(store, await begin(store))
    one = await calls.claim([queue], 10)
    await prepared.prepare("claim", one)  # by a planner who knows of one queue
    await prepared.prepare("claim_many", await calls.claim([queue, queue], 10))
    await fill(store, range(1, 201), "PENDING", ready="true", run_at="number")
    alone = await prepared.explain("claim", one)
    others = await define_queues(store, QUEUES - 1)
    among = await prepared.explain("claim", one)
    first = await prepared.explain("claim_many", await calls.claim([queue, *others], 10))
    last = await prepared.explain("claim_many", await calls.claim([*others, queue], 10))
    for plan in (alone, among, first, last):
        assert plan["Actual Rows"] == 10
    assert buffers(among) <= 2 * buffers(alone), drawn("among", among)
    assert buffers(picked(among)) <= 2 * buffers(picked(alone)), drawn("among", among)
    assert buffers(first) <= 2 * buffers(alone), drawn("first", first)
    # A worker of all the queues: for each a look at its row, at its tenant's maintenance and at its place in the index.
    assert buffers(last) <= buffers(alone) + 8 * QUEUES, drawn("last", last)
    assert max(node["Actual Rows"] * node["Actual Loops"] for node in nodes(last)) <= QUEUES, drawn("last", last)
    costs = {"alone": alone, "among": among, "first": first, "last": last}
    measured("queues", queues=QUEUES, unit="pages", **{name: buffers(plan) for name, plan in costs.items()})


@pytest.mark.proves("Q-24")
@pytest.mark.backends("sqlite", reason="SQLite counts its machine's instructions; Turso counts nothing")
async def test_on_sqlite_a_thousand_queues_cost_a_claim_little(
    live_store: Store, measured: Callable[..., None]
) -> None:
    store, stepped = live_store, Stepped(live_store)
    await store.create_queue("q")
    queue = await store.database.queue_id("q")
    calls = Calls(store, await begin(store))
    one = await calls.claim([queue], 10)
    await fill(store, range(1, 201), "PENDING", ready="true", run_at="number")
    alone = await stepped.steps(one)
    others = await define_queues(store, QUEUES - 1)
    among = await stepped.steps(one)
    first = await stepped.steps(await calls.claim([queue, *others], 10, ready=queue))
    last = await stepped.steps(await calls.claim([*others, queue], 10, ready=queue))
    assert among <= 1.2 * alone
    assert first <= 1.2 * alone
    assert last <= alone + 100 * QUEUES
    measured("queues", queues=QUEUES, unit="instructions", alone=alone, among=among, first=first, last=last)


@pytest.mark.soak
@pytest.mark.proves("Q-24", "PR-15")
@pytest.mark.timeout(600)
async def test_a_claim_takes_as_long_among_a_thousand_queues_and_above_much_that_waits(
    live_store: Store, measured: Callable[..., None]
) -> None:
    """Times, so not in every run of the tests; of many claims the fastest, since other programs only add."""
    store = live_store
    await store.create_queue("q")
    queue, worker = await store.database.queue_id("q"), await begin(store)
    await fill(store, range(1, 2_001), "PENDING", ready="true", run_at="number")

    async def took() -> float:
        times = []
        for _ in range(50):
            began = time.perf_counter()
            assert len(await store.database.tasks.claim(worker, [(queue, 10)], 10)) == 10
            times.append(time.perf_counter() - began)
        return 1000 * min(times)

    alone = await took()
    await define_queues(store, QUEUES - 1)
    among = await took()
    await fill(store, range(2_001, 2_001 + WAITING), "PENDING", ready="true", run_at="number")
    above = await took()
    assert among <= 2 * alone, f"{alone:.2f} ms alone, {among:.2f} ms among {QUEUES} queues"
    assert above < 5, f"{above:.2f} ms with {WAITING:,} tasks waiting"
    measured("claim time", alone=alone, among=among, queues=QUEUES, above=above, waiting=WAITING)


@pytest.mark.proves("Q-23", "W-17", "protocol-16")
@postgres
@pytest.mark.parametrize("statement", ["claim", "claim_above"])
async def test_the_queues_are_walked_in_the_order_given_whatever_the_planner_knew(
    live_store: Store, backend: str, statement: str
) -> None:
    store = live_store
    worker = await begin(store)

    async def claimed_of(*queues: int) -> set[int]:
        if statement == "claim":
            claimed = await store.database.tasks.claim(worker, [(queue, 5) for queue in queues], 5)
        else:
            claimed = await store.database.tasks.claim_above(worker, [(queue, 5, 0, 0, 0) for queue in queues], 5)
        return {task.queue_id for task in claimed}

    first = await filled(store, "first")
    await do(store, "analyze {queue}")
    assert await claimed_of(first) == {first}  # the plan is made now, of what the planner knows of one queue
    second = await filled(store, "second")
    assert await claimed_of(second, first) == {second}
    assert await claimed_of(first, second) == {first}


@pytest.mark.proves("Q-23", "protocol-16")
@postgres
async def test_by_hand_too_each_queue_comes_first_in_turn(live_store: Store, backend: str) -> None:
    store = live_store

    async def taken_of(*queues: str) -> set[str]:
        return {message.queue for message in await store.dequeue(queues, 5)}

    await filled(store, "first")
    await do(store, "analyze {queue}")
    assert await taken_of("first") == {"first"}
    await filled(store, "second")
    both = [await taken_of("first", "second"), await taken_of("first", "second")]
    assert sorted(both, key=sorted) == [{"first"}, {"second"}]


async def filled(store: Store, name: str) -> int:
    """A queue with twenty messages; its number."""
    await store.create_queue(name)
    await store.enqueue_many(name, range(20))
    return await store.database.queue_id(name)
