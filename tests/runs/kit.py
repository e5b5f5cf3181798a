"""What the tests of runs have in common: workflows, sessions that serve them, and runs brought to a status by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from stepwell import RunId, RunStatus, Store, workflow
from stepwell.store.audit import UNSAID_BY
from stepwell.store.rows import Settlement, Wish
from stepwell.store.sessions import Identity
from tests.queue.raw import ask, change
from tests.store.seam import DONE, LEASE, begin, claim

FAILED = Settlement(RunStatus.ERROR, error='{"type":"E","message":"m"}', last_error="E: m")
CANCELLED = Settlement(RunStatus.CANCELLED)


@dataclass(frozen=True)
class Order:
    id: str
    cents: int = 0


@dataclass(frozen=True)
class Receipt:
    order: str


@workflow
async def fulfil(order: Order) -> Receipt:
    return Receipt(order.id)


@workflow(name="zip.files", retry=7)
async def pack(ctx: Any, bucket: str, *, prefix: str = "") -> int:
    return len(bucket + prefix)


@workflow
def tick() -> None:
    """Do nothing."""


async def serve(store: Store, *handlers: str, lease: int = LEASE) -> int:
    """A living session that says it serves these."""
    return await store.database.sessions.begin(Identity("w", "host", 1, None, "0", handlers), lease)


async def settle(store: Store, name: str, settlement: Settlement = DONE) -> int:
    """Claim a run of the workflow as a worker does, and end that turn so; its number."""
    worker = await begin(store)
    [task] = await claim(store, worker, name)
    await store.database.tasks.settle(task.id, worker, task.turn, settlement)
    return task.id


def failed_at(*steps: str) -> Settlement:
    """The end of a run that the failure of these steps brought."""
    error = json.dumps({"type": "StepFailed", "message": "m", "steps": steps})
    return Settlement(RunStatus.ERROR, error=error, last_error="StepFailed: m")


async def record(store: Store, run_id: int, *steps: tuple[str, str]) -> None:
    """Steps with these keys and statuses, as a run records them."""
    for place, (key, status) in enumerate(steps):
        error = '\'{"type": "E"}\'' if status == "ERROR" else "null"
        await change(
            store,
            "insert into {step} (run_id, key, place, status, attempt, input, output, error, started_at, finished_at)"
            f" values ({int(run_id)}, '{key}', {place}, '{status}', 3, '[1]', '2', {error}, 1, 2)",
        )


async def recorded(store: Store, run_id: int) -> list[tuple[Any, ...]]:
    """The keys, statuses and attempts of a run's steps."""
    text = f"select key, status, attempt from {{step}} where run_id = {int(run_id)} order by place"
    return await ask(store, text)


async def written(store: Store) -> tuple[int, ...]:
    """How many rows each table has that a trigger could add to."""
    [counts] = await ask(
        store,
        "select (select count(*) from {queue}), (select count(*) from {workflow}), (select count(*) from {task})",
    )
    return counts


async def quietly(store: Store, wish: Wish, run_id: int) -> None:
    """Cancel or pause a run as another process does: nothing is said to the workers of this store."""
    match wish:
        case Wish.CANCEL:
            assert await store.database.driver.transact(
                lambda: store.database.control._cancelling(run_id, UNSAID_BY, set(), again=False)
            )
        case Wish.PAUSE:
            assert await store.database.driver.transact(
                lambda: store.database.control._holding(run_id, UNSAID_BY, again=False)
            )


async def requests(store: Store) -> list[tuple[Any, ...]]:
    """The control requests that nobody has removed: session, task, turn, and what is asked."""
    return await ask(store, "select worker_id, task_id, turn, request from {control_request} order by 1, 2, 3, 4")


async def some(store: Store, count: int, *, name: str = "fulfil") -> list[RunId[Any]]:
    """That many runs."""
    return await store.trigger_many([workflow(name).trigger({"id": str(number)}) for number in range(count)])
