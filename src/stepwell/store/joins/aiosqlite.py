"""aiosqlite, which a user may bring to an SQLite store; the only file that knows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import aiosqlite

from stepwell.errors import InvalidOption
from stepwell.store.driver import Row, Value
from stepwell.store.joins.connection import read_row


class AiosqliteCursor:
    """Executes statements on the user's aiosqlite connection, which has a thread of its own."""

    def __init__(self, connection: aiosqlite.Connection, check_file: Callable[[list[Row]], None]) -> None:
        self._connection = connection
        self._check_file: Callable[[list[Row]], None] | None = check_file  # until it has been asked
        try:
            begins = connection.in_transaction or connection.isolation_level is not None
        except ValueError as error:
            raise InvalidOption("tx", connection, "it is closed; pass an open connection") from error
        if not begins:
            self._refuse()

    async def fetch(self, text: str, values: Mapping[str, Value]) -> list[Row]:
        """Every row of a statement, read our way; the connection's own row factory stays."""
        given: Any = values  # named values: its types know only of numbered ones
        reads: Any = read_row  # likewise, of classes
        async with self._connection.cursor() as cursor:
            cursor.row_factory = reads
            if self._check_file is not None:
                await cursor.execute("pragma database_list")
                self._check_file(list(await cursor.fetchall()))
                self._check_file = None
            await cursor.execute(text, given)
            rows = list(await cursor.fetchall())
        # Python 3.12's `autocommit=True` is not to be seen from here. The first statement writes nothing, so a
        # connection that is refused after it has lost nothing.
        if not self._connection.in_transaction:
            self._refuse()
        return rows

    def _refuse(self) -> None:
        raise InvalidOption("tx", self._connection, "it is in autocommit mode; begin a transaction on it first")
