"""Work that is not worth beginning after a moment: it is not begun after that, and ends CANCELLED."""

from datetime import timedelta

import pytest

from stepwell import RunCancelled, Store, TransientError, Worker, handler, workflow
from stepwell.base.clock import TestClock
from stepwell.base.durations import datetime_of
from stepwell.testing import world
from tests.ground.waiting import until
from tests.queue.raw import ask
from tests.queue.work import Work, of_both_kinds
from tests.store.seam import begin

REASON = "it expired before it had begun"
LATE = f"cancelled: {REASON}"


@pytest.mark.proves("arrivals-06")
@of_both_kinds
async def test_what_has_not_begun_in_time_is_never_executed(store: Store, work: Work, clock: TestClock) -> None:
    until = datetime_of(clock.now() or 0) + timedelta(minutes=10)
    late = [await work.add(store, 1, expires="10m"), await work.add(store, 2, expires=until)]
    in_time = await work.add(store, 3, expires="11m")
    clock.advance(600)
    assert await work.drain(store) == [3]
    rows = await ask(store, f"select id, status, last_error, turn from {{task}} where id >= {late[0]} order by id")
    assert rows == [*((one, "CANCELLED", LATE, 0) for one in late), (in_time, "SUCCESS", None, 1)]
    if store.database.audit.problems:
        notes = [(one.task_id, one.note.what, one.note.detail) for one in await store.audit(limit=2)]
        assert sorted(notes) == [(one, "cancelled", REASON) for one in late]
    if work.kind == "runs":
        assert (await store.why(late[0])).message == LATE
        with pytest.raises(RunCancelled) as cancelled:
            await store.result(late[0], timeout=10)
        assert cancelled.value.error == {"type": "Cancelled", "message": REASON}


@pytest.mark.proves("arrivals-06")
async def test_no_road_leads_to_one_that_is_too_late(store: Store, clock: TestClock) -> None:
    """Not even before upkeep has seen it: neither a claim, by level or not, nor a consumer, with limits or without."""
    work = Work("messages")
    await store.create_queue("mail")
    queue_id = await store.database.queue_id("mail")
    for priority in (0, 1):
        await work.add(store, 1, expires="1s", priority=priority)
    clock.advance(1)
    worker = await begin(store)
    tasks = store.database.tasks
    assert await tasks.claim(worker, [(queue_id, 10)], 10) == []
    assert await tasks.claim(worker, [(queue_id, 10)], 10, levels={queue_id: 1}) == []
    if store.database.driver.claims_many_queues:
        assert await tasks.claim_above(worker, [(queue_id, 10, 1, 0, 0)], 10) == []
    assert await store.dequeue("mail", 10) == []
    await store.limits.set("mail", running=5)
    await work.add(store, 1, expires="1s")
    clock.advance(1)
    assert await store.dequeue("mail", 10) == []
    assert await ask(store, "select count(*) from {task} where turn > 0") == [(0,)]


@pytest.mark.proves("arrivals-06")
async def test_one_that_has_begun_is_tried_again_however_late(store: Store, clock: TestClock) -> None:
    tried: list[int] = []

    @handler("mail", retry=2)
    async def send(n: int) -> None:
        tried.append(n)
        if len(tried) == 1:
            raise TransientError("not yet", retry_after=3600)

    await store.enqueue(send, 1, expires="10m")
    await Worker(store, [send]).drain()
    clock.advance(3601)
    await Worker(store, [send]).drain()
    assert tried == [1, 1]


@pytest.mark.proves("arrivals-06")
async def test_upkeep_gives_up_what_waits_for_a_later_moment_and_tells_its_parent(
    store: Store, clock: TestClock
) -> None:
    child = Work("runs").target

    @workflow
    async def parent() -> str:
        try:
            await child.trigger(1).options(delay="1h", key="k", expires="2h").wait().execute()
        except RunCancelled:
            return "given up"
        return "it ran"

    run = await store.trigger(parent.trigger().options(require_worker="ignore"))
    await Worker(store, [parent, child]).drain()
    await store.pause_queue("flow")
    clock.advance(7200)
    await Worker(store, [parent]).drain()
    assert await store.result(run, timeout=10) == "given up"


@pytest.mark.proves("arrivals-06")
async def test_a_worker_gives_it_up_by_itself(live_store: Store) -> None:
    work = Work("messages")
    await live_store.create_queue("mail")
    await live_store.pause_queue("mail")
    message = await work.add(live_store, 1, expires="10ms")
    async with Worker(live_store, [work.target]):
        await until_cancelled(live_store, message)


@pytest.mark.proves("arrivals-04", "arrivals-06")
async def test_a_world_debounces_and_gives_up_at_its_own_moments() -> None:
    messages, runs = Work("messages"), Work("runs")
    async with world(messages.target, runs.target) as here:
        await messages.add(here.store, 1, key="k", debounce="5m")
        run = await runs.add(here.store, 1, delay="1h", expires="2h")
        await here.store.pause_queue("flow")
        await here.advance("4m")
        await messages.add(here.store, 2, key="k", debounce="5m")
        await here.advance("4m")
        assert messages.done == []
        await here.advance("1m")
        assert messages.done == [2]
        await here.advance("2h")
        assert (await here.store.get_run(run)).status == "CANCELLED"


@pytest.mark.proves("arrivals-06")
async def test_a_replacement_has_its_own_end(store: Store, clock: TestClock) -> None:
    work = Work("messages")
    await work.add(store, 1, key="k", unique="waiting", expires="1m")
    await work.add(store, 2, key="k", unique="waiting", on_conflict="replace")
    clock.advance(3600)
    assert await work.drain(store) == [2]


async def until_cancelled(store: Store, message: int) -> None:
    """Return when the message is CANCELLED."""

    async def is_cancelled() -> bool:
        task = await store.get(message)
        return task is not None and task.status == "CANCELLED"

    await until(is_cancelled)
