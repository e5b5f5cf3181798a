"""Streams out of a run: chunks in their order, each once from workflow code, to whoever reads, from any offset."""

import asyncio
import contextlib
import threading
from typing import Any

import msgspec
import pytest

from stepwell import (
    ChunksRemoved,
    Context,
    InvalidName,
    InvalidOption,
    RunNotFound,
    RunStatus,
    SerializationError,
    StepFailed,
    Store,
    TooMuchUnwritten,
    TransientError,
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
from stepwell.store.rows import Claimed
from stepwell.testing import World, world
from tests.ground.waiting import until
from tests.queue.raw import ask
from tests.store.seam import begin, claim, do, watched
from tests.wakeups.ways import hearing
from tests.workflows.kit import begun, drained, executed, steps_of

NEVER = 1e6


async def read(store: Store, run_id: int, name: str = "log", after: int = 0) -> list[tuple[int, Any]]:
    """All chunks there are and will be."""
    return [(chunk.offset, chunk.data) async for chunk in store.stream(run_id, name, after=after)]


@step
async def work(n: int) -> None:
    for part in "ab":
        current().stream("log").write(f"{n}{part}")


@workflow
async def whole(ctx: Context) -> None:
    log = ctx.stream("log")
    log.write("begun")
    await work(1)
    await sleep("1h")
    log.write({"n": 2})
    await work(2)
    await sleep("1h")
    log.write("over")


WHOLE = [(1, "begun"), (2, "1a"), (3, "1b"), (4, {"n": 2}), (5, "2a"), (6, "2b"), (7, "over")]


@pytest.fixture
async def clocked() -> Any:
    async with world(whole, chain) as opened:
        yield opened


@pytest.mark.proves("TK-08", "TK-09")
async def test_chunks_keep_their_order_over_steps_and_turns_and_a_replay_writes_none(clocked: World) -> None:
    store = clocked.store
    run_id = await whole.trigger().execute(store)
    reading = asyncio.create_task(read(store, run_id))
    for _ in range(3):
        await clocked.advance("1h")
    assert await reading == WHOLE
    assert await read(store, run_id, after=5) == WHOLE[5:]
    assert await read(store, run_id, after=7) == []
    assert await read(store, run_id, "nothing") == []
    assert list(await steps_of(store, run_id)) == ["work#1", "sleep#1", "work#2", "sleep#2"], "marks are no steps"


@pytest.mark.proves("TK-08", "R-21")
async def test_a_stream_goes_on_over_generations(clocked: World) -> None:
    run_id = await chain.trigger(1).execute(clocked.store)
    await clocked.advance("1s")
    assert await read(clocked.store, run_id) == [(1, "1.0"), (2, "1.1"), (3, "2.0"), (4, "2.1"), (5, "3.0"), (6, "3.1")]


@workflow
async def chain(ctx: Context, number: int) -> None:
    for part in range(2):
        ctx.stream("log").write(f"{number}.{part}")
        await asyncio.sleep(0)
    if number < 3:
        ctx.restart(number + 1)


@pytest.mark.proves("TK-09")
async def test_many_read_a_run_that_writes_each_from_its_own_offset(live_store: Store) -> None:
    @workflow
    async def writer(ctx: Context) -> None:
        for number in range(1, 201):
            ctx.stream("log").write(number)
            if number % 20 == 0:
                await asyncio.sleep(0.001)

    run_id = await begun(live_store, writer)
    reading = [asyncio.create_task(read(live_store, run_id, after=after)) for after in (0, 50, 199, 200)]
    async with Worker(live_store, [writer]):
        found = await asyncio.wait_for(asyncio.gather(*reading), 60)
    every = [(number, number) for number in range(1, 201)]
    assert found == [every, every[50:], every[199:], []]


@pytest.mark.proves("TK-09", "TK-06")
@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process at a time")
async def test_another_process_is_told_of_each_write(
    store_url: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "SHORTEST_POLL", NEVER)
    monkeypatch.setattr(results, "LONGEST_POLL", NEVER)
    heard = asyncio.Queue[int]()

    @workflow
    async def echo(ctx: Context) -> None:
        for number in range(1, 4):
            ctx.stream("log").write(number)
            await ctx.step("heard", heard.get)

    async with connect(store_url) as store, connect(store_url) as other:
        run_id = await begun(store, echo)
        stream = other.stream(run_id, "log", int)
        first = asyncio.ensure_future(anext(stream))
        await hearing(other)
        async with Worker(store, [echo]):
            chunk = await asyncio.wait_for(first, 30)
            for number in range(2, 4):
                heard.put_nowait(0)
                assert chunk.offset == number - 1
                chunk = await asyncio.wait_for(anext(stream), 30)
            heard.put_nowait(0)
            assert await asyncio.wait_for(anext(stream, None), 30) is None


@pytest.mark.proves("TK-08")
async def test_a_thousand_chunks_are_few_writes(store: Store) -> None:
    @workflow
    async def chatty(ctx: Context) -> None:
        for number in range(1000):
            ctx.stream("log").write(number)
            if number % 10 == 0:
                await asyncio.sleep(0)

    store, driver = watched(store)
    run = await executed(store, chatty)
    assert [data for _, data in await read(store, run.id)] == list(range(1000))
    assert len([ids for ids in driver.ids("add_reports") if ids]) <= 100
    [[rows]] = await ask(store, "select count(*) from {report}")
    assert rows <= 100


@pytest.mark.proves("TK-08")
async def test_an_attempt_that_failed_has_written_and_the_next_writes_again(store: Store) -> None:
    @step(retry=2)
    async def fickle() -> None:
        current().stream("log").write(current().attempt)
        if current().attempt == 1:
            raise TransientError("once more", retry_after=0)

    @workflow
    async def flow() -> None:
        await fickle()

    run = await executed(store, flow)
    assert run.status is RunStatus.SUCCESS
    assert await read(store, run.id) == [(1, 1), (2, 2)]


@pytest.mark.proves("TK-08")
async def test_branches_count_for_themselves(clocked_branches: World) -> None:
    store = clocked_branches.store
    run_id = await branched.trigger().execute(store)
    await clocked_branches.advance("1h")
    await clocked_branches.advance("1h")
    data = [data for _, data in await read(store, run_id)]
    assert sorted(data) == sorted(f"{name}{number}" for name in "abc" for number in range(3))
    for name in "abc":
        assert [one for one in data if one.startswith(name)] == [f"{name}{number}" for number in range(3)]


@workflow
async def branched(ctx: Context) -> None:
    async def part(name: str) -> None:
        for number in range(3):
            ctx.stream("log").write(f"{name}{number}")
            await ctx.sleep("0.5h" if name == "a" else "0.3h")

    await asyncio.gather(*map(part, "abc"))


@pytest.fixture
async def clocked_branches() -> Any:
    async with world(branched) as opened:
        yield opened


@pytest.mark.proves("TK-10")
async def test_who_comes_too_late_is_told_where_to_go_on(store: Store) -> None:
    @workflow
    async def long(ctx: Context) -> None:
        for number in range(1, 41):
            log = ctx.stream("log", keep=10)
            log.write(number)
            await log.written()

    run = await executed(store, long)
    await until(lambda: not store.database.reports._trimming)
    kept = await read(store, run.id)
    assert kept[-1] == (40, 40)
    assert 10 <= len(kept) <= 16
    assert [offset for offset, _ in kept] == list(range(kept[0][0], 41)), "there is no gap"
    with pytest.raises(ChunksRemoved, match=f"go on with `after={kept[0][0] - 1}`") as told:
        await read(store, run.id, after=5)
    assert (told.value.run_id, told.value.name, told.value.after) == (run.id, "log", 5)
    assert await read(store, run.id, after=told.value.first - 1) == kept


@pytest.mark.proves("TK-08")
async def test_what_is_wrong_is_told_before_anything_is_written(store: Store) -> None:
    told: list[Exception] = []

    @workflow
    async def wrong(ctx: Context) -> None:
        for attempt in (
            lambda: ctx.stream("a name/"),
            lambda: ctx.stream("log", keep=0),
            lambda: ctx.stream("log").write(object()),
            lambda: ctx.set_value("a name/", 1),
        ):
            try:
                attempt()
            except Exception as error:  # noqa: BLE001 - what it is, is the test
                told.append(error)

    run = await executed(store, wrong)
    assert run.status is RunStatus.SUCCESS
    assert [type(error) for error in told] == [InvalidName, InvalidOption, SerializationError, InvalidName]
    assert await read(store, run.id) == []
    with pytest.raises(RunNotFound):
        await read(store, 4711)
    with pytest.raises(InvalidOption):
        await read(store, run.id, after=-1)


@pytest.mark.proves("TK-11")
async def test_code_on_the_loop_is_told_to_await_and_a_thread_waits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "SLOW_DOWN", 100)
    monkeypatch.setattr(reporting, "MOST_WAITING", 1000)
    told: list[Exception] = []

    @workflow
    async def hasty(ctx: Context) -> None:
        try:
            for _ in range(100):
                ctx.stream("log").write("x" * 50)
        except TooMuchUnwritten as error:
            told.append(error)
        await ctx.step("pause", lambda: 0)
        for number in range(20):
            ctx.stream("slow").write(f"{number}" * 60)
            await ctx.stream("slow").written()
        await ctx.step("thread", in_thread)

    def in_thread() -> None:
        for number in range(100):
            current().stream("thread").write(f"{number:03}" * 30)

    run = await executed(store, hasty)
    assert run.status is RunStatus.SUCCESS
    assert "await ctx.stream(...).written()" in str(told[0])
    assert len(await read(store, run.id, "log")) == 20
    assert len(await read(store, run.id, "slow")) == 20
    assert [data for _, data in await read(store, run.id, "thread")] == [f"{number:03}" * 30 for number in range(100)]


@pytest.mark.proves("TK-08")
async def test_chunks_larger_than_a_row_are_several(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "MOST_BYTES", 100)
    monkeypatch.setattr(reporting, "MOST_TOGETHER", 7)

    @workflow
    async def large(ctx: Context) -> None:
        for size in (1, 200, 1, 90, 20, *[1] * 20):
            ctx.stream("log").write("x" * size)

    run = await executed(store, large)
    assert [len(data) for _, data in await read(store, run.id)] == [1, 200, 1, 90, 20, *[1] * 20]


@pytest.mark.proves("TK-08")
async def test_what_a_sync_workflow_and_its_steps_write_is_in_order(store: Store) -> None:
    def inside(n: int) -> None:
        current().stream("log").write(f"in {n}")

    @workflow
    def plain(ctx: sync.Context) -> None:
        for number in range(3):
            ctx.stream("log").write(number)
            ctx.step("work", inside, number)

    run = await executed(store, plain)
    assert run.status is RunStatus.SUCCESS
    assert [data for _, data in await read(store, run.id)] == [0, "in 0", 1, "in 1", 2, "in 2"]


@pytest.mark.proves("TK-08")
async def test_a_body_that_has_outlived_its_time_limit_writes_no_more(store: Store) -> None:
    go_on, over = threading.Event(), threading.Event()

    @step(timeout=0.05, retry=1)
    def slow() -> None:
        go_on.wait(20)
        current().stream("log").write("late")
        over.set()

    @workflow
    async def flow(ctx: Context) -> None:
        with contextlib.suppress(StepFailed):
            await ctx.step(slow)
        go_on.set()
        await ctx.step("wait", lambda: over.wait(20))
        ctx.stream("log").write("in time")

    run = await executed(store, flow)
    assert run.status is RunStatus.SUCCESS
    assert await read(store, run.id) == [(1, "in time")]


@pytest.mark.proves("TK-08")
async def test_what_a_body_has_written_is_there_before_its_step_is_done(store: Store) -> None:
    """The write that is under way is held up: the step is not recorded before it."""
    store, driver = watched(store)
    order: list[str] = []
    records = ("add_steps", "change_steps", "settle_steps")

    @step
    async def writes() -> None:
        log = current().stream("log")
        log.write(1)
        await log.written()
        log.write(2)
        await asyncio.sleep(0)
        log.write(3)

    @workflow
    async def flow() -> None:
        await writes()

    async def noted(calls: Any) -> None:
        order.extend(call.statement for call in calls if call.statement in ("add_reports", *records))

    driver.before = noted
    run = await executed(store, flow)
    assert [data for _, data in await read(store, run.id)] == [1, 2, 3]
    assert order[-1] in records
    assert order.count("add_reports") >= 2


@pytest.mark.proves("TK-08")
async def test_who_does_not_hold_the_run_any_more_writes_nothing(store: Store) -> None:
    @workflow
    async def flow() -> None:
        return None

    run_id = await begun(store, flow)
    session, other = await begin(store), await begin(store)
    [claimed] = await claim(store, session, "flow")
    database = store.database

    async def write(task: Claimed) -> int | None:
        return (await database.reports.submitted(task, "stream", "log", ["1"], [])).number

    assert await write(claimed) == 1
    assert await write(msgspec.structs.replace(claimed, turn=claimed.turn + 1)) is None
    assert await write(msgspec.structs.replace(claimed, owner=other)) is None
    assert await write(claimed) == 2
    await do(store, f"delete from {{fence}} where worker_id = {session}")
    assert await write(claimed) is None
    assert (await store.get_run(run_id)).status is RunStatus.RUNNING
    [[rows]] = await ask(store, "select count(*) from {report}")
    assert rows == 2


@pytest.mark.proves("TK-09")
async def test_what_is_written_between_the_read_and_the_end_is_read(store: Store) -> None:
    run_id = await begun(store, chain, 3)
    driver: Any = store.database.driver
    whole_read = driver.read

    async def read_slowly(call: Any) -> Any:
        rows = await whole_read(call)
        if call.statement == "reports_after" and not rows:
            await drained(store, chain)  # the run writes and ends right after the reader has found nothing
        return rows

    driver.read = read_slowly
    assert await asyncio.wait_for(read(store, run_id), 30) == [(1, "3.0"), (2, "3.1")]


@pytest.mark.proves("TK-12", "TU-06")
async def test_it_survives_a_crash_at_every_call(clocked: World) -> None:
    report = await clocked.crash_everywhere(whole.trigger())
    assert any("add_reports" in call for call in report.calls)


@pytest.mark.proves("TK-08")
async def test_a_crash_between_two_chunks_loses_none(store: Store) -> None:
    """A worker that dies after a write: the next one leaves out what is written, by the mark of that write."""
    crashed: list[bool] = []

    @workflow(retry=3)
    async def fragile(ctx: Context) -> None:
        for number in range(10):
            ctx.stream("log").write(number)
            await ctx.stream("log").written()
            if number == 4 and not crashed:
                crashed.append(True)
                raise TransientError("as if it were killed here", retry_after=0)

    run = await executed(store, fragile)
    await drained(store, fragile)
    assert (await store.get_run(run.id)).status is RunStatus.SUCCESS
    assert [data for _, data in await read(store, run.id)] == list(range(10))
