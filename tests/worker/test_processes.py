"""Bodies in processes of their own: what passes, what is killed, what is tried again."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from stepwell import Context, InvalidOption, Store, Worker, handler, step
from stepwell.records import RunStatus
from tests.ground.waiting import until
from tests.worker import pooled

pytestmark = pytest.mark.backends("sqlite", reason="the database has no part in it")


@pytest.mark.proves("W-21")
async def test_arguments_results_errors_and_lines_pass(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    async with Worker(store, [pooled.spelling, pooled.refusing, pooled.sync_spelling, pooled.square]):
        first, second = [await pooled.spelling.trigger(3).wait("30s").execute(store) for _ in range(2)]
        assert first[:3] == ["w", "w", "w"]
        assert first[3] == second[3] != str(os.getpid())  # an idle process is used again
        assert await pooled.refusing.trigger().wait("30s").execute(store) == "7 are too many"
        assert await pooled.sync_spelling.trigger(4).wait("30s").execute(store) == 4
        await store.enqueue(pooled.square, [2, 3, 0])
        await until(lambda: "squares [4, 9]" in caplog.text)
    assert "spelling 3" in caplog.text
    assert {one.levelno for one in caplog.records if one.name == "pooled"} == {logging.WARNING}


@pytest.mark.proves("W-21")
async def test_a_process_is_killed_when_its_body_takes_too_long_or_is_cancelled(
    live_store: Store, tmp_path: Path
) -> None:
    store = live_store
    late, cancelled = tmp_path / "late", tmp_path / "cancelled"
    async with Worker(store, [pooled.spinning, pooled.square, pooled.spelling]):
        run = await pooled.spinning.trigger(str(late)).execute(store)
        fast = await pooled.spelling.trigger(1).wait("30s").execute(store)  # beside it
        assert fast[0] == "w"
        await until(lambda: _ended(store, run), timeout=30)
        assert (await store.get_run(run)).status is RunStatus.ERROR
        assert late.read_text().split()
        await until(lambda: not any(map(_lives, late.read_text().split())))
        message = await store.enqueue(pooled.square, [1, 1])
        await until(lambda: _failed(store, message), timeout=30)
        run = await pooled.spinning.trigger(str(cancelled)).execute(store)
        await until(cancelled.exists, timeout=30)
        await store.cancel(run)
        await until(lambda: _ended(store, run))
        assert (await store.get_run(run)).status is RunStatus.CANCELLED
        await until(lambda: not any(map(_lives, cancelled.read_text().split())))


@pytest.mark.proves("W-22")
async def test_a_body_whose_process_dies_is_tried_again(live_store: Store, tmp_path: Path) -> None:
    store = live_store
    async with Worker(store, [pooled.dying]):
        assert await pooled.dying.trigger(str(tmp_path / "mark")).wait("30s").execute(store) == "lived"


@pytest.mark.proves("W-22")
def test_what_no_other_process_could_call_is_refused() -> None:
    def inner(number: int) -> None: ...

    async def waits(number: int) -> None: ...

    def asks(ctx: Context) -> None: ...

    for fn, why in ((inner, "move it to its module"), (waits, "async"), (lambda: None, "move it")):
        with pytest.raises(InvalidOption, match=why):
            step(executor="process", id="one")(fn)
    asks.__qualname__ = "asks"
    with pytest.raises(InvalidOption, match="ctx"):
        step(executor="process")(asks)
    with pytest.raises(InvalidOption, match="thread"):
        handler("q", executor="fiber")(inner)  # type: ignore[call-overload]


async def _ended(store: Store, run: int) -> bool:
    return (await store.get_run(run)).status.finished


async def _failed(store: Store, message: int) -> bool:
    found = await store.get(message)
    return found is not None and found.status is RunStatus.ERROR


def _lives(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True
