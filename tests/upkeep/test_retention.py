"""What is kept for how long: what is old goes, with all that belongs to it, and nothing else does."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stepwell import Store, StoreUnavailable, Worker, connect, handler
from stepwell.base.clock import TestClock
from stepwell.base.events import InternalTaskFailed, StoreLost
from stepwell.store import retention
from stepwell.work import upkeep
from tests.ground.waiting import until
from tests.queue.raw import ask, change
from tests.store.seam import begin, one, watched
from tests.upkeep.rows import DAY, count, finished, left, now_of, put

KINDS = ("MESSAGE", "RUN", "EFFECT", "TIMER", "INPUT", "OUTBOX")


@pytest.mark.proves("SD-09")
async def test_a_finished_message_is_kept_for_seven_days(store: Store, clock: TestClock) -> None:
    @handler("mail")
    async def send(payload: int) -> None: ...

    message = await store.enqueue(send, 1)
    await Worker(store, [send]).drain()
    clock.advance("6d23h")
    assert await store.database.retention.round() is False
    assert await store.get(message) is not None
    clock.advance("2h")
    await store.database.retention.round()
    assert await left(store) == []


@pytest.mark.proves("SD-09", "SD-10")
async def test_only_what_is_finished_and_old_is_removed_whatever_its_kind(store: Store) -> None:
    old = now_of(store) - 400 * DAY
    for place, kind in enumerate(KINDS):
        await finished(store, [100 + place], days_ago=8, kind=kind)
        await finished(store, [200 + place], days_ago=8, kind=kind, status="CANCELLED")
        await finished(store, [300 + place], days_ago=6, kind=kind)
        await finished(store, [400 + place], days_ago=400, kind=kind, status="ERROR")
        await put(store, [500 + place], kind=kind, run_at=old, created_at=old, ready=True)
        await put(store, [600 + place], kind=kind, run_at=old, created_at=old, status="PAUSED")
        await put(store, [700 + place], kind=kind, run_at=old, created_at=old, status="RUNNING", owner=1)
    await store.database.retention.round()
    assert {number // 100 for number in await left(store)} == {3, 4, 5, 6, 7}
    assert len(await left(store)) == 5 * len(KINDS)


async def test_dead_letters_go_only_when_their_own_time_is_given(store_url: str, clock: TestClock) -> None:
    async with connect(store_url, clock=clock, keep=None, keep_dead_letters="30d") as store:
        await finished(store, [1], days_ago=400)
        await finished(store, [2], days_ago=29, status="ERROR")
        await finished(store, [3], days_ago=31, status="ERROR")
        await store.database.retention.round()
        assert await left(store) == [1, 2]
    async with connect(store_url, clock=clock, keep="0s") as store:
        clock.advance("1s")
        await store.database.retention.round()
        assert await left(store) == [2]


@pytest.mark.proves("SD-06", "SD-10")
async def test_what_belongs_to_a_task_goes_in_its_transaction(store: Store) -> None:
    over, driver = watched(store)
    await finished(store, [1, 3], days_ago=8, kind="RUN")
    await put(store, [2], kind="RUN")
    await put(store, [4], kind="RUN", deleted_at=now_of(store) - 8 * DAY)
    for task in (1, 2, 3, 4):
        await change(
            store,
            f"insert into {{step}} (run_id, key, status) values ({task}, 'a', 'SUCCESS'), ({task}, 'b', 'SUCCESS')",
            f"insert into {{signal}} (run_id, name, place, sent_at) values ({task}, 's', 0, 1)",
            f"insert into {{audit}} (task_id, place, what, recorded_at) values ({task}, 0, 'made', {now_of(store)})",
        )
    driver.forget()
    assert await over.prune("7d") == 3
    for table, column in (("step", "run_id"), ("signal", "run_id"), ("audit", "task_id")):
        assert {row[0] for row in await ask(store, f"select {column} from {{{table}}}")} - {0} == {2}, table
    told = [call.statement for call in driver.said][1:]
    assert driver.said[0].statement == "note", "who prunes"
    assert told.count("remove_finished") == 1
    assert told[:5] == ["remove_finished", "remove_steps", "remove_signals", "remove_reports", "remove_audit"]
    assert (
        driver.scripts == 5
    )  # the note, one of finished, two of deleted tasks, the last of which finds none; one of observations


@pytest.mark.proves("rule-25")
async def test_a_child_stays_until_its_parent_is_finished(store: Store) -> None:
    await put(store, [1], kind="RUN", status="PAUSED")
    await finished(store, [2], days_ago=400, kind="RUN", parent_id=1)
    await finished(store, [3], days_ago=400, kind="RUN", parent_id=1, status="ERROR")
    await finished(store, [4], days_ago=400, kind="RUN", parent_id=1, deleted_at=1)
    assert await store.prune("1d", dead_letters=True, dry_run=True) == 0
    assert await store.prune("1d", dead_letters=True) == 0
    await change(store, f"update {{task}} set status = 'SUCCESS', finished_at = {now_of(store)} where id = 1")
    assert await store.prune("1d", dead_letters=True, dry_run=True) == 3
    assert await store.prune("1d", dead_letters=True) == 3
    assert await left(store) == [1]


@pytest.mark.proves("SD-06")
async def test_what_was_deleted_goes_after_its_time_unless_somebody_is_at_it(store: Store, clock: TestClock) -> None:
    worker = await begin(store)
    running = await one(store, worker)
    waiting = await store.enqueue("q", "waiting", delay="1d")
    by_hand = await store.enqueue("q", "by hand")
    [message] = await store.dequeue("q", visibility="10d")
    assert message.id == by_hand
    late = await put(store, [5], status="SUCCESS", finished_at=now_of(store) + 7 * DAY)
    for task in (running.id, waiting, by_hand, *late):
        assert await store.delete(task)
    clock.advance("6d23h")
    await store.database.retention.round()
    assert await left(store) == sorted([running.id, waiting, by_hand, 5])
    clock.advance("2h")
    await store.database.retention.round()
    assert await left(store) == sorted([running.id, by_hand, 5])
    clock.advance("7d")
    await store.database.retention.round()
    assert await left(store) == sorted([running.id, by_hand])
    clock.advance("4d")  # nobody has come back to what was taken by hand for as long as things are kept
    await store.database.retention.round()
    assert await left(store) == [running.id]
    assert await message.archive() is False


async def test_another_tenant_keeps_what_it_wants(store_url: str, clock: TestClock) -> None:
    async with (
        connect(store_url, clock=clock, tenant="ann", keep="1h", keep_dead_letters="1h") as ann,
        connect(store_url, clock=clock, tenant="bob", keep=None) as bob,
    ):
        for store, first in ((ann, 1), (bob, 11)):
            await finished(store, [first], days_ago=50)
            await finished(store, [first + 1], days_ago=50, status="ERROR")
            await put(store, [first + 2], deleted_at=1)
        assert await bob.prune("1h", dead_letters=True, dry_run=True) == 3
        await bob.database.retention.round()
        assert await left(ann) == [1, 2, 3, 11, 12, 13]
        await ann.database.retention.round()
        assert await left(ann) == [11, 12, 13]


@pytest.mark.proves("SD-08")
async def test_other_rows_have_times_of_their_own(store: Store) -> None:
    now = now_of(store)

    async def audit(place: int, days: int) -> None:
        columns = "(task_id, place, what, recorded_at)"
        await change(store, f"insert into {{audit}} {columns} values (1, {place}, 'made', {now - days * DAY})")

    await put(store, [1])
    for place, days in enumerate((29, 31)):
        await audit(place, days)
    for days in (89, 91):
        minute = (now - days * DAY) // 60_000_000
        await change(store, f"insert into {{rollup}} (minute, queue_id, shard) values ({minute}, 1, 1)")
    await store.database.retention.round()
    assert await ask(store, "select place from {audit}") == [(0,)]
    assert await ask(store, "select minute from {rollup}") == [((now - 89 * DAY) // 60_000_000,)]


async def test_an_ended_session_goes_after_a_day_but_not_while_it_owns_a_task(store: Store, clock: TestClock) -> None:
    ended, owning, living = await begin(store), await begin(store), await begin(store)
    await put(store, [1], status="RUNNING", owner=owning)
    # As if recovery had met a lock: the session is over, its task still says who had it.
    await change(store, f"delete from {{beat}} where worker_id = {owning}")
    await change(store, f"delete from {{fence}} where worker_id = {owning}")
    await change(store, f"update {{worker}} set stopped_at = {now_of(store)} where id = {owning}")
    await store.database.sessions.end(ended, "stopped")
    clock.advance("23h")
    await store.database.retention.round()
    assert [worker.id for worker in await store.workers()] == [living, owning, ended]
    clock.advance("2h")
    await store.database.retention.round()
    assert [worker.id for worker in await store.workers()] == [living, owning]
    assert await store.database.sessions.return_stranded()
    await store.database.retention.round()
    assert [worker.id for worker in await store.workers()] == [living]


@pytest.mark.proves("SD-10", "rule-25")
async def test_a_round_is_bounded_and_so_is_each_of_its_transactions(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PIECE", 10)
    monkeypatch.setattr(retention, "PIECES", 3)
    over, driver = watched(store)
    await finished(store, range(1, 26), days_ago=8)
    await finished(store, range(26, 51), days_ago=8, queue="other")
    driver.forget()
    assert await over.database.retention.round() is True
    assert await count(store, "task") == 25
    assert [len(str(call.params["ids"]).split(",")) for call in driver.said if call.statement == "remove_steps"] == [
        10,
        10,
        5,
    ]
    assert await over.database.retention.round() is False
    assert await left(store) == []


async def test_everything_that_can_pile_up_is_removed_in_pieces(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PIECE", 10)
    old = now_of(store) - 400 * DAY
    await store.create_queue("q")
    columns = "(tenant, name, host, pid, version, handlers, lease, started_at, stopped_at)"
    rows: dict[str, tuple[str, Callable[[int], str]]] = {
        "worker": (columns, lambda n: f"('', 'w{n}', 'h', 1, '', '[]', 1, 1, {old})"),
        "rollup": ("(minute, queue_id, shard)", lambda n: f"(1, 1, {n})"),
        "audit": ("(task_id, place, what, recorded_at)", lambda n: f"(99, {n}, 'made', {old})"),
    }
    for table, (names, values) in rows.items():
        await change(
            store, f"insert into {{{table}}} {names} values {', '.join(values(number) for number in range(25))}"
        )
    await put(store, range(1, 26), deleted_at=old)
    for expected in (15, 5, 0):
        assert await store.database.retention.round() is (expected > 0)
        assert {await count(store, table) for table in (*rows, "task")} == {expected}


@pytest.mark.proves("SD-09")
async def test_prune_removes_to_the_end_and_can_only_count(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PIECE", 10)
    await finished(store, range(1, 26), days_ago=31)
    await finished(store, range(26, 36), days_ago=6, queue="other")
    await finished(store, range(36, 40), days_ago=31, status="ERROR")
    await put(store, range(40, 52), deleted_at=now_of(store) - 31 * DAY)
    await put(store, [60])
    assert await store.prune(dry_run=True) == 25 + 12
    assert await store.prune("30d", dead_letters=True, dry_run=True) == 25 + 12 + 4
    assert await count(store, "task") == 52
    assert await store.prune() == 25 + 12
    assert await left(store) == [*range(26, 40), 60]
    assert await store.prune("5d", dead_letters=True) == 10 + 4
    assert await left(store) == [60]
    assert await store.prune(0, dead_letters=True) == 0


@pytest.mark.proves("SD-10")
async def test_several_prune_at_once_and_each_row_is_removed_by_one(
    store: Store, store_url: str, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PIECE", 50)
    await finished(store, range(1, 1501), days_ago=31)
    await put(store, range(1501, 2001), deleted_at=1)
    await put(store, [2001])
    async with connect(store_url, clock=clock) as other:
        counts = await asyncio.gather(store.prune(), other.prune(), store.prune(), other.prune())
    assert sum(counts) == 2000
    assert await left(store) == [2001]


@pytest.mark.proves("SD-10")
@pytest.mark.backends("postgres", reason="only there do two transactions write at once")
async def test_what_another_has_locked_is_left_to_it(
    store: Store, store_url: str, clock: TestClock, backend: str
) -> None:
    import asyncpg  # noqa: PLC0415 - the driver of one backend

    await finished(store, range(1, 4), days_ago=31)
    await finished(store, range(4, 7), days_ago=31, status="ERROR")
    await put(store, range(7, 10), deleted_at=1)
    connection = await asyncpg.connect(store_url)
    try:
        async with connection.transaction():
            await connection.execute("select 1 from stepwell.task where id in (2, 5, 8) for update")
            assert await asyncio.wait_for(store.prune(dead_letters=True), 5) == 6
        assert await left(store) == [2, 5, 8]
    finally:
        await connection.close()


async def test_a_worker_does_it_and_tries_again_when_it_failed(
    store: Store, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "ROUND_EVERY", 0.01)
    failures = iter([StoreUnavailable("gone"), RuntimeError("broken")])
    real = store.database.retention.round

    async def failing() -> bool:
        for failure in failures:
            raise failure
        return await real()

    monkeypatch.setattr(store.database.retention, "round", failing)
    events: list[Any] = []
    store.database.telemetry.subscribe(events.append)

    @handler("mail")
    async def send(payload: int) -> None: ...

    async with Worker(store, [send]) as worker:
        await store.enqueue(send, 1)
        await worker.drain()
        clock.advance("8d")
        await until(lambda: _gone(store))
    assert [event.why for event in events if isinstance(event, StoreLost) and "gone" in event.why]
    told = [(event.name, event.error) for event in events if isinstance(event, InternalTaskFailed)]
    assert told == [("retention", "RuntimeError('broken')")]


async def _gone(store: Store) -> bool:
    return await left(store) == []
