"""What people ask of a store: counted to a bound that is told, and no dearer in a fuller store.

`tests/store/test_growth.py` asks the same of a store at full size.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from stepwell import Count, QueueInUse, RunStatus, Store, connect
from stepwell.base import count
from stepwell.operate.doctor import findings
from stepwell.operate.facts import facts_of
from stepwell.operate.status import overview_of
from stepwell.store.driver import Call
from stepwell.store.postgres.connection import connect as connect_as_the_driver_does
from tests.store.plans import Prepared, drawn, touched
from tests.store.seam import begin, do, watched
from tests.store.world import Size, found, load
from tests.upkeep.rows import now_of, put

FLAT = 1.3  # times as many buffers, where an index is a page deeper
COUNTING = {"queue_stats", "counts", "live_runs", "ended_runs", "ended_steps", "dead_counts", "set_aside"}
Ask = Callable[[Store], Awaitable[Any]]
ASKED: dict[str, Ask] = {
    "counts": lambda store: store.counts("flow"),
    "queue_stats": lambda store: store.queue_stats(),
    "dead_letter_counts": lambda store: store.dead_letter_counts(),
    "set_aside": lambda store: store.set_aside(),
    "doctor": lambda store: facts_of(store, "here"),
    "top": lambda store: overview_of(store, 10),
    "metrics": lambda store: store.metrics("flow", window="1h"),
    "prometheus": lambda store: store.prometheus(window="5m"),
    "unserved": lambda store: store.unserved(),
}


def floors(told: Any) -> dict[str, int]:
    return {str(name): number for name, number in told.items() if number.is_floor}


@pytest.fixture
def few_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count, "MOST_COUNTED", 3)


async def filled(store: Store) -> None:
    """A queue and a workflow with three of one sort, and five of others."""
    worker = await begin(store)
    await store.create_workflow("flow")
    ended = {"started_at": now_of(store) - 2, "finished_at": now_of(store) - 1}
    sorts: list[tuple[int, dict[str, Any]]] = [
        (5, {"ready": True}),
        (3, {"run_at": 10**17}),
        (2, {"status": "PAUSED", "run_at": None, "paused_at": 1}),
        (3, {"status": "RUNNING", "owner": worker, "claimed_at": 1}),
        (4, {"status": "SUCCESS", **ended}),
        (1, {"status": "CANCELLED", **ended}),
        (3, {"status": "ERROR", **ended}),
    ]
    for number, (many, columns) in enumerate(sorts):
        await put(store, range(100 * number + 1, 100 * number + 1 + many), queue="flow", kind="RUN", **columns)


@pytest.mark.proves("MM-08")
@pytest.mark.usefixtures("few_counted")
async def test_counts_are_exact_to_a_bound_and_then_say_that_they_are_floors(store: Store) -> None:
    await filled(store)
    told = await store.counts("flow")
    assert {name: int(number) for name, number in told.items()} == {
        # Of five that are ready three are counted, and of five that wait three or four.
        "PENDING": told["PENDING"], "RUNNING": 3, "PAUSED": told["PAUSED"], "SUCCESS": told["SUCCESS"],
        "CANCELLED": told["CANCELLED"], "ERROR": 3,
    }  # fmt: skip
    assert 3 + 3 <= told["PENDING"] + told["PAUSED"] <= 3 + 4
    assert set(floors(told)) == {"PENDING", "PAUSED", "RUNNING", "SUCCESS", "CANCELLED"}
    assert told["SUCCESS"] + told["CANCELLED"] in (3, 4)
    whole = {"PENDING": 8, "RUNNING": 3, "PAUSED": 2, "SUCCESS": 4, "CANCELLED": 1, "ERROR": 3}
    exact = await store.counts("flow", exact=True)
    assert (exact, floors(exact)) == (whole, {})


@pytest.mark.proves("MM-08")
@pytest.mark.usefixtures("few_counted")
async def test_of_a_queue_each_part_has_its_own_bound(store: Store) -> None:
    await filled(store)
    await put(store, range(9001, 9003), queue="small", ready=True)
    stats = {one.queue: one for one in await store.queue_stats()}
    flow, small = stats["flow"], stats["small"]
    assert (str(flow.ready), str(flow.dead), str(flow.waiting), str(flow.running)) == ("3+", "3", "3+", "3+")
    assert (small.ready, small.ready.is_floor, small.waiting.is_floor) == (2, False, False)
    whole = {one.queue: one for one in await store.queue_stats(exact=True)}["flow"]
    assert (whole.ready, whole.waiting, whole.set_aside, whole.running, whole.dead) == (5, 5, 2, 3, 3)
    assert not any(each.is_floor for each in (whole.ready, whole.waiting, whole.running, whole.dead))
    said = {one.said for one in findings(await facts_of(store, "here"))}
    assert "flow has 6+ tasks and no living worker serves it" in said, said


@pytest.mark.proves("MM-08")
@pytest.mark.usefixtures("few_counted")
async def test_the_oldest_is_told_whatever_its_priority(store: Store) -> None:
    """The least urgent task is behind all that are counted."""
    await put(store, range(1, 9), ready=True, priority=5, run_at=now_of(store) - 2_000_000)
    await put(store, [9], ready=True, priority=-5, run_at=now_of(store) - 90_000_000)
    [stats] = await store.queue_stats()
    assert (str(stats.ready), round(stats.oldest or 0)) == ("3+", 90)


@pytest.mark.proves("MM-08", "MM-06")
@pytest.mark.usefixtures("few_counted")
async def test_metrics_beyond_the_bound_are_floors_or_go_by_the_minute(store: Store) -> None:
    await filled(store)
    measured = await store.metrics("flow", window="1h")
    assert (
        str(measured.runs[RunStatus.PENDING]),
        str(measured.runs[RunStatus.PAUSED]),
        str(measured.dead_letters),
    ) == ("3+", "2", "3")
    assert measured.runs[RunStatus.SUCCESS].is_floor
    assert measured.durations is not None
    assert measured.durations.count <= 4, "of the newest"
    queue, minute = await store.database.queue_id("flow"), now_of(store) // 60_000_000
    await do(
        store,
        "insert into {rollup} (minute, queue_id, shard, turns, succeeded, failed)"
        f" values ({minute}, {queue}, 0, 9, 8, 1)",
    )
    counted = (await store.metrics("flow", window="1h")).runs
    assert (counted[RunStatus.SUCCESS], counted[RunStatus.SUCCESS].is_floor) == (8, False), (
        "by the minute, as there are more"
    )
    assert (counted[RunStatus.ERROR], counted[RunStatus.ERROR].is_floor) == (3, False), "to the end, as there are few"
    whole = await store.metrics("flow", window="1h", exact=True)
    assert {str(status): int(number) for status, number in whole.runs.items()} == {
        "PENDING": 8, "RUNNING": 3, "PAUSED": 2, "SUCCESS": 4, "ERROR": 3, "CANCELLED": 1,
    }  # fmt: skip
    assert not floors(whole.runs)
    await put(store, [8001, 8002], queue="flow", kind="TIMER", status="ERROR", finished_at=1)
    dead = {one.kind: one.count for one in await store.dead_letter_counts()}
    assert sum(dead.values()) in (3, 4)
    assert all(one.is_floor for one in dead.values())
    assert {one.kind: one.count for one in await store.dead_letter_counts(exact=True)} == {"RUN": 3, "TIMER": 2}
    [aside] = await store.set_aside()
    assert (aside.needs, aside.runs, aside.runs.is_floor) == ("signal", 2, False)


@pytest.mark.proves("MM-08", "Q-01")
@pytest.mark.usefixtures("few_counted")
async def test_a_queue_in_use_is_not_counted_to_its_end(store: Store) -> None:
    await put(store, range(1, 9), ready=True)
    with pytest.raises(QueueInUse, match=r"has 3\+ messages") as refused:
        await store.delete_queue("q")
    assert refused.value.tasks == Count(3)


@pytest.mark.proves("MM-08", "promise-18", "protocol-16")
@pytest.mark.backends("postgres", reason="an embedded store counts instructions: test_scans.py")
@pytest.mark.parametrize("analysed", [False, True], ids=["never analysed", "analysed when full"])
async def test_ten_times_as_much_costs_no_more(
    store_url: str, monkeypatch: pytest.MonkeyPatch, analysed: bool, backend: str
) -> None:
    monkeypatch.setattr(count, "MOST_COUNTED", 50)
    few, many = [await costs_of(store_url, tasks, analysed=analysed) for tasks in (4_000, 40_000)]
    grown = {name: (few[name], cost) for name, cost in many.items() if cost > FLAT * few[name] + 4}
    assert not grown


async def costs_of(url: str, tasks: int, *, analysed: bool) -> dict[str, int]:
    """The buffers of every statement that counts, with plans made on an empty store, or made anew on the full one."""
    async with connect(url, schema=f"of_{tasks}") as store:
        of, calls = await found(store), await counting(store)
        connection = await connect_as_the_driver_does(url, 30)
        try:
            prepared = Prepared(connection, store)
            for name, call in calls.items():
                await prepared.prepare(name, [call])
            await load(store, Size(tasks, 2 * tasks, tasks // 10, tasks), of)
            if analysed:
                await do(store, *(f"analyze {{{table}}}" for table in ("task", "step", "queue")))
            plans = {name: await prepared.explain(name, [call]) for name, call in calls.items()}
        finally:
            await connection.close()
    assert all(plan["Actual Rows"] for plan in plans.values()), [drawn(name, plan) for name, plan in plans.items()]
    return {name: touched(plan) for name, plan in plans.items()}


async def counting(store: Store) -> dict[str, Call]:
    """The statements with which people's questions count, about all that ever ended."""
    over, driver = watched(store)
    for ask in ASKED.values():
        await ask(over)
    calls = {call.statement: replace(call, params={**call.params, "since": 0}) for call in driver.reads}
    counts = {name: call for name, call in calls.items() if "most" in call.params}
    assert set(counts) == COUNTING | {"maintenance"}
    return {name: counts[name] for name in COUNTING}
