"""Retention walks along indexes: what is kept, however much of it there is, costs it nothing."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from stepwell import Store
from stepwell.store.driver import Call
from stepwell.store.postgres.compose import Composer
from tests.queue.raw import change
from tests.upkeep.rows import DAY, now_of, put

WALKS = {  # the index each walks, and what it must not look at
    "remove_finished": "task_finished",
    "remove_dead": "task_dead",
    "remove_deleted": "task_deleted",
    "remove_sessions": "worker_stopped",
    "remove_old_audit": "audit_recorded",
    "remove_observations": "observation_recorded",
}


def call_of(store: Store, statement: str, queue: int) -> Call:
    before = now_of(store) - 7 * DAY
    return Call(statement, {"queue_id": queue, "tenant": "", "before": before, "limit": 1000})


@pytest.mark.proves("SD-10")
@pytest.mark.backends("sqlite", "turso", reason="Postgres tells its plans in another way")
async def test_every_walk_has_its_index(store: Store, backend: str) -> None:
    await store.create_queue("q")
    driver: Any = store.database.driver

    def plan(statement: str) -> list[str]:
        text = driver._statements._spell(statement).one
        given = dict(call_of(store, statement, 1).params)
        work = driver._writer.submit(lambda c: c.execute(f"explain query plan {text}", given).fetchall())
        return [str(row[3]) for row in work.result(10)]

    for statement, index in WALKS.items():
        lines = await asyncio.to_thread(plan, statement)
        assert any(f"INDEX stepwell_{index} (" in line and line.startswith("SEARCH") for line in lines), lines
        assert not any("SCAN stepwell_" in line or "SCAN task" in line for line in lines), lines
    lines = await asyncio.to_thread(plan, "outlived_queues")
    assert any("INDEX stepwell_task_finished (queue_id=?)" in line for line in lines), lines


@pytest.mark.proves("SD-10")
@pytest.mark.backends("postgres", reason="plans made on an empty table and kept are Postgres's own")
async def test_what_is_kept_costs_the_walk_nothing(store: Store, store_url: str, backend: str) -> None:
    await put(store, [1], queue="other")
    queue = await store.database.queue_id("other")
    calls = {name: call_of(store, name, queue) for name in (*WALKS, "outlived_queues")}
    settings = {"plan_cache_mode": "force_generic_plan", "jit": "off", "enable_seqscan": "off"}
    connection = await asyncpg.connect(store_url, server_settings=settings)
    try:
        await connection.execute("analyze")
        composer = Composer(store.database.statements)
        for name, call in calls.items():
            text, values = composer.compose([call])
            await connection.execute(f"prepare made_{name} as {text}")
            await connection.execute(f"execute made_{name}({_arguments(values)})")
        now = now_of(store)
        columns = "id, kind, queue_id, status, ready, max_attempts, created_at, updated_at, finished_at, deleted_at"
        for first, status, ended, deleted in (
            (10_000, "SUCCESS", str(now - DAY), "null"),
            (20_000, "ERROR", str(now - DAY), "null"),
            (30_000, "PENDING", "null", str(now - DAY)),
            (40_000, "PENDING", "null", "null"),
        ):
            await change(
                store,
                f"insert into {{task}} ({columns}) select number, 'MESSAGE', {queue}, '{status}', false, 3, 1, 1,"
                f" {ended}, {deleted} from generate_series({first}, {first} + 4999) as number",
            )
        await change(
            store,
            "insert into {worker} (name, host, pid, version, handlers, lease, started_at)"
            " select 'w', 'h', 1, '', '[]', 1, 1 from generate_series(1, 2000)",
            "insert into {audit} (task_id, place, what, recorded_at)"
            f" select number, 0, 'made', {now} from generate_series(1, 5000) as number",
        )
        for name, call in calls.items():
            _, values = composer.compose([call])
            explain = "explain (analyze, buffers, format json)"
            found = await connection.fetchval(f"{explain} execute made_{name}({_arguments(values)})")
            plan = json.loads(found)[0]["Plan"]
            assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 20, (name, found)
            used = {node.get("Index Name") for node in _nodes(plan)}
            assert WALKS.get(name, "task_finished") in used, (name, used)
            assert not {node["Node Type"] for node in _nodes(plan)} & {"Seq Scan", "Sort"}, (name, found)
    finally:
        await connection.close()


def _arguments(values: list[Any]) -> str:
    return ", ".join("null" if value is None else f"'{value}'" for value in values)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)
