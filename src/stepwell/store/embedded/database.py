"""What differs between the embedded databases: the part of a driver that each has for itself."""

from __future__ import annotations

import contextlib
from typing import Any, Protocol


class EmbeddedDatabase(Protocol):
    """What differs between the embedded databases."""

    name: str
    joins: bool  # the user's own transaction can be joined
    many_rows: bool  # a statement takes its whole row set at once, not a row at a time

    def connect(self, *, reading: bool) -> Any:
        """Open a connection, from the thread that will use it."""

    def translate(self, error: Exception) -> Exception:
        """Say which of the driver's errors this is; any other error comes back as it is."""

    def write_turn(self) -> contextlib.AbstractContextManager[None]:
        """Wait for this process's turn among those that write the file."""

    def check_file(self) -> None:
        """Raise StoreUnusable if the file was removed or replaced since it was opened."""

    def file(self) -> tuple[str, str] | None:
        """The file and the one on which its writers queue; None if no other process can open it."""

    def joined(self, tx: object) -> Any:
        """Something that executes statements on the user's own connection, leaving it as it is; or refuse it."""

    def after_commit(self, connection: Any) -> None:
        """Keep the file in order; called by the writer between transactions, in its turn."""

    def close(self) -> None:
        """Let go of the file's locks."""
