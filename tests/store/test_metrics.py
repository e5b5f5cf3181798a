"""What is measured of workflows, on every backend: counts, rates, lengths, workers, dead letters, versions."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from stepwell import (
    Context,
    InvalidName,
    InvalidOption,
    PermanentError,
    RunStatus,
    Store,
    Worker,
    WorkflowNotFound,
    connect,
    current,
    sleep,
    step,
    sync,
    workflow,
    workflow_metrics,
)
from stepwell.base.clock import TestClock
from stepwell.store.metrics import end_of
from stepwell.store.rows import Settlement
from tests.queue.raw import ask, change
from tests.store.seam import AGAIN, DONE, FAILED, IDENTITY, LEASE, begin, claim
from tests.upkeep.rows import now_of, put
from tests.workflows.kit import begun, drained

SECOND = 1_000_000


@pytest.fixture(autouse=True)
def hands(clock: TestClock) -> Iterator[None]:
    """The steps below move the test's clock: that is how long they take."""
    _clocks.append(clock)
    yield
    _clocks.clear()


_clocks: list[TestClock] = []


def later(seconds: float) -> None:
    _clocks[-1].advance(seconds)


@step
def fetch(seconds: float) -> float:
    later(seconds)
    return seconds


@step
def publish(what: str) -> str:
    later(1)
    if what == "nothing":
        raise PermanentError("there is nothing")
    return what


@workflow(name="report.v1")
def report(what: str) -> str:
    fetch(2)
    fetch(4)
    return publish(what)


@workflow(name="report_v2")
async def report_again(ctx: Context, what: str) -> str:
    await sleep("10s")
    return what


@workflow
async def asks(ctx: Context) -> str:
    return await ctx.wait("word", str)


async def served_by(store: Store, *handlers: str) -> int:
    """A session that says it serves these, and beats no more."""
    return await store.database.sessions.begin(replace(IDENTITY, handlers=handlers), LEASE)


async def runs_of(store: Store, name: str | None = None, **options: Any) -> dict[str, int]:
    """How many runs have each status, those that none has left out."""
    counts = (await store.metrics(name, **options)).runs
    return {str(status): count for status, count in counts.items() if count}


@pytest.mark.proves("MM-01", "MM-04")
async def test_runs_are_counted_by_status_and_those_that_ended_in_a_window(store: Store, clock: TestClock) -> None:
    for what in ("a", "b", "nothing"):
        await begun(store, report, what)
    waits = await begun(store, asks)
    await drained(store, report, asks)
    stopped = await begun(store, report, "c")
    await store.cancel(stopped)
    await begun(store, report, "d")
    assert await runs_of(store, "report.v1") == {"PENDING": 1, "SUCCESS": 2, "ERROR": 1, "CANCELLED": 1}
    assert await runs_of(store, "asks") == {"PAUSED": 1}
    measured = await store.metrics("report.v1")
    assert measured.success_rate == pytest.approx(2 / 3), "what was cancelled neither succeeded nor failed"
    assert (measured.workflows, measured.dead_letters) == (("report.v1",), 1)
    assert measured.until - measured.since == timedelta(hours=1)
    assert measured.until.timestamp() * SECOND == pytest.approx(now_of(store))
    clock.advance("30m")
    await drained(store, report)
    assert await runs_of(store, "report.v1", window="20m") == {"SUCCESS": 1}
    assert (await store.metrics("report.v1", window="20m")).success_rate == 1.0
    assert await runs_of(store, window="2h") == {"PAUSED": 1, "SUCCESS": 3, "ERROR": 1, "CANCELLED": 1}
    await store.delete(waits)
    assert await runs_of(store, "asks") == {}, "what is deleted is not counted"


@pytest.mark.proves("MM-01", "MM-05")
async def test_runs_and_steps_are_timed_from_their_start_to_their_end(store: Store) -> None:
    for what in ("a", "b", "nothing"):
        await begun(store, report, what)
        later(60)  # waiting for a worker is no part of a run's time
        await drained(store, report)
    for key, seconds in (("fetch#1", 2), ("fetch#2", 4)):  # a body is timed by a clock that no test moves
        took = seconds * SECOND
        await change(store, f"update {{step}} set started_at = finished_at - {took} where key like '%{key}'")
    measured = await store.metrics("report.v1")
    assert measured.avg_duration == timedelta(seconds=7)
    assert measured.durations is not None
    assert (measured.durations.count, measured.durations.longest) == (2, timedelta(seconds=7)), (
        "of those that succeeded"
    )
    assert list(measured.steps) == ["fetch", "publish"]
    fetched, published = measured.steps.values()
    assert (fetched.succeeded, fetched.failed, published.succeeded, published.failed) == (6, 0, 2, 1)
    assert fetched.durations is not None
    assert (fetched.durations.average, fetched.durations.longest) == (timedelta(seconds=3), timedelta(seconds=4))
    assert fetched.durations.p50 / timedelta(seconds=1) == pytest.approx(2, rel=0.05)
    assert fetched.durations.p95 / timedelta(seconds=1) == pytest.approx(4, rel=0.05)
    assert published.durations is not None
    assert timedelta(0) < published.durations.average < timedelta(seconds=60), "as long as its body really took"


async def test_a_sleep_counts_in_its_run_and_is_itself_recorded_in_a_moment(store: Store) -> None:
    await begun(store, report_again, "a")
    await drained(store, report_again)
    later(10)
    await drained(store, report_again)
    measured = await store.metrics("report_v2")
    assert measured.avg_duration == timedelta(seconds=10)
    assert (measured.steps["sleep"].succeeded, measured.steps["sleep"].durations) == (1, None)


@step
async def one2(number: int) -> int:
    return current().attempt


@workflow
async def branches() -> None:
    async def inner(number: int) -> None:
        await one2(number)
        await asyncio.gather(*(one2(each) for each in range(11)))

    await asyncio.gather(inner(1), inner(2))


@pytest.mark.proves("MM-05")
async def test_a_step_is_told_by_its_name_wherever_its_run_calls_it(store: Store) -> None:
    run_id = await begun(store, branches)
    await drained(store, branches)
    assert len({one.key for one in await store.steps(run_id)}) == 24
    assert {name: one.succeeded for name, one in (await store.metrics("branches")).steps.items()} == {"one2": 24}


@pytest.mark.proves("MM-05")
async def test_percentiles_are_within_five_percent(store: Store) -> None:
    await store.create_workflow("many")
    now = now_of(store)
    lengths = [number * number * 1_234 for number in range(1, 201)]
    for number, length in enumerate(lengths):
        columns = {"kind": "RUN", "status": "SUCCESS", "started_at": now - length, "finished_at": now}
        await put(store, [1_000 + number], queue="many", **columns)
    took = (await store.metrics("many")).durations
    assert took is not None
    assert took.count == 200
    assert took.average == timedelta(microseconds=round(sum(lengths) / 200))
    assert took.longest == timedelta(microseconds=lengths[-1])
    for told, exact in ((took.p50, lengths[99]), (took.p95, lengths[189])):
        assert told / timedelta(microseconds=1) == pytest.approx(exact, rel=0.05)


@pytest.mark.proves("MM-04")
async def test_the_window_begins_at_its_moment(store: Store) -> None:
    await store.create_workflow("old")
    now = now_of(store)
    for number, ended in enumerate((now - 60 * SECOND, now - 60 * SECOND - 1)):
        for status, first in (("SUCCESS", 10), ("ERROR", 20), ("CANCELLED", 30)):
            columns = {"kind": "RUN", "status": status, "started_at": 1, "finished_at": ended}
            await put(store, [first + number], queue="old", **columns)
    once = {"SUCCESS": 1, "ERROR": 1, "CANCELLED": 1}
    assert await runs_of(store, "old", window=60) == once
    assert await runs_of(store, "old", window=61) == dict.fromkeys(once, 2)
    measured = await store.metrics("old", window=60)
    assert measured.dead_letters == 2, "a dead letter stays one"
    assert measured.durations is not None
    assert measured.durations.count == 1, "how long it took is told of what succeeded"
    await put(store, [40], queue="old", status="SUCCESS", finished_at=now)
    assert await runs_of(store, "old", window=60) == once, "a message in the same queue is no run"


@pytest.mark.proves("MM-03")
async def test_workers_of_a_workflow_are_live_or_stale_and_last_seen(store: Store, clock: TestClock) -> None:
    await store.create_workflow("asks")
    await store.create_workflow("report.v1")
    assert (await store.metrics("asks")).workers.last_seen is None
    begun_at = now_of(store)
    stale = await served_by(store, "asks", "emails")
    clock.advance(60, leases=True)
    live = await served_by(store, "as*")
    workers = (await store.metrics("asks")).workers
    assert (workers.live, workers.stale) == (1, 1)
    assert workers.last_seen is not None
    assert workers.last_seen.timestamp() * SECOND == pytest.approx(begun_at + 60 * SECOND)
    other = (await store.metrics("report.v1")).workers
    assert (other.live, other.stale, other.last_seen) == (0, 0, None)
    clock.advance(5)
    for session in (stale, live):
        await store.database.sessions.end(session, "stopped")
    clock.advance(60)
    workers = (await store.metrics("asks")).workers
    assert (workers.live, workers.stale) == (0, 0)
    assert workers.last_seen is not None
    assert workers.last_seen.timestamp() * SECOND == pytest.approx(begun_at + 65 * SECOND)


@pytest.mark.proves("MM-06")
async def test_dead_letters_are_counted_by_queue_and_kind(store: Store) -> None:
    assert await store.dead_letter_counts() == []
    now = now_of(store)
    kinds = ("MESSAGE", "RUN", "EFFECT", "TIMER", "INPUT", "OUTBOX")
    for number, kind in enumerate(kinds):
        for queue in ("a", "b")[: 1 + number % 2]:
            ids = [1_000 * number + each + (100 if queue == "b" else 0) for each in range(number + 1)]
            await put(store, ids, queue=queue, kind=kind, status="ERROR", finished_at=now)
    await put(store, [9_000], queue="a", kind="RUN", status="ERROR", finished_at=now, deleted_at=now)
    await put(store, [9_001], queue="a", kind="RUN", status="SUCCESS", finished_at=now)
    counted = {(one.queue, str(one.kind)): one.count for one in await store.dead_letter_counts()}
    assert {kind: counted["a", kind] for kind in kinds} == dict(zip(kinds, range(1, 7), strict=True))
    assert {kind for queue, kind in counted if queue == "b"} == {"RUN", "TIMER", "OUTBOX"}


@pytest.mark.proves("MM-09")
async def test_versions_of_a_workflow_are_added_up(store: Store) -> None:
    for what in ("a", "nothing"):
        await begun(store, report, what)
    await drained(store, report, concurrency=1)
    await begun(store, report_again, "a")
    await begun(store, asks)
    await drained(store, report_again, asks)
    later(10)
    await drained(store, report_again)
    together = await store.metrics("report*")
    assert together.workflows == ("report.v1", "report_v2")
    assert (together.runs[RunStatus.SUCCESS], together.runs[RunStatus.ERROR], together.dead_letters) == (2, 1, 1)
    assert together.avg_duration == timedelta(seconds=(7 + 10) / 2)
    assert set(together.steps) == {"fetch", "publish", "sleep"}
    each = await store.metrics_by_workflow()
    assert list(each) == ["asks", "report.v1", "report_v2"]
    assert all(not one.steps for one in each.values()), "steps are told if asked for"
    joined = await store.metrics_by_workflow("report*", join_versions=True, steps=True)
    assert {name: one.workflows for name, one in joined.items()} == {"report": ("report.v1", "report_v2")}
    assert joined["report"] == together
    with pytest.raises(WorkflowNotFound, match=r"begins with 'reports'"):
        await store.metrics("reports*")


@pytest.mark.proves("MM-01")
async def test_the_function_and_the_verb_say_the_same_and_refuse_the_same(store: Store) -> None:
    assert (await store.metrics()).workflows == ()
    assert (await store.metrics()).success_rate is None
    await begun(store, report, "a")
    await drained(store, report)
    assert await workflow_metrics("report.v1", store) == await store.metrics("report.v1")
    with pytest.raises(WorkflowNotFound, match="report"):
        await store.metrics("report")
    with pytest.raises(InvalidName):
        await store.metrics("*")
    with pytest.raises(InvalidName):
        await store.metrics(report)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="window"):
        await store.metrics(window="soon")


def test_another_tenants_work_is_not_measured(store_url: str) -> None:
    with sync.connect(store_url, tenant="a") as store:
        report.trigger("nothing").options(require_worker="ignore").execute(store)
        sync.Worker(store, [report]).drain()
        assert store.metrics("report.v1").runs[RunStatus.ERROR] == 1
        assert [one.count for one in store.dead_letter_counts()] == [1]
        assert "report" in store.prometheus()
    with sync.connect(store_url, tenant="b") as store:
        assert store.metrics().workflows == ()
        assert store.dead_letter_counts() == []
        assert "report" not in store.prometheus()


@pytest.mark.proves("MM-11")
async def test_everything_is_told_for_prometheus(store: Store, store_url: str) -> None:
    await store.create_queue("emails")
    await store.enqueue("emails", "ada")
    for what in ("a", "nothing"):
        await begun(store, report, what)
    await begun(store, asks)
    async with Worker(store, [report, asks], concurrency=1) as worker:
        await worker.drain()
        told = (await store.prometheus()).splitlines()
    labels = 'workflow="report.v1",base="report"'
    for line in (
        'stepwell_queue_tasks{queue="emails",state="ready"} 1',
        'stepwell_queue_tasks{queue="report.v1",state="dead"} 1',
        'stepwell_dead_letters{queue="report.v1",kind="RUN"} 1',
        'stepwell_workers{state="live"} 1',
        f'stepwell_workflow_workers{{{labels},state="live"}} 1',
        f'stepwell_workflow_runs_ended{{{labels},status="SUCCESS"}} 1',
        f'stepwell_workflow_runs_ended{{{labels},status="ERROR"}} 1',
        f"stepwell_workflow_success_ratio{{{labels}}} 0.5",
        f'stepwell_workflow_duration_seconds{{{labels},stat="avg"}} 7',
        'stepwell_workflow_runs{workflow="asks",base="asks",status="PAUSED"} 1',
        'stepwell_runs_set_aside{needs="signal"} 1',
        "stepwell_window_seconds 300",
        'stepwell_events_total{event="task_died"} 1',
        'stepwell_events_total{event="store_lost"} 0',
    ):
        assert line in told, line
    async with connect(store_url) as other:
        assert "stepwell_events_total" not in await other.prometheus(events=False)


async def settled_after(store: Store, clock: TestClock, wait: float, took: float, end: Settlement) -> None:
    """A message that waited so many seconds for a worker, which took so many."""
    await store.enqueue("emails", "ada")
    clock.advance(wait)
    worker = await begin(store)
    [task] = await claim(store, worker, "emails")
    clock.advance(took)
    await store.database.tasks.settle(task.id, worker, task.turn, end)


@pytest.mark.proves("MM-04", "MM-05")
async def test_what_a_queue_waited_and_took_is_told_by_buckets(store: Store, clock: TestClock) -> None:
    assert await store.queue_metrics() == {}
    await store.create_queue("emails")
    for _ in range(9):
        await settled_after(store, clock, 0.003, 0.25, DONE)
    await settled_after(store, clock, 30, 4, FAILED)
    await settled_after(store, clock, 7, 0.25, AGAIN)
    emails = (await store.queue_metrics())["emails"]
    assert (emails.succeeded, emails.failed, emails.retried) == (9, 1, 1)
    assert emails.waits is not None
    assert emails.turns is not None
    assert emails.waits.count == 10, "what is tried again has no wait yet"
    assert emails.waits.average == timedelta(seconds=(9 * 0.003 + 30) / 10)
    assert (emails.waits.p50, emails.waits.p95) == (timedelta(seconds=0.003), timedelta(seconds=30))
    assert emails.waits.longest == timedelta(seconds=50), "the end of its bucket"
    assert (emails.turns.count, emails.turns.longest) == (11, timedelta(seconds=5))
    assert (emails.turns.p50, emails.turns.p95) == (timedelta(seconds=0.25), timedelta(seconds=4))
    rows = await ask(store, "select wait_bucket, run_bucket, sum(turns) from {rollup} group by 1, 2 order by 1, 2")
    assert [tuple(row) for row in rows] == [(0, 19, 1), (13, 19, 9), (25, 22, 1)]
    told = (await store.prometheus(window="1h")).splitlines()
    assert 'stepwell_queue_settled{queue="emails",outcome="succeeded"} 9' in told
    assert 'stepwell_queue_wait_seconds{queue="emails",stat="p95"} 30' in told
    clock.advance("2h")
    assert await store.queue_metrics(window="1h") == {}
    assert (await store.queue_metrics(window="3h")).keys() == {"emails"}


@pytest.mark.proves("MM-05")
async def test_every_length_lies_in_its_bucket(store: Store) -> None:
    lengths = [0, *(digit * 10**places + more for places in range(13) for digit in (1, 2, 5, 9) for more in (-1, 0, 1))]
    bucket = store.database.statements._macros.fill("{bucket one.number}")
    values = " union all ".join(f"select {number} as number" for number in lengths)
    found = await ask(store, f"select one.number, {bucket} from ({values}) as one")
    assert len(found) == len(lengths)
    for number, place in found:
        assert end_of(place - 1) <= number < end_of(place) or (number == 0 and place == 3)
    odd = "(select -5 as number union all select null) as one"
    assert sorted(place for (place,) in await ask(store, f"select {bucket} from {odd}")) == [0, 3]


async def test_a_session_whose_beat_lies_in_the_future_is_stale(store: Store) -> None:
    await store.create_workflow("asks")
    await served_by(store, "asks")
    await change(store, "update {beat} set beat_at = beat_at + 100000000000")
    assert (await store.metrics("asks")).workers.stale == 1
