"""Rows as only time and other parts of the library make them, written behind the store's back."""

from collections.abc import Iterable
from typing import Any

from stepwell import Store
from tests.queue.raw import ask, change

DAY = 86_400_000_000


def now_of(store: Store) -> int:
    """The time of a store that goes by a test's clock."""
    moment = store.database.clock.now()
    assert moment is not None
    return moment


async def put(store: Store, ids: Iterable[int], queue: str = "q", **columns: Any) -> list[int]:
    """Tasks with these columns, in a queue that is made for them."""
    await store.create_queue(queue)
    given = {
        "kind": "MESSAGE",
        "queue_id": await store.database.queue_id(queue),
        "status": "PENDING",
        "ready": False,
        "run_at": 1,
        "max_attempts": 3,
        "created_at": 1,
        "updated_at": 1,
        **columns,
    }
    numbers = list(ids)
    values = ", ".join(_literal(value) for value in given.values())
    for start in range(0, len(numbers), 500):
        rows = ", ".join(f"({number}, {values})" for number in numbers[start : start + 500])
        await change(store, f"insert into {{task}} (id, {', '.join(given)}) values {rows}")
    return numbers


async def finished(store: Store, ids: Iterable[int], *, days_ago: float, **columns: Any) -> list[int]:
    """Tasks that were finished so long ago."""
    moment = now_of(store) - round(days_ago * DAY)
    return await put(store, ids, **{"status": "SUCCESS", "finished_at": moment, **columns})


async def left(store: Store) -> list[int]:
    """The tasks that are there, deleted or not."""
    return [row[0] for row in await ask(store, "select id from {task} order by id")]


async def count(store: Store, table: str) -> int:
    [(number,)] = await ask(store, f"select count(*) from {{{table}}}")
    return int(number)


def _literal(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case _:
            return f"'{value}'"
