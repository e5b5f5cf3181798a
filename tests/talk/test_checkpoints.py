"""Checkpoints: the body of a step notes how far it is, and its next attempt goes on there."""

import asyncio
import threading

import pytest

from stepwell import Context, NotInRun, Retry, Store, Worker, current, step, sync, workflow
from stepwell.base.clock import TestClock
from tests.ground.waiting import until
from tests.store.seam import watched
from tests.workflows.kit import begun, die, drained

begins: list[tuple[int, object]] = []
halfway, go_on = asyncio.Event(), asyncio.Event()
late, over = threading.Event(), threading.Event()


@pytest.fixture(autouse=True)
def anew() -> None:
    global halfway, go_on  # an event belongs to the loop of its test
    halfway, go_on = asyncio.Event(), asyncio.Event()
    begins.clear()
    late.clear()
    over.clear()


@step(retry=Retry(max_attempts=3, base="1m"))
async def download(parts: int) -> int:
    ctx = current()
    begins.append((ctx.attempt, ctx.last_checkpoint))
    for part in range(ctx.last_checkpoint or 0, parts):
        ctx.checkpoint(part + 1)
        if part == 1 and ctx.attempt == 1:
            raise OSError("the line is cut")
    return int(ctx.last_checkpoint)


@workflow
async def backup(ctx: Context, again: bool = False) -> int:
    fetched = await download(4)
    await download(3)
    if again:
        ctx.restart()
    return fetched


@step
async def endless() -> object:
    ctx = current()
    begins.append((ctx.attempt, ctx.last_checkpoint))
    if ctx.last_checkpoint is None:
        ctx.checkpoint({"page": 7})
        halfway.set()
        await go_on.wait()
    return ctx.last_checkpoint


@workflow
async def crawl() -> object:
    return await endless()


@pytest.mark.proves("TK-19")
async def test_the_next_attempt_goes_on_where_the_last_one_was(store: Store, clock: TestClock) -> None:
    run = await begun(store, backup, True)
    for _ in range(6):
        await drained(store, backup)
        clock.advance("1h")
    assert begins == [(1, None), (2, 2), (1, None), (2, 2)] * 2, "per step, from anew after a restart"
    assert await store.result(run, timeout=0) == 4
    assert [one.key for one in await store.steps(run)] == ["download#1", "download#2"], "it is no step"


@pytest.mark.proves("TK-19")
async def test_after_a_lost_worker_it_is_read(store: Store) -> None:
    run = await begun(store, crawl)
    async with Worker(store, [crawl]):
        await asyncio.wait_for(halfway.wait(), 20)
        await until(lambda: _noted(store, run), 20)
        await die(store.database)
        go_on.set()
    await drained(store, crawl)
    assert await store.result(run, timeout=20) == {"page": 7}
    assert begins[-1] == (1, {"page": 7})


async def _noted(store: Store, run: int) -> bool:
    rows = await store.database.steps.of(int(run), 0)
    return any(row.key.startswith("#checkpoint/") for row in rows)


@step(timeout="300ms", retry=Retry(max_attempts=2, base=0))
def frozen() -> object:
    ctx = sync.current()
    if ctx.attempt == 1:
        ctx.checkpoint("first")
        late.wait(20)
        ctx.checkpoint("late")
        over.set()
        return None
    late.set()
    assert over.wait(20)
    return ctx.last_checkpoint


@step
async def at_work() -> None:
    """As long as it lasts the run is not given back between the attempts of the other."""
    await until(over.is_set, 20)


@step
async def chatty() -> None:
    for number in range(1000):
        current().checkpoint(number)


@workflow
async def beside(ctx: Context) -> list[object]:
    found = list(await asyncio.gather(ctx.step(frozen), at_work()))
    await chatty()
    for use in (lambda: ctx.checkpoint(1), lambda: ctx.last_checkpoint):
        with pytest.raises(NotInRun, match="is for the body of a step"):
            use()
    return found


@pytest.mark.proves("TK-19")
async def test_only_the_attempt_that_counts_notes_and_only_the_latest_is_written(live_store: Store) -> None:
    store, sent = watched(live_store)
    run = await begun(store, beside)
    async with Worker(store, [beside]):
        assert await store.result(run, timeout=20) == ["first", None]
    written = [call for calls in sent.flushes for call in calls if call.statement == "change_steps"]
    keys = [row[3] for call in written for row in call.rows or ()]
    assert 1 <= keys.count("#checkpoint/chatty#1") <= 3
