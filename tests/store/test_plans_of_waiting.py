"""What waiting costs in a full store: what it costs in an empty one, with plans that were made when it was empty."""

from typing import Any

import pytest

from stepwell import Store
from stepwell.store.driver import Call
from tests.store.plans import Calls, Prepared, buffers, drawn, fill, nodes, with_one_row
from tests.store.seam import begin, do
from tests.store.steps import Stepped

CHILDREN = range(20_001, 20_011)
PARENTS = range(30_001, 30_006)
TAKEN = 5_000  # signals that each parent has taken before
FAR = 10**17
TIME: dict[str, Any] = {"now": None, "tenant": ""}


def waits(worker: int) -> dict[str, list[Call]]:
    """What is asked for runs that wait, by what it is for."""
    ended = [(child, "SUCCESS", PARENTS[place // 2]) for place, child in enumerate(CHILDREN)]
    return {
        "waking": [Call("wake_parents", TIME, ended)],
        "locking": [Call("lock_turns", {**TIME, "slot": 0}, [(parent, worker, 1) for parent in PARENTS])],
        "looking": [Call("ends_of", TIME, [(child,) for child in CHILDREN])],
        "signals": [Call("first_signals", TIME, [(parent, "word", "word#1") for parent in PARENTS])],
        "taking": [Call("take_signals", TIME, [(parent, "word", TAKEN + 1, "word#1") for parent in PARENTS])],
        "sending": [Call("untaken_signals", {"id": PARENTS[0], "name": "word", "key": "k"})],
        "telling": [Call("paused_steps", {"id": PARENTS[0], "generation": 1})],
        "numbering": [Call("add_signal", {**TIME, "id": PARENTS[0], "name": "word", "key": "k", "data": "1"})],
        "clearing": [Call("forget_signals", {"id": PARENTS[0], "name": "word", "before": 2, "limit": 3})],
        "replaying": [Call("steps_of", {}, [(parent, 1) for parent in PARENTS])],
        "forgetting": [Call("forget_generations", {}, [(parent, 2) for parent in PARENTS])],
        "stopping": [Call("cancel_tasks", {**TIME, "error": None, "last_error": None}, [(one,) for one in PARENTS])],
        "cancelling": [Call("unfinished_children", {}, [(parent,) for parent in PARENTS])],
    }


async def full(store: Store, worker: int) -> None:
    """Five parents under way with two children each, and ten signals, among many others of each."""
    await fill(store, range(1, 20_001), "PENDING", ready="true", run_at="number")
    await fill(store, CHILDREN, "PENDING", ready="false", run_at=str(FAR))
    await fill(store, PARENTS, "PENDING", ready="false", run_at=str(FAR))
    await fill(store, range(100_000, 150_000), "SUCCESS", ready="false", run_at="number", finished="number")
    taken = f"status = 'RUNNING', owner = {worker}, turn = 1, claimed_at = 1"
    await do(
        store,
        f"update {{task}} set {taken} where id between {CHILDREN[0]} and {PARENTS[-1]}",
        f"update {{task}} set parent_id = {PARENTS[0]} + (id - {CHILDREN[0]}) / 2"
        f" where id between {CHILDREN[0]} and {CHILDREN[-1]}",
        "update {task} set parent_id = id - 50000 where id >= 130000",
        "insert into {signal} (run_id, name, place, data, sent_at)"
        " select id, 'word', 1, '1', 1 from {task} where id >= 140000",
        "insert into {step} (run_id, key, place, status, attempt, started_at)"
        " select id, 'one#1', 1, 'SUCCESS', 1, 1 from {task} where id >= 120000 or id between"
        f" {PARENTS[0]} and {PARENTS[-1]}",
    )
    for parent in PARENTS:  # each has taken many, and restarted
        signals = ", ".join(f"({parent}, 'word', {place}, '1', 1)" for place in (TAKEN + 1, TAKEN + 2))
        await do(
            store,
            "insert into {signal} (run_id, name, place, data, sent_at, taken_at)"
            f" select {parent}, 'word', id, '1', 1, 1 from {{task}} where id <= {TAKEN}",
            f"insert into {{signal}} (run_id, name, place, data, sent_at) values {signals}",
            "insert into {step} (run_id, generation, key, place, status)"
            f" values ({parent}, 1, 'one#1', 1, 'PAUSED'), ({parent}, 1, 'two#1', 2, 'SUCCESS')",
        )


@pytest.mark.proves("protocol-16", "promise-18", "R-21")
@pytest.mark.backends("postgres", reason="an embedded store tells its plans in another way: below")
async def test_plans_of_waiting_made_on_an_empty_table_stay_good_on_a_full_one(
    live_store: Store, prepared: Prepared, backend: str
) -> None:
    store = live_store
    await store.create_queue("q")
    worker = await begin(store)
    settle, count = await Calls(store, worker).settle(CHILDREN)
    asked = with_one_row({"ending": [settle, count, Call("wake_parents", TIME, fed_by=0)], **waits(worker)})
    await do(store, "analyze {task}", "analyze {signal}", "analyze {step}", "analyze {fence}")
    for name, calls in asked.items():
        await prepared.prepare(name, calls)
    await full(store, worker)
    plans = {name: await prepared.explain(name, calls) for name, calls in asked.items()}
    for name, plan in plans.items():
        reads = [node for node in nodes(plan) if node.get("Relation Name") in ("task", "signal", "step")]
        assert "Seq Scan" not in {node["Node Type"] for node in reads}, drawn(name, plan)
        assert all(node.get("Rows Removed by Filter", 0) <= 2 for node in reads), drawn(name, plan)
        assert all(node.get("Rows Removed by Index Recheck", 0) == 0 for node in reads), drawn(name, plan)
        assert buffers(plan) < (500 if name == "ending" else 150), drawn(name, plan)
    found = {name: plan["Actual Rows"] for name, plan in plans.items() if not name.endswith("_one")}
    assert found == {
        "ending": 10 + 1 + 5,
        "waking": 5,
        "locking": 5,
        "looking": 10,
        "signals": 5,
        "taking": 5,
        "sending": 1,
        "telling": 1,
        "numbering": 1,
        "clearing": 3,
        "replaying": 10,
        "forgetting": 15,
        "stopping": 5,
        "cancelling": 10,
    }


@pytest.mark.proves("protocol-16", "promise-18")
@pytest.mark.backends("postgres", reason="an embedded store tells its plans in another way: below")
async def test_whatever_names_its_tasks_finds_them_by_their_ids(
    live_store: Store, prepared: Prepared, backend: str
) -> None:
    store = live_store
    await store.create_queue("q")
    queue, worker = await store.queue_id("q"), await begin(store)
    named = [(parent,) for parent in PARENTS]
    named_many = {
        "runs": [Call("runs", {"tenant": "", "deleted": False}, named)],
        "letters": [Call("letters_of", {}, named)],
        "purge": [Call("purge", TIME, named)],
        "drop": [Call("drop", TIME, named)],
        "removal": [Call("delete_taken", TIME, [(parent, 1) for parent in PARENTS])],
        "forgetting": [Call("forget_steps", {}, [(parent, "") for parent in PARENTS])],
        "found": [Call("find_added", {}, [(parent, queue, f"key-{parent}") for parent in PARENTS])],
        "turns": [Call("turns_of", {}, named)],
    }
    asked = with_one_row(named_many)
    await do(store, "analyze {task}", "analyze {step}", "analyze {queue}")
    for name, calls in asked.items():
        await prepared.prepare(name, calls)
    await full(store, worker)
    await do(store, "update {task} set kind = 'run', key = 'key-' || id where id > 20000")
    ended = "owner = null, status = 'ERROR', finished_at = 1"
    await do(store, f"update {{task}} set {ended} where id between {PARENTS[0]} and {PARENTS[-1]}")
    for name, calls in asked.items():
        plan = await prepared.explain(name, calls)
        assert buffers(plan) < 200, drawn(name, plan)


@pytest.mark.proves("PR-15", "R-21")
@pytest.mark.backends("sqlite", "turso", reason="Postgres tells its plans in another way: above")
async def test_an_embedded_store_finds_by_an_index_what_waits(store: Store, backend: str) -> None:
    stepped = Stepped(store)
    for name, [call] in waits(await begin(store)).items():
        for line in await stepped.plan(call):
            told = f"{name}: {line}"
            assert not line.startswith(
                ("SCAN task", "SCAN signal", "SCAN taken", "SCAN free", "SCAN first", "SCAN kept", "SCAN stepwell")
            ), told


@pytest.mark.proves("PR-15", "R-21")
@pytest.mark.backends("sqlite", reason="SQLite counts its machine's instructions; Turso counts nothing")
async def test_on_sqlite_the_instructions_of_waiting_do_not_grow(live_store: Store, backend: str) -> None:
    store, stepped = live_store, Stepped(live_store)
    await store.create_queue("q")
    worker = await begin(store)
    calls = waits(worker)
    empty = {name: await stepped.steps(asked) for name, asked in calls.items()}
    await full(store, worker)
    grown = {name: await stepped.steps(asked) for name, asked in calls.items()}
    for name, steps in grown.items():
        assert steps < empty[name] + 2_000, name
