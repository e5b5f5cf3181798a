"""Waiting for a run: what comes of it by its status, when it began to be waited for, and how the waiting ends."""

import asyncio
import contextlib
from typing import Any

import pytest

from stepwell import Store, Worker, connect, workflow
from stepwell.base.events import StoreLost
from stepwell.base.program import Definition
from stepwell.errors import (
    ExecutionFailed,
    InvalidOption,
    RunCancelled,
    RunNotFound,
    SerializationError,
    StoreClosed,
    StoreUnavailable,
    StoreUnusable,
    Timeout,
)
from stepwell.records import RunId
from stepwell.store import poll as polling
from stepwell.store import results
from tests.ground.waiting import until
from tests.results.runs import (
    CANCELLED,
    DONE,
    FAILED,
    NEVER,
    WORKFLOW,
    Gate,
    Reads,
    nobody_waits,
    settle,
    settle_and_tell,
    take,
    trigger,
)
from tests.store.seam import do, row_of


@pytest.mark.proves("RS-03", "RS-05", "RS-08")
@pytest.mark.usefixtures("no_polls")
async def test_a_run_that_is_finished_already_is_read_once(live_store: Store) -> None:
    store, reads = live_store, Reads(live_store)
    run_id = await trigger(store)
    [run] = await take(store)
    await settle(store, run)
    assert await store.result(run_id) == {"answer": 42}
    assert await store.result(int(run_id), dict[str, float]) == {"answer": 42.0}
    assert await store.result(run_id, timeout=0) == {"answer": 42}
    assert reads.ids == [[run_id]] * 3
    assert nobody_waits(store)


@workflow
async def answer() -> int:
    return 42


@pytest.mark.proves("RS-03", "RS-05")
@pytest.mark.usefixtures("no_polls")
async def test_a_new_run_that_ends_here_costs_no_read_and_one_that_its_key_found_is_read_at_once(
    live_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "LOOK_AT_NEW", NEVER)
    store, reads = live_store, Reads(live_store)
    async with Worker(store, [answer]):
        assert [await answer.trigger().wait().execute(store) for _ in range(5)] == 5 * [42]
        assert reads.count < 5  # a connection that begins to listen has all read once, whenever that is
        before = reads.count
        named = answer.trigger().options(key="k").wait()
        assert [await named.execute(store) for _ in "12"] == [42, 42]
    assert reads.count >= before + 2
    assert nobody_waits(store)


@pytest.mark.proves("RS-05", "RS-06")
@pytest.mark.usefixtures("no_polls")
async def test_a_new_run_that_ended_before_it_was_waited_for_is_seen_soon(live_store: Store) -> None:
    store, reads = live_store, Reads(live_store)
    unfinished = await trigger(store)
    [_] = await take(store)
    other = asyncio.create_task(store.result(unfinished))
    await until(lambda: reads.answered)  # and no poll will look at what comes now
    run_id = await trigger(store)
    [run] = await take(store)
    await settle(store, run)
    assert (await store.database.results.ending(run_id, 10, is_new=True)).output == DONE.output
    other.cancel()


@pytest.mark.proves("RS-03")
@pytest.mark.parametrize(
    ("settlement", "error", "told"),
    [(FAILED, ExecutionFailed, {"type": "Broken", "message": "it broke"}), (CANCELLED, RunCancelled, None)],
)
async def test_a_run_that_did_not_succeed_raises(store: Store, settlement: Any, error: Any, told: Any) -> None:
    run_id = await trigger(store)
    [run] = await take(store)
    waiting = asyncio.create_task(store.result(run_id))
    await until(lambda: store.database.results._waiting)
    await settle_and_tell(store, run, settlement)
    for raised in (waiting, store.result(run_id)):
        with pytest.raises(error) as caught:
            await raised
        assert (caught.value.run_id, caught.value.error) == (run_id, told)


@pytest.mark.proves("RS-03", "RS-08")
async def test_waiting_goes_on_while_the_run_is_pending_running_or_paused(
    live_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "LONGEST_POLL", 0.02)
    store, reads = live_store, Reads(live_store)
    run_id = await trigger(store)
    waiting = asyncio.create_task(store.result(run_id))

    async def is_read_again() -> None:
        # The one after the next began when all that was written before this call could be seen.
        seen = reads.answered + 2
        await until(lambda: reads.answered >= seen)
        assert not waiting.done()

    await is_read_again()
    [run] = await take(store)
    await is_read_again()
    await do(store, f"update {{task}} set status = 'PAUSED', owner = null where id = {run_id}")
    await is_read_again()
    await do(store, f"update {{task}} set status = 'RUNNING', owner = {run.owner} where id = {run_id}")
    await settle(store, run)
    assert await asyncio.wait_for(waiting, 10) == {"answer": 42}


@pytest.mark.proves("RS-03")
async def test_what_is_no_run_of_this_store_is_not_waited_for(store: Store, store_url: str, backend: str) -> None:
    await store.create_queue("mail")
    message = await store.enqueue("mail", 1)
    run_id = await trigger(store)
    for missing in (message, run_id + 1, -1):
        with pytest.raises(RunNotFound, match=rf"there is no run {int(missing)}\b"):
            await store.result(missing)
    with pytest.raises(InvalidOption):
        await store.result("1")  # type: ignore[call-overload]
    if backend == "turso":
        return  # one store a file
    async with connect(store_url, tenant="another") as stranger:
        with pytest.raises(RunNotFound):
            await stranger.result(run_id)


@pytest.mark.proves("RS-03")
async def test_a_run_that_is_deleted_is_not_waited_for_any_longer(
    live_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "LONGEST_POLL", 0.02)
    store, reads = live_store, Reads(live_store)
    run_id = await trigger(store)
    waiting = asyncio.create_task(store.result(run_id))
    await until(lambda: reads.answered)
    assert await store.delete(run_id)
    with pytest.raises(RunNotFound):
        await asyncio.wait_for(waiting, 10)


@pytest.mark.proves("RS-05")
@pytest.mark.usefixtures("no_polls")
async def test_a_run_that_ends_before_it_is_read_needs_no_word(live_store: Store) -> None:
    store, reads, gate = live_store, Reads(live_store), Gate()
    run_id = await trigger(store)
    [run] = await take(store)
    reads.before = gate
    waiting = asyncio.create_task(store.result(run_id))
    await gate.arrived.wait()  # it waits, and has not looked
    await settle(store, run)
    gate.open()
    assert await asyncio.wait_for(waiting, 10) == {"answer": 42}


@pytest.mark.proves("RS-05")
@pytest.mark.usefixtures("no_polls")
@pytest.mark.parametrize("word", ["here", "named", "any"])
async def test_a_word_that_comes_while_the_run_is_being_read_is_not_lost(live_store: Store, word: str) -> None:
    store, reads, gate = live_store, Reads(live_store), Gate()
    run_id = await trigger(store)
    [run] = await take(store)
    reads.after = gate
    waiting = asyncio.create_task(store.result(run_id))
    await gate.arrived.wait()  # what was read is that it is running
    await settle(store, run)
    match word:
        case "here":
            store.database.results.settled(run_id, DONE.status, DONE.output, DONE.error, WORKFLOW)
        case "named":
            store.database.results.finished([run_id])
        case _:
            store.database.results._heard(None)
    gate.open()
    assert await asyncio.wait_for(waiting, 10) == {"answer": 42}
    assert reads.count == (1 if word == "here" else 2)


@pytest.mark.proves("RS-05")
@pytest.mark.usefixtures("no_polls")
async def test_word_of_any_run_that_comes_while_all_are_being_read_has_them_read_again(live_store: Store) -> None:
    store, reads, gate = live_store, Reads(live_store), Gate()
    run_id = await trigger(store)
    [run] = await take(store)
    waiting = asyncio.create_task(store.result(run_id))
    await until(lambda: reads.answered)
    reads.after = gate
    store.database.results._heard(None)
    await gate.arrived.wait()
    await settle(store, run)
    store.database.results._heard(None)
    gate.open()
    assert await asyncio.wait_for(waiting, 10) == {"answer": 42}


@pytest.mark.proves("RS-06", "RS-08")
async def test_without_any_word_the_next_poll_finds_it(
    store_url: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "SHORTEST_POLL", 0.001)
    monkeypatch.setattr(results, "SHORTEST_REST", 0.001)
    monkeypatch.setattr(results, "LONGEST_POLL", 0.03)
    async with connect(store_url, listen=False) as store:
        run_id = await trigger(store)
        [run] = await take(store)
        waiting, inside = asyncio.create_task(store.result(run_id)), store.database.results
        await until(lambda: inside._pause == 0.03, every=0.001, message="the longest pause")
        await settle(store, run)
        assert inside._poll_at - asyncio.get_running_loop().time() <= 0.03 * 1.2
        assert await asyncio.wait_for(waiting, 10) == {"answer": 42}
    assert polling.LONGEST_POLL <= 0.5


@pytest.mark.proves("RS-07")
async def test_the_timeout_leaves_the_run_as_it_is(store: Store) -> None:
    reads, run_id = Reads(store), await trigger(store)
    before = await row_of(store, run_id)
    with pytest.raises(Timeout, match=rf"run {run_id} was not finished in 0.05 s; it goes on") as caught:
        await store.result(run_id, timeout="50ms")
    assert caught.value.seconds == 0.05
    await until(lambda: nobody_waits(store))
    reads.ids.clear()
    with pytest.raises(Timeout):
        await store.result(run_id, timeout=0)
    assert reads.ids == [[run_id]]
    assert await row_of(store, run_id) == before


@pytest.mark.proves("RS-07")
async def test_the_timeout_does_not_begin_anew_with_every_word(store: Store) -> None:
    run_id = await trigger(store)
    waiting = asyncio.create_task(store.result(run_id, timeout=0.1))
    deadline = asyncio.get_running_loop().time() + 10
    while not waiting.done() and asyncio.get_running_loop().time() < deadline:
        store.database.results.finished([run_id])
        store.database.results._heard(None)
        await asyncio.sleep(0)
    assert waiting.done()
    with pytest.raises(Timeout):
        await waiting


@pytest.mark.proves("RS-03", "RS-07")
async def test_a_database_that_is_away_is_asked_again_until_the_deadline_of_each(store: Store) -> None:
    lost: list[Any] = []
    store.database.telemetry.subscribe(lost.append)
    reads, run_id = Reads(store), await trigger(store)
    [run] = await take(store)
    await settle(store, run)

    async def away() -> None:
        raise StoreUnavailable("away")

    reads.before = away
    patient = asyncio.create_task(store.result(run_id))
    for timeout in (0.05, 0):
        with pytest.raises(Timeout) as caught:
            await store.result(run_id, timeout=timeout)
        assert isinstance(caught.value.__cause__, StoreUnavailable)
    assert StoreLost("away") in lost
    reads.before = None
    assert await asyncio.wait_for(patient, 10) == {"answer": 42}


async def test_a_database_that_never_answers_again_ends_the_waiting(store: Store) -> None:
    reads, run_id = Reads(store), await trigger(store)

    async def broken() -> None:
        raise StoreUnusable("no such table")

    reads.before = broken
    with pytest.raises(StoreUnusable):
        await asyncio.wait_for(store.result(run_id), 10)
    reads.before = None
    with pytest.raises(Timeout):
        await store.result(run_id, timeout=0)


@pytest.mark.proves("RS-03")
async def test_who_is_cancelled_leaves_nothing_behind(live_store: Store) -> None:
    store, reads = live_store, Reads(live_store)
    run_id = await trigger(store)
    one, two = (asyncio.create_task(store.result(run_id, timeout=timeout)) for timeout in (None, 60))
    await until(lambda: reads.answered)
    one.cancel()
    await asyncio.wait([one])
    assert [len(waiting) for waiting in store.database.results._waiting.values()] == [1]
    two.cancel()
    await asyncio.wait([two])
    await until(lambda: nobody_waits(store))
    count = reads.count
    [run] = await take(store)
    await settle_and_tell(store, run)
    assert reads.count == count


@pytest.mark.proves("RS-03")
@pytest.mark.parametrize("away", [False, True])
async def test_closing_the_store_ends_all_waiting(store_url: str, backend: str, away: bool) -> None:
    store = await connect(store_url)
    reads, run_id = Reads(store), await trigger(store)

    async def fail() -> None:
        raise StoreUnavailable("away")

    reads.before = fail if away else None
    waiting = [asyncio.create_task(store.result(run_id, timeout=timeout)) for timeout in (None, 60)]
    await until(lambda: reads.count)
    await store.close()
    for one in waiting:
        with pytest.raises(StoreClosed):
            await asyncio.wait_for(one, 10)
    with pytest.raises(StoreClosed):
        await store.result(run_id)
    assert nobody_waits(store)


@pytest.mark.proves("RS-03")
async def test_the_value_is_read_as_the_caller_the_trigger_or_the_definition_says(store: Store) -> None:
    run_id = await trigger(store)
    [run] = await take(store)
    await settle(store, run)
    store.database.definitions.name(WORKFLOW, Definition(dict[str, str | float]))
    assert repr(await store.result(int(run_id))) == "{'answer': 42.0}"
    run_id.returns = dict[str, int]
    assert repr(await store.result(run_id)) == "{'answer': 42}"
    assert repr(await store.result(run_id, dict[str, float])) == "{'answer': 42.0}"
    known: RunId[dict[str, int]] = run_id
    with pytest.raises(SerializationError, match="result"):
        await store.result(known, list[int])


async def test_nobody_is_told_who_left_in_the_same_moment(store: Store) -> None:
    run_id = await trigger(store)
    waiting = asyncio.create_task(store.result(run_id, timeout=60))
    await until(lambda: store.database.results._waiting)
    store.database.results._end_all(StoreClosed())
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError, StoreClosed):
        await waiting
    assert not store.database.results._waiting
