"""A saga: what was done is undone, last first, whatever stops its run and wherever."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from stepwell import (
    Context,
    NotInRun,
    PermanentError,
    Store,
    TransientError,
    current,
    saga,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.testing import world
from tests.workflows.kit import begun, die, drained, executed, statuses

SAGA = pytest.mark.proves("S-30")


class Outside:
    """What was done and undone outside, and where the run is to be stopped."""

    def __init__(self, store: Store | None = None, stop: str = "", *, dies: bool = False) -> None:
        self.done: list[str] = []
        self.undone: list[str] = []
        self.stop = stop
        self._store = store
        self._dies = dies

    async def at(self, point: str) -> None:
        """Cancel the run at this point; the worker may be lost at the same moment."""
        if point == self.stop and self._store is not None:
            self.stop = ""
            await self._store.cancel(current().run_id)
            if self._dies:
                await die(self._store.database)


outside = Outside()
POINTS = ["begin", "begin a", "end a", "after a", "begin b", "end b", "after b", "undo c", "undo b", "undo a"]


@step
async def book(what: str) -> str:
    await outside.at(f"begin {what}")
    if what == "c":
        raise PermanentError("no c is free")
    outside.done.append(what)
    await outside.at(f"end {what}")
    return f"booking of {what}"


@step
async def cancel(what: str) -> None:
    await outside.at(f"undo {what}")
    outside.undone.append(what)


@workflow(name="saga.trip", cleanup="60s")
async def trip() -> None:
    await outside.at("begin")
    async with saga() as s:
        for what in "abc":
            s.undo(cancel, what)
            await book(what)
            await outside.at(f"after {what}")


@SAGA
@pytest.mark.parametrize("dies", [False, True], ids=["worker lives", "worker is lost"])
async def test_a_cancel_at_any_point_leaves_nothing_half_done(store: Store, clock: TestClock, dies: bool) -> None:
    for point in POINTS:
        await cancelled_at(point, store, clock, dies=dies)


async def cancelled_at(point: str, store: Store, clock: TestClock, *, dies: bool) -> None:
    global outside  # noqa: PLW0603 - the steps are those of every test
    outside = Outside(store, point, dies=dies)
    run_id = await begun(store, trip)
    for _ in range(3):
        await drained(store, trip)
        clock.advance(1)
    run = await store.get_run(run_id)
    assert run.status in ("CANCELLED", "ERROR"), point
    assert outside.stop == "", "the point was not reached: void"
    assert set(outside.done) <= set(outside.undone), "half done"
    last = [*dict.fromkeys(reversed(outside.undone))]
    assert last == sorted(last), "not the last first"
    assert not outside.done or run.status == "CANCELLED" or point.startswith("undo")


@SAGA
async def test_a_crash_at_any_call_of_a_saga_that_fails_ends_the_same() -> None:
    global outside  # noqa: PLW0603
    outside = Outside()
    async with world(trip, retry=5) as w:
        report = await w.crash_everywhere(trip.trigger())
    assert report.life.error == ("StepFailed", "step book#3 gave up with PermanentError: no c is free")
    assert [key.rpartition("/")[2] for key, _, _ in report.life.steps] == [
        "book#1", "book#2", "book#3", "cancel#1", "cancel#2", "cancel#3",
    ]  # fmt: skip
    assert [status for _, status, _ in report.life.steps] == ["SUCCESS", "SUCCESS", "ERROR", *["SUCCESS"] * 3]
    assert report.cases > 10
    assert set(Counter(outside.undone)) == set("abc")


@SAGA
async def test_an_undo_has_its_own_retry_and_one_that_gives_up_holds_up_no_other(
    store: Store, clock: TestClock
) -> None:
    undone: list[str] = []
    broken = True

    @step
    async def do(what: str) -> str:
        if what == "c":
            raise PermanentError("no")
        return what

    @step(retry=3)
    async def undo(what: str) -> None:
        if current().attempt < 2:
            raise TransientError("not yet", retry_after="10s")
        if what == "b" and broken:
            raise PermanentError("b cannot be undone")
        undone.append(what)

    @workflow(cleanup="60s", retry=1)
    async def flow() -> None:
        async with saga() as s:
            for what in "abc":
                s.undo(undo, await do(what))

    run_id = await begun(store, flow)
    for _ in range(4):
        await drained(store, flow)
        clock.advance(10)
    run = await store.get_run(run_id)
    assert (run.status, undone) == ("ERROR", ["a"])
    assert "1 of 2 undos gave up" in str(run.error)
    broken = False
    await store.retry(run_id)
    for _ in range(4):
        await drained(store, flow)
        clock.advance(10)
    run = await store.get_run(run_id)
    assert (run.status, undone) == ("ERROR", ["a", "b"]), "only what had given up is tried again"
    assert "undos gave up" not in str(run.error)


@SAGA
async def test_a_saga_that_ends_well_or_sleeps_undoes_nothing(store: Store, clock: TestClock) -> None:
    undone: list[int] = []

    @step
    async def undo(n: int) -> None:
        undone.append(n)

    @workflow(cleanup="60s")
    async def flow(ctx: Context) -> int:
        async with saga() as s:
            s.undo(undo, 1)
            await ctx.sleep(60)
        return 1

    run_id = await begun(store, flow)
    await drained(store, flow)
    assert (await store.get_run(run_id)).status == "PENDING"
    clock.advance(60)
    await drained(store, flow)
    assert ((await store.get_run(run_id)).output(), undone) == (1, [])


@SAGA
async def test_a_saga_is_refused_where_it_could_not_keep_its_promise(store: Store) -> None:
    async def plain() -> None: ...

    @step
    async def undo() -> None: ...

    @workflow(retry=1)
    async def without_cleanup() -> None:
        async with saga():
            await undo()

    @workflow(retry=1, cleanup="60s")
    async def other_branch(first: bool) -> None:
        async def branch() -> None:
            s.undo(undo)

        async with saga() as s:
            if first:
                s.undo(plain)  # type: ignore[arg-type]
            await asyncio.gather(branch())

    run = await executed(store, without_cleanup)
    assert "say how long its runs may clean up" in str(run.error)
    assert await statuses(store, run.id) == {}
    assert "it is a step, so that each undo is recorded" in str((await executed(store, other_branch, True)).error)
    assert "is called where its saga was begun" in str((await executed(store, other_branch, False)).error)
    with pytest.raises(NotInRun, match="outside of a workflow"):
        async with saga():
            pass


@SAGA
def test_a_sync_workflow_has_sagas_too(store_url: str) -> None:
    undone: list[Any] = []

    @step
    def do(what: str) -> str:
        if what == "c":
            raise PermanentError("no c is free")
        return f"booking of {what}"

    @step
    def undo(what: str) -> None:
        undone.append(what)

    @workflow(cleanup="60s", retry=1)
    def flow() -> None:
        with saga() as s:
            for what in "abc":
                s.undo(undo, do(what))

    with sync.connect(store_url) as store:
        run_id = flow.trigger().options(require_worker="ignore").execute(store)
        sync.Worker(store, [flow]).drain()
        assert store.get_run(run_id).status == "ERROR"
    assert undone == ["booking of b", "booking of a"]
