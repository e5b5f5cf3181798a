"""A worker and the tasks that were lost with another: it executes them alone, and goes on with the rest."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stepwell import Store, Worker, connect, handler, step, workflow
from stepwell.store.rows import SeenWorker
from tests.ground.waiting import until
from tests.queue.raw import ask
from tests.store.seam import begin, count
from tests.worker.silence import stillness

MANY = 6


@asynccontextmanager
async def leased(store_url: str, lease: float = 1.0) -> AsyncIterator[Store]:
    async with connect(f"{store_url}?lease={lease}") as store:
        yield store


async def bury(store: Store, worker: int) -> None:
    """Declare a session dead, as another worker does."""
    [[beat_at]] = [list(row) for row in await ask(store, f"select beat_at from {{beat}} where worker_id = {worker}")]
    assert await store.database.sessions.bury(SeenWorker(worker, beat_at)) is not None


async def lose(store: Store, queue: str, number: int) -> None:
    """Have a session claim these and die."""
    dead = await begin(store)
    assert (
        len(await store.database.tasks.claim(dead, [(await store.database.queue_id(queue), number)], number)) == number
    )
    await bury(store, dead)


class Company:
    """Who was executed beside whom."""

    def __init__(self) -> None:
        self.now: set[object] = set()
        self.met: dict[object, set[object]] = {}

    async def attend(self, name: object, seconds: float = 0.02) -> None:
        self.now.add(name)
        for one in self.now:
            self.met.setdefault(one, set()).update(self.now - {one})
        try:
            await asyncio.sleep(seconds)
        finally:
            self.now.discard(name)


@pytest.mark.proves("rule-07", "promise-12")
async def test_suspects_are_executed_one_at_a_time_with_nothing_beside_them(live_store: Store) -> None:
    company = Company()

    @handler("mail", retry=3)
    async def send(name: str) -> None:
        await company.attend(name)

    await live_store.enqueue_many(send, [f"suspect {n}" for n in range(MANY)])
    await lose(live_store, "mail", MANY)
    await live_store.enqueue_many(send, [f"ordinary {n}" for n in range(40)])
    async with Worker(live_store, [send], concurrency=4):
        await until(lambda: count_of(live_store, "SUCCESS", MANY + 40), 60)
    suspects = {name: met for name, met in company.met.items() if str(name).startswith("suspect")}
    assert len(suspects) == MANY
    assert set().union(*suspects.values()) == set(), "somebody was executed beside a suspect"
    assert any(met for name, met in company.met.items() if str(name).startswith("ordinary")), "void: nothing ever was"


@pytest.mark.proves("rule-07", "promise-12")
async def test_ordinary_work_goes_on_when_others_have_executed_the_suspects_that_were_waited_for(
    store_url: str,
) -> None:
    go_on, begun = asyncio.Event(), list[str]()

    @handler("mail", retry=3)
    async def send(name: str) -> None:
        begun.append(name)
        if name == "long":
            await go_on.wait()

    async with leased(store_url, 60) as store:
        await store.enqueue(send, "suspect")
        queue, dead, other = await store.database.queue_id("mail"), await begin(store), await begin(store)
        assert len(await store.database.tasks.claim(dead, [(queue, 1)], 1)) == 1
        async with Worker(store, [send], concurrency=4) as worker:
            await store.enqueue(send, "long")
            await until(lambda: begun == ["long"])
            await bury(store, dead)
            await until(lambda: worker._runtime.claims._suspects.is_on, message="it waits for the end of the long one")
            assert len(await store.database.suspects.claim(other, [queue], beside=False)) == 1
            await store.enqueue(send, "ordinary")
            await until(lambda: "ordinary" in begun, message="the lease is not over")
            go_on.set()
    assert begun == ["long", "ordinary"]


async def count_of(store: Store, status: str, number: int) -> bool:
    return await count(store, f"status = '{status}'") == number


@pytest.mark.proves("rule-07")
async def test_runs_and_batches_are_executed_alone_too_and_a_drain_includes_them(live_store: Store) -> None:
    company = Company()
    calls: list[list[str]] = []

    @step
    async def act(name: str) -> str:
        await company.attend(name)
        return name

    @workflow(retry=3)
    async def lonely(name: str) -> str:
        return await act(name)

    @handler("meters", batch=10)
    async def write(names: list[str]) -> None:
        calls.append(names)
        for name in names:
            await company.attend(name)

    worker = Worker(live_store, [lonely, write], concurrency=4)
    await worker.drain()
    runs = [await lonely.trigger(f"run {n}").execute(live_store) for n in range(3)]
    await live_store.enqueue_many(write, ["a", "b", "c"])
    await lose(live_store, "lonely", 3)
    await lose(live_store, "meters", 3)
    await live_store.enqueue_many(write, ["d", "e"])
    await worker.drain()
    assert sorted(calls, key=str) == [["a"], ["b"], ["c"], ["d", "e"]]
    assert set().union(*(met for name, met in company.met.items() if name not in ("d", "e"))) == set()
    assert [(await live_store.result(run)) for run in runs] == ["run 0", "run 1", "run 2"]


@pytest.mark.proves("rule-07")
async def test_after_a_lease_ordinary_work_begins_beside_a_suspect_that_does_not_end(store_url: str) -> None:
    company = Company()
    go_on = asyncio.Event()

    @handler("mail", retry=3)
    async def send(name: str) -> None:
        if name == "endless":
            company.now.add(name)
            await go_on.wait()
            company.now.discard(name)
        else:
            await company.attend(name)

    async with leased(store_url) as store:
        await store.enqueue_many(send, ["endless"])
        await lose(store, "mail", 1)
        async with Worker(store, [send], concurrency=4):
            await until(lambda: "endless" in company.now)
            await store.enqueue_many(send, [f"ordinary {n}" for n in range(5)])
            await until(lambda: count_of(store, "SUCCESS", 5), 30)
            assert all("endless" in met for name, met in company.met.items() if name != "endless")
            assert company.now == {"endless"}
            go_on.set()
            await until(lambda: count_of(store, "SUCCESS", 6))


@pytest.mark.proves("rule-07")
async def test_after_a_lease_a_suspect_goes_beside_a_body_that_does_not_end(store_url: str) -> None:
    company = Company()
    go_on = asyncio.Event()

    @handler("mail", retry=3)
    async def send(name: str) -> None:
        await company.attend(name)

    @handler("long")
    async def endless(name: str) -> None:
        company.now.add(name)
        await go_on.wait()
        company.now.discard(name)

    async with leased(store_url) as store:
        await store.enqueue_many(send, ["one", "two"])
        await lose(store, "mail", 2)
        await store.pause_queue("mail")
        async with Worker(store, [send, endless], concurrency=4):
            await store.enqueue(endless, "endless")
            await until(lambda: "endless" in company.now)
            await store.resume_queue("mail")
            await until(lambda: count_of(store, "SUCCESS", 2), 30)
            assert (company.met["one"], company.met["two"]) == ({"endless"}, {"endless"})
            go_on.set()
            await until(lambda: count_of(store, "SUCCESS", 3))


@pytest.mark.proves("rule-07", "L-08")
async def test_a_worker_that_was_only_cut_off_makes_no_suspects(store_url: str) -> None:
    """Declared dead with all it had under way, it begins another session and has nothing executed alone."""
    company = Company()
    go_on = asyncio.Event()

    @handler("mail", retry=3)
    async def send(name: str) -> None:
        await company.attend(name, 0 if go_on.is_set() else 60)

    async with leased(store_url) as store:
        async with Worker(store, [send], concurrency=MANY) as worker:
            dead = worker.id
            await store.enqueue_many(send, [f"{n}" for n in range(MANY)])
            await until(lambda: len(company.now) == MANY)
            go_on.set()
            async with stillness(store):  # a beat would hear of it, and undo it, before anybody has looked
                await bury(store, dead)
                assert await count(store, "losses > 0") == MANY
            await until(lambda: count_of(store, "SUCCESS", MANY), 30)
            assert worker.id != dead
        rows = await ask(store, "select attempt, turn, losses from {task}")
        assert {tuple(row) for row in rows} == {(1, 2, 0)}, "the attempts that were cut off are given back"
        [[held]] = [list(row) for row in await ask(store, f"select held from {{worker}} where id = {dead}")]
        assert held is None


@pytest.mark.proves("rule-07")
async def test_a_worker_that_stops_makes_no_suspects(live_store: Store) -> None:
    @handler("mail", retry=3)
    async def stubborn(name: str) -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if stopped.is_set():
                    raise

    stopped = asyncio.Event()
    worker = Worker(live_store, [stubborn], concurrency=2, grace=0)
    async with worker:
        await live_store.enqueue_many(stubborn, ["a", "b"])
        await until(lambda: count_of(live_store, "RUNNING", 2))
        stopped.set()
    assert await count(live_store, "losses > 0") == 0
    assert await count(live_store, "ready") == 2
