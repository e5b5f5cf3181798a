"""What a claim of a limited queue costs: by how much it takes, not by how many keys there are, or how much one has."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from stepwell import Store
from stepwell.store.driver import Call
from tests.ground.scale import Scale
from tests.store.plans import CHUNK, Prepared, drawn, rows_of, touched
from tests.store.seam import begin, do

pytestmark = pytest.mark.backends("postgres", reason="an embedded store counts no buffers")

TABLES: Final = ("task", "limiter", "key_limit", "key_paid", "queue")
SIZES: Final = (1, 10, 50)
RATES: Final = {"rate": "1000000/s burst 500000", "key_rate": "1000/s"}
FILL: Final = """
insert into {task} (id, kind, queue_id, status, ready, priority, run_at, max_attempts, input, created_at, updated_at,
                    limit_key)
with recursive numbers (n) as (
    select cast(%(first)s as bigint) union all select n + 1 from numbers where n < %(last)s
)
select n, 'MESSAGE', (select max(id) from {queue}), 'PENDING', true, 0, n, 3, '0', 1, 1, %(key)s from numbers
"""


@pytest.mark.proves("LI-17")
@pytest.mark.parametrize("rates", [{}, RATES], ids=["places", "places and rates"])
async def test_neither_many_keys_nor_a_noisy_one_make_a_claim_dearer(
    live_store: Store,
    prepared: Prepared,
    scale: Scale,
    measured: Callable[..., None],
    rates: dict[str, Any],
) -> None:
    store, some = live_store, 1_000
    many, noisy = scale.of(5_000, 100_000), scale.of(20_000, 1_000_000)
    await store.create_queue("q")
    await store.limits.set("q", running=100, per_key=5, key="tenant", **rates)
    calls = await _claims(store, prepared)
    await _fill(store, range(1, 3 * some), f"'key-' || n % {some}")
    few = await _cost(prepared, calls)
    await _fill(store, range(3 * some, 3 * some + noisy), "'a-noisy-key'")
    beside_a_noisy_one = await _cost(prepared, calls)
    await _fill(store, range(3 * some + noisy, 3 * some + noisy + 2 * many), f"'key-' || n % {many}")
    of_many = await _cost(prepared, calls)
    for size, before in few.items():
        assert beside_a_noisy_one[size] <= 1.2 * before + 2
        assert of_many[size] <= 1.5 * before + 2
        assert size == 1 or max(before, of_many[size]) <= (60 if rates else 40)
    measured(
        "keys",
        rates=bool(rates),
        keys=some,
        noisy=noisy,
        many=many,
        few=few,
        beside=beside_a_noisy_one,
        of_many=of_many,
    )


async def _claims(store: Store, prepared: Prepared) -> dict[int, Call]:
    """Claims of each size, planned while the tables are empty."""
    worker, calls = await begin(store), dict[int, Call]()
    for size in SIZES:
        asked = {"queue_id": await store.database.queue_id("q"), "limit": size, "visits": 1000, "worker": worker}
        given = {**asked, "slot": store.database.claim_slot, "visibility": None, "now": None}
        calls[size] = Call("claim_limited", given)
        await prepared.prepare(f"claim_{size}", [calls[size]])
    return calls


async def _fill(store: Store, ids: range, key: str) -> None:
    for first in range(ids.start, ids.stop, CHUNK):
        await do(store, FILL % {"first": first, "last": min(first + CHUNK, ids.stop) - 1, "key": key})


async def _cost(prepared: Prepared, calls: dict[int, Call]) -> dict[int, float]:
    """Buffers a task, by the size of the claim."""
    costs: dict[int, float] = {}
    for size, call in calls.items():
        plan = await prepared.explain(f"claim_{size}", [call])
        assert rows_of(plan) >= size, drawn(f"claim of {size}\n", plan)
        costs[size] = round(touched(plan) / size, 1)
    return costs
