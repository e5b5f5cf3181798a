"""What only a database in a file has: one writer, beats through it, locks on files, a disk that fills up."""

import asyncio
import os
import signal
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from stepwell import Store, connect, sync
from stepwell.base.clock import TestClock
from stepwell.errors import InvalidName, SerializationError, StoreUnavailable, StoreUnusable
from stepwell.records import RunStatus
from stepwell.store.driver import Call, Script
from stepwell.store.embedded.driver import ConnectionThread
from stepwell.store.embedded.file import FileGuards, WriteTurn
from stepwell.store.recovery import Recovery
from stepwell.store.rows import Settlement
from tests.ground.processes import Crew, wait_for
from tests.ground.waiting import until
from tests.store.seam import DONE, ask, begin, claim, count, do, one, proven_dead, row_of

ROOT = Path(__file__).parents[2]
ENV = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
EMBEDDED = pytest.mark.backends("sqlite", "turso", reason="Postgres has no single writer to go through")
FILE = pytest.mark.backends("sqlite", reason="the only one whose file several processes share")


def hand(*arguments: str, folder: Path, size: int = 1) -> Crew:
    return Crew("tests.store.hand", *arguments, size=size, folder=folder, env=ENV, cwd=ROOT)


def said(crew: Crew, member: int = 0) -> list[int]:
    """The numbers of the first line that a process wrote."""
    path = crew.members[member].stdout
    line = wait_for(lambda: path.read_text().partition("\n")[0], 20, message=crew.complaints())
    return [int(word) for word in line.split()]


@contextmanager
def ended_afterwards(pid: int) -> Iterator[None]:
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


# Beats through the writer


class Busy:
    """The writer's thread, held by something long, while others queue; it notes what is executed when it is let go."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.executed: list[str] = []
        self._release = threading.Event()
        driver: Any = store.database.driver
        original: Callable[..., Any] = driver._statements.execute

        def execute(connection: Any, call: Call, rows: Any) -> Any:
            self.executed.append(call.statement)
            return original(connection, call, rows)

        monkeypatch.setattr(driver._statements, "execute", execute)
        held = threading.Event()

        def hold(_: Any) -> None:
            held.set()
            self._release.wait(10)

        driver._writer.submit(hold)
        held.wait(10)
        self.pending = driver._writer._pending

    def release(self) -> None:
        self._release.set()


@EMBEDDED
@pytest.mark.proves("protocol-24", "rule-11")
async def test_a_beat_goes_before_everything_that_waits_for_the_writer(
    store: Store, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await begin(store)
    await store.create_queue("q")
    await store.enqueue("q", 0)
    busy = Busy(store, monkeypatch)
    waiting = [asyncio.create_task(store.enqueue_many("q", [number, number])) for number in range(20)]
    await until(lambda: len(busy.pending) == 20)
    pulse = store.database.sessions.pulse()
    beating = asyncio.create_task(asyncio.to_thread(store.database.sessions.beat, pulse, [worker], 5.0))
    await until(lambda: len(busy.pending) == 21)
    busy.release()
    alive, _ = await beating
    assert alive == {worker}
    await asyncio.gather(*waiting)
    assert busy.executed[:2] == ["beat", "owned"]
    assert busy.executed.count("load_task") == 20


@EMBEDDED
@pytest.mark.proves("protocol-24", "rule-19")
async def test_a_beat_that_is_not_answered_in_time_says_so_and_is_not_written_later(
    store: Store, clock: TestClock, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await begin(store)
    busy = Busy(store, monkeypatch)
    pulse = store.database.sessions.pulse()
    clock.advance(5, leases=True)
    with pytest.raises(StoreUnavailable):
        await asyncio.to_thread(store.database.sessions.beat, pulse, [worker], 0.05)
    busy.release()
    [row] = await ask(store, "select beat_at from {beat}")
    assert row["beat_at"] == clock.beat_now() - 5_000_000
    assert "beat" not in busy.executed


@EMBEDDED
@pytest.mark.proves("protocol-24")
async def test_every_flush_of_a_session_is_a_beat_of_it_and_of_no_other(
    store: Store, clock: TestClock, backend: str
) -> None:
    worker, idle = await begin(store), await begin(store)
    task = await one(store, worker)
    started = clock.beat_now()
    clock.advance(20, leases=True)
    await store.database.tasks.settle(task.id, worker, task.turn, DONE)
    rows = await ask(store, "select worker_id, beat_at from {beat}")
    assert {row["worker_id"]: row["beat_at"] for row in rows} == {worker: clock.beat_now(), idle: started}


@EMBEDDED
@pytest.mark.proves("protocol-24", "protocol-03")
async def test_a_flush_of_a_dead_session_does_not_bring_its_beat_back(store: Store, backend: str) -> None:
    worker = await begin(store)
    task = await one(store, worker)
    await store.database.sessions.end(worker, "lost")
    with suppress(Exception):
        await store.database.tasks.settle(task.id, worker, task.turn, DONE)
    assert await ask(store, "select 1 from {beat}") == []


# Several processes on one file


@pytest.mark.backends("sqlite", reason="another program's connection to the file; Turso lets none in")
@pytest.mark.proves("B-05", "rule-29")
async def test_a_transaction_that_reads_first_lets_nobody_write_in_between(store_url: str, backend: str) -> None:
    stranger = sqlite3.connect(store_url.removeprefix("sqlite:///"), timeout=0, check_same_thread=False)
    refused: list[str] = []

    def script() -> Script[None]:
        yield Call("queues", {"tenant": ""})
        try:
            stranger.execute("create table strangers (id integer)")
        except sqlite3.OperationalError as error:
            refused.append(str(error))
        yield Call("add_queue", {"tenant": "", "name": "q", "now": None})

    async with connect(store_url) as store:
        await store.database.driver.transact(script)
    assert refused == ["database is locked"]
    stranger.close()


@FILE
@pytest.mark.proves("B-04", "protocol-24", "rule-29")
async def test_several_processes_write_one_file_and_none_fails(store_url: str, backend: str, tmp_path: Path) -> None:
    async with connect(store_url) as store:
        await store.create_queue("q")
        with hand("enqueue", store_url, "q", "200", folder=tmp_path, size=3) as crew:
            wait_for(lambda: not crew.alive, 60)
            assert [member.stdout.read_text() for member in crew.members] == ["done\n"] * 3, crew.complaints()
        assert await count(store) == 600


@FILE
@pytest.mark.proves("protocol-24")
def test_writers_queue_on_the_file_lock(backend: str, tmp_path: Path) -> None:
    first, second = WriteTurn(tmp_path / "turns"), WriteTurn(tmp_path / "turns")
    order: list[str] = []

    def write() -> None:
        with second:
            order.append("second")

    thread = threading.Thread(target=write)
    with first:
        thread.start()
        time.sleep(0.1)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]
    first.close()
    second.close()


# Locks that tell who lives


@FILE
@pytest.mark.proves("protocol-25", "L-03")
async def test_a_killed_process_is_known_dead_at_once_and_its_tasks_come_back(
    store_url: str, backend: str, tmp_path: Path
) -> None:
    async with connect(store_url) as store:
        await store.create_queue("q")
        task_id = await store.enqueue("q", 1)
        with hand("hold", store_url, "q", folder=tmp_path) as crew:
            worker, claimed = said(crew)
            assert claimed == 1
            recovery = Recovery(store.database)
            await recovery.look()
            assert not store.database.driver.guards.proves_dead(worker), "it lives and holds its lock"
            assert (await row_of(store, task_id))["owner"] == worker
            crew.members[0].signal(signal.SIGKILL)
            assert await recovery.look() == {await store.database.queue_id("q")}
        row = await row_of(store, task_id)
        assert (row["status"], row["owner"]) == ("PENDING", None)


@FILE
@pytest.mark.proves("protocol-25", "rule-05")
async def test_a_forked_child_does_not_keep_its_parents_session_alive(
    store_url: str, backend: str, tmp_path: Path
) -> None:
    async with connect(store_url) as store:
        await store.create_queue("q")
        await store.enqueue("q", 1)
        with hand("hold-and-fork", store_url, "q", folder=tmp_path) as crew:
            worker, _, child = said(crew)
            with ended_afterwards(child):
                assert not store.database.driver.guards.proves_dead(worker)
                crew.members[0].signal(signal.SIGKILL)
                os.kill(child, 0)  # it lives
                await until(
                    lambda: store.database.driver.guards.proves_dead(worker), message="the signal to have been obeyed"
                )
                assert await Recovery(store.database).look() == {await store.database.queue_id("q")}


@FILE
@pytest.mark.proves("protocol-25", "protocol-24")
def test_a_forked_child_does_not_keep_the_turn_to_write_of_a_parent_that_died_in_it(
    backend: str, tmp_path: Path
) -> None:
    folder = tmp_path / "turns"
    with hand("die-writing", str(folder), folder=tmp_path) as crew:
        [child] = said(crew)
        with ended_afterwards(child):
            wait_for(lambda: not crew.alive, 10)
            os.kill(child, 0)  # it lives
            turn = WriteTurn(folder)
            taken = threading.Event()

            def take() -> None:
                with turn:
                    taken.set()

            threading.Thread(target=take, daemon=True).start()
            assert taken.wait(3), "the child holds the turn, and nobody will ever write again"


@FILE
@pytest.mark.proves("protocol-25")
def test_a_free_lock_proves_death_and_a_held_or_missing_one_proves_nothing(backend: str, tmp_path: Path) -> None:
    holder, observer = FileGuards(tmp_path / "locks"), FileGuards(tmp_path / "locks")
    holder.hold(7)
    assert not observer.proves_dead(7)
    assert not holder.proves_dead(7), "its own"
    assert not observer.proves_dead(8), "no such file"
    os.close(holder._held.pop(7))  # what the end of the process does
    assert observer.proves_dead(7)
    observer.release(7)
    assert not observer.proves_dead(7), "the file is gone with the burial"


@FILE
@pytest.mark.proves("protocol-25")
async def test_a_session_without_its_lock_file_is_left_to_its_lease(store: Store, backend: str) -> None:
    worker = await begin(store)
    store.database.driver.guards.release(worker)  # the file is gone, whoever removed it
    assert await proven_dead(store) == []
    await Recovery(store.database).look()
    assert len(await ask(store, "select 1 from {beat}")) == 1


# Turso


@pytest.mark.backends("turso", reason="the only one that serves one process")
@pytest.mark.proves("protocol-26", "rule-31", "B-04")
async def test_a_second_process_is_told_who_has_the_file(store_url: str, backend: str, tmp_path: Path) -> None:
    async with connect(store_url) as store:
        await store.create_queue("q")
        with hand("use", store_url, folder=tmp_path) as crew:
            wait_for(lambda: not crew.alive, 30)
            assert crew.members[0].stdout.read_text() == f"in use by {os.getpid()}\n", crew.complaints()
        async with connect(store_url) as second:
            await second.enqueue("q", 1)
        await store.enqueue("q", 2)
        assert await count(store) == 2
    with hand("use", store_url, folder=tmp_path) as crew:
        wait_for(lambda: not crew.alive, 30)
        assert crew.members[0].stdout.read_text() == "opened\n", crew.complaints()


# Values


@pytest.mark.proves("protocol-26", "promise-20", "rule-35")
async def test_nul_is_refused_before_anything_is_written(store: Store) -> None:
    await store.create_queue("q")
    for payload in ("a\x00b", {"k\x00": 1}, ["\x00"], {"a": {"b": ["x\x00"]}}):
        with pytest.raises(SerializationError):
            await store.enqueue("q", payload)
        with pytest.raises(SerializationError):
            await store.enqueue_many("q", [1, payload])
    for bad in ({"key": "k\x00"}, {"tags": ["\x00"]}):
        with pytest.raises(InvalidName):
            await store.enqueue("q", 1, **bad)
    assert await count(store) == 0
    task_id = await store.enqueue("q", "tab\t unit\x1f del\x7f")
    task = await store.get(task_id)
    assert task is not None
    assert task.input == "tab\t unit\x1f del\x7f"


# A full disk


async def fill_the_disk(store: Store) -> None:
    """Let the file grow no more, as SQLite sees it: any page more is SQLITE_FULL."""
    [row] = await ask(store, "select page_count as pages from pragma_page_count")
    await do(store, f"pragma max_page_count = {row['pages']}")


async def make_room(store: Store) -> None:
    await do(store, "pragma max_page_count = 1000000")


@FILE
@pytest.mark.proves("rule-30", "promise-01")
async def test_on_a_full_disk_a_settle_is_held_and_written_when_there_is_room(live_store: Store, backend: str) -> None:
    store = live_store
    worker = await begin(store)
    tasks = [await one(store, worker) for _ in range(5)]
    await fill_the_disk(store)
    settlement = Settlement(RunStatus.SUCCESS, output=f'"{"x" * 100_000}"')
    settles = [
        asyncio.create_task(store.database.tasks.settle(task.id, worker, task.turn, settlement)) for task in tasks
    ]
    lost = asyncio.get_running_loop().time()
    await asyncio.sleep(0.5)
    assert not any(settle.done() for settle in settles)
    assert await count(store, "status = 'RUNNING'") == 5, "a half-written flush was kept"
    await make_room(store)
    assert await asyncio.wait_for(asyncio.gather(*settles), 10) == ["SUCCESS"] * 5
    assert asyncio.get_running_loop().time() - lost > 0.5
    assert await count(store, "status = 'SUCCESS' and attempt = 1") == 5


@FILE
@pytest.mark.proves("rule-30", "promise-20")
async def test_on_a_full_disk_an_enqueue_says_so_writes_nothing_and_the_store_goes_on_afterwards(
    store_url: str, backend: str
) -> None:
    async with connect(store_url, timeout=2) as store:
        await store.create_queue("q")
        await store.enqueue("q", 0)
        await fill_the_disk(store)
        answers = await asyncio.gather(*(store.enqueue("q", "x" * 100_000) for _ in range(3)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
        assert "full" in str(answers[0])
        assert await count(store) == 1
        await make_room(store)
        assert await store.enqueue("q", "x" * 100_000)
        assert len(await claim(store, await begin(store), "q", 5)) == 2


class Large:
    """What was read."""


async def test_a_connection_without_work_keeps_nothing_of_what_it_read_last() -> None:
    connection = ConnectionThread("t-idle", lambda: sqlite3.connect(":memory:"))
    read = await asyncio.wrap_future(connection.submit(lambda _: Large()))
    kept = weakref.ref(read)
    del read
    await until(lambda: kept() is None, 5, message="what was read last is still there")
    await connection.close()


# Who writes the file


@pytest.mark.proves("rule-28", "promise-20")
@pytest.mark.backends("sqlite", reason="Postgres has many writers; a file in Turso is opened by one process")
async def test_who_waits_for_another_connection_is_told_that_it_writes_the_file_and_since_when(
    store_url: str, backend: str
) -> None:
    async with connect(store_url, timeout=1) as store:
        await store.create_queue("q")
        path = store_url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("begin immediate")
            with pytest.raises(StoreUnavailable, match=r"another connection has been writing this file for [12] s"):
                await store.enqueue("q", 1)
            other.execute("rollback")
        assert await store.enqueue("q", 2)


@pytest.mark.proves("rule-28", "promise-20")
@pytest.mark.backends("sqlite", "turso", reason="Postgres has many writers")
async def test_who_waits_for_a_transaction_of_the_store_is_told_that_it_is_one(store_url: str, backend: str) -> None:
    async with connect(store_url, timeout=1) as store:
        await store.create_queue("q")
        async with store.transaction():
            with pytest.raises(StoreUnavailable, match=r"a transaction of this store, .* writing this file for [12] s"):
                await store.enqueue("q", 1)


@pytest.mark.proves("rule-28", "promise-20")
@pytest.mark.backends("sqlite", "turso", reason="Postgres has many writers")
async def test_so_is_who_waits_behind_another_caller(store_url: str, backend: str) -> None:
    async with connect(store_url, timeout=0.5) as store, connect(store_url) as other:
        await store.create_queue("q")
        await store.enqueue("q", 0)  # so that it has numbers for more
        async with other.transaction():
            first = asyncio.ensure_future(store.enqueue("q", 1))
            await asyncio.sleep(0.1)
            second = asyncio.ensure_future(store.enqueue("q", 2))  # not tried before the first is given up
            for one in (first, second):
                with pytest.raises(StoreUnavailable, match="another process has been writing this file"):
                    await one


@pytest.mark.proves("rule-28", "promise-20")
@pytest.mark.backends("sqlite", "turso", reason="Postgres has many writers")
async def test_who_waits_for_another_store_is_told_so(store_url: str, backend: str) -> None:
    async with connect(store_url, timeout=1) as store, connect(store_url) as other:
        await store.create_queue("q")
        async with other.transaction():
            with pytest.raises(StoreUnavailable, match=r"another process has been writing this file for [12] s"):
                await store.enqueue("q", 1)


@EMBEDDED
@pytest.mark.parametrize("fate", ["removed", "replaced"])
async def test_a_file_that_was_removed_or_replaced_is_noticed_and_not_written(
    backend: str, tmp_path: Path, fate: str
) -> None:
    place, aside = tmp_path / "a.db", tmp_path / "aside.db"
    async with connect(f"{backend}:///{place}") as store:
        await store.create_queue("mail")
        await store.enqueue("mail", 1)
        place.rename(aside)
        if fate == "replaced":
            place.write_bytes(b"")
        for asked in (lambda: store.enqueue("mail", 2), lambda: store.create_queue("other"), store.queues):
            with pytest.raises(StoreUnusable, match=r"a\.db was removed or replaced while it was open"):
                await asked()
        place.unlink(missing_ok=True)
        aside.rename(place)
        await store.enqueue("mail", 3)
        assert await store.counts("mail") == {"PENDING": 2}, "what was refused was not written"


@FILE
def test_a_joined_transaction_of_a_removed_file_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "a.db"
    with sync.connect(f"sqlite:///{place}") as store, closing(sqlite3.connect(place)) as own:
        store.create_queue("mail")
        own.execute("begin immediate")
        place.unlink()
        with pytest.raises(StoreUnusable, match="removed or replaced"):
            store.enqueue("mail", 1, tx=own)
