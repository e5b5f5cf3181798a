"""Reading runs: one by its number, many by filters and pages, without looking at what does not fit."""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from stepwell import (
    ExecutionFailed,
    InvalidOption,
    Run,
    RunCancelled,
    RunId,
    RunNotFound,
    RunStatus,
    RunUnfinished,
    SerializationError,
    Store,
    WorkflowNotFound,
    connect,
    sync,
    workflow,
)
from stepwell.base.clock import TestClock
from stepwell.store.driver import Call
from stepwell.store.rows import Settlement
from tests.queue.raw import change
from tests.runs.kit import CANCELLED, FAILED, Order, Receipt, fulfil, pack, record, settle, tick
from tests.store.plans import Prepared, buffers, drawn, nodes
from tests.store.seam import begin, claim
from tests.upkeep.rows import now_of

SUCCEEDED = Settlement(RunStatus.SUCCESS, output='{"order":"a"}')


@pytest.mark.proves("R-18")
async def test_a_run_is_found_through_its_own_workflow_only(store: Store, store_url: str) -> None:
    run_id = await fulfil.trigger(Order("a")).execute(store)
    message = await store.enqueue("fulfil", 1)
    assert (await fulfil.get_run(run_id, store)).id == run_id
    assert (await workflow("fulfil").get_run(int(run_id), store)).id == run_id
    with pytest.raises(RunNotFound, match=f"no run {run_id} of workflow 'zip.files'"):
        await pack.get_run(run_id, store)
    for unknown in (message, 10**12, -1):
        with pytest.raises(RunNotFound):
            await store.get_run(unknown)
    async with connect(store_url, tenant="other") as tenant:
        with pytest.raises(RunNotFound):
            await tenant.get_run(run_id)


@pytest.mark.proves("R-18")
def test_a_sync_store_finds_it_through_its_own_workflow_only_too(store_url: str) -> None:
    with sync.connect(store_url) as store:
        run_id = fulfil.trigger(Order("a")).execute(store)
        assert fulfil.get_run(run_id, store).id == run_id
        with pytest.raises(RunNotFound, match=r"of workflow 'tick'"):
            tick.get_run(run_id, store)


@pytest.mark.proves("RS-01", "RS-02")
async def test_output_is_typed_where_the_type_is_known_and_raises_unless_the_run_succeeded(store: Store) -> None:
    run_id = await fulfil.trigger(Order("a")).execute(store)
    with pytest.raises(RunUnfinished, match=rf"run {run_id} is PENDING .* `store\.result"):
        (await store.get_run(run_id)).output()
    await settle(store, "fulfil", SUCCEEDED)
    run: Run[Any] = await store.get_run(int(run_id))  # nobody says what it returns, but this process knows the workflow
    assert (run.output(), run.output(dict), run.error) == (Receipt("a"), {"order": "a"}, None)
    with pytest.raises(SerializationError, match=f"output of run {run_id}"):
        run.output(int)
    unknown = await store.trigger(workflow("fulfil").trigger({"id": "b"}))
    await settle(store, "fulfil", FAILED)
    with pytest.raises(ExecutionFailed, match="E: m"):
        (await store.get_run(unknown)).output()
    cancelled = await tick.trigger().execute(store)
    await settle(store, "tick", CANCELLED)
    with pytest.raises(RunCancelled):
        (await store.get_run(cancelled)).output()


@pytest.mark.proves("RS-02")
async def test_output_of_a_workflow_this_process_does_not_know_is_plain_json(store: Store) -> None:
    await store.create_workflow("elsewhere")
    run_id = await workflow("elsewhere").trigger().execute(store)
    await settle(store, "elsewhere", SUCCEEDED)
    run = await store.get_run(run_id)
    assert (run.output(), run.output(Receipt)) == ({"order": "a"}, Receipt("a"))
    typed: RunId[Receipt] = RunId(run_id)
    typed.returns = Receipt
    assert (await store.get_run(typed)).output() == Receipt("a")


@pytest.mark.proves("R-19")
async def test_runs_are_listed_newest_first_by_what_is_asked(store: Store, clock: TestClock, store_url: str) -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    made: list[RunId[Any]] = []
    for number in range(4):
        trigger = fulfil.trigger(Order(str(number))) if number % 2 else tick.trigger()
        made.append(await trigger.options(key=f"k{number}", tags=["all", f"t{number}"]).execute(store))
        clock.advance("1m")
    await settle(store, "tick", FAILED)  # the first
    await store.enqueue("tick", "no run", key="k9")
    first, second, third, fourth = made

    async def found(*args: Any, **options: Any) -> list[int]:
        return [run.id for run in await store.runs(*args, **options)]

    assert await found() == [fourth, third, second, first]
    assert await found("tick") == [third, first]
    assert await found(status=RunStatus.ERROR) == await found("tick", status="ERROR") == [first]
    assert await found("fulfil", status="ERROR") == []
    assert await found(status="PENDING") == [fourth, third, second]
    assert await found(key="k1") == await found(tag="t1") == [second]
    assert await found("tick", tag="all", key="k2") == [third]
    assert await found(since=began + timedelta(minutes=1), until=began + timedelta(minutes=3)) == [third, second]
    assert await found(limit=2) == [fourth, third]
    assert await store.delete(second)
    assert await found() == [fourth, third, first]
    assert await found(deleted=True) == [fourth, third, second, first]
    with pytest.raises(RunNotFound):
        await store.get_run(second)
    assert (await store.get_run(second, deleted=True)).deleted_at is not None
    async with connect(store_url, tenant="other") as tenant:
        assert await tenant.runs() == []


async def test_a_wrong_filter_is_refused(store: Store) -> None:
    with pytest.raises(WorkflowNotFound):
        await store.runs("nobody")
    naive: dict[str, Any] = {"since": datetime(2026, 1, 1)}  # noqa: DTZ001
    for wrong in ({"status": "DONE"}, {"limit": 0}, {"after": "x"}, naive):
        with pytest.raises(InvalidOption):
            await store.runs(**wrong)


@pytest.mark.proves("R-19")
async def test_pages_show_every_run_once_although_many_were_made_in_one_moment(store: Store, clock: TestClock) -> None:
    chance = random.Random(7)
    for _ in range(6):
        await store.trigger_many([tick.trigger() for _ in range(chance.randrange(9))])
        await store.trigger_many([fulfil.trigger(Order("x")) for _ in range(chance.randrange(1, 9))])
        clock.advance(chance.choice(["0s", "1s"]))
        for name, end in (("fulfil", SUCCEEDED), ("fulfil", FAILED)):
            await settle(store, name, end) if chance.random() < 0.7 else None
    everything = list(await store.runs(limit=1000))
    assert everything == sorted(everything, key=lambda run: (run.created_at, run.id), reverse=True)
    for limit in (4, 11, len(everything)):
        for filters in ({}, {"workflow": "fulfil"}, {"status": "PENDING"}, {"workflow": "fulfil", "status": "ERROR"}):
            wanted = [run.id for run in everything if fits(run, **filters)]
            assert await paged(store, limit, **filters) == wanted, (limit, filters)


def fits(run: Run[Any], workflow: str | None = None, status: str | None = None) -> bool:
    return (workflow is None or run.workflow == workflow) and (status is None or run.status == status)


async def paged(store: Store, limit: int, **filters: Any) -> list[int]:
    found: list[int] = []
    after = None
    while True:
        page = await store.runs(limit=limit, after=after, **filters)
        assert len(page) <= limit
        found += [run.id for run in page]
        if (after := page.next) is None:
            return found


@pytest.mark.proves("R-19")
async def test_a_page_goes_on_where_it_ended_whatever_is_triggered_meanwhile(store: Store, clock: TestClock) -> None:
    await some_of(store, 5, clock)
    page = await store.runs(limit=3)
    await some_of(store, 4, clock)
    rest = await store.runs(limit=3, after=page.next)
    assert len({run.id for run in [*page, *rest]}) == 5


async def some_of(store: Store, count: int, clock: TestClock) -> None:
    for _ in range(count):
        await tick.trigger().execute(store)
        clock.advance("1s")


@pytest.mark.proves("S-21")
async def test_steps_are_listed_in_the_order_in_which_they_were_asked_for(store: Store) -> None:
    run_id = await tick.trigger().execute(store)
    await record(store, run_id, ("fetch#1", "SUCCESS"), ("part:2/pay#1", "ERROR"), ("fetch#2", "RUNNING"))
    steps = await store.steps(run_id)
    assert [(step.key, step.name, step.status, step.attempt) for step in steps] == [
        ("fetch#1", "fetch", "SUCCESS", 3),
        ("part:2/pay#1", "pay", "ERROR", 3),
        ("fetch#2", "fetch", "RUNNING", 3),
    ]
    assert (steps[0].input, steps[0].output, steps[0].error, steps[1].error) == ([1], 2, None, {"type": "E"})
    assert steps[0].finished_at == datetime(1970, 1, 1, 0, 0, 0, 2, tzinfo=UTC)
    with pytest.raises(RunNotFound):
        await store.steps(10**9)


# What a list costs

FILL = """
insert into {task} (id, kind, queue_id, status, ready, run_at, max_attempts, created_at, updated_at, finished_at)
with recursive numbers (number) as (
    select cast(%d as bigint) union all select number + 1 from numbers where number < %d
)
select number, '%s', (select queue.id from {queue} as queue where queue.name = '%s'), '%s', false, 1, 3,
       %d + number, 1, %s from numbers
"""


async def filled(store: Store) -> dict[str, tuple[str | None, str | None]]:
    """Thousands of messages and runs around a few that are wanted; the filters that find those."""
    for name in ("fulfil", "tick", "other"):
        await store.create_workflow(name)
    now = now_of(store)
    await change(
        store,
        FILL % (10_000, 14_999, "MESSAGE", "fulfil", "SUCCESS", now, "1"),
        FILL % (20_000, 24_999, "RUN", "other", "SUCCESS", now, "1"),
        FILL % (30_000, 34_999, "RUN", "fulfil", "SUCCESS", now, "1"),
        FILL % (40_000, 44_999, "RUN", "tick", "PENDING", now, "null"),
        FILL % (50_000, 50_004, "RUN", "fulfil", "ERROR", now - 60_000, "1"),
        FILL % (60_000, 60_004, "RUN", "tick", "CANCELLED", now - 60_000, "1"),
    )
    return {
        "failed": ("fulfil", "ERROR"),
        "cancelled": (None, "CANCELLED"),
        "all": (None, None),
        "one": ("tick", None),
    }


async def asking(store: Store, name: str | None, status: str | None) -> Call:
    """The call that the store makes for a page of these."""
    lines = await store.database.runs.lines(name, list(RunStatus) if status is None else [RunStatus(status)])
    rest = {"since": 0, "until": 2**62, "after_time": 2**62, "after_id": 2**62, "deleted": False, "limit": 5}
    return Call("find_runs", {"key": None, "prefix": None, "tags": None, **rest}, lines)


@pytest.mark.proves("R-19")
@pytest.mark.backends("postgres", reason="plans made on an empty table and kept are Postgres's own")
async def test_what_does_not_fit_is_not_looked_at(
    store: Store, live_store: Store, prepared: Prepared, backend: str
) -> None:
    await store.create_workflow("tick")
    for status, text in (("ERROR", "one_line"), (None, "lines")):  # planned while there is nothing
        await prepared.prepare(text, [await asking(store, "tick", status)])
    filters = await filled(store)
    for name, given in filters.items():
        call = await asking(store, *given)
        plan = await prepared.explain("one_line" if len(call.rows or ()) == 1 else "lines", [call])
        reads = [node for node in nodes(plan) if node.get("Relation Name") == "task"]
        assert {node["Index Name"] for node in reads} == {"task_run"}, drawn(name, plan)
        assert all(node.get("Rows Removed by Filter", 0) == 0 for node in reads), drawn(name, plan)
        assert buffers(plan) < 150, drawn(name, plan)
        assert plan["Actual Rows"] == 5, drawn(name, plan)


@pytest.mark.proves("R-19")
@pytest.mark.backends("sqlite", "turso", reason="Postgres tells its plans in another way")
async def test_every_walk_is_along_the_index(store: Store, backend: str) -> None:
    filters = await filled(store)
    driver: Any = store.database.driver
    call = await asking(store, *filters["all"])
    text, values = next(iter(driver._statements.each(call, call.rows)))

    def plan() -> list[str]:
        work = driver._writer.submit(lambda c: c.execute(f"explain query plan {text}", values).fetchall())
        return [str(row[3]) for row in work.result(10)]

    lines = await asyncio.to_thread(plan)
    assert sum("INDEX stepwell_task_run (queue_id=? AND status=? AND created_at" in line for line in lines) == 2, lines
    assert not any("SCAN stepwell_task" in line or "SCAN task" in line or "SCAN last" in line for line in lines), lines
    for name, status in filters.values():
        assert len(await store.runs(name, status=status, limit=5)) == 5


async def test_the_place_of_a_run_in_lists_does_not_depend_on_its_worker(store: Store) -> None:
    [first, second] = await some_ticks(store)
    worker = await begin(store)
    [task] = await claim(store, worker, "tick")
    assert task.id == first
    assert [run.id for run in await store.runs("tick")] == [second, first]
    assert [run.id for run in await store.runs("tick", status="RUNNING")] == [first]


async def some_ticks(store: Store) -> list[RunId[None]]:
    return await store.trigger_many([tick.trigger(), tick.trigger()])


async def test_the_number_of_a_message_is_said_to_be_that_of_a_message(store: Store) -> None:
    await store.create_queue("mail")
    number = await store.enqueue("mail", 1)
    for ask in (store.get_run, store.result, store.pause, store.why):
        with pytest.raises(RunNotFound, match=rf"{number} is the message of that number in 'mail': `store.get"):
            await ask(number)
    for steer in (
        partial(store.signal, number, "approved"),
        partial(store.accept, number),
        partial(store.fork, number, at="charge"),
    ):
        with pytest.raises(RunNotFound, match="is the message of that number"):
            await steer()
    with pytest.raises(RunNotFound, match="finished ones are kept"):
        await store.result(123_456, timeout=5)
