"""A run that another process finishes: its word is heard, by however many wait, on one connection."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from stepwell import Store, connect, sync
from stepwell.errors import ExecutionFailed, RunCancelled, StoreClosed, Timeout
from stepwell.records import RunStatus
from stepwell.store.hints import listener as ears
from stepwell.store.hints.wakeups import MOST_FINISHED
from tests.ground.processes import Crew
from tests.ground.waiting import until
from tests.results.runs import (
    CANCELLED,
    DONE,
    FAILED,
    WORKFLOW,
    Gate,
    Reads,
    nobody_waits,
    settle,
    settle_and_tell,
    take,
    trigger,
    trigger_many,
)
from tests.wakeups.ways import connections, hearing, listeners

TWO_PROCESSES = pytest.mark.backends("sqlite", "postgres", reason="Turso serves one process at a time")
POSTGRES = pytest.mark.backends("postgres", reason="only Postgres is told; SQLite's file is watched")


@TWO_PROCESSES
@pytest.mark.usefixtures("no_polls", "backend")
@pytest.mark.proves("RS-04", "rule-17")
async def test_a_run_that_another_process_finishes_is_heard_of_without_a_poll(store_url: str, tmp_path: Path) -> None:
    async with connect(store_url) as store:
        ids = await trigger_many(store, 5)
        waiting = [asyncio.create_task(store.result(run_id)) for run_id in ids]
        await hearing(store)
        with Crew("tests.results.finisher", store_url, "5", size=1, folder=tmp_path) as crew:
            gathered = asyncio.gather(*waiting)
            await until(gathered.done, 20, message=f"five results\n{crew.complaints()}")
        assert gathered.result() == [{"answer": 42}] * 5


@POSTGRES
@pytest.mark.usefixtures("no_polls", "backend")
@pytest.mark.proves("RS-04")
@pytest.mark.parametrize("settlement", [DONE, FAILED, CANCELLED], ids=lambda settlement: settlement.status)
async def test_every_way_to_end_is_told(store_url: str, other: Store, settlement: Any) -> None:
    async with connect(store_url) as store:
        run_id = await trigger(store)
        [run] = await take(other)
        reads = Reads(store)
        waiting = asyncio.create_task(store.result(run_id, timeout=60))
        await _hearing_and_read(store, reads)
        before = reads.count
        await settle_and_tell(other, run, settlement)
        done, _ = await asyncio.wait([waiting], timeout=10)
        assert done
        assert reads.ids[before:] == [[run_id]]
        match settlement.status:
            case RunStatus.SUCCESS:
                assert waiting.result() == {"answer": 42}
            case RunStatus.ERROR:
                assert type(waiting.exception()) is ExecutionFailed
            case _:
                assert type(waiting.exception()) is RunCancelled


@TWO_PROCESSES
@pytest.mark.usefixtures("no_polls")
@pytest.mark.proves("RS-04", "RS-06")
async def test_what_ended_before_anybody_listened_is_read_when_listening_begins(
    store_url: str, backend: str, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ears, "CLOSE_AFTER", 0.05)
    async with connect(store_url) as store:
        reads, run_id = Reads(store), await trigger(store)
        inside, driver = store.database.wakeups._hearing, cast("Any", store.database.driver)
        assert inside is not None
        gate, listen = Gate(), driver.listen

        async def held(*ways: Any) -> Any:
            await gate()
            return await listen(*ways)

        driver.listen = held
        waiting = asyncio.create_task(store.result(run_id))
        await gate.arrived.wait()
        await until(lambda: reads.answered == 1, message="the read that found it unfinished")
        [run] = await take(other)
        await settle(other, run)
        gate.open()
        assert await asyncio.wait_for(waiting, 10) == {"answer": 42}
        await until(lambda: inside._job is None, message="an ear that is closed when nobody waits")


@TWO_PROCESSES
@pytest.mark.usefixtures("backend")
@pytest.mark.proves("RS-01")
async def test_any_process_reads_a_run_as_it_stands_without_waiting(store_url: str, other: Store) -> None:
    async with connect(store_url) as store:
        run_id = await trigger(store)
        run = await other.get_run(int(run_id))
        assert (run.status, run.workflow, run.input(), run.started_at) == ("PENDING", WORKFLOW, None, None)
        [claimed] = await take(store)
        assert (await other.get_run(run_id)).status == "RUNNING"
        await settle(store, claimed, FAILED)
        run = await other.get_run(run_id)
        assert (run.status, run.error) == ("ERROR", {"type": "Broken", "message": "it broke"})
        assert run.started_at is not None
        assert run.finished_at is not None
        assert run.created_at <= run.started_at <= run.finished_at


@TWO_PROCESSES
@pytest.mark.usefixtures("backend")
@pytest.mark.proves("RS-06", "CF-06")
async def test_listening_can_be_switched_off(store_url: str, other: Store) -> None:
    async with connect(store_url, listen=False) as store:
        run_id = await trigger(store)
        [run] = await take(other)
        waiting = asyncio.create_task(store.result(run_id))
        await until(lambda: store.database.results._waiting)
        await settle_and_tell(other, run)
        assert await asyncio.wait_for(waiting, 10) == {"answer": 42}


@POSTGRES
@pytest.mark.usefixtures("no_polls", "backend")
@pytest.mark.proves("RS-09")
async def test_a_thousand_who_wait_use_one_connection_to_listen_and_a_read_for_each_word(
    store_url: str, other: Store
) -> None:
    count = 1000
    async with connect(store_url) as store:
        ids = await trigger_many(other, count)
        runs = await take(other, count)
        reads, words = Reads(store), _words(store)
        waiting = asyncio.gather(*(store.result(run_id) for run_id in ids))
        await _hearing_and_read(store, reads)
        assert [len(read) for read in reads.ids] == [count] * reads.count
        assert await listeners(store_url) == 1
        before = len(await connections(store_url))
        await asyncio.gather(*(settle_and_tell(other, run) for run in runs))
        assert await asyncio.wait_for(waiting, 20) == [{"answer": 42}] * count
        assert reads.count <= 1 + len(words)
        assert await listeners(store_url) == 1
        # Who finished them tells of it, on one more.
        assert len(await connections(store_url)) <= before + 1 + other.database.driver.flush_slots


@pytest.mark.usefixtures("no_polls")
@pytest.mark.proves("RS-08", "RS-09")
async def test_a_thousand_runs_that_end_in_this_process_cost_one_read(live_store: Store) -> None:
    store, count = live_store, 1000
    ids = await trigger_many(store, count)
    reads, words = Reads(store), _words(store)
    waiting = asyncio.gather(*(store.result(run_id) for run_id in ids))
    await until(lambda: reads.answered)
    for run_id in ids:
        store.database.results.settled(run_id, DONE.status, DONE.output, DONE.error, WORKFLOW)
    assert await asyncio.wait_for(waiting, 10) == [{"answer": 42}] * count
    assert reads.count <= 1 + len(words)
    assert reads.ids[0] == sorted(ids)
    await until(lambda: nobody_waits(store))


@pytest.mark.proves("RS-08", "RS-09")
async def test_a_thousand_who_wait_are_read_together_and_those_who_join_them_begin_no_flood(live_store: Store) -> None:
    store, count = live_store, 1000
    ids = await trigger_many(store, count + 2)
    reads = Reads(store)
    waiting = [asyncio.create_task(store.result(run_id)) for run_id in ids[:count]]
    await until(lambda: reads.answered >= 4)
    assert {len(read) for read in reads.ids} == {count}
    grown = store.database.results._pause
    late = [asyncio.create_task(store.result(run_id)) for run_id in ids[count:]]
    await until(lambda: any(ids[-1] in read for read in reads.ids))
    assert {len(read) for read in reads.ids} <= {2, count, count + 2}
    assert store.database.results._pause >= grown  # nobody begins the short polls again
    for one in (*waiting, *late):
        one.cancel()
    await asyncio.wait((*waiting, *late))
    await until(lambda: nobody_waits(store))


@POSTGRES
@pytest.mark.usefixtures("no_polls", "backend")
@pytest.mark.proves("RS-09")
async def test_more_runs_than_a_word_holds_are_told_as_many(store_url: str, other: Store) -> None:
    async with connect(store_url) as store:
        run_id = await trigger(store)
        [run] = await take(other)
        reads, words = Reads(store), _words(store)
        waiting = asyncio.create_task(store.result(run_id))
        await _hearing_and_read(store, reads)
        words.clear()
        await settle(other, run)
        for finished in range(10**6, 10**6 + 2 * MOST_FINISHED):
            other.database.results.settled(finished, "SUCCESS", None, None, WORKFLOW)
        assert await asyncio.wait_for(waiting, 10) == {"answer": 42}
        assert None in words
        assert len(words) <= 3


@pytest.fixture
def sync_store(store_url: str) -> Iterator[sync.Store]:
    with sync.connect(store_url) as opened:
        yield opened


@pytest.mark.usefixtures("backend")
@pytest.mark.proves("RS-03", "RS-07")
def test_sync_code_waits_the_same_way(sync_store: sync.Store) -> None:
    store = sync_store.async_store
    run_id = sync_store.wait_for(lambda: trigger(store))
    with pytest.raises(Timeout):
        sync_store.result(run_id, timeout=0)
    [run] = sync_store.wait_for(lambda: take(store))
    sync_store.wait_for(lambda: settle_and_tell(store, run))
    assert sync_store.result(run_id) == {"answer": 42}
    assert sync_store.result(run_id, dict[str, int], timeout=5) == {"answer": 42}
    sync_store.close()
    with pytest.raises(StoreClosed):
        sync_store.result(run_id)


async def _hearing_and_read(store: Store, reads: Reads) -> None:
    """Return when the store hears other processes, and has read what ended while it did not."""
    await hearing(store)
    await until(lambda: not store.database.results._hinted and reads.answered == reads.count)


def _words(store: Store) -> list[Any]:
    """What others say of finished runs, from the next who waits on."""
    words: list[Any] = []
    heard = store.database.results._heard

    def noted(run_ids: frozenset[int] | None) -> None:
        words.append(run_ids)
        heard(run_ids)

    store.database.results._heard = noted  # type: ignore[method-assign]
    return words
