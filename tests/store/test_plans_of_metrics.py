"""What measuring costs in a store with a long history: what it costs without one, by counts and by plans."""

from typing import Any

import pytest

from stepwell import Store
from stepwell.store.driver import Call
from tests.store.plans import Prepared, buffers, drawn, fill, nodes
from tests.store.seam import begin, do
from tests.store.steps import Stepped

SINCE = 10**15
WINDOW = range(1, 21)  # runs that ended in the window, with a step each
LIVE = range(31, 41)
TIME: dict[str, Any] = {"now": None, "beat_now": None, "tenant": "", "most": 10_001}
STATUSES = ("PENDING", "RUNNING", "PAUSED")


async def asked(store: Store) -> dict[str, list[Call]]:
    """What is asked to measure a workflow, by what it is for."""
    queue = await store.database.queue_id("flow")
    window = {**TIME, "since": SINCE}
    return {
        "runs": [Call("ended_runs", window, [(queue,), (queue + 1,)])],
        "steps": [Call("ended_steps", window, [(queue,), (queue + 1,)])],
        "live": [Call("live_runs", TIME, [(queue, status) for status in STATUSES])],
        "dead": [Call("dead_counts", TIME, [(queue,), (queue + 1,)])],
        "settled": [Call("settled_since", window)],
        "sessions": [Call("serving_sessions", TIME)],
    }


async def filled(store: Store) -> None:
    """Runs that ended in the window, and some that have not ended."""
    ended = str(SINCE + 1)
    await fill(store, WINDOW, "SUCCESS", ready="false", run_at="1", finished=ended)
    await fill(store, LIVE, "PENDING", ready="true", run_at="number")
    await do(
        store,
        f"update {{task}} set status = 'ERROR' where id = {WINDOW[0]}",
        f"update {{task}} set kind = 'RUN', started_at = {SINCE} where id <= {LIVE[-1]}",
        "insert into {step} (run_id, key, place, status, attempt, started_at, finished_at)"
        f" select id, 'one#1', 1, 'SUCCESS', 1, 1, 2 from {{task}} where id <= {WINDOW[-1]}",
        "insert into {rollup} (minute, queue_id, shard, turns)"
        f" select {SINCE} / 60000000 + id, 1, 1, 1 from {{task}}",
    )


async def grown(store: Store) -> None:
    """A history: runs of the same workflow that ended before, with their steps, and sessions that have."""
    await fill(store, range(100_000, 115_000), "SUCCESS", ready="false", run_at="1", finished="number")
    await fill(store, range(200_000, 202_000), "CANCELLED", ready="false", run_at="1", finished="number")
    await do(
        store,
        "update {task} set kind = 'RUN', started_at = 1 where id >= 100000",
        "insert into {step} (run_id, key, place, status, attempt, started_at, finished_at)"
        " select id, 'one#1', 1, 'SUCCESS', 1, 1, 2 from {task} where id between 100000 and 110000",
        "insert into {worker} (name, host, pid, version, handlers, lease, started_at, stopped_at)"
        " select 'w', 'h', 1, '', '[]', 1, 1, 2 from {task} where id between 100000 and 102000",
        "insert into {rollup} (minute, queue_id, shard, turns) select id, 1, 1, 1 from {task} where id >= 100000",
    )


@pytest.mark.proves("MM-08", "protocol-16")
@pytest.mark.backends("postgres", reason="an embedded store tells its plans in another way: below")
async def test_what_ended_before_the_window_is_not_looked_at(
    live_store: Store, prepared: Prepared, backend: str
) -> None:
    """With plans made on an empty table, as a driver that lives for long has them."""
    store = live_store
    await store.create_workflow("flow")
    await begin(store)
    calls = await asked(store)
    await do(
        store,
        "analyze {task}",
        "analyze {step}",
        "analyze {worker}",
        "analyze {beat}",
        "analyze {queue}",
        "analyze {rollup}",
    )
    for name, each in calls.items():
        await prepared.prepare(name, each)
    await filled(store)
    before = {name: await prepared.explain(name, each) for name, each in calls.items()}
    await grown(store)
    after = {name: await prepared.explain(name, each) for name, each in calls.items()}
    for name, plan in after.items():
        reads = [node for node in nodes(plan) if node.get("Relation Name") in ("task", "step", "worker", "rollup")]
        assert reads, name
        assert "Seq Scan" not in {node["Node Type"] for node in reads}, drawn(name, plan)
        assert all(node.get("Rows Removed by Filter", 0) == 0 for node in reads), drawn(name, plan)
        # Each of twenty runs is looked up by its id: an index that has grown is a page or two deeper.
        assert buffers(plan) <= buffers(before[name]) + 60, f"{buffers(before[name])} before\n{drawn(name, plan)}"
        assert buffers(plan) < 200, drawn(name, plan)
    used = {name: {node.get("Index Name") for node in nodes(plan)} for name, plan in after.items()}
    assert {"task_finished", "task_dead_in_queue"} <= used["runs"], "the indexes that know when a task ended"
    assert "task_run" in used["live"]
    for name in ("runs", "steps", "live"):
        looped = [part for node in nodes(after[name]) if node["Node Type"] == "Nested Loop" for part in nodes(node)]
        read = {part.get("Relation Name") for part in looped}
        assert read <= {"task", None}, f"all with all, in a large window\n{drawn(name, after[name])}"


@pytest.mark.proves("MM-08")
@pytest.mark.backends("postgres", reason="an embedded store tells its plans in another way: below")
async def test_plans_made_on_a_full_table_are_as_good(live_store: Store, prepared: Prepared, backend: str) -> None:
    store = live_store
    await store.create_workflow("flow")
    await begin(store)
    calls = await asked(store)
    await filled(store)
    await grown(store)
    await do(
        store,
        "analyze {task}",
        "analyze {step}",
        "analyze {worker}",
        "analyze {beat}",
        "analyze {queue}",
        "analyze {rollup}",
    )
    for name, each in calls.items():
        await prepared.prepare(name, each)
        plan = await prepared.explain(name, each)
        assert buffers(plan) < 200, drawn(name, plan)


@pytest.mark.proves("MM-08")
@pytest.mark.backends("sqlite", "turso", reason="Postgres tells its plans in another way: above")
async def test_an_embedded_store_finds_by_an_index_what_ended_in_the_window(store: Store, backend: str) -> None:
    await store.create_workflow("flow")
    stepped = Stepped(store)
    plans = {name: await stepped.plan(call) for name, [call] in (await asked(store)).items()}
    for name in ("runs", "steps"):
        found = "\n".join(plans[name])
        assert "INDEX stepwell_task_finished (queue_id=? AND finished_at>" in found, found
        assert "INDEX stepwell_task_dead_in_queue (queue_id=? AND finished_at>" in found, found
    assert any("SEARCH step USING INDEX" in line and "(run_id=?)" in line for line in plans["steps"]), plans["steps"]
    assert any("INDEX stepwell_task_run (queue_id=? AND status=?)" in line for line in plans["live"]), plans["live"]
    assert any("INDEX stepwell_task_dead_in_queue" in line for line in plans["dead"]), plans["dead"]
    assert any("SEARCH worker USING INTEGER PRIMARY KEY" in line for line in plans["sessions"]), plans["sessions"]


@pytest.mark.proves("MM-08")
@pytest.mark.backends("sqlite", reason="SQLite counts its machine's instructions; Turso counts nothing")
async def test_on_sqlite_the_instructions_of_measuring_do_not_grow(live_store: Store, backend: str) -> None:
    store, stepped = live_store, Stepped(live_store)
    await store.create_workflow("flow")
    await begin(store)
    await filled(store)
    calls = await asked(store)
    before = {name: await stepped.steps(each) for name, each in calls.items()}
    await grown(store)
    for name, each in calls.items():
        assert await stepped.steps(each) < before[name] + 500, name
