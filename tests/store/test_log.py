"""The log of an SQLite file: commits overwrite it in place, and it stays short."""

import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from stepwell import Store, connect
from stepwell.store.embedded import sqlite

FILE = pytest.mark.backends("sqlite", reason="the only one whose log is folded here")
SHORT = 256 * 1024
COMMIT = 64 * 1024  # more than an enqueue writes


@pytest.fixture
def place(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose log is to be short."""
    monkeypatch.setattr(sqlite, "LOG_BYTES", SHORT)
    return Path(store_url.removeprefix("sqlite:///"))


async def lengths(store: Store, place: Path, commits: int) -> list[int]:
    """The length of the log after each of so many commits."""
    found = []
    for number in range(commits):
        await store.enqueue("q", number)
        found.append(Path(f"{place}-wal").stat().st_size)  # noqa: ASYNC240
    return found


@FILE
@pytest.mark.proves("promise-18")
async def test_commits_overwrite_the_log_in_place_and_it_stays_short(store_url: str, backend: str, place: Path) -> None:
    async with connect(store_url) as store:
        await store.create_queue("q")
        await lengths(store, place, 60)  # it is as long as it will be
        found = await lengths(store, place, 100)
    assert SHORT <= min(found) <= max(found) < SHORT + COMMIT
    # Folded about every twentieth commit: one that makes it longer, and one that cuts it.
    assert sum(before != after for before, after in pairwise(found)) < len(found) / 4


@FILE
@pytest.mark.proves("promise-18", "B-04")
async def test_so_it_does_when_two_stores_write_in_turns(store_url: str, backend: str, place: Path) -> None:
    async with connect(store_url) as store, connect(store_url) as other:
        await store.create_queue("q")
        found = [length for _ in range(60) for one in (store, other) for length in await lengths(one, place, 1)]
    assert max(found) < SHORT + COMMIT
    assert sum(before != after for before, after in pairwise(found[40:])) < 80 / 4


@FILE
@pytest.mark.proves("promise-18")
async def test_a_log_that_a_reader_kept_long_is_short_again_after_it(store_url: str, backend: str, place: Path) -> None:
    async with connect(store_url) as store:
        await store.create_queue("q")
        with closing(sqlite3.connect(place, isolation_level=None)) as reader:
            reader.execute("begin")
            reader.execute("select count(*) from stepwell_task").fetchone()
            found = await lengths(store, place, 100)
            assert found[-1] > 3 * SHORT, "the reader was not in the way: void"
        found = await lengths(store, place, 60)
        assert max(found[40:]) < SHORT + COMMIT
