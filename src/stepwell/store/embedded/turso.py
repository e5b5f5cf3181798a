"""Turso through `pyturso`: the only file that knows it.

Turso serves one process at a time, any number of stores in it; a second process is refused with the holder's pid.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import Any

import turso

from stepwell.errors import InvalidOption, Refused, StoreBusy, StoreInUse, StoreUnavailable, StoreUnusable
from stepwell.store.embedded.driver import Embedded
from stepwell.store.embedded.file import OneProcess, OpenedFile, ProcessGuards
from stepwell.store.sql import Statements


def open_turso(path: str, statements: Statements, *, timeout: float) -> Embedded:
    """A driver for a file that only this process has open."""
    path = os.path.realpath(path)
    engine = Turso(path)
    # Its reader is its writer: a second connection would only meet the first one's locks.
    return Embedded(engine, statements, ProcessGuards(path), timeout=timeout, separate_reader=False)


class Turso:
    """Turso's part of an embedded driver."""

    name = "turso"
    joins = False
    many_rows = False  # it ends the process when it prepares a `settle` or `add_tasks` of many rows (pyturso 0.8.3)

    def __init__(self, path: str) -> None:
        self._path = path
        self._process = OneProcess(Path(f"{path}-stepwell"))
        self._opened = False
        self._file = OpenedFile(path)

    def connect(self, *, reading: bool) -> Any:
        """Open the file for this process."""
        if not self._opened:
            if (holder := self._process.take()) is not None:
                raise StoreInUse(holder or None)
            self._opened = True
        try:
            with _stores_of_this_process:
                connection = turso.connect(self._path, isolation_level=None)
                connection.row_factory = turso.Row
                connection.execute("pragma synchronous = full")
                connection.execute("pragma foreign_keys = on")
        except turso.Error as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error
        self._file.note()
        return connection

    def check_file(self) -> None:
        """Raise StoreUnusable if the file was removed or replaced since it was opened."""
        self._file.check()

    def translate(self, error: Exception) -> Exception:
        """Say which of the driver's errors a Turso error is."""
        match error:
            case turso.IntegrityError() | turso.DataError() | OverflowError():
                return Refused(str(error))
            case turso.Error() if "lock" in str(error).lower() or "busy" in str(error).lower():
                return StoreBusy(str(error))
            case turso.ProgrammingError():
                return error
            case turso.Error() if "no such" in str(error) or "Parse error" in str(error):
                return StoreUnusable(str(error))
            case turso.Error():
                return StoreUnavailable(str(error))
            case _:
                return error

    def joined(self, tx: object) -> Any:
        """Refused: Turso's own transactions are not shared with other connections yet."""
        raise InvalidOption("tx", tx, "a Turso store does not join your transaction yet")

    def write_turn(self) -> contextlib.AbstractContextManager[Any]:
        """Stores of one process take turns; Turso itself would answer busy at once."""
        return _stores_of_this_process

    def file(self) -> tuple[str, str] | None:
        """None: no other process can open it."""
        return None

    def after_commit(self, connection: Any) -> None:
        """Turso folds its own log."""

    def close(self) -> None:
        """Let another process open the file, when this was the last store here."""
        if self._opened:
            self._process.give_back()
            self._opened = False


_stores_of_this_process = threading.RLock()
