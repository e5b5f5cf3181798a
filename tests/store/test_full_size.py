"""What a claim, a settle and a sweep cost in a full store: what they cost in a nearly empty one.

Counted in pages on Postgres, in instructions of its machine on SQLite. `make soak` runs this at full size.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import pytest

from stepwell import Store
from stepwell.store.driver import Call
from tests.ground.scale import Scale
from tests.store.plans import Calls, Prepared, buffers, drawn, fill, nodes, picked
from tests.store.seam import begin, do
from tests.store.steps import Stepped

FAR = 10**17  # a moment that will not come
FEW = 1_000
UNDER_WAY = range(90_000_001, 90_000_011)


@dataclass(frozen=True, slots=True)
class Around:
    """How many tasks of each sort lie in the store."""

    ready: int
    scheduled: int
    finished: int


@pytest.fixture
def around(scale: Scale) -> Around:
    return scale.of(Around(20_000, 20_000, 50_000), Around(200_000, 200_000, 1_000_000))


async def fill_few(store: Store, worker: int) -> None:
    """A few tasks of each sort, and ten that the session is executing."""
    await _fill(store, Around(0, 0, 0), Around(FEW, FEW, FEW))
    await fill(store, UNDER_WAY, "PENDING", ready="false", run_at=str(FAR))
    taken = f"status = 'RUNNING', owner = {worker}, turn = 1, claimed_at = 1"
    await do(store, f"update {{task}} set {taken} where id >= {UNDER_WAY.start}")


async def fill_the_rest(store: Store, around: Around) -> None:
    """Make of the few a full store."""
    await _fill(store, Around(FEW, FEW, FEW), around)


async def _fill(store: Store, there: Around, wanted: Around) -> None:
    def ids(first: int, there: int, wanted: int) -> range:
        return range(first + there + 1, first + wanted + 1)

    await fill(store, ids(0, there.ready, wanted.ready), "PENDING", ready="true", run_at="number")
    scheduled = ids(10_000_000, there.scheduled, wanted.scheduled)
    await fill(store, scheduled, "PENDING", ready="false", run_at=f"{FAR} + number")
    finished = ids(20_000_000, there.finished, wanted.finished)
    await fill(store, finished, "SUCCESS", ready="false", run_at="number", finished="number")


@pytest.mark.proves("PR-15", "protocol-16", "promise-18")
@pytest.mark.backends("postgres", reason="an embedded store counts instructions, not pages: below")
async def test_on_postgres_the_pages_touched_do_not_grow(
    live_store: Store, prepared: Prepared, around: Around, measured: Callable[..., None]
) -> None:
    store = live_store
    await store.create_queue("q")
    queue, worker = await store.database.queue_id("q"), await begin(store)
    verbs = Calls(store, worker)
    calls = {
        "claim": await verbs.claim([queue], 10),
        "above": await verbs.claim_above([(queue, 10, 0, 0, 0)], 10),
        "one": await verbs.claim([queue], 1),
        "settle": await verbs.settle(UNDER_WAY),
        "wake": [Call("wake_due", {"limit": 1000, "taken": False})],
        "due": [Call("next_due", store.database.params())],
    }
    await do(store, "analyze {task}", "analyze {queue}", "analyze {fence}")
    for name, asked in calls.items():
        await prepared.prepare(name, asked)

    async def explained() -> dict[str, dict[str, Any]]:
        return {name: await prepared.explain(name, asked) for name, asked in calls.items()}

    await fill_few(store, worker)
    few = await explained()
    await fill_the_rest(store, around)
    full = await explained()
    assert_index_walks(few)
    assert_index_walks(full)
    assert_as_cheap(few, full)
    await do(store, "analyze {task}")  # every plan is made anew, by who knows the full table
    planned_late = await explained()
    assert_index_walks(planned_late)
    assert_as_cheap(few, planned_late)
    found, wholes = buffers(picked(full["claim"])), {name: buffers(plan) for name, plan in full.items()}
    before = {name: buffers(plan) for name, plan in few.items()}
    measured("claim", **asdict(around), unit="pages", found=found, few=before, full=wholes)


def assert_index_walks(plans: dict[str, dict[str, Any]]) -> None:
    """Fail if a plan reads the table in a row, reads what it then throws away, or sorts what it claims."""
    for name, plan in plans.items():
        reads = [node for node in nodes(plan) if node.get("Relation Name") == "task"]
        assert "Seq Scan" not in {node["Node Type"] for node in reads}, drawn(name, plan)
        assert all(node.get("Rows Removed by Filter", 0) == 0 for node in reads), drawn(name, plan)
        assert all(node.get("Rows Removed by Index Recheck", 0) == 0 for node in reads), drawn(name, plan)
    for name, expected in (("claim", 10), ("above", 10), ("one", 1)):
        assert "Sort" not in {node["Node Type"] for node in nodes(plans[name])}, drawn(name, plans[name])
        assert picked(plans[name])["Actual Rows"] == expected
        assert "task_ready" in {node.get("Index Name") for node in nodes(picked(plans[name]))}


def assert_as_cheap(few: dict[str, dict[str, Any]], full: dict[str, dict[str, Any]]) -> None:
    """Fail if more pages are touched than an index that is a level or two deeper explains."""
    for name in ("claim", "above"):
        assert buffers(picked(full[name])) < 30, drawn(name, full[name])
        assert buffers(full[name]) < 200, drawn(name, full[name])
    assert buffers(full["one"]) < 50, drawn("one", full["one"])
    assert buffers(full["wake"]) <= 8, drawn("wake", full["wake"])
    assert buffers(full["due"]) <= 16, drawn("due", full["due"])
    for name, plan in full.items():
        assert buffers(plan) <= 1.6 * buffers(few[name]) + 4, drawn(name, plan)


@pytest.mark.proves("PR-15", "promise-18")
@pytest.mark.backends("sqlite", reason="SQLite counts its machine's instructions; Turso counts nothing")
async def test_on_sqlite_the_instructions_executed_do_not_grow(
    live_store: Store, around: Around, measured: Callable[..., None]
) -> None:
    store, stepped = live_store, Stepped(live_store)
    await store.create_queue("q")
    queue, worker = await store.database.queue_id("q"), await begin(store)
    verbs = Calls(store, worker)
    calls = {
        "claim": await verbs.claim([queue], 10),
        "one": await verbs.claim([queue], 1),
        "settle": (await verbs.settle(UNDER_WAY))[:1],
        "wake": [Call("wake_due", {"limit": 1000, "taken": False})],
        "due": [Call("next_due", store.database.params())],
    }

    async def counted() -> dict[str, int]:
        return {name: await stepped.steps(asked) for name, asked in calls.items()}

    await fill_few(store, worker)
    few = await counted()
    await fill_the_rest(store, around)
    full = await counted()
    for name, steps in full.items():
        assert steps <= 1.2 * few[name], name
    assert min(few.values()) > 10, "the machine's instructions are not counted: void"
    measured("claim", **asdict(around), unit="instructions", found=None, few=few, full=full)
