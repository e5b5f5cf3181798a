"""SQLite through the standard library's `sqlite3`: the only file that knows it.

The standard library's copy and no other, because two copies of SQLite in one process on one file lose each other's
locks, and this is the copy that users' own connections, SQLAlchemy's and Django's use.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any, Final

from stepwell.errors import InvalidOption, Refused, StoreBusy, StoreUnavailable, StoreUnusable
from stepwell.store.embedded.driver import Embedded
from stepwell.store.embedded.file import FileGuards, OpenedFile, ProcessGuards, WriteTurn
from stepwell.store.joins.connection import is_a, read_row
from stepwell.store.sql import Statements

LOG_BYTES: Final = 2 * 1024 * 1024
JOINABLE = (
    "pass the connection whose transaction the call is to join: sqlite3's, aiosqlite's, "
    "SQLAlchemy's (or its session) on one of these, or Django's"
)


def open_sqlite(path: str | None, statements: Statements, *, timeout: float) -> Embedded:
    """A driver for a file, or for a database in memory when there is no path."""
    # The file itself: beside a link SQLite's log is elsewhere, and two names must not mean two queues for one file.
    engine = SQLite(None if path is None else os.path.realpath(path), timeout)
    guards = ProcessGuards(f"memory:{id(engine)}") if path is None else FileGuards(engine.folder)
    in_file = path is not None
    watched = engine if in_file else None
    return Embedded(engine, statements, guards, timeout=timeout, separate_reader=in_file, watched=watched)


class SQLite:
    """SQLite's part of an embedded driver."""

    name = "sqlite"
    joins = True
    many_rows = True  # by `->>`, which is as old as SQLite 3.38

    def __init__(self, path: str | None, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self.folder = Path(f"{path}-stepwell")
        self._turn = WriteTurn(self.folder)
        self._opened = OpenedFile(path)
        self.check_file = self._opened.check
        self.log = f"{path}-wal"
        self._fold_at = LOG_BYTES  # when the log is longer

    def connect(self, *, reading: bool) -> sqlite3.Connection:
        """Open a connection that commits durably and never checkpoints by itself."""
        try:
            connection = sqlite3.connect(
                self._path or ":memory:", isolation_level=None, timeout=self._timeout, cached_statements=512
            )
            connection.row_factory = sqlite3.Row
            connection.execute("pragma foreign_keys = on")
            if reading:
                connection.execute("pragma query_only = on")
                return connection
            with self.write_turn():
                connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = full")
            # SQLite before 3.51.3 can lose a commit that runs beside a checkpoint. RESTART takes the write lock, so
            # nothing commits beside it; the automatic one does not, so it is off.
            connection.execute("pragma wal_autocheckpoint = 0")
            connection.execute(f"pragma journal_size_limit = {LOG_BYTES}")  # cut to this when it begins anew
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB}:
                raise StoreUnusable(f"{self._path}: {error}") from error
            raise StoreUnavailable(f"{self._path}: {error}") from error
        self._opened.note()
        return connection

    def touched(self) -> object:
        """Size and time of the log, to which every commit is written first."""
        try:
            found = os.stat(self.log)  # noqa: PTH116 - as above
        except FileNotFoundError:
            return None
        return found.st_size, found.st_mtime_ns

    def version(self, connection: sqlite3.Connection) -> int:
        """A number that changes when any other connection has changed the file."""
        number: int = connection.execute("pragma data_version").fetchone()[0]
        return number

    def translate(self, error: Exception) -> Exception:
        """Say which of the driver's errors an SQLite error is."""
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF  # the extended codes end in the plain one
        match error:
            case sqlite3.IntegrityError() | sqlite3.DataError() | OverflowError():
                return Refused(str(error))
            case sqlite3.ProgrammingError():
                return error
            case sqlite3.Error() if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
                return StoreBusy(str(error))
            case sqlite3.Error() if code in {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
                return StoreUnusable(str(error))  # no such table, and worse
            case sqlite3.Error():
                return StoreUnavailable(str(error))
            case _:
                return error

    def joined(self, tx: object) -> Any:
        """A cursor of the user's connection: its rows are read our way, the connection's own settings stay."""
        if self._path is None:
            raise InvalidOption("tx", tx, "no other connection reaches a store in memory: use sqlite:///file.db")
        if is_a(tx, "aiosqlite", "Connection"):
            from stepwell.store.joins import aiosqlite  # noqa: PLC0415 - only for those who have it

            brought: Any = tx
            return aiosqlite.AiosqliteCursor(brought, partial(self._check_file, tx))
        if not isinstance(tx, sqlite3.Connection):
            raise InvalidOption("tx", type(tx), JOINABLE)
        try:
            cursor = tx.cursor()
        except sqlite3.ProgrammingError as error:
            raise InvalidOption("tx", tx, f"pass an open connection of this thread ({error})") from error
        # `autocommit` is new in Python 3.12; as True it begins nothing, whatever the isolation level says.
        if not tx.in_transaction and (tx.isolation_level is None or getattr(tx, "autocommit", None) is True):
            raise InvalidOption("tx", tx, "it is in autocommit mode; begin a transaction on it first")
        cursor.row_factory = read_row
        self._check_file(tx, cursor.execute("pragma database_list").fetchall())
        return cursor

    def _check_file(self, tx: object, databases: list[Any]) -> None:
        """Refuse a connection to another file: what it wrote would be there, and no worker here would find it."""
        [place] = [row["file"] for row in databases if row["name"] == "main"]
        self.check_file()
        if os.path.realpath(place) != self._path:
            raise InvalidOption("tx", tx, f"it is connected to {place or 'memory'}, and the store is {self._path}")

    def write_turn(self) -> contextlib.AbstractContextManager[None]:
        """Wait for this process's turn; a database in memory has no other process."""
        return contextlib.nullcontext() if self._path is None else self._turn

    def file(self) -> tuple[str, str] | None:
        """The file, and the one on which its writers queue."""
        return None if self._path is None else (self._path, str(self._turn.path))

    def after_commit(self, connection: Any) -> None:
        """Fold the log into the file when it grows longer than it may be; tried again later if a reader is in the way.

        It keeps its length, so that the commits after it overwrite it in place: one that makes a file longer takes
        twice the time. The first of them cuts off what is too long.
        """
        if self._path is None:
            return
        try:
            length = os.stat(self.log).st_size  # noqa: PTH116 - for every commit, and half the price
        except FileNotFoundError:
            return
        if length <= LOG_BYTES:
            self._fold_at = LOG_BYTES
        elif length > self._fold_at:
            self._fold_at = length + LOG_BYTES if self._fold(connection) else length

    def _fold(self, connection: Any) -> bool:
        """Try to fold the log; True if another connection was in the way.

        Without waiting for them: what was just committed is not answered yet, and every writer waits behind us.
        """
        try:
            connection.execute("pragma busy_timeout = 0")
            return bool(connection.execute("pragma wal_checkpoint(restart)").fetchone()[0])
        except sqlite3.Error:
            return True  # the commit stands whatever becomes of the log; the next one tries again
        finally:
            connection.execute(f"pragma busy_timeout = {int(self._timeout * 1000)}")

    def close(self) -> None:
        """Let go of the writer's lock file."""
        self._turn.close()
