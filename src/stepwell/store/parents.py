"""Runs that were asked for by others: when one ends, its parent is told in the transaction that ends it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from stepwell.store.driver import Call, Row, Script, Value

GONE: Final = "GONE"


def lock_families(ids: Iterable[int]) -> Script[None]:
    """Lock tasks that are to be changed, with their parents, in the order in which everybody locks them."""
    if rows := [(task_id,) for task_id in ids]:
        yield Call("lock_families", {}, rows)


def wake_parents(
    params: dict[str, Value], ended: Iterable[Row], *, status: str = "status", gone: bool = False
) -> Script[set[int]]:
    """Count these tasks, if they have ended or are `gone`, off their parents; the queues of parents now ready."""
    rows = [
        (row["id"], GONE if gone else row[status], row["parent_id"]) for row in ended if row["parent_id"] is not None
    ]
    woken = (yield Call("wake_parents", params, rows)) if rows else []
    return {row["id"] for row in woken if row["answer"]}
