"""Statements as an embedded store runs them: how its planner means to find the rows, and how many steps that takes."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from stepwell import Store
from stepwell.store.driver import Call
from stepwell.store.embedded.render import Rendered

T = TypeVar("T")


class Stepped:
    """The writer of an embedded store, watched at its work; whatever it writes here is rolled back."""

    def __init__(self, store: Store) -> None:
        self._statements = store.database.statements
        driver: Any = store.database.driver
        self._rendered: Rendered = driver._statements
        self._writer = driver._writer

    async def plan(self, call: Call) -> list[str]:
        """What the database says about the way it takes, a line for each table."""
        text, values = self._said(call)
        asking = f"explain query plan {text}"
        return await self._there(lambda connection: [row[3] for row in connection.execute(asking, values).fetchall()])

    def text(self, call: Call) -> str:
        """What the database is told."""
        return self._said(call)[0]

    def _said(self, call: Call) -> tuple[str, Any]:
        statement = self._statements[call.statement]
        [(text, values), *_] = self._rendered.each(call, call.rows or [[None] * len(statement.columns)])
        return text, values

    async def steps(self, calls: Sequence[Call], before: Sequence[Call] = ()) -> int:
        """How many instructions SQLite's machine executes for these, after those that came before."""

        def work(connection: Any) -> int:
            counted = 0

            def step() -> None:
                nonlocal counted
                counted += 1

            connection.execute("begin immediate")
            try:
                self._execute(connection, before)
                connection.set_progress_handler(step, 1)
                self._execute(connection, calls)
            finally:
                connection.set_progress_handler(None, 0)
                connection.execute("rollback")
            return counted

        return await self._there(work)

    def _execute(self, connection: Any, calls: Sequence[Call]) -> None:
        for call in calls:
            self._rendered.execute(connection, call, call.rows)

    async def _there(self, work: Callable[[Any], T]) -> T:
        answer: T = await asyncio.wrap_future(self._writer.submit(work))
        return answer
