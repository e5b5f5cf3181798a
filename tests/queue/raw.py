"""A store asked and changed by SQL of the test's own, on every backend: what the public verbs do not show."""

from typing import Any

from stepwell import Store
from stepwell.store.driver import Call, Ddl, Script
from stepwell.store.sql import Macros, Statement


async def ask(store: Store, text: str) -> list[tuple[Any, ...]]:
    """The rows of a query; `{task}` and the like are the store's tables."""
    name = f"test: {text}"
    store.database.statements._statements[name] = Statement(name, (_filled(store, text),))
    return [tuple(row) for row in await store.database.driver.read(Call(name))]


async def change(store: Store, *texts: str) -> None:
    """Run statements in one transaction, behind the back of whatever the store does."""

    def script() -> Script[None]:
        for text in texts:
            yield Ddl(_filled(store, text))

    await store.database.driver.transact(script)


async def everything_written(store: Store) -> tuple[int, ...]:
    """How many rows each table has that an enqueue could add to."""
    [counts] = await ask(
        store, "select (select count(*) from {queue}), (select count(*) from {task}), (select count(*) from {worker})"
    )
    return counts


def _filled(store: Store, text: str) -> str:
    return Macros(store.database.statements.dialect, store.database.statements.schema).fill(text)
