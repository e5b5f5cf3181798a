"""A run that goes on as another: the transaction that ends it writes the next one, which takes its key over."""

from __future__ import annotations

from stepwell.records import Claimed, RunStatus
from stepwell.store.audit import Audit, Note, What
from stepwell.store.driver import Call, Script, Value


def begin_next(
    task: Claimed, next_id: int, input: str, params: dict[str, Value], status: str, *, audit: Audit
) -> Script[set[int]]:
    """Write the next run of one that has just ended with this status; the queues that have something to claim.

    Nothing is written if it was cancelled meanwhile, or deleted; if somebody holds it back, the next one is held back.
    """
    if status != RunStatus.SUCCESS:
        return set()
    given: dict[str, Value] = {
        **params,
        "id": task.id,
        "next_id": next_id,
        "key": task.key,
        "input": input,
        "cause": f"restart of {task.id}",
    }
    yield Call("give_up_key", given)  # by a statement of its own: one cannot free a key and take it
    added = yield Call("add_next", given)
    notes = [Note(task.id, What.RESTARTED, f"as run {row['id']}", task.owner, task.turn, task.attempt) for row in added]
    yield from audit.noted(params, notes)
    return {row["queue_id"] for row in added if row["ready"]}
