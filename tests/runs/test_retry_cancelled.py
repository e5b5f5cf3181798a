"""A cancelled run goes on where it was when somebody asks, with the children that were cancelled with it."""

from __future__ import annotations

import asyncio

import pytest

from stepwell import (
    CancelAnswer,
    Cancelled,
    ExecutionFailed,
    RunCancelled,
    RunStatus,
    StillStopping,
    Store,
    current,
    shield,
    sleep,
    step,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from tests.store.seam import begin, claim
from tests.workflows.kit import drained

ran: list[str] = []


@pytest.fixture(autouse=True)
def anew() -> None:
    ran.clear()


@step
async def note(what: str) -> str:
    ran.append(what)
    return f"{what} in {current().key.partition('-')[2].partition('.')[2] or 'the first generation'}"


@step
async def undo(what: str) -> None:
    ran.append(f"undo {what}")


@workflow
async def nap(what: str) -> str:
    await note(f"{what} begins")
    await sleep("1h")
    return await note(what)


@workflow
async def family(names: str) -> list[str]:
    await note("family begins")
    children = [await nap.trigger(name).options(key=f"nap-{name}").execute(current()) for name in names]
    return await current().results(children)


@workflow(cleanup="60s")
async def careful(what: str) -> str:
    first = await note(what)
    try:
        await sleep("1h")
    except Cancelled:
        async with shield():
            await undo(what)
        raise
    return first


@pytest.mark.proves("ST-01")
async def test_a_cancelled_run_goes_on_where_it_was(store: Store, clock: TestClock) -> None:
    run = await nap.trigger("a").execute(store)
    await drained(store, nap)
    assert await store.cancel(run, reason="not now") is CancelAnswer.CANCELLED
    clock.advance("2h")
    assert await store.retry(run, reason="now", actor="ann") is True
    stands = await store.get_run(run)
    assert (stands.status, stands.attempt, stands.generation, stands.error) == (RunStatus.PENDING, 0, 0, None)
    assert (stands.cancel_requested_at, stands.finished_at, stands.last_error) == (None, None, None)
    await drained(store, nap)
    assert ran == ["a begins", "a"]
    assert await store.result(run, timeout=0) == "a in the first generation"
    assert [entry.what for entry in await store.history(run)] == ["cancelled", "retried"]
    assert await store.retry(run) is False


@pytest.mark.proves("ST-01")
async def test_a_run_that_has_not_begun_is_due_at_once(store: Store) -> None:
    run = await nap.trigger("a").options(delay="1h").execute(store)
    await store.cancel(run)
    assert await store.retry(run)
    await drained(store, nap)
    assert ran == ["a begins"]


@pytest.mark.proves("ST-01")
async def test_children_that_were_cancelled_with_it_go_on_with_it(store: Store, clock: TestClock) -> None:
    run = await family.trigger("ab").execute(store)
    await drained(store, family, nap)
    assert await store.cancel(run) is CancelAnswer.CANCELLED
    children = [child.id for child in await store.runs(parent=run)]
    assert [(await store.get_run(child)).status for child in children] == [RunStatus.CANCELLED] * 2
    assert await store.retry(run)
    clock.advance("2h")
    await drained(store, family, nap)
    assert sorted(ran) == ["a", "a begins", "b", "b begins", "family begins"]
    assert (await store.get_run(run)).status is RunStatus.SUCCESS
    for child in children:
        assert [entry.what for entry in await store.history(child)] == ["cancelled", "retried"]


@pytest.mark.proves("ST-01")
async def test_a_child_that_was_cancelled_before_by_itself_stays_cancelled(store: Store, clock: TestClock) -> None:
    run = await family.trigger("ab").execute(store)
    await drained(store, family, nap)
    await store.cancel(nap.with_key("nap-a"))
    clock.advance("1s")
    await store.cancel(run)
    assert await store.retry(run)
    assert (await store.get_run(nap.with_key("nap-a"))).status is RunStatus.CANCELLED
    assert (await store.get_run(nap.with_key("nap-b"))).status is RunStatus.PENDING
    clock.advance("2h")
    await drained(store, family, nap)
    with pytest.raises(ExecutionFailed, match="was cancelled"):
        await store.result(run, timeout=0)


@pytest.mark.proves("ST-01")
async def test_nothing_goes_on_while_a_worker_still_stops_a_child(store: Store, clock: TestClock) -> None:
    run = await family.trigger("a").execute(store)
    await drained(store, family, nap)
    clock.advance("2h")
    await store.database.tasks.wake()
    worker = await begin(store)
    [child] = await claim(store, worker, "nap")
    assert await store.cancel(run) is CancelAnswer.CANCELLED
    with pytest.raises(StillStopping, match=f"being stopped \\({child.id}\\)") as raised:
        await store.retry(run)
    assert raised.value.children == (child.id,)
    assert (await store.get_run(run)).status is RunStatus.CANCELLED


@pytest.mark.proves("ST-01")
async def test_a_key_that_a_child_has_lost_keeps_all_cancelled(store: Store) -> None:
    @workflow(name="parent")
    async def parent() -> None:
        await nap.trigger("a").options(key="k", unique="unfinished").execute(current())
        await sleep("1h")

    run = await parent.trigger().execute(store)
    await drained(store, parent, nap)
    await store.cancel(run)
    await nap.trigger("a").options(key="k", unique="unfinished").execute(store)
    assert await store.retry(run) is False
    assert (await store.get_run(run)).status is RunStatus.CANCELLED


@pytest.mark.proves("ST-01")
async def test_a_run_that_was_to_clean_up_begins_anew(store: Store, clock: TestClock) -> None:
    run = await careful.trigger("hotel").execute(store)
    await drained(store, careful)
    assert await store.cancel(run) is CancelAnswer.REQUESTED
    assert await store.retry(run) is False  # its cleanup is not over
    await drained(store, careful)
    assert ran == ["hotel", "undo hotel"]
    assert await store.retry(run)
    assert (await store.get_run(run)).generation == 1
    await drained(store, careful)
    clock.advance("2h")
    await drained(store, careful)
    assert ran == ["hotel", "undo hotel", "hotel"]
    assert await store.result(run, timeout=0) == "hotel in 1/note#1"


@pytest.mark.proves("ST-01")
async def test_a_retried_run_is_cancelled_again_like_any_other(store: Store) -> None:
    run = await family.trigger("a").execute(store)
    await drained(store, family, nap)
    for _ in range(2):
        assert await store.cancel(run) is CancelAnswer.CANCELLED
        assert await store.retry(run)
        await drained(store, family, nap)
    assert [child.status for child in await store.runs(parent=run)] == [RunStatus.PENDING]
    assert await store.cancel(run)
    assert [child.status for child in await store.runs(parent=run)] == [RunStatus.CANCELLED]


async def test_who_waits_for_a_retried_run_gets_its_result(store: Store, clock: TestClock) -> None:
    run = await nap.trigger("a").execute(store)
    await drained(store, nap)
    await store.cancel(run)
    with pytest.raises(RunCancelled):
        await store.result(run, timeout=5)
    await store.retry(run)
    waiting = asyncio.ensure_future(store.result(run, timeout=30))
    await drained(store, nap)
    clock.advance("2h")
    await drained(store, nap)
    assert await waiting == "a in the first generation"


@pytest.mark.proves("ST-01")
def test_a_sync_store_retries_too(store_url: str) -> None:
    with sync.connect(store_url) as store:
        run = nap.trigger("a").options(delay="1h").execute(store)
        store.cancel(run)
        assert (store.retry(run), store.retry(run)) == (True, False)
