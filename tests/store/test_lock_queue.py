"""What waits for somebody else's transaction: how it is found, in which order it is tried, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from stepwell import Store, connect
from stepwell.base.clock import TestClock
from stepwell.base.telemetry import Telemetry
from stepwell.errors import LeaseLost, StoreLocked, StoreUnavailable
from stepwell.store import flush
from stepwell.store import pending as lanes
from stepwell.store.bisection import MOST_IN_VAIN, isolated, seek
from stepwell.store.driver import Call, Ddl, Row
from stepwell.store.lock_queue import LockQueue, Waiter
from stepwell.store.pending import Operation
from tests.ground.waiting import until
from tests.store.seam import DONE, ask, begin, claim, count, row_of, watched

ONLY_POSTGRES = pytest.mark.backends("postgres", reason="an embedded database has one writer: rows are never held")


@asynccontextmanager
async def holding(store: Store, url: str, text: str) -> AsyncIterator[None]:
    """Hold what the statement locks or writes until the end of the block."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(store.database.statements._macros.fill(text))
            yield
    finally:
        await connection.close()


# Finding it


def adds(count: int) -> list[Operation]:
    return [
        Operation("add_tasks_once", (number,), row_id=number, size=1, order=(number,), key=(1, f"{number:03}"))
        for number in range(count)
    ]


def played(batch: Sequence[Operation], held: set[int], *, is_locked: bool = True) -> tuple[list[Any], Any]:
    """Take a batch apart where the keys of some are held; what was tried, in order, and what came of it."""
    talk = isolated(batch, lambda part: [Call("add_tasks_once", {}, [one.row for one in part])], is_locked=is_locked)
    tried: list[list[int]] = []
    try:
        call: Call | Ddl = next(talk)
        while True:
            assert isinstance(call, Call)
            numbers = [int(row[0] or 0) for row in call.rows or ()]
            if call.statement == "add_tasks_once":
                tried.append(numbers)
                if held.intersection(numbers):
                    call = talk.throw(StoreLocked("held"))
                    continue
            rows: list[Row] = [{"id": number, "answer": "PENDING"} for number in numbers]
            call = talk.send(rows)
    except StopIteration as end:
        return tried, end.value


@pytest.mark.proves("protocol-15", "rule-23")
@pytest.mark.parametrize("held", [{0}, {63}, {20}, {3, 40, 41}])
def test_what_is_held_is_found_alone_and_the_others_are_written_in_the_order_of_their_locks(held: set[int]) -> None:
    batch = adds(64)
    tried, found = played(batch, held)
    written = [number for part in tried if not held.intersection(part) for number in part]
    assert written == sorted(set(range(64)) - held), "each once, and no row before one that every flush locks first"
    assert {one.row_id for one in found.held} == held
    assert len(tried) <= 12 * len(held)


@pytest.mark.proves("protocol-15", "rule-23")
def test_the_search_ends_however_many_are_held() -> None:
    tried, found = played(adds(500), set(range(0, 500, 2)))
    in_vain = [part for part in tried if any(number % 2 == 0 for number in part)]
    assert len(in_vain) <= MOST_IN_VAIN + 1
    assert len(found.held) + sum(len(part) for part in tried if part not in in_vain) == 500


async def test_so_does_the_search_among_those_who_are_tried_in_transactions_of_their_own() -> None:
    held: list[int] = []
    done: list[int] = []

    async def attempt(part: Sequence[int]) -> bool:
        if any(number % 10 == 0 for number in part):
            return False
        done.extend(part)
        return True

    await seek(range(30), attempt, held.append)
    assert (held, done) == ([0, 10, 20], [number for number in range(30) if number % 10])
    held.clear()
    done.clear()
    await seek(range(0, 5_000, 5), attempt, held.append)
    assert sorted(held + done) == list(range(0, 5_000, 5))


# In which order


class Lock:
    """A row that is held until it is let go, and who wants it."""

    def __init__(self, aside: LockQueue, log: list[str]) -> None:
        self.aside, self.log = aside, log
        self.free = False
        self.tries = 0

    def waiter(self, name: str, needs: set[object], held: set[object] | None = None, *, behind: bool) -> None:
        async def attempt() -> bool:
            self.tries += 1
            await asyncio.sleep(0)
            if self.free:
                self.log.append(name)
            return self.free

        go_on = (lambda: self.log.append(f"{name} goes on")) if behind else None
        self.aside.put(Waiter(needs, held or needs, attempt, lambda error: self.log.append(f"{name} {error!r}"), go_on))


async def test_of_several_that_need_one_row_the_first_is_tried_and_the_others_follow_in_their_order() -> None:
    aside, log = LockQueue(TestClock(), Telemetry()), list[str]()
    lock = Lock(aside, log)
    lock.waiter("first", {1}, behind=False)
    assert aside.holds([7, 1])
    assert not aside.holds([2])
    lock.waiter("second", {1, 2}, behind=True)
    lock.waiter("third", {2}, behind=True)
    await until(lambda: lock.tries >= 3)
    assert log == []
    lock.free = True
    await asyncio.wait_for(aside.empty(), 5)
    assert log == ["first", "second goes on", "third"]
    assert not aside.holds([1, 2])


@pytest.mark.proves("rule-23")
async def test_who_came_lately_is_tried_before_those_who_have_waited_for_long() -> None:
    """Most locks are let go soon: who met one of these does not wait until forty others were tried in vain."""
    aside, tried, is_over = LockQueue(TestClock(), Telemetry()), list[int](), asyncio.Event()

    def waiter(number: int) -> Waiter:
        async def attempt() -> bool:
            tried.append(number)
            await asyncio.sleep(0.015)
            return is_over.is_set() or (number < 0 and tried.count(number) == 2)

        return Waiter({number}, {number}, attempt, repr, tries=10 if number >= 0 else 0)

    for number in range(40):
        aside.put(waiter(number))
    await until(lambda: len(tried) > 45)
    for number in (-1, -2, -3):
        before = len(tried)
        aside.put(waiter(number))
        await until(lambda: tried.count(number) == 2, every=0.001)  # noqa: B023 - asked at once
        assert len(tried) - before < 10, "those who have waited for long were tried before it"
    assert set(tried) == set(range(-3, 40)), "nobody is forgotten"
    is_over.set()
    await asyncio.wait_for(aside.empty(), 10)


async def test_a_waiter_that_breaks_or_is_withdrawn_is_nothing_to_the_others() -> None:
    aside, log = LockQueue(TestClock(), Telemetry()), list[str]()

    async def breaks() -> bool:
        raise RuntimeError("a defect")

    broken = Waiter({1}, {1}, breaks, lambda error: log.append(repr(error)))
    aside.put(broken)
    lock = Lock(aside, log)
    lock.free = True
    lock.waiter("other", {2}, behind=False)
    await until(lambda: log == ["other"])
    assert aside.withdraw(broken)
    assert not aside.withdraw(broken)
    await asyncio.wait_for(aside.empty(), 5)


# In the store


@pytest.mark.proves("protocol-15", "rule-23", "promise-20")
@ONLY_POSTGRES
async def test_a_locked_table_is_nobodys_fault_and_the_batch_is_repeated_whole(store: Store, store_url: str) -> None:
    store, driver = watched(store)
    await store.create_queue("q")
    await store.enqueue("q", 0)
    async with holding(store, store_url, "lock table {task} in share row exclusive mode"):
        sent = [asyncio.ensure_future(store.enqueue("q", number)) for number in range(40)]
        sent += [asyncio.ensure_future(store.enqueue("q", number, key=f"k{number}")) for number in range(40)]
        driver.forget()
        await until(lambda: driver.scripts >= 4, message="the flushes are repeated")
        assert len(store.database.lock_queue) == 0
        assert not any(one.done() for one in sent)
    await asyncio.wait_for(asyncio.gather(*sent), 10)
    assert await count(store) == 81
    assert all(len(ids) > 1 for ids in driver.ids()), "nothing was tried alone"


@pytest.mark.proves("protocol-03", "protocol-07")
@ONLY_POSTGRES
async def test_what_follows_on_a_task_that_is_held_waits_behind_it_and_others_do_not(
    store: Store, store_url: str
) -> None:
    worker = await begin(store)
    await store.create_queue("q")
    await store.enqueue_many("q", range(6))
    tasks = await claim(store, worker, "q", 6)
    first = tasks[0]
    async with holding(store, store_url, f"select 1 from {{task}} where id = {first.id} for update"):
        held = asyncio.ensure_future(store.database.tasks.settle(first.id, worker, first.turn, DONE))
        await until(lambda: len(store.database.lock_queue) == 1)
        noted: list[Any] = []
        store.database.tasks.settle_soon(first.id, worker, first.turn, DONE, noted.append)
        assert len(store.database.lock_queue) == 2
        others = [store.database.tasks.settle(task.id, worker, task.turn, DONE) for task in tasks[1:]]
        assert await asyncio.gather(*others) == ["SUCCESS"] * 5
        assert not held.done()
        assert not noted
    assert await asyncio.wait_for(held, 5) == "SUCCESS"
    await until(lambda: bool(noted))
    assert noted[0].value is None, "the second one found that it was settled"


@pytest.mark.proves("protocol-14")
@ONLY_POSTGRES
async def test_what_waits_aside_has_room_of_its_own(
    store: Store, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush, "MOST_ASIDE_BYTES", 50_000)
    store, _ = watched(store)
    await store.create_queue("q")
    await store.enqueue("q", 0, key="warm")
    queue_id = await store.database.queue_id("q")
    text = (
        "insert into {task} (id, kind, queue_id, ready, priority, run_at, max_attempts, key, input, created_at,"
        f" updated_at) values (-1, 'MESSAGE', {queue_id}, true, 0, 0, 1, 'K', '1', 0, 0)"
    )
    async with holding(store, store_url, text):
        sent = [asyncio.ensure_future(store.enqueue("q", "x" * 10_000, key="K"))]
        await until(lambda: len(store.database.lock_queue) == 1)
        sent += [asyncio.ensure_future(store.enqueue("q", "x" * 10_000, key="K")) for _ in range(20)]
        await store.enqueue("q", 1)
        assert len(store.database.lock_queue) < 7, "the others wait for room before they wait here"
        assert store.database.flusher._room._free == lanes.MOST_PENDING_BYTES
        sent[-1].cancel()
        sent[0].cancel()
    answers = await asyncio.wait_for(asyncio.gather(*sent, return_exceptions=True), 10)
    assert sum(isinstance(answer, Exception) for answer in answers) == 19, "the key has another payload"
    await asyncio.wait_for(store.database.lock_queue.empty(), 5)
    assert store.database.flusher._room._free == lanes.MOST_PENDING_BYTES
    assert store.database.flusher._room_aside._free == 50_000


@pytest.mark.proves("rule-23", "promise-20")
@ONLY_POSTGRES
async def test_those_who_wait_for_a_row_leave_connections_of_the_pool_to_others(store: Store, store_url: str) -> None:
    await store.create_queue("q")
    task = await store.enqueue("q", 1)
    driver: Any = store.database.driver
    played, in_vain = driver._played, list[Any]()

    async def counted(script: Any, *args: Any) -> Any:
        try:
            return await played(script, *args)
        except StoreLocked:
            in_vain.append(script)
            raise

    driver._played = counted
    async with holding(store, store_url, f"select 1 from {{task}} where id = {task} for update"):
        locking = Call("lock_families", {}, [(task,)])
        waiting = [asyncio.ensure_future(driver.transact(lambda: _said(locking))) for _ in range(40)]
        await until(lambda: len(set(in_vain)) == 40)  # each has been tried with the others
        first, free = len(in_vain), set[int]()
        while len(in_vain) < first + 20:
            free.add(driver._free.qsize())
            await asyncio.sleep(0.005)
        assert min(free) >= 2, "all that wait try again, each with a connection of its own"
    await asyncio.wait_for(asyncio.gather(*waiting), 20)


@pytest.mark.proves("promise-20", "rule-28")
@ONLY_POSTGRES
async def test_who_waits_too_long_for_a_key_is_told_which_and_why(store_url: str) -> None:
    async with connect(store_url) as holder, connect(store_url, timeout=0.3) as store:
        await store.create_queue("q")
        async with holder.transaction() as tx:
            await holder.enqueue("q", 1, key="order 7", tx=tx)
            pid = await tx.connection.fetchval("select pg_backend_pid()")
            held = r"not written in 0\.6 s: its key 'order 7' is held by a transaction that has not ended"
            with pytest.raises(StoreLocked, match=rf"{held} \(process {pid} of the server, \d+ s old\); end that"):
                await store.enqueue("q", 1, key="order 7")
        await asyncio.wait_for(store.database.lock_queue.empty(), 5)
        assert await count(store) == 1


@pytest.mark.proves("protocol-03", "protocol-15")
@ONLY_POSTGRES
async def test_who_gives_up_and_who_closes_see_what_waits_aside(store: Store, store_url: str) -> None:
    over, _ = watched(store)
    worker = await begin(over)
    await over.create_queue("q")
    await over.enqueue("q", 1)
    [task] = await claim(over, worker, "q")
    async with holding(over, store_url, f"select 1 from {{task}} where id = {task.id} for update"):
        held = asyncio.ensure_future(over.database.tasks.settle(task.id, worker, task.turn, DONE))
        await until(lambda: len(over.database.lock_queue) == 1)
        over.database.tasks.give_up({worker})
        with pytest.raises(StoreUnavailable, match="not written before its session ended"):
            await asyncio.wait_for(held, 5)
        again = asyncio.ensure_future(over.database.tasks.settle(task.id, worker, task.turn, DONE))
        await until(lambda: len(over.database.lock_queue) >= 1 and not again.done())
        closing = asyncio.ensure_future(over.database.flusher.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
    await asyncio.wait_for(closing, 5)
    with contextlib.suppress(LeaseLost):  # the try that was given up was under way, and wrote it
        assert await again == "SUCCESS"
    assert (await row_of(store, task.id))["status"] == "SUCCESS"


@pytest.mark.proves("rule-23")
@ONLY_POSTGRES
async def test_a_statement_that_finds_what_is_held_holds_the_rest(store: Store, store_url: str) -> None:
    await store.create_queue("q")
    first, second = await store.enqueue_many("q", [1, 2])
    async with holding(store, store_url, f"update {{task}} set priority = 1 where id = {first}"):
        held = await store.database.driver.transact(lambda: _said(Call("held_tasks", {}, [(first,), (second,), (-1,)])))
        assert [row["id"] for row in held] == [first]
    assert await ask(store, "select 1 from {task}")


def _said(call: Call) -> Any:
    return (yield call)
