"""An event triggers one run of each workflow that stands under `@on_event`, whoever tells it and however often."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import pytest

from stepwell import Context, InvalidOption, RunStatus, Store, Worker, handler, on_event, sync, workflow
from stepwell.store import broadcasts
from stepwell.store.broadcasts import QUEUE
from tests.broadcasts.test_waits import Paid, one, output
from tests.ground.waiting import until
from tests.store.seam import do
from tests.workflows.kit import begun, drained


@on_event("paid")
@workflow(retry=5)
async def record(ctx: Context, paid: Paid) -> int:
    return paid.amount


@on_event("paid", where={"order": 2}, priority=7)
@on_event("refunded")
@workflow
async def chosen(event: dict[str, int]) -> int:
    return event["order"]


@workflow(name="chosen")
async def chosen_no_more(event: dict[str, int]) -> int:
    return event["order"]


async def outputs(store: Store, name: str) -> list[Any]:
    return sorted([run.output(object) for run in await store.runs(name)])


@pytest.mark.proves("BC-11")
async def test_each_event_triggers_one_run_of_each_workflow(store: Store) -> None:
    await drained(store, record, chosen)  # from now on, also while no worker serves them
    for name, order in (("paid", 1), ("paid", 2), ("refunded", 2), ("refunded", 3), ("shipped", 2)):
        await store.broadcast(name, Paid(order, order * 10))
    await drained(store, record, chosen)
    assert await outputs(store, "record") == [10, 20]
    assert await outputs(store, "chosen") == [2, 2, 3]
    [first, *_] = await store.runs("record")
    assert (first.max_attempts, first.key and first.key.startswith("event:paid:")) == (5, True)
    assert sorted(run.priority for run in await store.runs("chosen")) == [0, 0, 7]


@pytest.mark.proves("BC-11")
async def test_an_event_that_is_told_again_triggers_nothing_and_wakes_no_run_again(store: Store) -> None:
    await drained(store, record)
    run_id = await begun(store, one, 1)
    await drained(store, one)
    task_id = await store.broadcast("paid", Paid(1, 4))
    await drained(store, record, one)
    for _ in range(2):  # as if its worker had been killed before it was settled
        await do(
            store,
            f"update {{task}} set status = 'PENDING', ready = {_true(store)}, finished_at = null where id = {task_id}",
        )
        assert await drained(store, record, one) == 1
    assert await outputs(store, "record") == [4]
    assert (await output(store, run_id), (await store.database.queues.task(run_id)).turn) == (4, 2)  # type: ignore[union-attr]


def _true(store: Store) -> str:
    return "true" if store.database.statements.dialect == "postgres" else "1"


@pytest.mark.proves("BC-11")
async def test_code_that_stands_under_no_event_any_more_withdraws_it(store: Store) -> None:
    await drained(store, chosen)
    await store.broadcast("paid", Paid(2))
    await drained(store, chosen)
    await drained(store, chosen_no_more)
    await store.broadcast("paid", Paid(2))
    await drained(store, chosen_no_more)
    assert await outputs(store, "chosen") == [2]


@pytest.mark.proves("BC-11")
async def test_a_paused_and_a_draining_queue_lose_no_event(store: Store) -> None:
    await drained(store, record)
    await store.pause_queue("record")
    await store.broadcast("paid", Paid(1, 1))
    await drained(store, record)
    await store.drain_queue("record")
    await store.broadcast("paid", Paid(1, 2))
    await drained(store, record)
    assert [run.status for run in await store.runs("record")] == [RunStatus.PENDING] * 2
    await store.resume_queue("record")
    await drained(store, record)
    assert await outputs(store, "record") == [1, 2]


@pytest.mark.proves("BC-12")
async def test_many_are_told_so_many_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcasts, "CHUNK", 20)
    count = 45
    waiting = await store.trigger_many(
        [one.trigger(1).options(require_worker="ignore") for _ in range(count)]
        + [one.trigger(2).options(require_worker="ignore")]
    )
    await asyncio.wait_for(Worker(store, [one], concurrency=50).drain(), 60)
    await store.broadcast("paid", Paid(1, 3))
    said: list[int] = []
    telling = store.database.broadcasts._telling

    def counted(task: Any, name: str, place: int, page: Any) -> Any:
        said.append(len(page))
        return telling(task, name, place, page)

    store.database.broadcasts._telling = counted  # type: ignore[method-assign]
    await asyncio.wait_for(Worker(store, [one], concurrency=50).drain(), 60)
    assert said == [20, 20, 5]
    runs = [await store.get_run(run_id) for run_id in waiting]
    assert {run.output(int) for run in runs[:-1]} == {3}
    assert runs[-1].status is RunStatus.PAUSED


@pytest.mark.backends("postgres", reason="elsewhere there is one writer")
@pytest.mark.proves("BC-12")
async def test_a_run_that_another_transaction_has_locked_holds_up_no_other(live_store: Store, store_url: str) -> None:
    runs = [await begun(live_store, one, 1) for _ in range(2)]
    await drained(live_store, one)
    await live_store.broadcast("paid", Paid(1, 3))
    async with live_store.transaction() as tx:
        await live_store.signal(runs[0], "other", tx=tx)
        async with Worker(live_store, [one]):
            assert await live_store.result(runs[1], timeout=10) == 3
    async with Worker(live_store, [one]):
        assert await live_store.result(runs[0], timeout=10) == 3


@pytest.mark.proves("BC-13")
async def test_a_worker_that_has_begun_before_there_were_events_fans_them_out(
    live_store: Store, store_url: str
) -> None:
    async with Worker(live_store, [record]):
        for amount in (1, 2):
            await live_store.broadcast("paid", Paid(1, amount))

        async def recorded() -> bool:
            return len(await live_store.runs("record", status="SUCCESS")) == 2

        await until(recorded)
    assert await outputs(live_store, "record") == [1, 2]


@pytest.mark.proves("BC-13")
async def test_only_workers_of_workflows_serve_events_and_say_so(store: Store) -> None:
    @handler("mail")
    async def mail(text: str) -> None: ...

    async with Worker(store, [mail]) as mailer:
        await store.broadcast("paid", Paid(1))
        await mailer.drain()
        assert [one.handlers for one in await store.workers() if one.alive] == [("mail",)]
        assert [(one.queue, one.waiting) for one in await store.unserved()] == [(QUEUE, 1)]
    async with Worker(store, [one]) as worker:
        await worker.drain()
        assert [row.handlers for row in await store.workers() if row.alive] == [("one", QUEUE)]
    assert await store.unserved() == []


@pytest.mark.backends("sqlite", reason="a connection of the user's own, in the user's thread")
@pytest.mark.proves("BC-01", "BC-09")
def test_the_sync_face_broadcasts_in_a_transaction_of_the_users_own(store_url: str) -> None:
    with sync.connect(store_url) as store:
        run_id = one.trigger(1).options(require_worker="ignore").execute(store)
        sync.Worker(store, [one]).drain()
        path = store_url.removeprefix("sqlite://").partition("?")[0]
        connection = sqlite3.connect(path, isolation_level=None)
        for ending in ("rollback", "commit"):
            connection.execute("begin immediate")
            store.broadcast("paid", Paid(1, 6), tx=connection)
            connection.execute(ending)
        connection.close()
        sync.Worker(store, [one]).drain()
        assert store.get_run(run_id).output(int) == 6
        with store.transaction() as tx:
            store.broadcast("paid", Paid(1, 7), tx=tx)


@pytest.mark.proves("BC-06")
def test_what_may_not_stand_under_an_event() -> None:
    with pytest.raises(InvalidOption, match="above"):
        on_event("paid")(len)  # type: ignore[type-var]

    async def nothing() -> None: ...

    async def two(a: int, b: int) -> None: ...

    for fn in (nothing, two):
        with pytest.raises(InvalidOption, match="one parameter"):
            on_event("paid")(workflow(fn))
    with pytest.raises(InvalidOption, match="where"):
        on_event("paid", where={"a": 1, "b": 2})
