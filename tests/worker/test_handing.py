"""A task that is added beside an idle worker is written as its own: no claim stands between; all else is the same."""

import asyncio
import gc
from collections.abc import Sequence

import pytest

from stepwell import Store, StoreUnavailable, TaskId, Worker, connect, handler
from stepwell.store.driver import Call
from stepwell.store.pending import Answer
from stepwell.work.current import HIDDEN, current_branch
from tests.ground.waiting import until
from tests.store.seam import Gate, once, row_of, watched
from tests.workflows.kit import die, task_of

ran: list[int] = []
MOST_TRIES = 20
MANY = 150


@pytest.fixture(autouse=True)
def anew() -> None:
    ran.clear()


@handler("handed")
async def note(number: int) -> None:
    ran.append(number)
    assert current_branch.get() is HIDDEN  # no step of it is taken for one of the caller's


async def at_rest(worker: Worker) -> None:
    """Wait until the worker has claimed all there was and looks for no more: between two looks it has not claimed."""
    seen: list[int] = []

    def rests() -> bool:
        runtime = worker._runtime
        seen.append(runtime.claim_number)
        assert runtime.session is not None
        return seen[-3:] == 3 * seen[-1:] and not runtime.session.is_claiming and not runtime.claims.executions

    await worker.drain()
    await until(rests)


def statements(flushes: Sequence[Sequence[Call]]) -> list[str]:
    return [call.statement for calls in flushes for call in calls if call.statement not in ("beat", "count_settled")]


@pytest.mark.proves("Q-01", "L-01", "Q-08")
async def test_what_is_added_beside_an_idle_worker_is_executed_without_a_claim(store: Store) -> None:
    store, driver = watched(store)
    async with Worker(store, [note], poll=60) as worker:
        task_id, number = TaskId(0), -1
        for number in range(MOST_TRIES):
            await at_rest(worker)
            driver.forget()
            task_id = await store.enqueue(note, number)
            await until(lambda task_id=task_id: _is(store, task_id, "SUCCESS"))  # type: ignore[misc]
            if "add_tasks" not in statements(driver.flushes):
                break  # else a claim was just under way, as it is now and then
        assert [one for one in statements(driver.flushes) if one != "claim"] == ["hand_over", "settle"]
        assert ran[-1] == number
        task = await task_of(store, task_id)
        assert (task.turn, task.attempt, task.owner) == (1, 1, None)
        assert [task.last_worker] == [one.id for one in await store.workers()]
        row = await row_of(store, task_id)
        assert row["created_at"] == row["run_at"] == row["claimed_at"] == row["started_at"]


@pytest.mark.proves("Q-01")
async def test_not_with_a_key_a_delay_a_paused_queue_or_a_store_in_maintenance(store: Store) -> None:
    store, driver = watched(store)
    async with Worker(store, [note], poll=60) as worker:
        await at_rest(worker)
        driver.forget()
        await store.enqueue(note, 1, key="k")
        await store.enqueue(note, 2, delay=60)
        await until(lambda: ran == [1])
        await worker.drain()
        assert "hand_over" not in statements(driver.flushes)
        await store.pause_queue("handed")
        paused = await store.enqueue(note, 3)
        assert (await task_of(store, paused)).status == "PENDING"
        await store.resume_queue("handed")
        await store.begin_maintenance("moving")
        kept = await store.enqueue(note, 4)
        assert (await task_of(store, kept)).status == "PENDING"
        await store.end_maintenance()
        await until(lambda: sorted(ran) == [1, 3, 4])


@pytest.mark.proves("Q-06", "L-01")
async def test_no_more_are_handed_over_than_there_are_places(store: Store) -> None:
    running, most = 0, 0
    let_go = asyncio.Event()

    @handler("slow", concurrency=2)
    async def slow(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await let_go.wait()
        running -= 1
        ran.append(number)

    async with Worker(store, [slow, note], concurrency=3) as worker:
        await at_rest(worker)
        await asyncio.gather(*(store.enqueue(slow, number) for number in range(20)))
        await until(lambda: running == 2)
        let_go.set()
        await until(lambda: len(ran) == 20)
        assert most == 2


@pytest.mark.proves("rule-04", "protocol-02", "promise-02")
async def test_one_whose_reply_is_lost_is_there_once_and_executed(store_url: str, backend: str) -> None:
    async with connect(store_url, lease=1.5) as opened:
        store, driver = watched(opened)
        async with Worker(store, [note]) as worker:
            await at_rest(worker)
            driver.after = once(StoreUnavailable("reset after the work was done"))
            task_id = await store.enqueue(note, 1)
            assert task_id.created
            await until(lambda: _is(store, task_id, "SUCCESS"), timeout=20, message="the heartbeat gave it back")
            assert ran == [1]


@pytest.mark.proves("protocol-01", "promise-13")
async def test_a_session_that_was_declared_dead_is_handed_nothing(store: Store) -> None:
    async with Worker(store, [note], poll=60) as worker:
        await at_rest(worker)
        await die(store.database)
        task_id = await store.enqueue(note, 1)
        assert (await task_of(store, task_id)).owner is None  # it waits for whoever lives


@pytest.mark.proves("Q-01", "promise-01")
async def test_whoever_leaves_while_it_is_written_does_not_take_it_along(store: Store) -> None:
    store, driver = watched(store)
    async with Worker(store, [note], poll=60) as worker:
        await at_rest(worker)
        gate, number, adding = Gate(), -1, asyncio.ensure_future(store.get(1))
        for number in range(MOST_TRIES):
            await at_rest(worker)
            gate = driver.before = Gate()
            adding = asyncio.ensure_future(store.enqueue(note, number))  # type: ignore[arg-type]
            await until(lambda gate=gate: gate.arrived > 0)  # type: ignore[misc]
            if "hand_over" in statements(driver.flushes[-1:]):
                break  # else a claim was just under way, as it is now and then
            gate.open()
            await adding
        adding.cancel()
        gate.open()
        await until(lambda: number in ran)


@pytest.mark.proves("promise-13", "W-05")
async def test_what_is_handed_over_while_the_worker_stops_is_executed_or_given_back(store: Store) -> None:
    store, driver = watched(store)
    worker = Worker(store, [note], poll=60)
    async with worker:
        await at_rest(worker)
        gate = Gate()
        driver.before = gate
        adding = asyncio.ensure_future(store.enqueue(note, 1))
        await until(lambda: gate.arrived > 0)
        stopping = asyncio.ensure_future(worker._runtime.stop())
        await asyncio.sleep(0)
        driver.before = None
        gate.open()
        task = await task_of(store, await adding)
        await stopping
        task = await task_of(store, task.id)
        assert (task.status, task.owner) in (("SUCCESS", None), ("PENDING", None))
        assert task.attempt == len(ran)


async def _is(store: Store, task_id: int, status: str) -> bool:
    return (await task_of(store, task_id)).status == status


@pytest.mark.proves("promise-18")
async def test_what_was_handed_over_leaves_nothing_behind(live_store: Store) -> None:
    store = live_store
    async with Worker(store, [note]) as worker:
        await at_rest(worker)
        for number in range(MANY):
            await store.enqueue(note, number)
            await until(lambda: len(ran) > number)  # noqa: B023 - asked before the next one
    gc.collect()
    assert sum(type(one) is Answer for one in gc.get_objects()) < MANY
