"""What a user may pass as `tx`, brought down to the connection of a driver that a store can answer calls through.

No library is imported here for the sake of recognising its objects: a user who passes one has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

from stepwell.store.driver import AsyncJoin, Call, Ddl, Row, SyncJoin, Value

Join = SyncJoin | AsyncJoin


@runtime_checkable
class AwaitedCursor(Protocol):
    """A way to execute SQLite statements on a connection that lives in a thread of its own."""

    async def fetch(self, text: str, values: Mapping[str, Value]) -> list[Row]:
        """Execute one statement and return every row of it."""


def join_through(tx: object, joined: Callable[[object], Join]) -> Join:
    """Join SQLAlchemy's and Django's transactions through the connection they stand on, which `joined` takes.

    Nothing of the user's is touched before the first call is answered, so the wrong face can be refused freely.
    """
    if is_a(tx, "sqlalchemy", "Connection") or is_a(tx, "sqlalchemy.orm", "Session", "scoped_session"):
        from stepwell.store.joins import sqlalchemy  # noqa: PLC0415 - only for those who have it

        return _in_this_thread(partial(sqlalchemy.connection_of, tx), joined)
    if is_a(tx, "sqlalchemy.ext.asyncio", "AsyncConnection", "AsyncSession", "async_scoped_session"):
        from stepwell.store.joins import sqlalchemy  # noqa: PLC0415 - only for those who have it

        return _on_this_loop(partial(sqlalchemy.async_connection_of, tx), joined)
    if is_a(tx, "django.db.backends.base.base", "BaseDatabaseWrapper") or is_a(
        tx, "django.utils.connection", "ConnectionProxy"
    ):
        from stepwell.store.joins import django  # noqa: PLC0415 - only for those who have it

        return _in_this_thread(partial(django.connection_of, tx), joined)
    return joined(tx)


def is_a(value: object, module: str, *classes: str) -> bool:
    """True if the value is of one of these classes of a module, which is not imported for it."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, tuple(getattr(loaded, name) for name in classes))


def read_row(cursor: Any, values: Sequence[Any]) -> dict[str, Any]:
    """A row of SQLite by its columns' names, its text as text whatever the connection makes of text."""
    cells = [value.decode() if isinstance(value, bytes) else value for value in values]
    return dict(zip([column[0] for column in cursor.description], cells, strict=True))


def _in_this_thread(connection: Callable[[], object], joined: Callable[[object], Join]) -> SyncJoin:
    opened: list[Any] = []

    def answer(call: Call | Ddl) -> list[Row]:
        if not opened:
            opened.append(joined(connection()))
        rows: list[Row] = opened[0].answer(call)
        return rows

    return SyncJoin(answer)


def _on_this_loop(connection: Callable[[], Awaitable[object]], joined: Callable[[object], Join]) -> AsyncJoin:
    opened: list[Any] = []

    async def answer(call: Call | Ddl) -> list[Row]:
        if not opened:
            opened.append(joined(await connection()))
        rows: list[Row] = await opened[0].answer(call)
        return rows

    return AsyncJoin(answer)
