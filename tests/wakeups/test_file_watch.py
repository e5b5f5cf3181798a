"""An SQLite file is watched: other processes' commits are heard at once, this process's own wake nothing."""

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stepwell import Store, connect
from stepwell.store.driver import Hint
from stepwell.store.embedded import listener
from stepwell.store.embedded.listener import FileEar, LogWatch, Looks
from tests.ground.waiting import until
from tests.wakeups.ways import NEVER

FILE = pytest.mark.backends("sqlite", reason="the only one whose file several processes share")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells that a file was written")
NAME = "stepwell-sqlite-watch"


@dataclass
class Listening:
    """An open ear: what it heard, and how often it has asked the file for its version."""

    ear: Any
    hints: list[Hint] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    looks: int = 0
    before: int = 0

    async def resting(self) -> None:
        """Return when it waits for the next write and nothing else."""
        await until(lambda: self.ear._watch._pause == NEVER, message="an ear that rests")
        self.before = len(self.hints)

    async def hears(self) -> None:
        """Return when it has heard something since it rested."""
        await until(lambda: len(self.hints) > self.before, message="a commit that is heard of")


@pytest.fixture
def never_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at the file only when it is woken."""
    monkeypatch.setattr(listener, "LOOK_ANYWAY", NEVER)


@pytest.fixture
async def other(store_url: str) -> AsyncIterator[Store]:
    """A second store in this process: to the first it is another process."""
    async with connect(store_url) as opened:
        await opened.create_queue("mail")
        yield opened


@contextlib.asynccontextmanager
async def listening(store: Store) -> AsyncIterator[Listening]:
    """Listen to what other processes commit to the file of a store."""
    driver: Any = store.database.driver
    found = Listening(None)
    version = driver._watched.version

    def counted(connection: Any) -> int:
        found.looks += 1
        number: int = version(connection)
        return number

    driver._watched.version = counted
    found.ear = await driver.listen(found.hints.append, found.lost.append)
    try:
        yield found
    finally:
        await found.ear.close()


@FILE
@LINUX
@pytest.mark.usefixtures("never_anyway", "backend")
@pytest.mark.proves("rule-17")
async def test_another_process_is_heard_and_what_this_one_writes_wakes_nothing(store_url: str, other: Store) -> None:
    async with connect(store_url) as store, listening(store) as heard:
        await other.enqueue("mail", 1)
        await heard.hears()
        await heard.resting()
        assert heard.hints[-1].queues == frozenset((await store.database.queue_id("mail"),))
        before = heard.looks
        for number in range(200):
            await store.enqueue("mail", number)
        assert heard.ear._watch._pause == NEVER
        assert heard.looks == before
        await other.enqueue("mail", 2)
        await heard.hears()
        assert heard.looks <= before + 20
        assert not heard.lost


@FILE
@LINUX
@pytest.mark.usefixtures("never_anyway", "backend")
@pytest.mark.proves("rule-17")
async def test_while_no_process_writes_the_file_is_not_asked(store_url: str, other: Store) -> None:
    async with connect(store_url) as store, listening(store) as heard:
        await other.enqueue("mail", 1)
        await heard.hears()
        await heard.resting()
        before = heard.looks
        await asyncio.sleep(0.3)  # as long as it takes to look a dozen times
        assert heard.looks == before
    assert not [thread for thread in threading.enumerate() if thread.name == NAME], "it was not woken to end"


@FILE
@LINUX
@pytest.mark.usefixtures("never_anyway", "backend")
@pytest.mark.proves("rule-17")
@pytest.mark.parametrize("kind", ["passive", "restart", "truncate"])
async def test_so_it_is_after_a_checkpoint_and_for_a_connection_that_is_not_of_a_store(
    store_url: str, other: Store, kind: str
) -> None:
    async with connect(store_url) as store, listening(store) as heard:
        await other.enqueue("mail", 1)
        await heard.hears()
        with contextlib.closing(sqlite3.connect(store_url.removeprefix("sqlite:///"))) as own:
            assert own.execute(f"pragma wal_checkpoint({kind})").fetchone()[0] == 0
            await heard.resting()
            await other.enqueue("mail", 2)
            await heard.hears()
            await heard.resting()
            own.execute("create table strangers (id integer)")
            await heard.hears()


@FILE
@pytest.mark.usefixtures("backend")
@pytest.mark.proves("rule-17")
async def test_where_the_kernel_tells_nothing_the_file_is_looked_at(
    store_url: str, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "LogWatch", _refused)
    async with connect(store_url) as store, listening(store) as heard:
        assert type(heard.ear._watch) is Looks
        await heard.hears()  # the first look
        await other.enqueue("mail", 1)
        await until(lambda: heard.hints[-1].queues)


def _refused(_path: str) -> LogWatch:
    raise OSError("too many of them")


class Slow:
    """A file whose commits are seen long after they were written."""

    def __init__(self, folder: Path) -> None:
        self.log = str(folder / "slow.db-wal")
        self.number = 0
        Path(self.log).write_bytes(b"")

    def touched(self) -> object:
        return None

    def version(self, _connection: Any) -> int:
        return self.number

    def write(self) -> None:
        with Path(self.log).open("ab") as file:
            file.write(b"x")

    def ear(self, hints: list[Hint]) -> FileEar:
        return FileEar(
            name=NAME,
            connect=lambda: contextlib.closing(None),
            watched=self,
            ready=lambda _: frozenset(),
            heard=hints.append,
            lost=lambda _: None,
        )


@LINUX
@pytest.mark.usefixtures("never_anyway")
@pytest.mark.proves("rule-17")
async def test_a_commit_that_the_disk_takes_long_for_is_heard_when_it_is_seen(tmp_path: Path) -> None:
    slow, hints = Slow(tmp_path), list[Hint]()
    ear = slow.ear(hints)
    slow.write()
    await until(lambda: len(hints) == 1)  # the first look
    slow.number = 1  # nothing is written any more when a commit becomes visible
    await until(lambda: len(hints) == 2)
    await ear.close()


@LINUX
@pytest.mark.proves("rule-17")
async def test_a_log_that_is_another_file_by_now_is_watched_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "LOOK_ANYWAY", 0.3)
    slow = Slow(tmp_path)
    ear = slow.ear([])
    watch: Any = ear._watch
    Path(slow.log).unlink()  # noqa: ASYNC240
    await until(lambda: watch._pause < 0.3, message="word of the end of the old file")
    await until(lambda: watch._pause == 0.3)
    Path(slow.log).write_bytes(b"")  # noqa: ASYNC240

    def told() -> bool:
        slow.write()
        return bool(watch._pause < 0.3)

    await until(told, message="word of a write to the new file")
    await ear.close()


@LINUX
@pytest.mark.proves("rule-17")
def test_an_ear_whose_loop_is_gone_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "LOOK_ANYWAY", 0.3)

    async def leave() -> FileEar:
        return Slow(tmp_path).ear([])

    ear = asyncio.run(leave())
    ear._thread.join(10)
    assert not ear._thread.is_alive()
    assert ear._watch._descriptor is None  # type: ignore[attr-defined]


@LINUX
@pytest.mark.proves("rule-05")
def test_a_forked_child_takes_no_word_from_its_parent(tmp_path: Path) -> None:
    program = f"""
import os
from stepwell.store.embedded.listener import LogWatch
open({str(tmp_path / "log")!r}, "wb").close()
watch = LogWatch({str(tmp_path / "log")!r})
held = watch._descriptor
if (child := os.fork()) == 0:
    try:
        os.fstat(held)
    except OSError:
        watch.heed(), watch.ignore(), watch.wake(), watch.close()
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
os.fstat(held)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(autouse=True)
def _no_ear_is_left() -> Iterator[None]:
    yield
    assert not [thread for thread in threading.enumerate() if thread.name == NAME]
