"""Which database engine truly answers: asked of the engine, not of the library that opened it."""

import sqlite3
from typing import Any, Protocol


class Asks(Protocol):
    """A DB-API connection of the SQLite family: it can be asked one question."""

    def execute(self, sql: str, /) -> Any:
        """Run one statement and return its cursor."""


def engine_name(connection: Asks) -> str:
    """Return `turso` or `sqlite`, by a function that only Turso's engine has."""
    try:
        connection.execute("select turso_version()").fetchall()
    except sqlite3.OperationalError as error:
        if "no such function" not in str(error):
            raise
        return "sqlite"
    return "turso"
