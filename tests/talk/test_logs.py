"""Log lines of runs: what `logging` is told inside a run or a step, kept by run, step and attempt."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from stepwell import Context, RunStatus, Store, Worker, connect, sleep, step, sync, workflow
from stepwell.errors import InvalidOption, RunNotFound, TransientError
from stepwell.runs import log as keeper
from stepwell.store import run_log
from stepwell.store.run_log import LogLine
from stepwell.testing import world
from tests.ground.waiting import until

log = logging.getLogger("shop")


@pytest.fixture(autouse=True)
def loud() -> Iterator[None]:
    log.setLevel(logging.DEBUG)
    yield
    log.setLevel(logging.NOTSET)


async def lines_of(store: Store, run: Any, **only: Any) -> list[LogLine]:
    return [line async for line in store.logs(run, **only)]


async def said(store: Store, run: Any, **only: Any) -> list[tuple[str | None, int | None, str]]:
    return [(line.step, line.attempt, line.text) for line in await lines_of(store, run, **only)]


@step(retry=2)
async def charge(order: int) -> int:
    log.info("charging %s", order)
    if len(tries := TRIES.setdefault(order, [])) == 0:
        tries.append(1)
        raise TransientError("not yet")
    return order


@step
def pack(order: int) -> str:
    log.warning("packing in a thread")
    try:
        int("no box")
    except ValueError:
        log.exception("cannot pack")
    return "packed"


TRIES: dict[int, list[int]] = {}


@workflow
async def shipping(ctx: Context, order: int) -> str:
    log.info("begun")
    log.debug("a detail")
    await charge(order)
    await sleep("1h")
    log.info("after the sleep")
    packed = await ctx.step(pack, order)
    log.info("done")
    return packed


@pytest.mark.proves("logs-01")
async def test_lines_are_kept_by_step_and_attempt_and_a_replay_keeps_none_again() -> None:
    async with world(shipping) as opened:
        store = opened.store
        run = await shipping.trigger(7).execute(store)
        await opened.drain()
        await opened.advance("2h")
        assert (await store.get_run(run)).status is RunStatus.SUCCESS
        lines = await said(store, run)
        kept = [(step, attempt, text.partition("\n")[0]) for step, attempt, text in lines]
        assert kept == [
            (None, None, "begun"),
            ("charge#1", 1, "charging 7"),
            ("charge#1", 2, "charging 7"),
            (None, None, "after the sleep"),
            ("pack#1", 1, "packing in a thread"),
            ("pack#1", 1, "cannot pack"),
            (None, None, "done"),
        ]
        assert "no box" in lines[5][2]
        assert await said(store, run, step="charge#1", attempt=2) == [("charge#1", 2, "charging 7")]
        whole = await lines_of(store, run)
        assert [line.offset for line in whole] == list(range(1, 8))
        assert (whole[5].level, whole[5].logger) == ("ERROR", "shop")
        assert [line.text for line in await lines_of(store, run, after=6)] == ["done"]
        assert whole[0].turn < whole[-1].turn
        assert whole[0].at <= whole[-1].at
        with pytest.raises(RunNotFound):
            await lines_of(store, 4711)


@step
async def chatty(count: int) -> None:
    for number in range(count):
        log.info("line %s", number)


@workflow
async def talks(ctx: Context, in_step: int, in_code: int) -> None:
    for number in range(in_code):
        log.info("own %s", number)
    await chatty(in_step)


@pytest.mark.proves("logs-02")
async def test_what_is_kept_of_an_attempt_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in {"FIRST": 20, "LAST": 5, "LONGEST": 40}.items():
        monkeypatch.setattr(keeper, name, most)
    async with Worker(store, [talks]):
        run = await talks.trigger(1000, 50).execute(store)
        await store.result(run, timeout="20s")
    lines = [line.text for line in await lines_of(store, run)]
    own, rest = lines[:21], lines[21:]
    assert own == [f"own {n}" for n in range(20)] + ["further lines of this part of the workflow are not kept"]
    first, [told], last = rest[:20], rest[20:21], rest[21:]
    assert first == [f"line {n}" for n in range(20)]
    assert told == "975 lines of this attempt before the next ones are not kept"
    assert last == [f"line {n}" for n in range(995, 1000)]
    found = await run_log.last_lines(store.database, int(run), step="chatty#1", limit=3)
    assert ([line.text for line in found.lines], found.more) == (last[-3:], True)
    found = await run_log.last_lines(store.database, int(run), step=None, limit=100)
    assert ([line.text for line in found.lines], found.more) == (lines, False)


@workflow
async def many_steps(ctx: Context) -> None:
    for number in range(40):
        await ctx.step(f"s{number}", lambda: log.info("x"))


@pytest.mark.proves("logs-02")
async def test_who_follows_goes_on_behind_lines_that_are_not_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "KEPT", 10)
    async with Worker(store, [many_steps]):
        run = await many_steps.trigger().execute(store)
        await store.result(run, timeout="30s")
    await until(lambda: fewer(store, run))
    kept = await lines_of(store, run)
    assert (kept[0].offset > 1, kept[-1].offset, kept[-1].step) == (True, 40, "s39#1")
    assert [line.offset async for line in store.logs(run, after=1, follow=True)] == [line.offset for line in kept]


async def fewer(store: Store, run: Any) -> bool:
    return len(await lines_of(store, run)) <= 12


@step
async def odd() -> None:
    log.info("nul \x00 and \ud800 and password=hunter2 at postgres://ann:secret@host/db")
    log.info("%d", "no number")
    log.info("x" * 10_000)


@workflow
async def oddly(ctx: Context) -> None:
    await odd()
    threading.Thread(target=lambda: log.info("of no run")).start()


@pytest.mark.proves("logs-03")
async def test_a_line_never_harms_what_logs_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])  # pytest's own fail with such lines
    async with Worker(store, [oddly]):
        log.info("of no run")
        run = await oddly.trigger().execute(store)
        await store.result(run, timeout="20s")
    first, second, third = [line.text for line in await lines_of(store, run)]
    assert first == "nul \ufffd and \ufffd and password=*** at postgres://ann:***@host/db"
    assert "no number" in second
    assert 3900 < len(third) < 4100
    assert [one for one in logging.root.handlers if isinstance(one, keeper.LogHandler)] == []


@pytest.mark.proves("logs-03")
async def test_the_store_says_from_which_level_lines_are_kept() -> None:
    for level, kept in {"none": 0, "debug": 3, "error": 0}.items():
        async with connect(f"memory:?logs={level}") as store:
            run = await talks.trigger(1, 2).execute(store)
            await Worker(store, [talks]).drain()
            assert len(await lines_of(store, run)) == kept
    with pytest.raises(InvalidOption, match="one of debug, info"):
        await connect("memory:", logs="loud")  # type: ignore[arg-type]


@pytest.mark.proves("logs-03")
async def test_nothing_else_is_lost_by_the_handler_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a handler of its own a program's warnings go to stderr, with a worker as without."""
    seen: list[str] = []

    class Last(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    monkeypatch.setattr(logging, "lastResort", Last(logging.WARNING))
    monkeypatch.setattr(logging.root, "handlers", [])
    async with connect("memory:") as store, Worker(store, [talks]):
        log.info("quiet")
        log.warning("loud")
        other = logging.StreamHandler()
        log.addHandler(other)
        log.warning("handled")
        log.removeHandler(other)
    assert seen == ["loud"]


@workflow
def in_threads(ctx: sync.Context) -> None:
    log.info("sync code")
    ctx.step("look", lambda: log.info("sync step"))


@pytest.mark.proves("logs-01")
def test_a_sync_workflow_keeps_its_lines() -> None:
    with sync.connect("memory:") as store, sync.Worker(store, [in_threads]):
        run = in_threads.trigger().execute(store)
        store.result(run, timeout="20s")
        lines = [(line.step, line.text) for line in store.logs(run, follow=True)]
        assert lines == [(None, "sync code"), ("look#1", "sync step")]
