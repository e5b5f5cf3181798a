"""What can be set, and where: for the store, for a handler, for one message."""

import asyncio

import pytest

from stepwell import Config, Engine, InvalidOption, Retry, Store, Worker, connect, handler, workflow
from stepwell.base.clock import TestClock
from tests.deciders.workbench import Bench, Do, labels
from tests.ground.waiting import until


@pytest.mark.proves("E-13", "CF-07")
async def test_the_retry_policy_is_the_stores_the_handlers_or_the_messages(store_url: str) -> None:
    async with connect(store_url, clock=TestClock(), retry=Retry(2, base=7, jitter=0)) as store:

        @handler("plain")
        async def plain(number: int) -> None:
            raise ValueError

        @handler("own", retry=Retry(4, base=3, jitter=0))
        async def own(number: int) -> None:
            raise ValueError

        asked = {
            await store.enqueue(plain, 1): (2, 7),
            await store.enqueue("plain", 1): (2, 7),
            await store.enqueue(own, 1): (4, 3),
            await store.enqueue(own, 1, max_attempts=9): (9, 3),
        }
        before = store.database.clock.now()
        assert before is not None
        await Worker(store, [plain, own]).drain()
        for task_id, (attempts, seconds) in asked.items():
            task = await store.get(task_id)
            assert task is not None
            assert task.run_at is not None
            assert task.max_attempts == attempts
            assert task.run_at.timestamp() - before / 1e6 == pytest.approx(seconds)


@pytest.mark.proves("CF-07")
async def test_the_retry_policy_of_a_workflow_is_its_own_or_the_stores(store_url: str) -> None:
    @workflow
    async def plain_run() -> None:
        raise ValueError

    @workflow(retry=Retry(4, base=3, jitter=0))
    async def own_run() -> None:
        raise ValueError

    async with connect(store_url, clock=TestClock(), retry=Retry(2, base=7, jitter=0)) as store:
        before = store.database.clock.now()
        assert before is not None
        asked = {
            await plain_run.trigger().execute(store): (2, 7),
            await own_run.trigger().execute(store): (4, 3),
        }
        await Worker(store, [plain_run, own_run]).drain()
        for run_id, (attempts, seconds) in asked.items():
            task = await store.get(run_id)
            assert task is not None
            assert task.run_at is not None
            assert task.max_attempts == attempts
            assert task.run_at.timestamp() - before / 1e6 == pytest.approx(seconds)


@pytest.mark.proves("E-13", "CF-03")
async def test_options_stand_in_the_url_too(store_url: str) -> None:
    join = "&" if "?" in store_url else "?"
    async with connect(f"{store_url}{join}retry=5&visibility=90s") as store:
        assert (store.database.options.retry, store.database.options.visibility) == (Retry(5), 90)
    for wrong in ("retry=0", "retry=many", "visibility=-1"):
        with pytest.raises(InvalidOption):
            Config(f"{store_url}{join}{wrong}")


@pytest.mark.proves("CF-03")
async def test_visibility_is_the_stores_unless_the_call_says_otherwise(store_url: str) -> None:
    clock = TestClock()
    async with connect(store_url, clock=clock, visibility=100) as store:
        await store.create_queue("q")
        ids = await store.enqueue_many("q", [1, 2])
        await store.dequeue("q")
        await store.dequeue("q", visibility=10)
        now = clock.now()
        assert now is not None
        tasks = [await store.get(task_id) for task_id in ids]
        assert [task.run_at.timestamp() - now / 1e6 for task in tasks if task and task.run_at] == [100, 10]


@pytest.mark.proves("CF-05")
async def test_the_poll_can_be_set_and_a_message_of_another_process_is_found_by_it(
    store_url: str, backend: str
) -> None:
    done: list[int] = []

    @handler("q")
    async def work(number: int) -> None:
        done.append(number)

    async with (
        connect(store_url, listen=False) as mine,
        connect(store_url, listen=False) as theirs,
        Worker(mine, [work], poll="50ms"),
    ):
        await theirs.enqueue("q", 1)
        await until(lambda: done == [1])
    with pytest.raises(InvalidOption, match="poll"):
        Worker(mine, [work], poll=0)


@pytest.mark.proves("CF-05")
async def test_effects_and_timers_are_polled_as_often_as_the_worker_for_their_queue_says(
    store_url: str, clock: TestClock
) -> None:
    async with connect(store_url, clock=clock, listen=False) as store:
        bench = Bench()
        engine = Engine(store).register(bench)
        effects = Worker(store, [engine], prefixes=["bench:effects"], poll="50ms", concurrency=1)
        timers = Worker(store, [engine], prefixes=["bench:inputs"], poll="3s", concurrency=2)
        assert [one._runtime._polling._longest for one in (effects, timers)] == [0.05, 3.0]
        await engine.execute(Do("a", ask="mail", after=60, timer="t"))
        clock.advance(60)
        assert await timers.drain() == 1
        assert await labels(engine) == ["x", "tick"]
        assert await effects.drain() == 1
        assert await labels(engine) == ["x", "tick", "mail answered"]


async def test_a_handlers_concurrency_and_a_workers_limits_are_checked(store: Store) -> None:
    @handler("q")
    async def work(number: int) -> None:
        """Do nothing."""

    for options in ({"limits": {"p": 1}}, {"limits": {"q": 0}}, {"concurrency": 0}, {"on_missing_handler": "keep"}):
        with pytest.raises(InvalidOption):
            Worker(store, [work], **options)
    with pytest.raises(InvalidOption, match="several"):
        Worker(store, [work], prefixes="media.")


@pytest.mark.proves("E-13")
async def test_a_short_pause_before_the_next_attempt_is_short(live_store: Store) -> None:
    began: list[float] = []

    @handler("q", retry=Retry(4, base=0.05, cap=0.05, jitter=0))
    async def work(number: int) -> None:
        began.append(asyncio.get_running_loop().time())
        raise ValueError

    async with Worker(live_store, [work]):
        await live_store.enqueue(work, 1, delay="50ms")
        await until(lambda: len(began) == 4)
    # A sweep that nobody wakes comes once a second, so four attempts would take three.
    assert began[-1] - began[0] < 1.5
