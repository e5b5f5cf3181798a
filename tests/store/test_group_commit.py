"""Group commit: what goes out together, within which bounds, and what becomes of a flush that fails."""

import asyncio
import gc
from collections.abc import Sequence

import pytest

from stepwell import Store, connect, workflow
from stepwell.errors import IdempotencyConflict, LeaseLost, QueueNotFound, Refused, StoreBusy, StoreUnavailable
from stepwell.records import RunStatus
from stepwell.store import flush
from stepwell.store import pending as lanes
from stepwell.store.driver import Call
from stepwell.store.postgres import driver as postgres
from stepwell.store.rows import NewTask, Settlement
from stepwell.store.sql import Statements, fed_rows
from tests.ground.faultproxy import FaultProxy
from tests.store.flushes import known_pieces
from tests.store.seam import (
    AGAIN,
    DONE,
    RELEASED,
    Gate,
    ask,
    begin,
    claim,
    count,
    do,
    once,
    row_of,
    watched,
)

MIB = 1024 * 1024


async def settled(calls: int = 3) -> None:
    """Let the loop turn, so that what was started has got as far as it can."""
    for _ in range(calls * 10):
        await asyncio.sleep(0)


# Together


@pytest.mark.proves("protocol-15", "promise-20", "B-08")
async def test_of_64_enqueues_one_is_refused_and_the_others_are_written_in_four_transactions(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, driver = watched(store)
    real = store.database.new_tasks._adding

    def adding(task: NewTask, task_id: int) -> lanes.Operation:
        operation = real(task, task_id)
        if task.input == "40":  # of a kind that the database does not know
            operation.row = (task_id, "job", *operation.row[2:])
        return operation

    monkeypatch.setattr(store.database.new_tasks, "_adding", adding)
    await store.create_queue("good")
    await store.enqueue("good", -1)
    driver.forget()
    sent = [store.enqueue("good", number) for number in range(64)]
    answers = await asyncio.gather(*sent, return_exceptions=True)
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    assert [type(error) for error in errors] == [Refused]
    assert answers[40] is errors[0]
    assert driver.transactions <= 4
    ids = [int(answer) for answer in answers if not isinstance(answer, BaseException)]
    rows = await ask(store, "select id, input from {task} where cast(input as text) <> '-1'")
    written = {row["id"]: int(row["input"]) for row in rows}
    assert written == dict(zip(ids, [number for number in range(64) if number != 40], strict=True))


@pytest.mark.proves("protocol-15")
def test_whatever_feeds_another_statement_in_a_flush_feeds_it_one_by_one_too() -> None:
    statements = Statements("postgres", "stepwell")
    fed = {statement for statement, feeds, has_rows in known_pieces() if feeds is not None and not has_rows}
    assert fed
    for name in fed:
        columns = [column.name for column in statements[name].columns]
        row = {column: place for place, column in enumerate(reversed(columns))}
        assert fed_rows(Call(name, fed_by=0), [row]) == [[row[column] for column in columns]], name


@pytest.mark.proves("protocol-15", "promise-20")
async def test_a_run_fails_beside_a_row_that_is_refused_and_its_steps_are_closed(store: Store) -> None:
    worker = await begin(store)
    await store.create_queue("q")
    await store.enqueue("q", 1)
    [broken] = await claim(store, worker, "q")
    await do(store, f"update {{task}} set attempt = 0 where id = {broken.id}")  # to give it back breaks a check
    await store.database.workflow_id("flow", create=True)
    run_id = await store.trigger(workflow("flow").trigger().options(require_worker="ignore"))
    [run] = await claim(store, worker, "flow")
    await do(
        store,
        "insert into {step} (run_id, key, place, status, attempt, started_at)"
        f" values ({int(run_id)}, 'charge#1', 0, 'RUNNING', 1, 1)",
    )
    ended = Settlement(RunStatus.ERROR, error='{"type":"E"}', ends_run=True)
    answers = await asyncio.gather(
        store.database.tasks.settle(run.id, worker, run.turn, ended),
        store.database.tasks.settle(broken.id, worker, broken.turn, RELEASED),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers] == [str, Refused]
    assert [(one.key, one.status) for one in await store.steps(run_id)] == [("charge#1", RunStatus.CANCELLED)]


@pytest.mark.proves("protocol-15", "rule-04")
async def test_when_the_reply_of_taking_a_batch_apart_is_lost_each_is_still_written_once_and_told_so(
    store: Store,
) -> None:
    store, driver = watched(store)
    worker = await begin(store)
    await store.create_queue("good")
    await store.create_queue("gone")
    await store.enqueue_many("good", range(5))
    *tasks, broken = await claim(store, worker, "good", 5)
    await do(store, f"update {{task}} set attempt = 0 where id = {broken.id}")  # to give it back breaks a check
    await do(store, "delete from {queue} where name = 'gone'")
    await asyncio.sleep(0)
    scripts = driver.scripts
    lost: list[int] = []

    async def lose(calls: Sequence[Call]) -> None:
        if driver.scripts == scripts + 1 and not calls and not lost:
            lost.append(1)
            raise StoreUnavailable("reset after the commit")

    driver.after = lose
    sent = [store.enqueue("gone" if number == 4 else "good", number) for number in range(10)]
    settles = [store.database.tasks.settle(task.id, worker, task.turn, DONE) for task in tasks]
    refused = store.database.tasks.settle(broken.id, worker, broken.turn, RELEASED)
    answers = await asyncio.gather(*sent, *settles, refused, return_exceptions=True)
    assert lost, "no reply was lost: void"
    assert [type(answer) for answer in answers if isinstance(answer, BaseException)] == [QueueNotFound, Refused]
    assert answers[10:14] == ["SUCCESS"] * 4
    assert await count(store) == 14


@pytest.mark.proves("protocol-15")
async def test_a_refused_settle_fails_alone_and_its_neighbours_are_settled_and_counted(store: Store) -> None:
    store, driver = watched(store)
    worker = await begin(store)
    await store.create_queue("q")
    await store.enqueue_many("q", range(20))
    tasks = await claim(store, worker, "q", 20)
    await do(store, f"update {{task}} set attempt = 0 where id = {tasks[7].id}")  # to give it back breaks a check
    gate = driver.before = Gate()
    settles = [
        asyncio.create_task(
            store.database.tasks.settle(task.id, worker, task.turn, RELEASED if task is tasks[7] else DONE)
        )
        for task in tasks
    ]
    await settled()
    driver.before = None
    gate.open()
    answers = await asyncio.gather(*settles, return_exceptions=True)
    assert isinstance(answers[7], Refused)
    assert [answer for answer in answers if answer is not answers[7]] == ["SUCCESS"] * 19
    assert await count(store, "status = 'SUCCESS'") == 19
    assert (await row_of(store, tasks[7].id))["status"] == "RUNNING"
    [sums] = await ask(store, "select sum(succeeded) as succeeded, sum(retried) as retried from {rollup}")
    assert (int(sums["succeeded"]), int(sums["retried"])) == (19, 0)


@pytest.mark.proves("protocol-15")
async def test_an_idle_enqueue_settle_and_claim_are_one_transaction_each(store: Store) -> None:
    store, driver = watched(store)
    worker = await begin(store)
    await store.create_queue("q")
    await store.enqueue("q", 1)
    driver.forget()
    await store.enqueue("q", 2)
    assert driver.transactions == 1
    await store.enqueue("q", 3, key="k")
    assert driver.transactions == 2
    [task] = await claim(store, worker, "q")
    assert driver.transactions == 3
    await store.database.tasks.settle(task.id, worker, task.turn, DONE)
    assert driver.transactions == 4


@pytest.mark.proves("protocol-15")
@pytest.mark.backends("postgres", reason="an embedded store has no wire to count on")
async def test_an_idle_enqueue_settle_claim_and_beat_are_one_round_trip_on_the_wire(
    backend: str, proxy: FaultProxy, proxied_url: str
) -> None:
    # `listen=False`: others are told on a connection of its own, which no caller waits for, and not counted here.
    async with connect(proxied_url, listen=False) as store:
        worker = await begin(store)
        await store.create_queue("q")
        for turn in range(3):  # prepares each statement once
            await store.enqueue("q", turn)
            await store.enqueue("q", turn, key=f"{turn}")
            for task in await claim(store, worker, "q", 2):
                await store.database.tasks.settle(task.id, worker, task.turn, DONE)
        before = proxy.round_trips
        await store.enqueue("q", 1)
        assert proxy.round_trips - before == 1
        await store.enqueue("q", 1, key="new")
        assert proxy.round_trips - before == 2
        tasks = await claim(store, worker, "q", 2)
        assert proxy.round_trips - before == 3
        await store.database.tasks.settle(tasks[0].id, worker, tasks[0].turn, DONE)
        assert proxy.round_trips - before == 4


@pytest.mark.proves("protocol-15", "rule-13")
async def test_what_was_submitted_during_a_flush_goes_out_in_the_next_one_together(store: Store) -> None:
    store, driver = watched(store)
    await store.create_queue("q")
    await store.enqueue("q", 0)
    driver.forget()
    gate = driver.before = Gate()
    sent = [asyncio.create_task(store.enqueue("q", number)) for number in range(100)]
    await settled()
    first = len(driver.flushes)
    assert first <= driver.flush_slots
    gate.open()
    await asyncio.gather(*sent)
    assert len(driver.flushes) <= first + driver.flush_slots
    assert await count(store) == 101


# Bounds


@pytest.mark.proves("protocol-14")
async def test_a_batch_is_at_most_500_operations_or_8_mib() -> None:
    lane = lanes.Lane(0)
    lane.pending.extend(lanes.Operation("add_tasks", (), row_id=number, size=1) for number in range(1100))
    assert [len(lane.take()) for _ in range(4)] == [500, 500, 100, 0]
    lane.pending.extend(lanes.Operation("add_tasks", (), row_id=number, size=3 * MIB) for number in range(5))
    lane.pending.append(lanes.Operation("add_tasks", (), row_id=9, size=20 * MIB))
    assert [len(lane.take()) for _ in range(5)] == [2, 2, 1, 1, 0]


@pytest.mark.proves("protocol-14")
async def test_a_flush_takes_no_more_operations_than_its_bound(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MOST_OPERATIONS", 50)
    store, driver = watched(store)
    await store.create_queue("q")
    await store.enqueue("q", 0)
    driver.forget()
    await asyncio.gather(*(store.enqueue("q", number) for number in range(220)))
    assert max(len(ids) for ids in driver.ids()) == 50
    assert await count(store) == 221


@pytest.mark.proves("protocol-14")
async def test_a_flush_takes_at_most_8_mib(store: Store) -> None:
    store, driver = watched(store)
    await store.create_queue("q")
    await store.enqueue("q", 0)
    gate = driver.before = Gate()
    payload = "x" * (MIB - 1000)
    sent = [asyncio.create_task(store.enqueue("q", payload)) for _ in range(20)]
    await settled()
    gate.open()
    await asyncio.gather(*sent)
    sizes = [sum(len(str(row[10])) for call in calls for row in call.rows or ()) for calls in driver.flushes]
    assert max(sizes) <= 8 * MIB
    assert max(sizes) > 4 * MIB, "nothing was sent together: the test proves nothing"
    assert await count(store) == 21


@pytest.mark.proves("protocol-14")
async def test_pending_bytes_are_bounded_and_submitters_wait_their_turn(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush, "MOST_PENDING_BYTES", 100_000)
    store, driver = watched(store)
    await store.create_queue("q")
    await store.enqueue("q", 0)
    gate = driver.before = Gate()
    sent = [asyncio.create_task(store.enqueue("q", "x" * 10_000)) for _ in range(100)]
    await settled()
    taken = sum(len(str(row[10])) for calls in driver.flushes[1:] for call in calls for row in call.rows or ())
    waiting = sum(operation.size for lane in store.database.flusher._lanes for operation in lane.pending)
    assert 50_000 < taken + waiting <= 100_000
    sent[-1].cancel()  # one that waits for room leaves without taking any
    gate.open()
    answers = await asyncio.gather(*sent, return_exceptions=True)
    assert sum(isinstance(answer, int) for answer in answers) == 99
    assert store.database.flusher._room._free == 100_000
    assert await count(store) == 100


@pytest.mark.proves("protocol-14", "Q-05")
async def test_a_bulk_goes_in_chunks_of_one_transaction_apart_from_the_flushes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.store.add.CHUNK", 100)
    store, driver = watched(store)
    await store.create_queue("q")
    await store.enqueue("q", 0)
    gate = driver.before = Gate()
    held = asyncio.create_task(store.enqueue("q", 1))
    await settled()
    driver.forget()
    ids = await store.enqueue_many("q", range(250), keys=[f"{number:03}" for number in range(250)])
    assert (driver.flushes, driver.scripts) == ([], 1)
    assert [len(call.rows or ()) for call in driver.said if call.statement == "add_tasks_once"] == [100, 100, 50]
    assert [(await row_of(store, ids[place]))["input"] for place in (0, 150, 249)] == ["0", "150", "249"]
    gate.open()
    await held
    assert await count(store) == 252
    driver.forget()
    monkeypatch.setattr("stepwell.store.add.CHUNK_BYTES", 50_000)
    await store.enqueue_many("q", ["x" * 12_000] * 6, keys=list("abcdef"))
    assert [len(call.rows or ()) for call in driver.said if call.statement == "add_tasks_once"] == [4, 2]


@pytest.mark.proves("protocol-14", "Q-05")
async def test_a_bulk_without_keys_is_loaded_in_pieces_of_one_transaction(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwell.store.add.LOAD_BYTES", 40_000)
    store, driver = watched(store)
    await store.create_queue("q")
    await store.enqueue("q", 0)  # reserves ids
    driver.forget()
    ids = await store.enqueue_many("q", ["x" * 12_000] * 7, priority=4, delay="1m")
    assert (driver.flushes, driver.scripts) == ([], 1)
    assert [len(call.rows or ()) for call in driver.said if call.statement == "load_task"] == [4, 3]
    rows = [await row_of(store, task_id) for task_id in ids]
    assert {(row["priority"], row["ready"], row["run_at"] - row["created_at"]) for row in rows} == {(4, 0, 60_000_000)}
    await store.enqueue_many("q", [1, 2])
    assert await count(store, "ready") == 3


@pytest.mark.proves("protocol-15", "rule-04")
async def test_a_bulk_whose_reply_was_lost_is_written_once(store: Store) -> None:
    store, driver = watched(store)
    await store.create_queue("q")
    lost: list[int] = []

    async def lose(calls: Sequence[Call]) -> None:
        if not calls and not lost:
            lost.append(1)
            raise StoreUnavailable("reset after the commit")

    driver.after = lose
    ids = await store.enqueue_many("q", range(50))
    assert lost, "no reply was lost: void"
    assert len(set(ids)) == 50
    assert await count(store) == 50


# One row, one operation


@pytest.mark.proves("protocol-04", "protocol-07")
async def test_two_operations_on_one_row_go_in_two_flushes_in_order(store: Store) -> None:
    store, driver = watched(store)
    worker = await begin(store)
    await store.create_queue("q")
    await store.enqueue_many("q", range(6))
    tasks = await claim(store, worker, "q", 6)
    driver.forget()
    gate = driver.before = Gate()
    blockers = [
        asyncio.create_task(store.database.tasks.settle(task.id, worker, task.turn, DONE)) for task in tasks[:2]
    ]
    await settled()
    twice = tasks[2]
    first = asyncio.create_task(store.database.tasks.settle(twice.id, worker, twice.turn, AGAIN))
    second = asyncio.create_task(store.database.tasks.settle(twice.id, worker, twice.turn, DONE))
    others = [asyncio.create_task(store.database.tasks.settle(task.id, worker, task.turn, DONE)) for task in tasks[3:]]
    await settled()
    gate.open()
    assert await first == "PENDING"
    with pytest.raises(LeaseLost):
        await second
    assert await asyncio.gather(*blockers, *others) == ["SUCCESS"] * 5
    flushes = driver.ids("settle")
    assert all(len(ids) == len(set(ids)) for ids in flushes)
    together = [ids for ids in flushes if twice.id in ids]
    assert len(together) == 2
    assert any(len(ids) > 1 for ids in together) or driver.flush_slots > 1, "nothing shared the flush: void"
    assert (await row_of(store, twice.id))["status"] == "PENDING"


@pytest.mark.proves("protocol-07")
async def test_operations_of_one_task_stay_in_one_lane_while_any_of_them_waits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush, "CROWD", 2)
    store, driver = watched(store)
    worker = await begin(store)
    await store.create_queue("q")
    await store.enqueue_many("q", range(12))
    tasks = await claim(store, worker, "q", 12)
    gate = driver.before = Gate()
    sent = []
    for turn in range(3):
        for task in tasks[turn:]:  # in another order each time, so that another lane is the shorter one
            sent.append(asyncio.create_task(store.database.tasks.settle(task.id, worker, task.turn, DONE)))
            await settled(1)
    lanes = store.database.flusher._lanes
    assert [len([lane for lane in lanes if task.id in lane.tasks]) for task in tasks] == [1] * 12
    assert all(lane.tasks for lane in lanes), "one lane has them all: void"
    gate.open()
    answers = await asyncio.gather(*sent, return_exceptions=True)
    assert answers.count("SUCCESS") == 12
    assert [lane.tasks for lane in lanes] == [{}] * driver.flush_slots


@pytest.mark.proves("protocol-15", "rule-13")
@pytest.mark.backends("postgres", reason="an embedded store has one lane")
async def test_the_second_lane_is_used_only_when_many_wait(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush, "CROWD", 50)
    store, driver = watched(store)
    await store.create_queue("q")
    await store.enqueue("q", 0)
    driver.forget()
    gate = driver.before = Gate()
    sent = [asyncio.create_task(store.enqueue("q", -1))]
    await settled()
    sent += [asyncio.create_task(store.enqueue("q", number)) for number in range(51)]
    await settled()
    assert len(driver.flushes) == 1
    sent += [asyncio.create_task(store.enqueue("q", number)) for number in range(10)]
    await settled()
    assert len(driver.flushes) == 2
    gate.open()
    await asyncio.gather(*sent)
    assert await count(store) == 63


# A caller that leaves


@pytest.mark.proves("protocol-15")
async def test_a_cancelled_callers_pending_operation_is_not_written(store: Store) -> None:
    store, driver = watched(store)
    await store.create_queue("q")
    await store.enqueue("q", 0)
    gate = driver.before = Gate()
    in_flight = [asyncio.create_task(store.enqueue("q", number)) for number in range(driver.flush_slots)]
    await settled()
    leaving = [asyncio.create_task(store.enqueue("q", "leaving")) for _ in range(4)]
    staying = asyncio.create_task(store.enqueue("q", "staying"))
    await settled()
    for task in leaving:
        task.cancel()
    await settled()
    gate.open()
    await asyncio.gather(*in_flight, staying)
    with pytest.raises(asyncio.CancelledError):
        await leaving[0]
    assert await count(store) == driver.flush_slots + 2
    assert store.database.flusher._room._free == lanes.MOST_PENDING_BYTES


# Failures


@pytest.mark.proves("protocol-15", "rule-21", "rule-23")
async def test_a_flush_that_lost_a_race_for_a_lock_is_repeated_whole(store: Store) -> None:
    store, driver = watched(store)
    await store.create_queue("q")
    await store.enqueue("q", 0)
    driver.before = once(StoreBusy("deadlock"))
    driver.forget()
    await asyncio.gather(*(store.enqueue("q", number) for number in range(30)))
    assert await count(store) == 31
    sizes = [len(ids) for ids in driver.ids()]
    assert len(sizes) <= 2 * driver.flush_slots
    assert sizes.count(max(sizes)) >= 2, "the same batch goes out again"


@pytest.mark.proves("protocol-15", "rule-04")
async def test_a_batch_that_keeps_losing_its_connection_is_tried_three_times_and_then_alone(store: Store) -> None:
    store, driver = watched(store)
    await store.create_queue("q")
    await store.enqueue("q", 0)

    async def lose_what_goes_together(calls: Sequence[Call]) -> None:
        if sum(len(call.rows or ()) for call in calls) > 1:
            raise StoreUnavailable("reset")

    driver.before = lose_what_goes_together
    driver.forget()
    ids = await asyncio.gather(*(store.enqueue("q", number) for number in range(12)))
    assert len(set(ids)) == 12
    assert await count(store) == 13
    together = [len(found) for found in driver.ids() if len(found) > 1]
    assert len(together) <= 3 * driver.flush_slots
    assert together


@pytest.mark.proves("protocol-15", "promise-20")
async def test_an_operation_that_always_loses_its_connection_fails_at_its_deadline_and_alone(
    store_url: str, backend: str
) -> None:
    async with connect(store_url, timeout=2.5) as opened:
        store, driver = watched(opened)
        await store.create_queue("q")
        await store.enqueue("q", 0)

        async def lose_the_poison(calls: Sequence[Call]) -> None:
            if any(row[10] == '"poison"' for call in calls for row in call.rows or ()):
                raise StoreUnavailable("reset by the poison")

        driver.before = lose_the_poison
        started = asyncio.get_running_loop().time()
        poison = asyncio.create_task(store.enqueue("q", "poison"))
        await asyncio.gather(*(store.enqueue("q", number) for number in range(9)))
        with pytest.raises(StoreUnavailable, match="poison"):
            await poison
        assert asyncio.get_running_loop().time() - started < 10
        assert await count(store) == 10


@pytest.mark.proves("protocol-14", "promise-20")
async def test_a_submitter_that_finds_no_room_in_time_says_so_and_leaves_nothing_behind(
    store_url: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush, "MOST_PENDING_BYTES", 20_000)
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with connect(store_url, timeout=1) as opened:
        store, driver = watched(opened)
        await store.create_queue("q")
        await store.enqueue("q", 0)
        gate = driver.before = Gate()
        answers = await asyncio.gather(*(store.enqueue("q", "x" * 9_000) for _ in range(4)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 4
        gate.open()
        await store.enqueue("q", 1)
        assert store.database.flusher._room._free == 20_000
    del answers
    gc.collect()
    assert complaints == []


@pytest.mark.proves("protocol-15", "rule-23")
@pytest.mark.backends("postgres", reason="an embedded store writes one transaction at a time")
async def test_two_processes_flushing_the_same_keys_in_opposite_order_never_deadlock(
    store_url: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "KEY_LOCKS", 5)  # longer than the server looks on at a deadlock, or a flush may take
    async with connect(store_url) as left, connect(store_url) as right:
        await left.create_queue("q")
        watching = [watched(left), watched(right)]
        busy: list[BaseException] = []
        for store, driver in watching:
            original = driver.run

            async def run(slot: int, calls: Sequence[Call], original=original) -> object:  # type: ignore[no-untyped-def]
                try:
                    return await original(slot, calls)
                except StoreBusy as error:
                    busy.append(error)
                    raise

            driver.run = run  # type: ignore[method-assign, assignment]
            await store.enqueue("q", "warm", key=f"warm {id(store)}")
        for turn in range(8):
            gates = []
            sent = []
            for (store, driver), step in zip(watching, (1, -1), strict=True):
                gate = driver.before = Gate()
                gates.append(gate)
                keys = [f"{turn} {number}" for number in range(300)][::step]
                sent += [asyncio.create_task(store.enqueue("q", 1, key=key)) for key in keys]
            await settled()
            for gate in gates:
                gate.open()
            await asyncio.gather(*sent)
        assert busy == []
        assert await count(left) == 8 * 300 + 2


# Keys


@pytest.mark.proves("promise-02", "protocol-15")
async def test_equal_keys_at_once_make_one_task_and_another_payload_is_refused(store: Store) -> None:
    await store.create_queue("q")
    ids = await asyncio.gather(*(store.enqueue("q", {"a": 1, "b": 2}, key="k") for _ in range(50)))
    assert len(set(ids)) == 1
    assert [task_id.created for task_id in ids].count(True) == 1
    assert await store.enqueue("q", {"b": 2, "a": 1}, key="k") == ids[0]
    answers = await asyncio.gather(
        *(store.enqueue("q", number, key="k" if number == 5 else f"k{number}") for number in range(10)),
        return_exceptions=True,
    )
    assert isinstance(answers[5], IdempotencyConflict)
    assert answers[5].existing == ids[0]
    assert sum(isinstance(answer, int) for answer in answers) == 9
    assert await count(store) == 10
