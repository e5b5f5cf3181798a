"""What a database must promise before anything is measured on it: speed without durability is not compared here."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

POSTGRES: Final = ("fsync", "synchronous_commit", "full_page_writes")
SQLITE_FULL: Final = 2
IN_MEMORY: Final = ("tmpfs", "ramfs")


class NotDurable(Exception):  # noqa: N818 - it is no error of the program
    """A commit on this database would not survive a crash of the machine."""


def check_postgres(settings: Mapping[str, str]) -> None:
    """Raise unless every commit is flushed and pages are whole."""
    wrong = [f"{name} is {settings.get(name)}" for name in POSTGRES if settings.get(name) != "on"]
    if wrong:
        raise NotDurable(f"Postgres: {', '.join(wrong)}; the benchmark runs only with {', '.join(POSTGRES)} = on")


def check_sqlite(journal_mode: str, synchronous: int) -> None:
    """Raise unless the connection that writes uses a write-ahead log and flushes it at every commit."""
    if journal_mode != "wal" or synchronous < SQLITE_FULL:
        raise NotDurable(
            f"SQLite: journal_mode is {journal_mode} and synchronous is {synchronous}; "
            f"the benchmark runs only with wal and {SQLITE_FULL} (FULL)"
        )


def check_folder(folder: Path, mounts: str) -> None:
    """Raise if what is written there stays in memory, whatever is flushed; `mounts` is what /proc/mounts says."""
    kinds = {Path(point): kind for _, point, kind, *_ in (line.split() for line in mounts.splitlines())}
    place = next(one for one in (folder, *folder.parents) if one in kinds or one == one.parent)
    if (kind := kinds.get(place)) in IN_MEMORY:
        raise NotDurable(f"{place} is a {kind}, which no flush makes durable; set TMPDIR to a folder on a disk")
