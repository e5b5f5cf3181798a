"""A worker at work: what it serves, how it is started, and what it says of itself."""

import asyncio
import os
import socket
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from stepwell import (
    Handler,
    InvalidName,
    InvalidOption,
    Retry,
    SerializationError,
    StepwellError,
    Store,
    Worker,
    __version__,
    connect,
    handler,
)
from stepwell.base.clock import TestClock
from stepwell.store import poll as polling
from stepwell.store.sessions import Identity
from tests.ground.waiting import until
from tests.queue.raw import ask, everything_written


@dataclass
class Order:
    id: int
    lines: list[str]


@pytest.mark.proves("Q-19", "W-03")
async def test_a_return_finishes_an_exception_retries_and_the_worker_goes_on(live_store: Store) -> None:
    tried: Counter[str] = Counter()

    @handler("mail", retry=Retry(2, base=0.01))
    async def send(to: str) -> None:
        tried[to] += 1
        if to == "bad" or (to == "shy" and tried[to] == 1):
            raise ValueError(to)

    worker = Worker(live_store, [send], concurrency=2)
    polling = asyncio.create_task(worker.poll_forever())
    ids = await live_store.enqueue_many(send, ["bad", "good", "shy"])
    await until(live_store.dead_letters)
    last = await live_store.enqueue(send, "last")
    await until(lambda: _has_status(live_store, last, "SUCCESS"))
    await until(lambda: _has_status(live_store, ids[2], "SUCCESS"))
    assert not polling.done()
    worker.stop()
    await asyncio.wait_for(polling, 10)
    assert tried == {"bad": 2, "good": 1, "shy": 2, "last": 1}
    tasks = [await live_store.get(each) for each in (*ids, last)]
    assert [task.status for task in tasks if task] == ["ERROR", "SUCCESS", "SUCCESS", "SUCCESS"]


async def _has_status(store: Store, task_id: int, status: str) -> bool:
    task = await store.get(task_id)
    return task is not None and task.status == status


async def test_a_worker_may_be_used_again_and_again(live_store: Store) -> None:
    done: list[int] = []
    sessions: set[int] = set()

    @handler("async")
    async def one(number: int) -> None:
        done.append(number)

    @handler("sync")
    def two(number: int) -> None:
        done.append(-number)

    worker = Worker(live_store, [one, two])
    for number in (1, 2, 3):
        async with worker:
            sessions.add(worker.id)
            await live_store.enqueue(one, number)
            await live_store.enqueue(two, number)
            await until(lambda: len(done) % 2 == 0 and len(done) > 0 and abs(done[-1]) == number)  # noqa: B023
    assert len(sessions) == 3  # an identity is never used twice
    with pytest.raises(StepwellError, match="only while it is started"):
        _ = worker.id
    for number in (4, 5):
        await live_store.enqueue(one, number)
        await live_store.enqueue(two, number)
        assert await asyncio.wait_for(worker.drain(), 10) == 2
    for number in (6, 7):
        running = asyncio.create_task(worker.run())
        await live_store.enqueue(two, number)
        await until(lambda: done[-1] == -number)  # noqa: B023
        worker.stop()
        await asyncio.wait_for(running, 10)
    assert sorted(done) == [-7, -6, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5]
    assert not any(session.alive for session in await live_store.workers())


async def test_a_started_worker_is_not_started_again(live_store: Store) -> None:
    @handler("mail")
    async def send(number: int) -> None: ...

    worker = Worker(live_store, [send])
    async with worker:
        with pytest.raises(InvalidOption, match="started"):
            await worker.__aenter__()
        with pytest.raises(InvalidOption, match="started"):
            await worker.run()
        await live_store.enqueue(send, 1)
        await until(lambda: live_store.counts("mail"))
    assert len(await live_store.workers()) == 1


@pytest.mark.proves("W-04")
async def test_two_workers_side_by_side_and_one_outlives_the_other(live_store: Store) -> None:
    done: list[str] = []

    @handler("a")
    async def a(payload: str) -> None:
        done.append(payload)

    @handler("b")
    async def b(payload: str) -> None:
        done.append(payload)

    one, two = Worker(live_store, [a]), Worker(live_store, [b])
    polling = [asyncio.create_task(one.poll_forever()), asyncio.create_task(two.poll_forever())]
    await live_store.enqueue(a, "a1")
    await live_store.enqueue(b, "b1")
    await until(lambda: sorted(done) == ["a1", "b1"])
    one.stop()
    await asyncio.wait_for(polling[0], 10)
    await live_store.enqueue(a, "a2")
    await live_store.enqueue(b, "b2")
    await until(lambda: "b2" in done)
    assert "a2" not in done
    two.stop()
    await asyncio.wait_for(polling[1], 10)


@pytest.mark.proves("Q-23")
async def test_one_claim_serves_many_queues(store: Store, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Postgres one statement; on the others, which run one writer, one transaction."""
    done: Counter[str] = Counter()
    handlers: list[Any] = []

    def serving(queue: str) -> Any:
        @handler(queue)
        async def count(number: int) -> None:
            done[queue] += 1

        return count

    for number in range(12):
        handlers.append(serving(f"queue-{number}"))
        await store.enqueue_many(handlers[-1], [1, 2])
    calls: list[tuple[str, ...]] = []
    real_run, real_transact = store.database.driver.run, store.database.driver.transact

    async def run(slot: int, sent: Any) -> Any:
        calls.append(tuple(call.statement for call in sent))
        return await real_run(slot, sent)

    async def transact(script: Any, **options: Any) -> Any:
        calls.append(("script",))
        return await real_transact(script, **options)

    session = await store.database.sessions.begin(Identity("by hand", "here", 1, None, "0", []), 30_000_000)
    queues = [(await store.database.queue_id(one.queue), 24) for one in handlers]
    monkeypatch.setattr(store.database.driver, "run", run)
    monkeypatch.setattr(store.database.driver, "transact", transact)
    claimed = await store.database.tasks.claim(session, queues, 24)
    assert calls == [("claim",) if backend == "postgres" else ("script",)]
    assert len({task.queue_id for task in claimed}) == 12
    assert len(claimed) == 24
    monkeypatch.undo()
    await store.database.sessions.end(session, "stopped")
    assert await Worker(store, handlers, concurrency=5).drain() == 24
    assert done == {f"queue-{number}": 2 for number in range(12)}


@pytest.mark.proves("PR-13", "PR-11")
async def test_a_worker_claims_what_it_has_handlers_for_and_nothing_else(store: Store) -> None:
    done: list[str] = []
    names = ["mail", "mail.v2", "mai", "Mail", "m_il", "m%il"[:1]]

    @handler("mail")
    async def send(payload: str) -> None:
        done.append(payload)

    for name in names:
        await store.create_queue(name)
        await store.enqueue(name, name)
    assert await Worker(store, [send]).drain() == 1
    assert await Worker(store, []).drain() == 0
    assert done == ["mail"]
    assert await ask(store, "select count(*) from {task} where turn > 0") == [(1,)]


@pytest.mark.proves("W-07", "L-02", "DP-11", "B-05")
async def test_workers_of_one_queue_share_its_messages(store_url: str) -> None:
    executed: Counter[int] = Counter()
    under_way: set[int] = set()
    shared: list[int] = []
    by: Counter[int] = Counter()

    def serving(worker: int) -> Any:
        @handler("mail")
        async def send(number: int) -> None:
            if number in under_way:
                shared.append(number)
            under_way.add(number)
            executed[number] += 1
            by[worker] += 1
            await asyncio.sleep(0.001)
            under_way.discard(number)

        return send

    async with connect(store_url) as one, connect(store_url) as two, connect(store_url) as three:
        await one.create_queue("mail")
        stores = [one, two, three, one, two, three]
        workers = [Worker(store, [serving(number)], concurrency=4) for number, store in enumerate(stores)]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        for start in range(0, 60, 10):
            await stores[start % 3].enqueue_many("mail", range(start, start + 10))
        await until(lambda: len(executed) == 60 and not under_way, timeout=60)
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)
        assert await one.counts("mail") == {"SUCCESS": 60}
        [[turns, attempts]] = await ask(one, "select sum(turn), sum(attempt) from {task}")
    assert set(executed.values()) == {1}
    assert shared == []
    assert (int(turns), int(attempts)) == (60, 60)
    assert len(by) > 1


@pytest.mark.proves("W-09")
async def test_a_session_tells_who_and_what_it_is(store: Store, clock: TestClock) -> None:
    @handler("mail")
    async def send(number: int) -> None: ...

    @handler("print.v2")
    async def output(number: int) -> None: ...

    async with Worker(store, [send, output], name="ann", port=8080) as worker, Worker(store, [send], name="bob"):
        newest, oldest = await store.workers()
        assert (newest.name, oldest.name) == ("bob", "ann")
        assert (oldest.id, oldest.host, oldest.port) == (worker.id, socket.gethostname(), 8080)
        assert (oldest.pid, oldest.version) == (os.getpid(), __version__)
        assert oldest.handlers == ("mail", "print.v2")
        assert (oldest.alive, oldest.silent, oldest.stopped_at, oldest.stop_reason) == (True, 0.0, None, None)
        living = [each.name for each in await store.workers() if each.alive and "print.v2" in each.handlers]
        assert living == ["ann"]
        clock.advance(7, leases=True)
        assert {each.silent for each in await store.workers()} == {7.0}
    assert [(each.alive, each.stop_reason, each.silent) for each in await store.workers()] == [
        (False, "stopped", None)
    ] * 2


@pytest.mark.proves("W-11")
async def test_a_payload_that_does_not_fit_is_dead_at_once(store: Store) -> None:
    payloads: list[Any] = [{"id": "seven", "lines": []}, {"id": 7}, [], None, {"id": 7, "lines": [1]}, 2**80]
    called: list[Order] = []

    @handler("orders", retry=10)
    async def take(order: Order) -> None:
        called.append(order)

    @handler("sync-orders", retry=10)
    def take_too(order: Order) -> None:
        called.append(order)

    for one in (take, take_too):
        await store.create_queue(one.queue)
        await store.enqueue_many(one.queue, payloads)
        await store.enqueue(one.queue, payloads[0], max_attempts=10)
    assert await Worker(store, [take, take_too]).drain() == 14
    letters = await store.dead_letters(error="SerializationError")
    assert [letter.attempt for letter in letters] == [1] * 14
    assert all("payload refused at `$" in (letter.last_error or "") for letter in letters)
    assert called == []


async def test_a_payload_is_read_as_the_type_the_handler_names(store: Store) -> None:
    seen: list[Any] = []

    @handler("orders")
    async def take(order: Order) -> None:
        seen.append(order)

    @handler("plain")
    def plain(order) -> None:  # type: ignore[no-untyped-def]
        seen.append(order)

    await store.enqueue(take, Order(7, ["a"]))
    await store.enqueue("orders", {"id": 8, "lines": []})
    await store.enqueue(plain, Order(9, []))
    await Worker(store, [take, plain], concurrency=1).drain()
    assert sorted(seen, key=repr) == [Order(7, ["a"]), Order(8, []), {"id": 9, "lines": []}]


@pytest.mark.proves("W-17")
async def test_a_failing_handler_disturbs_no_other(live_store: Store) -> None:
    failed: Counter[str] = Counter()
    done: list[int] = []

    @handler("bad", retry=Retry(1000, base=0, jitter=0))
    async def bad(payload: int) -> None:
        failed["bad"] += 1
        raise SystemExit(3)

    @handler("worse", retry=Retry(1000, base=0, jitter=0))
    def worse(payload: int) -> None:
        failed["worse"] += 1
        raise RuntimeError

    @handler("good")
    async def good(payload: int) -> None:
        done.append(payload)

    async with Worker(live_store, [bad, worse, good], concurrency=3):
        await live_store.enqueue_many(bad, range(20))
        await live_store.enqueue_many(worse, range(20))
        await until(lambda: failed["bad"] > 5 and failed["worse"] > 5)
        for number in range(5):
            before = failed.total()
            await live_store.enqueue(good, number)
            await until(lambda: done and done[-1] == number)  # noqa: B023
            assert failed.total() - before < 1000
    assert done == list(range(5))


@pytest.mark.proves("W-19")
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_while_there_is_work_no_poll_is_waited_for(
    live_store: Store, store_url: str, monkeypatch: pytest.MonkeyPatch, concurrency: int
) -> None:
    done: list[int] = []

    @handler("mail")
    async def send(number: int) -> None:
        await asyncio.sleep(0)
        done.append(number)

    monkeypatch.setattr(polling, "SHORTEST_POLL", 60.0)
    monkeypatch.setattr(polling, "LONGEST_POLL", 60.0)
    async with connect(store_url) as other:  # no hint from another store
        await other.enqueue_many(send, range(30))
    async with Worker(live_store, [send], concurrency=concurrency):
        await until(lambda: len(done) == 30)
        await live_store.enqueue(send, 31)  # a hint of the same store ends the wait too
        await until(lambda: len(done) == 31)


async def test_work_of_other_stores_is_found_by_polling(live_store: Store, store_url: str) -> None:
    done: list[int] = []

    @handler("mail")
    async def send(number: int) -> None:
        done.append(number)

    async with connect(store_url) as other, Worker(live_store, [send]):
        for number in range(3):
            await other.enqueue(send, number)
            await until(lambda: done == list(range(number + 1)))  # noqa: B023


async def test_due_messages_are_woken_in_the_background(live_store: Store) -> None:
    done: list[str] = []

    @handler("mail", retry=Retry(3, base=0.05))
    async def send(to: str) -> None:
        done.append(to)
        if to == "again" and done.count("again") == 1:
            raise ValueError

    async with Worker(live_store, [send]):
        await live_store.enqueue(send, "later", delay=0.1)
        await live_store.enqueue(send, "again")
        await until(lambda: sorted(done) == ["again", "again", "later"])


async def test_drain_does_what_is_due_and_what_that_leads_to(store: Store, clock: TestClock) -> None:
    done: list[int] = []

    @handler("mail")
    async def send(number: int) -> None:
        done.append(number)
        if number < 5:
            await store.enqueue(send, number + 1)
            await store.enqueue(send, 100, delay="1h")

    await store.enqueue(send, 1)
    assert await Worker(store, [send]).drain() == 5
    assert done == [1, 2, 3, 4, 5]
    clock.advance("1h")
    assert await Worker(store, [send]).drain() == 4
    assert await Worker(store, [send]).drain() == 0


async def test_drain_misses_nothing_that_happens_while_it_looks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body ends, and adds a message, while the claim that finds nothing is on its way back."""
    done: list[int] = []
    looked = asyncio.Event()
    real = store.database.tasks.claim

    async def claim(*args: Any, **options: Any) -> Any:
        claimed = await real(*args, **options)
        if not claimed and not looked.is_set():
            looked.set()
            await until(lambda: len(done) == 1)
            await asyncio.sleep(0.2)
        return claimed

    monkeypatch.setattr(store.database.tasks, "claim", claim)

    @handler("mail")
    async def send(number: int) -> None:
        await looked.wait()
        if number == 1:
            await store.enqueue(send, 2)
        done.append(number)

    await store.enqueue(send, 1)
    assert await asyncio.wait_for(Worker(store, [send]).drain(), 20) == 2
    assert done == [1, 2]


async def test_a_started_worker_can_be_drained(live_store: Store) -> None:
    done: list[int] = []

    @handler("mail")
    async def send(number: int) -> None:
        await asyncio.sleep(0.01)
        done.append(number)

    async with Worker(live_store, [send], concurrency=2) as worker:
        await live_store.enqueue_many(send, range(8))
        await asyncio.wait_for(worker.drain(), 20)
        assert sorted(done) == list(range(8))
        await asyncio.wait_for(worker.drain(), 20)


def test_a_decorated_function_stays_what_it_was() -> None:
    @handler("mail", retry=4, timeout="30s", concurrency=2)
    def send(order: Order) -> str:
        """Send it."""
        return f"sent {order.id}"

    assert send(Order(7, [])) == "sent 7"
    assert (send.__name__, send.__doc__) == ("send", "Send it.")  # type: ignore[attr-defined]
    assert (send.queue, send.max_attempts, send.timeout, send.concurrency) == ("mail", 4, 30.0, 2)
    assert send.payload_type is Order
    assert repr(send) == "<handler send of mail>"
    assert isinstance(send, Handler)

    @handler("mail")
    async def asend(order: Order) -> int:
        return order.id

    assert asyncio.run(asend(Order(8, []))) == 8


def _two(a: int, b: int) -> None: ...
def _none() -> None: ...
def _either(payload: Order | Worker) -> None: ...


def test_what_cannot_be_a_handler_is_refused_when_it_is_declared() -> None:
    for fn in (_two, _none):
        with pytest.raises(InvalidOption, match="a handler is called with the payload alone"):
            handler("mail")(fn)  # type: ignore[arg-type]
    with pytest.raises(SerializationError, match="payload of _either"):
        handler("mail")(_either)
    for name in ("", "a b", "a\N{ZERO WIDTH SPACE}b"):
        with pytest.raises(InvalidName):
            handler(name)(_two)
    bad: list[dict[str, Any]] = [{"retry": 0}, {"retry": -1}, {"timeout": -1}, {"timeout": "soon"}, {"concurrency": 0}]
    for options in bad:
        with pytest.raises(InvalidOption):
            handler("mail", **options)


async def test_what_cannot_be_served_is_refused_when_the_worker_is_made(store: Store) -> None:
    @handler("mail")
    async def send(number: int) -> None: ...

    @handler("mail")
    async def other(number: int) -> None: ...

    async def plain(number: int) -> None: ...

    refused: list[tuple[list[Any], dict[str, Any], str]] = [
        ([send, other], {}, "two handlers for the queue mail"),
        ([plain], {}, "a worker serves what is decorated with @handler, @workflow or @step(queue=...)"),
        (["mail"], {}, "a worker serves what is decorated"),
        ([send], {"concurrency": 0}, "concurrency cannot be 0"),
        ([send], {"concurrency": -1}, "concurrency cannot be -1"),
        ([send], {"limits": {"mial": 1}}, "these queues are not served"),
        ([send], {"limits": {"mail": 0}}, "limits of mail cannot be 0"),
        ([send], {"grace": -1}, "grace cannot be -1"),
        ([send], {"grace": "soon"}, "grace cannot be 'soon'"),
    ]
    for serves, options, words in refused:
        with pytest.raises(InvalidOption) as caught:
            Worker(store, serves, **options)
        assert words in str(caught.value)
    assert await everything_written(store) == (0, 0, 0)


async def test_one_worker_serves_any_number_of_handlers_sync_and_async(store: Store) -> None:
    done: list[str] = []
    threads: set[str] = set()

    @handler("a")
    async def a(payload: str) -> None:
        done.append(payload)

    @handler("b")
    def b(payload: str) -> None:
        threads.add(threading.current_thread().name)
        done.append(payload)

    class Service:
        async def __call__(self, payload: str) -> None:
            await asyncio.sleep(0)
            done.append(payload)

    c = handler("c")(Service().__call__)
    for queue in "abc":
        await store.create_queue(queue)
        await store.enqueue(queue, queue)
    assert await Worker(store, [a, b, c], name="w").drain() == 3
    assert sorted(done) == ["a", "b", "c"]
    assert threads == {"stepwell-w-1"}
