"""Named values: a run sets them, any process reads the last, and whoever waits for one does not poll for it."""

import asyncio
import random
import threading
from typing import Any

import pytest

from stepwell import (
    Context,
    RunNotFound,
    RunStatus,
    SerializationError,
    Store,
    Timeout,
    ValueNotSet,
    Worker,
    connect,
    current,
    sleep,
    step,
    sync,
    workflow,
)
from stepwell.runs import reports as reporting
from stepwell.store import results
from stepwell.store.driver import Call, Row
from stepwell.testing import World, world
from tests.ground.waiting import until
from tests.queue.raw import ask
from tests.store.seam import watched
from tests.wakeups.ways import hearing
from tests.workflows.kit import begun, drained, executed

NEVER = 1e6
said = asyncio.Event()
go_on = asyncio.Event()


class Reads:
    """What of runs was asked for news, read by read."""

    def __init__(self, store: Store) -> None:
        self.asked: list[list[int]] = []
        driver: Any = store.database.driver
        read = driver.read

        async def noted(call: Call) -> list[Row]:
            if call.statement == "news":
                self.asked.append([int(str(row[0])) for row in call.rows or ()])
            return list(await read(call))

        driver.read = noted


async def reports(store: Store, where: str = "true") -> int:
    """How many rows there are."""
    [[number]] = await ask(store, f"select count(*) from {{report}} where {where}")
    return int(number)


@pytest.fixture(autouse=True)
def anew() -> None:
    global said, go_on  # an event belongs to the loop of its test
    said, go_on = asyncio.Event(), asyncio.Event()


@step
async def stage() -> None:
    current().set_value("stage", "in a step")
    said.set()
    await go_on.wait()


@workflow
async def staged(ctx: Context) -> None:
    ctx.set_value("stage", "begun")
    await stage()
    ctx.set_value("stage", "over")


@workflow
async def patient(ctx: Context) -> None:
    ctx.set_value("status", "first")
    await sleep("1h")
    ctx.set_value("status", {"n": 2})
    await sleep("1h")


@workflow
async def silent() -> int:
    return 1


@workflow
async def life(ctx: Context, number: int) -> int:
    ctx.set_value("age", number)
    await ctx.step("note", lambda: number)
    if number < 3:
        ctx.restart(number + 1)
    return number


@pytest.mark.proves("TK-01", "TK-02")
async def test_whoever_waits_gets_a_value_when_it_is_set_and_the_last_one_counts(live_store: Store) -> None:
    run_id = await begun(live_store, staged)
    with pytest.raises(Timeout, match="has not set the value 'stage' in 0 s"):
        await live_store.value(run_id, "stage", timeout=0)
    waiting = asyncio.create_task(live_store.value(run_id, "stage", str, timeout=20))
    await asyncio.sleep(0)
    async with Worker(live_store, [staged]):
        assert await waiting in ("begun", "in a step")
        await asyncio.wait_for(said.wait(), 20)
        await until(lambda: _is(live_store, run_id, "in a step"), 20)
        go_on.set()
        await live_store.result(run_id, timeout=20)
    assert await live_store.value(run_id, "stage", timeout=0) == "over", "what is set last is written before the end"


async def _is(store: Store, run_id: int, value: str) -> bool:
    return await store.value(run_id, "stage", str) == value


@pytest.mark.proves("TK-01")
async def test_it_is_set_once_in_the_life_of_a_run_and_not_by_its_replays(clocked: World) -> None:
    store = clocked.store
    run_id = await patient.trigger().execute(store)
    await clocked.advance(0)
    assert await store.value(run_id, "status") == "first"
    await clocked.advance("1h")
    assert await store.value(run_id, "status") == {"n": 2}
    await clocked.advance("1h")
    assert (await store.get_run(run_id)).status is RunStatus.SUCCESS
    assert await reports(store) == 2


@pytest.fixture
async def clocked() -> Any:
    async with world(patient, life) as opened:
        yield opened


@pytest.mark.proves("TK-03")
async def test_what_is_not_there_is_told(store: Store) -> None:
    run = await executed(store, staged_nothing)
    with pytest.raises(
        ValueNotSet, match=r"ended SUCCESS and never set the value 'status'; it has set 'other'"
    ) as told:
        await store.value(run.id, "status")
    assert (told.value.run_id, told.value.name, told.value.status) == (run.id, "status", "SUCCESS")
    with pytest.raises(RunNotFound):
        await store.value(12345, "status")
    with pytest.raises(SerializationError, match="value other"):
        await store.value(run.id, "other", int)
    assert await store.value(run.id, "other", str) == "text"


@workflow
async def staged_nothing(ctx: Context) -> None:
    ctx.set_value("other", "text")


@pytest.mark.proves("TK-02")
async def test_a_value_that_is_set_before_the_end_is_there_whoever_looks_and_whenever(live_store: Store) -> None:
    async with Worker(live_store, [staged_nothing]):
        ids = [await begun(live_store, staged_nothing) for _ in range(20)]
        found = await asyncio.gather(*(live_store.value(run_id, "other", timeout=20) for run_id in ids))
    assert found == ["text"] * 20


@pytest.mark.proves("TK-01", "R-21")
async def test_it_stays_when_the_run_restarts(store: Store) -> None:
    run = await executed(store, life, 1)
    assert (run.status, run.generation) == (RunStatus.SUCCESS, 2)
    assert await store.value(run.id, "age", int) == 3
    assert [one.name for one in await store.values(run.id)] == ["age"]


@pytest.mark.proves("TK-04")
async def test_progress_is_one_of_them(store: Store) -> None:
    @workflow
    async def two(ctx: Context) -> None:
        ctx.progress({"done": 1})
        ctx.set_value("progress", {"done": 2})
        ctx.set_value("status", "done")

    run = await executed(store, two)
    assert run.progress == {"done": 2}
    assert await store.value(run.id, "progress") == {"done": 2}
    values = await store.values(run.id)
    assert [(one.name, one.value) for one in values] == [("progress", {"done": 2}), ("status", "done")]


@pytest.mark.proves("TK-04")
async def test_who_waits_for_progress_is_told_of_it(live_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "SHORTEST_POLL", NEVER)
    monkeypatch.setattr(results, "LONGEST_POLL", NEVER)
    run_id = await begun(live_store, hopeful)
    waiting = asyncio.create_task(live_store.value(run_id, "progress", timeout=20))
    await until(lambda: live_store.database.reports._waiting)
    async with Worker(live_store, [hopeful]):
        assert await waiting == 1
        go_on.set()


@workflow
async def hopeful(ctx: Context) -> None:
    await ctx.step("go", hope)


async def hope() -> None:
    current().progress(1)
    await go_on.wait()


@pytest.mark.proves("TK-05")
async def test_of_a_name_only_the_last_values_are_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "VALUES_KEPT", 10)

    @workflow
    async def chatty(ctx: Context) -> None:
        for number in range(40):
            ctx.set_value("n", number)
            ctx.set_value("rare", "kept")
            await ctx.stream("log").written()

    run = await executed(store, chatty)
    await until(lambda: not store.database.reports._trimming)
    assert await store.value(run.id, "n") == 39
    assert 10 <= await reports(store, "name = 'n'") <= 15


@pytest.mark.proves("TK-06")
async def test_many_who_wait_cost_one_read(live_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "SHORTEST_POLL", NEVER)
    monkeypatch.setattr(results, "LONGEST_POLL", NEVER)
    store, reads = live_store, Reads(live_store)
    ids = [await begun(store, staged_nothing) for _ in range(50)]
    waiting = [asyncio.create_task(store.value(run_id, "other", timeout=20)) for run_id in ids for _ in "12"]
    await until(lambda: len(store.database.reports._waiting) == 50)
    async with Worker(store, [staged_nothing]):
        assert await asyncio.gather(*waiting) == ["text"] * 100
    assert len(reads.asked) <= 50 + 5, "two who wait for one run share a read, as do all that were told of at once"
    assert not store.database.reports._waiting
    assert store.database.wakeups._readers == []


@pytest.mark.proves("TK-06")
@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process at a time")
async def test_another_process_hears_of_it_without_a_poll(
    store_url: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "SHORTEST_POLL", NEVER)
    monkeypatch.setattr(results, "LONGEST_POLL", NEVER)
    async with connect(store_url) as store, connect(store_url) as other:
        run_id = await begun(store, hopeful_value)
        waiting = asyncio.create_task(other.value(run_id, "status", timeout=30))
        await hearing(other)
        async with Worker(store, [hopeful_value]):
            assert await waiting == "set"
            go_on.set()


@workflow
async def hopeful_value(ctx: Context) -> None:
    ctx.set_value("status", "set")
    await ctx.step("wait", go_on.wait)


@pytest.mark.proves("TK-07")
async def test_a_run_that_reports_nothing_costs_nothing(store: Store) -> None:
    store, driver = watched(store)
    await executed(store, silent)
    assert [ids for ids in driver.ids("add_reports") if ids] == []
    assert await reports(store) == 0


@pytest.mark.proves("TK-01")
async def test_threads_and_sync_workflows_set_them_too(store: Store) -> None:
    @workflow
    def plain(ctx: sync.Context) -> str:
        ctx.set_value("status", "begun")
        ctx.step("work", lambda: current().set_value("status", threading.current_thread().name), returns=object)
        ctx.set_value("last", 1)
        return "done"

    run = await executed(store, plain)
    assert run.status is RunStatus.SUCCESS
    assert await store.value(run.id, "last") == 1
    assert await store.value(run.id, "status") != "begun"


@pytest.mark.proves("TK-01")
async def test_what_a_run_sets_before_it_fails_is_there(store: Store) -> None:
    @workflow
    async def failing(ctx: Context) -> None:
        for number in range(3):
            await asyncio.sleep(0)
            ctx.set_value("status", number)
        raise ValueError("no")

    run = await executed(store, failing, max_attempts=1)
    assert run.status is RunStatus.ERROR
    assert await store.value(run.id, "status") == 2


@pytest.mark.proves("TK-01", "TU-06")
async def test_it_survives_a_crash_at_every_call() -> None:
    async with world(telling) as w:
        report = await w.crash_everywhere(telling.trigger(2))
        assert any("add_reports" in call for call in report.calls)
        run_id = await telling.trigger(2).execute(w.store)
        await w.advance("2h")
        assert await w.store.value(run_id, "status") == "set 2"


@workflow
async def telling(ctx: Context, last: int) -> int:
    for number in range(1, last + 1):
        ctx.set_value("status", f"set {number}")
        ctx.stream("log").write(number)
        await sleep("1h")
    return last


@pytest.mark.proves("TK-01")
async def test_a_fork_sets_what_the_run_had_set_before_that_step(clocked: World) -> None:
    store = clocked.store
    run_id = await patient.trigger().execute(store)
    await clocked.advance("3h")
    fork = await store.fork(run_id, at="sleep#2")
    await drained(store, patient)
    assert await store.value(fork, "status") == {"n": 2}


@pytest.mark.proves("TK-01")
def test_the_sync_face(sync_url: str) -> None:
    with sync.connect(sync_url) as store, sync.Worker(store, [telling_once]):
        run_id = telling_once.trigger().execute(store)
        assert store.value(run_id, "status", timeout=20) == "set"
        assert [one.name for one in store.values(run_id)] == ["status"]
        assert [chunk.data for chunk in store.stream(run_id, "log")] == [0, 1, 2]


@pytest.fixture
def sync_url() -> str:
    return "memory:"


@workflow
async def telling_once(ctx: Context) -> None:
    ctx.set_value("status", "set")
    for number in range(3):
        ctx.stream("log").write(number)


@pytest.mark.proves("TK-01", "SD-10")
async def test_they_go_with_their_run(clocked: World) -> None:
    store = clocked.store
    run_id = await life.trigger(3).execute(store)
    await clocked.advance("1s")
    assert (await store.get_run(run_id)).status is RunStatus.SUCCESS
    assert await reports(store) == 1
    await clocked.advance("8d")
    await store.prune("7d")
    assert await reports(store) == 0


@workflow
async def brief(ctx: Context, number: int) -> None:
    if number % 2:
        await ctx.sleep(0.001 * (number % 5))
        ctx.set_value("status", number)


@pytest.mark.proves("TK-02", "TK-03")
@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
async def test_a_value_that_races_with_the_end_of_its_run_is_there_and_one_never_set_is_told(
    live_store: Store, count: int
) -> None:
    """Readers come before, while and after each run ends; one in three gives up early and asks again."""
    chance, late = random.Random(count), 0

    async def one(number: int) -> int | None:
        nonlocal late
        run = await begun(live_store, brief, number)
        await asyncio.sleep(chance.choice((0, 0, 0.002, 0.01)))
        for timeout in (*([chance.uniform(0, 0.01)] if number % 3 == 0 else []), 30):
            try:
                return await live_store.value(run, "status", int, timeout=timeout)
            except Timeout:
                late += 1
            except ValueNotSet:
                return None
        raise AssertionError(f"run {number} ended, and its reader was not told")

    async with Worker(live_store, [brief]):
        read = [value for at in range(0, count, 20) for value in await asyncio.gather(*map(one, range(at, at + 20)))]
    assert read == [number if number % 2 else None for number in range(count)]
    assert late > 0, "no reader came too early: void"
