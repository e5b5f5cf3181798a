"""Statements as Postgres plans and runs them: tables filled by the thousand, plans made once, buffers counted."""

import contextlib
import json
from collections.abc import Awaitable, Iterator, Sequence
from typing import Any

from stepwell import Store
from stepwell.errors import LeaseLost
from stepwell.store import tasks
from stepwell.store.driver import Call, Ddl, play
from stepwell.store.postgres.compose import Composer
from stepwell.store.tasks import Place, wanted_of
from tests.store.seam import DONE, do, watched

FILL = """
insert into {task} (id, kind, queue_id, status, ready, priority, run_at, owner, max_attempts, input,
                    created_at, updated_at, finished_at)
with recursive numbers (number) as (
    select cast(%(first)s as bigint) union all select number + 1 from numbers where number < %(last)s
)
select number, 'MESSAGE', (select max(id) from {queue}), '%(status)s', %(ready)s, 0, %(run_at)s, null, 3, '0', 1, 1,
       %(finished)s
  from numbers
"""
CHUNK = 50_000  # rows of one transaction: what a busy machine writes well within a call's deadline


async def fill(store: Store, ids: range, status: str, *, ready: str, run_at: str, finished: str = "null") -> None:
    """Tasks with these ids in the newest queue; `number` is a task's id."""
    given = {"status": status, "ready": ready, "run_at": run_at, "finished": finished}
    for first in range(ids.start, ids.stop, CHUNK):
        await do(store, FILL % {"first": first, "last": min(first + CHUNK, ids.stop) - 1, **given})


def literal(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        kind = "bigint" if all(isinstance(cell, int) for cell in value) else "text"
        return f"array[{', '.join(literal(cell) for cell in value)}]::{kind}[]"
    quoted = str(value).replace("'", "''")
    return f"'{quoted}'"


def arguments(values: list[Any]) -> str:
    return f"({', '.join(literal(value) for value in values)})" if values else ""


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def picked(plan: dict[str, Any]) -> dict[str, Any]:
    """The part of a claim that finds and locks its tasks."""
    [part] = [node for node in nodes(plan) if node.get("Subplan Name") == "CTE picked"]
    return part


def buffers(plan: dict[str, Any]) -> int:
    """How many pages it touched."""
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


def touched(plan: dict[str, Any]) -> int:
    """How many pages a whole statement touched, also in parts that write and that nothing reads from."""
    read = {f"CTE {node['CTE Name']}" for node in nodes(plan) if "CTE Name" in node}
    unread = [part for part in plan.get("Plans", ()) if str(part.get("Subplan Name", "")).startswith("CTE ")]
    return buffers(plan) + sum(buffers(part) for part in unread if part["Subplan Name"] not in read)


def rows_of(plan: dict[str, Any]) -> float:
    """How many rows a statement found, or wrote."""
    writes = [part for node in nodes(plan) if node["Node Type"] == "ModifyTable" for part in node.get("Plans", ())]
    written = [part["Actual Rows"] for part in writes if "Subplan Name" not in part]
    return float(max([plan["Actual Rows"], *written]))


def looked_at(plan: dict[str, Any]) -> float:
    """How many rows all its parts went through, thrown away or not, in tables or not."""
    thrown = ("Rows Removed by Filter", "Rows Removed by Join Filter", "Rows Removed by Index Recheck")
    each = (
        (node["Actual Rows"] + sum(node.get(name, 0) for name in thrown), node["Actual Loops"]) for node in nodes(plan)
    )
    return float(sum(rows * loops for rows, loops in each))


def scanned(plan: dict[str, Any]) -> set[str]:
    """The tables it read from the first page to the last."""
    return {node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan" and node["Actual Loops"]}


def drawn(name: str, plan: dict[str, Any], depth: int = 0) -> str:
    """The plan as a person reads it."""
    facts = ("Node Type", "Index Name", "Index Cond", "Filter", "Rows Removed by Filter", "Actual Rows")
    line = ", ".join(f"{plan[fact]}" for fact in facts if fact in plan)
    children = [drawn("", child, depth + 1) for child in plan.get("Plans", ())]
    return "\n".join([f"{name}{'  ' * depth}{line} ({buffers(plan)} buffers)", *children])


class Prepared:
    """Statements on a connection like the driver's own: prepared once, planned once, explained as they run."""

    def __init__(self, connection: Any, store: Store) -> None:
        self._connection = connection
        self._composer = Composer(store.database.statements)
        self._made: set[str] = set()

    async def prepare(self, name: str, calls: list[Call]) -> None:
        text, values = self._composer.compose(calls)
        if name in self._made:
            await self._connection.execute(f"deallocate made_{name}")
        self._made.add(name)
        await self._connection.execute(f"prepare made_{name} as {text}")
        await self._connection.execute(f"explain execute made_{name}{arguments(values)}")  # from now on it has its plan

    async def vacuum(self, store: Store, tables: Sequence[str]) -> None:
        """Let the planner know all of these tables, and remove what was rolled back.

        From the indexes too: in a large table a plain vacuum leaves a few dead entries there, and each costs a page.
        """
        for table in tables:
            name = store.database.statements._macros.fill(f"{{{table}}}")
            await self._connection.execute(f"vacuum (analyze, index_cleanup on) {name}")

    async def explain(self, name: str, calls: list[Call]) -> dict[str, Any]:
        """What the prepared plan did, rolled back."""
        async with self._rolled_back():
            return await self.do(name, calls)

    async def do(self, name: str, calls: list[Call]) -> dict[str, Any]:
        """What the prepared plan did, in the transaction that the connection is in."""
        _, values = self._composer.compose(calls)
        found = await self._connection.fetchval(
            f"explain (analyze, buffers, format json) execute made_{name}{arguments(values)}"
        )
        plan: dict[str, Any] = json.loads(found)[0]["Plan"]
        return plan

    def _rolled_back(self) -> "RolledBack":
        return RolledBack(self._connection)


class RolledBack:
    def __init__(self, connection: Any) -> None:
        self._transaction = connection.transaction()

    async def __aenter__(self) -> None:
        await self._transaction.start()

    async def __aexit__(self, *_: object) -> None:
        await self._transaction.rollback()


class Calls:
    """The calls that the store makes for its verbs, caught at the driver while there is nothing to claim yet."""

    def __init__(self, store: Store, worker: int) -> None:
        self._over, self._driver = watched(store)
        self._worker = worker

    async def claim(self, queues: Sequence[int], limit: int, ready: int | None = None) -> list[Call]:
        """A claim of these queues in this order, as if one of them, the first if none is named, could fill it."""
        wanted = [(queue, limit) for queue in queues]
        if self._over.database.driver.claims_many_queues:
            return await self._of(self._over.database.tasks.claim(self._worker, wanted, limit))
        params = self._over.database.params(worker=self._worker, slot=self._over.database.claim_slot, limit=limit)
        asked: list[Call] = []

        def answer(call: Call | Ddl) -> list[Any]:
            assert isinstance(call, Call)
            asked.append(call)
            full = call.params["queue_id"] == (queues[0] if ready is None else ready)
            return [None] * (1 if call.statement == "has_ready" else limit) if full else []

        play(tasks._each_queue("claim", params, wanted_of(wanted, {})), answer)
        return asked

    async def claim_above(self, places: Sequence[Place], limit: int) -> list[Call]:
        """A claim that goes on from these places."""
        return await self._of(self._over.database.tasks.claim_above(self._worker, places, limit))

    async def settle(self, ids: Sequence[int]) -> list[Call]:
        """The flush that closes the first turn of these tasks."""
        settle, count = (await self._of(self._over.database.tasks.settle(ids[0], self._worker, 1, DONE)))[:2]
        [row] = settle.rows or ()
        return [Call(settle.statement, settle.params, [(task_id, *row[1:]) for task_id in ids]), count]

    async def _of(self, act: Awaitable[object]) -> list[Call]:
        self._driver.forget()
        with contextlib.suppress(LeaseLost):
            await act
        return list(self._driver.said or self._driver.flushes[0])
